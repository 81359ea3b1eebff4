"""Hosts with IPv6 only, and one with both families: [::] listens on both and announces what the host has."""
from lab import Failed, wait_until

PORT = 7700


def train(lab, host, *options):
    return lab.train(host, "--listen", f"[::]:{PORT}", *options)


def only_ipv6(new_lab):
    with new_lab(3, ipv4=False, ipv6=True) as lab:
        first = train(lab, lab.hosts[0])
        peers = [first] + [train(lab, host, "--initial-peers", f"[fd77::1]:{PORT}") for host in lab.hosts[1:]]
        wait_until("all three are linked", lambda: all(p.linked() == 2 for p in peers), 20)
        wait_until("rounds of three", lambda: all(p.status().get("group_size") == 3 for p in peers), 20)
        for number, peer in enumerate(peers, 1):
            if peer.addresses() != [f"[fd77::{number}]:{PORT}"]:
                raise Failed(f"peer {number} announces {peer.addresses()}")
        if "--initial-peers '[fd77::1]:7700'" not in first.text():
            raise Failed("the join line does not name the IPv6 address")


def both_families(new_lab):
    with new_lab(1, ipv6=True) as lab:
        peer = train(lab, lab.hosts[0])
        wait_until("both families are announced",
                   lambda: peer.addresses() == [f"10.77.0.1:{PORT}", f"[fd77::1]:{PORT}"], 20)


def run(new_lab):
    only_ipv6(new_lab)
    both_families(new_lab)
