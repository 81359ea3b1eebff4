#!/usr/bin/env python3
"""How long the other loops of a run pause when one gets a notice, hands on its lead and its parts, and leaves: the longest time from
one step to the next of any of them from the notice until a second after the end of that process, beside the longest in as long
a time before. A new peer then takes its place.

    PYTHONPATH=build/python OMP_NUM_THREADS=1 python3 tests/bench/notices.py [--strategy diloco:steps=500] [--notices 6]
"""

import argparse
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))
from process import Failed, Process, eventually  # noqa: E402

PEERS, SAMPLES = 3, 8


def loop(args):
    import torch

    import waggle

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    swarm = waggle.join("notices", initial_peers=[args.peer] if args.peer else [], listen="127.0.0.1:0", data_dir=args.folder,
                        log_level="warn", leave_within=60)
    target = {} if args.strategy.startswith("diloco") else {"target_batch_size": 64 * PEERS * SAMPLES}
    opt = waggle.Optimizer(torch.optim.AdamW(model.parameters(), 1e-3), swarm, model, strategy=args.strategy, **target)
    print("address", swarm.address, flush=True)
    while not swarm.finished:
        opt.zero_grad()
        x = torch.randn(SAMPLES, 6)
        loss = (model(x)[:, 0] - x.sum(1)).square().mean()
        loss.backward()
        opt.step(samples=SAMPLES, loss=loss)
        time.sleep(0.002)
        print("at", time.monotonic(), flush=True)
    print("pending", swarm.status().samples_pending, flush=True)
    opt.leave()


class Peer:
    def __init__(self, folder, name, strategy, where):
        words = [sys.executable, __file__, "--loop", f"--folder={folder / name}", f"--strategy={strategy}", f"--peer={where}"]
        self.process = Process(words, folder / f"{name}.log")

    def said(self, beginning):
        lines = [line.split()[1] for line in self.process.text().splitlines() if line.startswith(beginning) and len(line.split()) == 2]
        if not lines and not self.process.running():
            raise Failed(self.process.text())
        return lines

    def longest(self, begin, end):
        steps = [at for at in map(float, self.said("at")) if begin <= at <= end]
        return max(b - a for a, b in zip([begin, *steps], [*steps, end]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="diloco:steps=500")
    parser.add_argument("--notices", type=int, default=6)
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    for name in ("folder", "peer"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        return loop(args)
    peers = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def add(number):
            where = peers[0].said("address")[0].split(",")[0] if peers else ""
            peers.append(Peer(folder, f"peer{number}", args.strategy, where))
            eventually("it steps", lambda: len(peers[-1].said("at")) > 300 and peers[-1].said("address"), 120)

        try:
            for number in range(PEERS):
                add(number)
            for number in range(args.notices):
                time.sleep(4)
                doomed = peers.pop(0)
                told = time.monotonic()
                doomed.process.send(15)
                doomed.process.wait(90)
                gone = time.monotonic() - told
                time.sleep(1.2)
                during = max(each.longest(told, told + gone + 1) for each in peers)
                before = max(each.longest(told - gone - 1, told) for each in peers)
                print(f"pending {doomed.said('pending')[0]}; gone after {gone:.2f} s; the others' longest step {during:.3f} s, before the notice "
                      f"{before:.3f} s", flush=True)
                add(PEERS + number)
        finally:
            for each in peers:
                each.process.end()
    return None


if __name__ == "__main__":
    main()
