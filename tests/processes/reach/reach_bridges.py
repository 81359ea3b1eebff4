"""Five bridges with the addresses that Docker gives to each machine, before the interface of the network."""
from lab import Failed, wait_until


def run(new_lab):
    with new_lab(2, attached=False) as lab:
        for host in lab.hosts:
            for number in range(17, 22):
                host.ip("link", "add", f"docker{number}", "type", "bridge")
                host.ip("address", "add", f"172.{number}.0.1/16", "dev", f"docker{number}")
                host.ip("link", "set", f"docker{number}", "up")
            host.attach()
        first = lab.train(lab.hosts[0])
        second = lab.train(lab.hosts[1], "--initial-peers", "10.77.0.1:21000")
        for host, peer in zip(lab.hosts, (first, second)):
            found = wait_until("a peer knows its addresses", lambda: peer.addresses(), 20)
            if found[0] != f"{host.address}:21000" or len(found) != 4:
                raise Failed(f"{host.address} announces {found}")
        if "--initial-peers 10.77.0.1:21000" not in first.text():
            raise Failed("the join line does not name the address of the network")
        # A third peer learns of the second from the first only.
        wait_until("both are in a group", lambda: second.status().get("group_size") == 2, 20)
