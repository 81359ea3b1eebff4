"""A peer for test_changing.py, which sets its rates itself. Prints the address, and at the end the status as JSON."""

import dataclasses
import json
import math
import os
import sys
import time

import torch
from test_changing import Changing

import waggle

torch.set_num_threads(1)


def changes(how, opt, swarm, seed):
    """Called before each step."""
    if how in ("cosine", "the run's"):  # which leaves only the decay to the loop
        return lambda i, loss: opt.param_groups[0].update(lr=0.05 * (0.6 + 0.4 * math.cos((i + seed) / 7)),
                                                          weight_decay=0.01 * (1 + seed))
    if how == "epoch":
        return lambda i, loss: opt.param_groups[0].update(lr=0.05 / (1 + swarm.epoch))
    if how == "plateau":
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
        return lambda i, loss: plateau.step(loss)
    if how == "StepLR":
        step = torch.optim.lr_scheduler.StepLR(opt, 3, 0.9)
        return lambda i, loss: step.step()
    if how == "larger":
        return lambda i, loss: opt.param_groups[0].update(lr=0.2)
    return lambda i, loss: None


def main(folder, peers, seed, epochs, how, min_peers="1", slow=""):
    torch.manual_seed(7)
    model = Changing()
    inner = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.05, weight_decay=0.01)
    swarm = waggle.join("tests", initial_peers=[p for p in peers.split(",") if p], listen="127.0.0.1:0", data_dir=folder)
    opt = waggle.Optimizer(inner, swarm, model, target_batch_size=16, epochs=int(epochs), min_peers=int(min_peers),
                           lr=0.05 if how == "the run's" else None)
    print("address", swarm.address, flush=True)
    change = changes(how, opt, swarm, int(seed))
    random = torch.Generator().manual_seed(int(seed))
    i = 0
    while opt.last != "finished":
        opt.zero_grad(set_to_none=True)
        x = torch.randn(4, 6, generator=random)
        loss = (model(x) - x[:, :2]).pow(2).mean()
        loss.backward()
        change(i, loss.item())
        opt.step(samples=4, loss=loss)
        i += 1
        time.sleep(0.5 if slow and os.path.exists(slow) else 0.01)  # until the test removes the file
    opt.leave()
    print("RATE", opt.rate, flush=True)
    print("STATUS", json.dumps({**dataclasses.asdict(swarm.status()), "seen": int(model.seen)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
