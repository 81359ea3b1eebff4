"""A peer for test_streams.py, whose optimizer counts how often each record of a jsonl file has entered an update. Prints the
address, then each step, and at the end the status and the counts as JSON."""

import dataclasses
import json
import os
import sys
import time

import torch
from shards_loop import Counts, Places
from torch.utils.data import DataLoader

import waggle

torch.set_num_threads(1)


def main(folder, peers, files, block, records, passes, workers="0", min_peers="1", slow="", steps="1000000"):
    swarm = waggle.join("tests", initial_peers=[p for p in peers.split(",") if p], listen="127.0.0.1:0",
                        data_dir=folder)
    stream = swarm.stream(waggle.data.jsonl(files, block=int(block)), passes=int(passes))
    model = Places(int(records))
    opt = waggle.Optimizer(Counts(model.parameters()), swarm, model, target_batch_size=40, min_peers=int(min_peers))
    print("address", swarm.address, flush=True)
    loader = DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=int(workers))
    left = int(steps)
    while left > 0 and not swarm.finished:
        for block in loader:
            for batch in stream.batches(block, 5):
                model.weight[[record["n"] for record in batch]].mean().backward()
            opt.step(block)
            print("stepped", len(block), opt.last, flush=True)
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
