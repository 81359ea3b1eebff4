"""Two peers that start before the network is up, and one whose address changes while it trains."""
from lab import Failed, wait_until


def run(new_lab):
    with new_lab(2, attached=False) as lab:
        first = lab.train(lab.hosts[0])
        second = lab.train(lab.hosts[1], "--initial-peers", "10.77.0.1:21000")
        wait_until("both announce loopback", lambda: all(p.addresses() == ["127.0.0.1:21000"] for p in (first, second)), 20)
        for host in lab.hosts:
            host.attach()
        wait_until("they average together", lambda: all(p.status().get("group_size") == 2 for p in (first, second)), 30)
        for host, peer in zip(lab.hosts, (first, second)):
            wait_until(f"{host.address} is announced", lambda: peer.addresses() == [f"{host.address}:21000"], 15)
        wait_until("the log has today's join line", lambda: "--initial-peers 10.77.0.1:21000" in first.text(), 5)

        moved = lab.hosts[1]
        moved.ip("address", "del", "10.77.0.2/24", "dev", "eth0")
        moved.address = "10.77.0.20"
        moved.ip("address", "add", f"{moved.address}/24", "dev", "eth0")
        moved.set_link("eth0", True)
        wait_until("the new address is announced", lambda: second.addresses() == ["10.77.0.20:21000"], 15)
        begun = first.epoch()
        wait_until("they average together again",
                   lambda: all(p.status().get("group_size") == 2 for p in (first, second)) and first.epoch() > begun, 40)
        if not second.running():
            raise Failed("a peer ended")
