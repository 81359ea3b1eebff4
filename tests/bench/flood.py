#!/usr/bin/env python3
"""What strangers that knock cost the members of a list: epochs a second of three listed trainers, with and without a flood at
one of them, in alternation. Each is a host of its own (tests/processes/reach/lab.py); the strangers' host runs waggle-attack,
below the trainers' priority: it would have processors of its own. Needs root and iproute2."""
import argparse
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/processes/reach"))
from lab import Lab, wait_until  # noqa: E402

ATTACKS = ["another-channel", "handshakes", "upgrades", "sockets", "pages"]


def told(lab, *words):
    """The output of a command of the program."""
    one = lab.start(lab.hosts[0], [lab.binary, *words])
    if one.wait(20) != 0:
        raise SystemExit(one.text())
    return one.text()


def listed(lab, members):
    """Options of a run with a key and a list of these peers."""
    key, auth, file = (lab.folder / name for name in ("run.key", "auth.pem", "members.list"))
    told(lab, "id", "--swarm-key", key)
    ids = [told(lab, "id", "--data-dir", each)[:64] for each in members]
    shown = told(lab, "members", "--key", auth, "--members-list", file, "add", *ids, "--until", "2199-12-31")
    authority = re.search(r"^authority +([0-9a-f]{64})", shown, re.MULTILINE)[1]
    return key, ["--swarm-key", key, "--members", authority, "--members-list", file]


def speed(peer, epochs):
    """Epochs a second, from the end of one to that of another."""
    def end_of(epoch):
        wait_until(f"epoch {epoch}", lambda: peer.epoch() >= epoch, 120, 0.01)
        return time.monotonic()
    first = peer.epoch() + 1
    began = end_of(first)
    return epochs / (end_of(first + epochs) - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=str(ROOT / "build/bin"), help="with waggle and waggle-attack")
    parser.add_argument("--epochs", type=int, default=50, help="of each measurement")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--links", type=int, default=64, help="of an attack")
    parser.add_argument("attacks", nargs="*", default=ATTACKS)
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.folder)
    with Lab(str(program / "waggle"), 4) as lab:
        folders = [lab.folder / f"member{i}" for i in range(3)]
        key, options = listed(lab, folders)
        first = f"{lab.hosts[0].address}:21000"
        peers = [lab.train(host, "--data-dir", folder, *options, *(["--initial-peers", first] if host is not lab.hosts[0] else []))
                 for host, folder in zip(lab.hosts, folders)]
        wait_until("they train together", lambda: all(p.epoch() > 8 and p.status().get("group_size") == 3 for p in peers), 60)
        text = "key:" + key.read_bytes().hex()
        print("| attack | attempts a second | epochs/s without | with | lost |\n|---|---|---|---|---|")
        for name in arguments.attacks:
            without, under, knocks = [], [], []
            for _ in range(arguments.pairs):
                without.append(speed(peers[1], arguments.epochs))
                seconds = int(1.5 * arguments.epochs / without[-1]) + 2
                flood = lab.start(lab.hosts[3], ["nice", "-n", "5", program / "waggle-attack", name, first, text, seconds,
                                                 arguments.links, 10])
                time.sleep(1)
                under.append(speed(peers[1], arguments.epochs))
                flood.wait(2 * seconds)
                done = re.search(r'"messages":(\d+),"refused":(\d+)', flood.text())
                knocks.append((int(done[1]) + int(done[2])) / seconds)
            calm, busy = statistics.median(without), statistics.median(under)
            print(f"| {name} | {statistics.median(knocks):.0f} | {calm:.2f} | {busy:.2f} | {1 - busy / calm:.1%} |", flush=True)


if __name__ == "__main__":
    main()
