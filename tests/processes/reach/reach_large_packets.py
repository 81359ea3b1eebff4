"""A path that drops large packets: its peer is found out, gets small ones, and slows nobody down."""
from lab import Failed, SLOWER_MAX, rate, wait_until


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
            # Each path is found by its second link that ends stuck, and who stalls is kept out for a while in between.
            wait_until("three average together, round after round", lambda: settled(first), 90)
            if narrow:
                # Whichever end of a path finds it uses small packets, and the other one may never notice. A peer looks
                # every ten seconds whether there is something to say.
                wait_until("a peer names the cause", lambda: any("path MTU" in p.text() for p in peers), 20)
                wait_until("its status does, too",
                           lambda: any("path MTU" in str(p.status().get("notice")) for p in peers), 5)
            speeds.append(rate([first]))
    print(f"  large_packets: {speeds[0]:.2f} epochs a second, {speeds[1]:.2f} with the narrow path", flush=True)
    if speeds[1] * SLOWER_MAX < speeds[0]:
        raise Failed("the narrow path slows all down")
