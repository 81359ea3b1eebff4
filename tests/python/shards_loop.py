"""A peer for test_shards.py and test_streams.py, whose optimizer counts how often each sample, or record of jsonl files, has
entered an update. Prints the address, then each step, and at the end the status and the counts as JSON."""

import dataclasses
import json
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

import waggle

torch.set_num_threads(1)


class Counts(torch.optim.Optimizer):
    """The gradient of a sample is 1 at its own place, so a mean says which samples are in it."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad is None:  # an update over empty blocks of a stream
                continue
            state = self.state[p]
            if not state:
                state["seen"] = torch.zeros_like(p)
            there = p.grad[p.grad > 0]
            if len(there) > 0:
                state["seen"] += (p.grad / there.min()).round()


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return i


class Places(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(count))


def main(folder, peers, samples, passes, workers="0", min_peers="1", slow="", steps="1000000", files="", block="0",
         strategy="collaborative"):
    model = Places(int(samples))
    swarm = waggle.join("tests", initial_peers=[p for p in peers.split(",") if p], listen="127.0.0.1:0",
                        data_dir=folder)
    if files:
        stream = swarm.stream(waggle.data.jsonl(files, block=int(block)), passes=int(passes))
        loader = DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=int(workers))
    else:
        shards = swarm.shards(int(samples), passes=int(passes))
        loader = DataLoader(Numbers(int(samples)), 5, sampler=shards, num_workers=int(workers))
    more = {"target_batch_size": 40 if files else 24} if strategy == "collaborative" else {}
    opt = waggle.Optimizer(Counts(model.parameters()), swarm, model, strategy=strategy, min_peers=int(min_peers), **more)
    print("address", swarm.address, flush=True)
    left = int(steps)
    while left > 0 and not swarm.finished:
        for each in loader:
            opt.zero_grad()
            if files:
                for batch in stream.batches(each, 5):
                    model.weight[[record["n"] for record in batch]].mean().backward()
                opt.step(each)
            else:
                model.weight[each].mean().backward()
                opt.step(samples=len(each), loss=1.0)
            print("stepped", len(each), opt.last, flush=True)
            time.sleep(1 if slow and os.path.exists(slow) else 0)  # until the test removes the file
            left -= 1
            if left == 0:
                break
    seen = opt.state[model.weight].get("seen", torch.zeros(0)).tolist()
    opt.leave()
    print("SEEN", json.dumps(seen))
    print("STATUS", json.dumps(dataclasses.asdict(swarm.status())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
