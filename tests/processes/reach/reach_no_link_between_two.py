"""Two of three peers do not reach each other, though the third reaches both. One round stalls; then both go on as
clients, which need no link with each other, and the run is about as fast as one without them (see closed_port)."""
import time

from lab import Failed, SLOWER_MAX, rate, wait_until


def three(lab):
    first = lab.train(lab.hosts[0])
    # Whoever began the run leads its group.
    wait_until("the first one has begun", lambda: first.epoch() > 0, 30)
    return [first] + [lab.train(host, "--initial-peers", f"{lab.hosts[0].address}:21000") for host in lab.hosts[1:]]


def run(new_lab):
    with new_lab(3) as lab:
        peers = three(lab)
        wait_until("all are in step", lambda: all(p.epoch() > 5 for p in peers), 30)
        reachable = rate(peers)
    with new_lab(3) as lab:
        lab.cut([lab.hosts[1]], [lab.hosts[2]])
        peers = three(lab)
        sentence = "do not reach each other"
        wait_until("both say so", lambda: all(sentence in (p.status().get("notice") or "") for p in peers[1:]), 30)
        wait_until("all are in step", lambda: all(p.epoch() > 20 for p in peers), 30)
        apart = rate(peers)
        print(f"  {reachable:.2f} epochs/s if all are reachable, {apart:.2f} if two have no link", flush=True)
        if apart * SLOWER_MAX < reachable:
            raise Failed(f"{apart:.2f} epochs a second; {reachable:.2f} if all are reachable")
    with new_lab(3) as lab:  # the one that began the run is one of the two
        lab.cut([lab.hosts[0]], [lab.hosts[2]])
        first = lab.train(lab.hosts[0])
        wait_until("the first one has begun", lambda: first.epoch() > 0, 30)
        second = lab.train(lab.hosts[1], "--initial-peers", f"{lab.hosts[0].address}:21000")
        wait_until("the second one is in its group", lambda: second.status().get("group_size") == 2, 30)
        third = lab.train(lab.hosts[2], "--initial-peers", f"{lab.hosts[1].address}:21000")
        peers = [first, second, third]
        begin = time.monotonic()
        wait_until("all are in one group", lambda: all(p.status().get("group_size") == 3 for p in peers), 60)
        led = time.monotonic() - begin
        apart = rate(peers)
        print(f"  {apart:.2f} if the leader is one of the two; the third one was in after {led:.1f} s", flush=True)
        if apart * SLOWER_MAX < reachable:
            raise Failed(f"{apart:.2f} epochs a second with a leader that one does not reach")
