#!/usr/bin/env python3
"""Compares examples/lora.py of four peers, in processes of their own, with one process that has their batch:
held-out loss after as many updates, for each seed of the samples. Needs torch 2.13, transformers, peft.

    PYTHONPATH=build/python OMP_NUM_THREADS=1 build/frameworks/bin/python tests/bench/lora.py [UPDATES] [SEED…]
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
PEERS, BATCH = 4, 8
updates, *seeds = map(int, sys.argv[1:] or [40])


def start(folder, name, *arguments):
    command = [sys.executable, ROOT / "examples/lora.py", "--listen", "127.0.0.1:0", "--data-dir", folder / name,
               "--epochs", updates, "--target", PEERS * BATCH, *arguments]
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)


def said(process, folder, name, what):
    """The word behind `what` in its log, as soon as it is there."""
    while not (found := re.search(rf"^{what} ([^\s;]+)\n", (folder / f"{name}.log").read_text(), re.M)):
        if process.poll() is not None:
            sys.exit((folder / f"{name}.log").read_text())
        time.sleep(0.1)
    return found[1]


for seed in seeds or (1, 2, 3):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        single = start(folder, "one", "--batch", PEERS * BATCH, "--seed", 1000 * seed)
        one = float(said(single, folder, "one", "held-out loss"))
        single.wait()
        peers = []
        try:
            for i in range(PEERS):
                more = ["--peer", said(peers[0], folder, "0", "listening on")] if peers else []
                peers.append(start(folder, str(i), "--batch", BATCH, "--min-peers", PEERS, "--seed", 1000 * seed + i + 1, *more))
            losses = [float(said(each, folder, str(i), "held-out loss")) for i, each in enumerate(peers)]
            digests = {said(each, folder, str(i), "adapters") for i, each in enumerate(peers)}
        finally:
            for each in peers:
                each.kill()
                each.wait()
        print(f"seed {seed}: one process {one:.4f}, {PEERS} peers {losses[0]:.4f} ({losses[0] / one - 1:+.2%}); "
              f"{'equal' if len(digests) == 1 and len(set(losses)) == 1 else 'DIFFERENT'} adapters", flush=True)
