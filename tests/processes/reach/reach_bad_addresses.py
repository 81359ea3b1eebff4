"""A name with a good address and bad ones: an IPv6 address that swallows packets, a closed port, another run."""
import time

from lab import Failed, wait_until


def joined_within(lab, host, limit, *options):
    peer = lab.node(host, *options)
    wait_until(f"{peer.name} answers", peer.ready, 10)
    began = time.monotonic()
    wait_until(f"{peer.name} has joined", lambda: peer.links(), limit, 0.02)
    return time.monotonic() - began


def run(new_lab):
    with new_lab(5, ipv6=True) as lab:
        good, newcomer, other, late, last = lab.hosts
        first = lab.node(good)
        stranger = lab.waggle(other, ["node", "--run-id", "another", "--listen", f"0.0.0.0:{lab.PORT}"])
        for host in (newcomer, late, last):
            host.set_names({"seed": ["fd77:0:0:1::99", good.address], "mixed": [other.address, good.address],
                            "moved": [other.address]})
        wait_until("the nodes answer", lambda: first.ready() and stranger.ready(), 10)
        joined_within(lab, newcomer, 1, "--initial-peers", f"seed:{lab.PORT}")
        joined_within(lab, late, 1, "--initial-peers", f"mixed:{lab.PORT}")
        # A name that leads to the wrong host at first is looked up again.
        peer = lab.node(last, "--initial-peers", f"moved:{lab.PORT}")
        wait_until("it says why it cannot join",
                   lambda: "the run's name must be the same" in (peer.ready() or (0, ""))[1], 10)
        if peer.links():
            raise Failed("it has joined another run")
        last.set_names({"moved": [good.address]})
        wait_until("it joins at the new address of the name", lambda: peer.links(), 5)
