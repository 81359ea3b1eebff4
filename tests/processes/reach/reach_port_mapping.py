"""A trainer that nobody reaches asks its router for its port (miniupnpd): it is no client then, announces the router's
address, and gives the port back at its end; if it is killed, the lease that it asked for ends that. Without that it stays a
client."""
import re

from lab import OUTSIDE, Failed, wait_until

NEEDS = ["nft", "miniupnpd"]
LEASE_MAX = 120  # seconds


def run(new_lab):
    with new_lab(1) as lab:
        public, inner = lab.behind_routers(["maps ports"])
        node = lab.node(public)
        wait_until("the node listens", node.listens_at, 20)
        trainer = lab.train(inner, "--initial-peers", f"{public.address}:21000")
        wait_until("the port is mapped", lab.routers[0].mapped, 40)
        wait_until("it announces the router's address", lambda: f"{OUTSIDE}.101:21000" in trainer.addresses(), 40)
        router = next(p for p in lab.processes if p.name.startswith("miniupnpd"))
        leases = [int(s) for s in re.findall(r"port mapping request : .* lifetime=(\d+)s", router.text())]
        if not leases or not all(0 < s <= LEASE_MAX for s in leases):
            raise Failed(f"the router was asked for leases of {leases} s")
        wait_until("others reach it", lambda: trainer.status().get("notice") is None, 20)
        other = lab.train(public, "--initial-peers", f"{OUTSIDE}.101:21000", "--listen", "0.0.0.0:21001")
        wait_until("another one joins through the mapped port", lambda: other.status().get("group_size") == 2, 40)
        trainer.end()
        wait_until("the mapping is gone", lambda: not lab.routers[0].mapped(), 20)
    with new_lab(1) as lab:
        public, inner = lab.behind_routers(["maps ports"])
        node = lab.node(public)
        wait_until("the node listens", node.listens_at, 20)
        trainer = lab.train(inner, "--initial-peers", f"{public.address}:21000", "--port-mapping", "off")
        wait_until("it is a client", lambda: "no other peer reaches this one" in (trainer.status().get("notice") or ""), 30)
        if lab.routers[0].mapped():
            raise Failed("--port-mapping off, and the router was asked")
