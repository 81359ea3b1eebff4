#!/usr/bin/env python3
"""Trains the same model with PyTorch's DistributedDataParallel and with two `waggle train` peers, one after the other.

Prints samples per second and samples per step of both, and their ratio. Each side has two processes with one
compute thread each. Needs torch with gloo: Debian's python3-torch, with Debian's interpreter (/usr/bin/python3).
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import peers

FLAGS = ("layers", "width", "heads", "context", "micro-batch")


def rank_main(settings, rank, store):
    """One process of the DDP side. Rank 0 prints a JSON line."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn import functional as fn
    from torch.nn.parallel import DistributedDataParallel

    class Block(nn.Module):
        """As in trainer/models.cpp: pre-norm, with an explicit causal attention."""

        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, mask):
            batch, length, width = x.shape
            head = width // self.heads
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, head).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / math.sqrt(head)
            mixed = torch.softmax(scores + mask, -1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(fn.gelu(self.up(self.norm2(x))))

    class CharGpt(nn.Module):
        def __init__(self, layers, width, heads, context):
            super().__init__()
            self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.register_buffer("mask", torch.full((context, context), -math.inf).triu(1))

        def forward(self, windows):
            inputs, targets = windows[:, :-1], windows[:, 1:]
            x = self.bytes(inputs) + self.positions.weight
            for block in self.blocks:
                x = block(x, self.mask)
            return fn.cross_entropy(self.head(self.norm(x)).reshape(-1, 256), targets.reshape(-1))

    torch.set_num_threads(1)
    torch.manual_seed(1)  # the same initial values on both ranks
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    module = CharGpt(settings.layers, settings.width, settings.heads, settings.context)
    model = DistributedDataParallel(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0)
    torch.manual_seed(rank)
    data = torch.randint(0, 256, (1 << 20,))

    def step():
        starts = torch.randint(0, len(data) - settings.context - 1, (settings.micro_batch,))
        windows = torch.stack([data[s:s + settings.context + 1] for s in starts.tolist()])
        model(windows).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    # Both ranks must make the same number of steps. Estimate it from the duration of a few steps.
    began = time.monotonic()
    for _ in range(5):
        step()
    count = torch.tensor([max(10, int(settings.duration * 5 / (time.monotonic() - began)))])
    dist.broadcast(count, 0)
    steps, began = int(count), time.monotonic()
    for _ in range(steps):
        step()
    seconds = time.monotonic() - began
    if rank == 0:
        batch = 2 * settings.micro_batch
        print(json.dumps({"samples_a_second": steps * batch / seconds, "samples_a_step": float(batch), "steps": steps,
                          "parameters": sum(p.numel() for p in module.parameters())}), flush=True)


def measure_ddp(settings):
    with tempfile.TemporaryDirectory(prefix="waggle-ddp-") as folder:
        children = []
        try:
            for rank in range(2):
                line = ["setpriv", "--pdeathsig", "KILL", "--", settings.python, os.path.abspath(__file__),
                        *sys.argv[1:], "--rank", str(rank), "--store", os.path.join(folder, "store")]
                # Let Gloo use the loopback interface instead of resolving the host name.
                children.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True,
                                                 env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}))
            outputs = [child.communicate(timeout=settings.duration + 120)[0] for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
        if any(child.returncode for child in children):
            raise peers.Failed("the DDP side failed; does this interpreter have torch? " + settings.python)
        return json.loads(outputs[0])


def measure_waggle(settings):
    options = {name: getattr(settings, name.replace("-", "_")) for name in FLAGS}
    options["target-batch-size"] = 2 * settings.micro_batch
    with peers.Run(settings, options) as run:
        first = run.add().start()
        two = [first, run.add(via=first).start()]
        run.await_step(two)
        time.sleep(3)

        before, began = at_new_epoch(two), time.monotonic()
        time.sleep(settings.duration)
        after, ended = at_new_epoch(two), time.monotonic()
        used = sum(b[0] - a[0] for a, b in zip(before, after))
        # The samples of each peer by its own epochs, in case a status document is old.
        a_step = sum((b[0] - a[0]) / max(1, b[1] - a[1]) for a, b in zip(before, after))
        return {"samples_a_second": used / (ended - began), "samples_a_step": a_step,
                "steps": after[0][1] - before[0][1], "parameters": peers.parameters_of(options)}


def at_new_epoch(two):
    """(samples used, epoch) of both peers immediately after the end of an epoch."""
    last = two[0].status["epoch"]
    peers.eventually("an epoch ends", lambda: two[0].status["epoch"] != last, 30, 0.005)
    time.sleep(0.1)  # until the status of the other peer is up to date, too
    return [(p.status["samples"]["used"], p.status["epoch"]) for p in two]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=16, help="samples of one pass of one process")
    parser.add_argument("--duration", type=float, default=30, help="seconds of each measurement")
    parser.add_argument("--times", type=int, default=1, help="pairs of measurements")
    parser.add_argument("--binary", default=str(peers.ROOT / "build" / "bin" / "waggle"))
    parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--data", default="synthetic", help="training data of the peers")
    parser.add_argument("--log-level", default="info", help="log level of the peers")
    parser.add_argument("--keep", metavar="FOLDER", help="copy the logs of the peers to this folder")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.rank is not None:
        rank_main(settings, settings.rank, settings.store)
        return 0
    pairs = []
    for number in range(settings.times):
        sides = [("ddp", measure_ddp), ("waggle", measure_waggle)]
        random.shuffle(sides)
        try:
            pair = {name: measure(settings) for name, measure in sides}
        except peers.Failed as why:
            print(f"ddp.py: {why}", file=sys.stderr)
            return 2
        pair["ratio"] = pair["waggle"]["samples_a_second"] / pair["ddp"]["samples_a_second"]
        pairs.append(pair)
        for name, _ in sorted(sides):
            side = pair[name]
            print(f"{name:<7} {side['samples_a_second']:8.1f} samples/s  {side['samples_a_step']:6.1f} samples per step  "
                  f"{side['steps']} steps, {side['parameters']} parameters")
        print(f"ratio   {pair['ratio']:8.3f}", flush=True)
    print(f"median ratio {statistics.median(pair['ratio'] for pair in pairs):.3f}")
    if settings.json:
        with open(settings.json, "w") as out:
            json.dump(pairs, out, indent=1)
    ratio = statistics.median(pair["ratio"] for pair in pairs)
    target = 2 * settings.micro_batch
    fits = all(target <= pair["waggle"]["samples_a_step"] <= target + 2 for pair in pairs)
    return 0 if ratio >= 0.97 and fits else 1


if __name__ == "__main__":
    sys.exit(main())
