"""A path that drops large packets: its peer is found out, gets small ones, and slows nobody down."""
import time

from lab import Failed, SLOWER_MAX, wait_until


def speed(peer, seconds=8):
    begun, at = peer.epoch(), time.monotonic()
    time.sleep(seconds)
    return (peer.epoch() - begun) / (time.monotonic() - at)


def settled(peer):
    """Whether 15 rounds in a row lost nobody; call it again and again."""
    rounds, group = peer.status().get("rounds") or {}, peer.status().get("group_size")
    if group != 3 or rounds.get("shrunk") != getattr(peer, "shrunk", None):
        peer.shrunk, peer.complete = rounds.get("shrunk"), rounds.get("complete", 0)
    return group == 3 and rounds.get("complete", 0) >= peer.complete + 15


def run(new_lab):
    speeds = []
    for narrow in (False, True):
        with new_lab(3) as lab:
            for host in lab.hosts:
                host.cut_segments()
            if narrow:
                lab.hosts[2].set_port_mtu(1300)
            first = lab.train(lab.hosts[0])
            peers = [first] + [lab.train(host, "--initial-peers", f"{lab.hosts[0].address}:{lab.PORT}") for host in lab.hosts[1:]]
            if narrow:
                wait_until("both others name the cause", lambda: all("path MTU" in p.text() for p in peers[:2]), 40)
                if "path MTU" not in str(first.status().get("notice")):
                    raise Failed("the status does not name the cause")
            wait_until("three average together, round after round", lambda: settled(first), 60)
            speeds.append(speed(first))
    print(f"  large_packets: {speeds[0]:.2f} epochs a second, {speeds[1]:.2f} with the narrow path", flush=True)
    if speeds[1] * SLOWER_MAX < speeds[0]:
        raise Failed("the narrow path slows all down")
