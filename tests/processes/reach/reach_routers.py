"""Two trainers behind a router each, and one peer that both dial. Where the routers keep a connection's port for every
destination, the two get a direct link, through which all goes; where they do not, or a firewall lets nothing in or out but
to the public peer, both are clients, say why, and train through it. Behind one router they use their private addresses."""
from lab import Failed, wait_until

NEEDS = ["nft"]
MET = "passes the routers of both"
CURE = "open or forward the port of one of the two"


def swarm(lab, kinds, shared=False):
    """A public `waggle node` and two trainers behind routers of these kinds, or both behind the first one."""
    public, *inner = lab.behind_routers(kinds, shared)
    node = lab.node(public)
    trainers = [lab.train(host, "--initial-peers", f"{public.address}:21000") for host in inner]
    return node, trainers


def in_step(peers, past=8):
    wait_until("both train in one group", lambda: all(p.epoch() > past and p.status().get("group_size", 0) >= 2
                                                      for p in peers), 60)


def moved(peer, seconds_of):
    """Bytes that it sends and receives while the trainers go on."""
    def total():
        return peer.metric("waggle_network_bytes_total")
    before, epoch = total(), seconds_of.epoch()
    wait_until("epochs go on", lambda: seconds_of.epoch() >= epoch + 20, 60)
    return total() - before


def run(new_lab):
    with new_lab(1) as lab:
        node, trainers = swarm(lab, ["keeps ports", "keeps ports"])
        wait_until("both have a direct link", lambda: all(MET in p.text() for p in trainers), 30)
        wait_until("both are members that others need not reach",
                   lambda: all("enters as a node" in p.text() or p.status().get("notice") is None for p in trainers), 30)
        in_step(trainers)
        wait_until("the node has left their group", lambda: node.status().get("group_size", 0) < 2, 30)
        direct, public = moved(trainers[0], trainers[0]), moved(node, trainers[0])
        print(f"  punched: {public / direct:.1%} of a trainer's bytes go through the public peer", flush=True)
        if public > direct * 0.05:
            raise Failed(f"{public:.0f} bytes through the public peer, {direct:.0f} between the trainers")
        if not any(MET in each["seen"] for each in trainers[0].status()["punches"]):
            raise Failed(f"the status does not say what came of it: {trainers[0].status()['punches']}")
    with new_lab(1) as lab:
        node, trainers = swarm(lab, ["other ports", "other ports"])
        wait_until("both say why there is no link", lambda: all(CURE in p.text() for p in trainers), 40)
        in_step(trainers)
        for peer in trainers:
            if "no other peer reaches this one" not in (peer.status().get("notice") or ""):
                raise Failed("a trainer that nobody reaches does not say so")
    with new_lab(1) as lab:
        node, trainers = swarm(lab, ["keeps ports"], shared=True)
        in_step(trainers)
        wait_until("both are linked", lambda: all(p.linked() >= 1 for p in trainers), 30)
        if any(MET in p.text() for p in trainers):
            raise Failed("two peers behind one router need no punching")
