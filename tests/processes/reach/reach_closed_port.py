"""Two of three peers announce a port at which nobody listens. They have no link with each other, and become clients by
themselves: the run is about as fast as one whose peers all reach each other. Where it waits for links that cannot be,
it has a fifteenth of the epochs. Both figures are printed (lab.SLOWER_MAX)."""
from lab import Failed, SLOWER_MAX, rate, wait_until

RUNS = [[], ["--strategy", "local-updates"], ["--strategy", "local-updates", "--groups", "moshpit"]]


def three(lab, options, announced):
    first = lab.train(lab.hosts[0], *options)
    return [first] + [lab.train(host, "--initial-peers", f"{lab.hosts[0].address}:21000", *announced(host), *options)
                      for host in lab.hosts[1:]]


def roles(peer):
    return sorted(p["role"] for p in (peer.peers() or {}).get("peers", []))


def run_with(new_lab, options):
    with new_lab(3) as lab:
        peers = three(lab, options, lambda host: [])
        wait_until("all are in step", lambda: all(p.epoch() > 5 for p in peers), 30)
        reachable = rate(peers)
    with new_lab(3) as lab:
        lab.cut([lab.hosts[1]], [lab.hosts[2]])  # or both would dial at once, and have a link
        peers = three(lab, options, lambda host: ["--announce", f"{host.address}:21991"])
        wait_until("both are clients", lambda: roles(peers[0]) == ["client", "client", "trainer"], 15)
        wait_until("all are in step", lambda: all(p.epoch() > 5 for p in peers), 30)
        closed = rate(peers)
        print(f"  {' '.join(options) or 'gradients'}: {reachable:.2f} epochs/s if all are reachable, {closed:.2f} if not",
              flush=True)
        if closed * SLOWER_MAX < reachable:
            raise Failed(f"{options}: {closed:.2f} epochs a second; {reachable:.2f} if all are reachable")
        for peer in peers[1:]:
            notice = peer.status().get("notice") or ""
            page = peer.ready()[1]
            for where, text in (("status", notice), ("/readyz", page), ("log", peer.text())):
                if "no other peer reaches this one" not in text or "announce an address that others reach" not in text:
                    raise Failed(f"{where} does not name the cure: {text[-400:]}")


def run(new_lab):
    for options in RUNS:
        run_with(new_lab, options)
