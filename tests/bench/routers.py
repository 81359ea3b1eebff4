#!/usr/bin/env python3
"""Which two peers behind routers meet, and how: prints the table of tests/bench/RESULTS.md. Needs root, iproute2, nftables
and miniupnpd. Each pair is a lab of its own (tests/processes/reach/lab.py) with a public `waggle node` and two trainers.
With --delay 10ms packets take as long through each router, which needs netem."""
import argparse
import itertools
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes" / "reach"))
from lab import KINDS, Failed, Lab, wait_until  # noqa: E402

LIMIT = 40


def outcome(trainers):
    """How they meet; None: not settled yet."""
    texts = [p.text() for p in trainers]
    if any("passes the routers of both" in text for text in texts):
        return "punched"
    if all(p.linked() >= 2 for p in trainers):  # the node, and each other
        return "a mapped port"
    if all("no direct link with peer" in text for text in texts) and all(p.epoch() > 3 for p in trainers):
        return "through the node, as clients"
    return None


def meet(binary, kinds, delay):
    with Lab(binary, 1) as lab:
        public, *inner = lab.behind_routers(kinds)
        if delay:
            for router in lab.routers:
                router.run("tc", "qdisc", "add", "dev", "outside", "root", "netem", "delay", delay)
        node = lab.node(public)
        wait_until("the node listens", node.listens_at, 20)
        began = time.monotonic()
        trainers = [lab.train(host, "--initial-peers", f"{public.address}:21000") for host in inner]
        try:
            how = wait_until("they meet", lambda: outcome(trainers), LIMIT)
        except Failed:
            how = f"not within {LIMIT} s"
        return how, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description="Which two peers behind routers meet, and how.")
    parser.add_argument("--binary", default=str(pathlib.Path(__file__).resolve().parents[2] / "build/bin/waggle"))
    parser.add_argument("--delay", default="", help="of packets through each router, such as 10ms (netem)")
    arguments = parser.parse_args()
    print("| one router | the other | they meet | s after the start |\n|---|---|---|---|")
    for kinds in list(itertools.combinations_with_replacement(KINDS, 2)):
        how, seconds = meet(arguments.binary, kinds, arguments.delay)
        print(f"| {kinds[0]} | {kinds[1]} | {how} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
