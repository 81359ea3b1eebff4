"""Two of three peers do not reach each other, though the third reaches both. One round stalls; then both go on as
clients, which need no link with each other, and the run is about as fast as one without them (see closed_port)."""
import time

from lab import Failed, SLOWER_MAX, wait_until

SECONDS = 8


def rate(peers):
    """Epochs a second of the slowest."""
    before = [p.epoch() for p in peers]
    time.sleep(SECONDS)
    return min(p.epoch() - b for p, b in zip(peers, before)) / SECONDS


def three(lab):
    first = lab.train(lab.hosts[0])
    # Whoever began the run leads its group, and who does not reach the leader stays outside.
    wait_until("the first one has begun", lambda: first.epoch() > 0, 30)
    return [first] + [lab.train(host, "--initial-peers", f"{lab.hosts[0].address}:21000") for host in lab.hosts[1:]]


def run(new_lab):
    with new_lab(3) as lab:
        peers = three(lab)
        wait_until("all are in step", lambda: all(p.epoch() > 5 for p in peers), 30)
        reachable = rate(peers)
    with new_lab(3) as lab:
        for host, other in ((lab.hosts[1], lab.hosts[2]), (lab.hosts[2], lab.hosts[1])):
            host.ip("route", "add", "blackhole", f"{other.address}/32")
        peers = three(lab)
        sentence = "do not reach each other"
        wait_until("both say so", lambda: all(sentence in (p.status().get("notice") or "") for p in peers[1:]), 30)
        wait_until("all are in step", lambda: all(p.epoch() > 20 for p in peers), 30)
        apart = rate(peers)
        print(f"  {reachable:.2f} epochs/s if all are reachable, {apart:.2f} if two have no link", flush=True)
        if apart * SLOWER_MAX < reachable:
            raise Failed(f"{apart:.2f} epochs a second; {reachable:.2f} if all are reachable")
