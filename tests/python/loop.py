"""A peer for test_together.py: the mlp of examples/, with the optimizer own one of its own, with masters in bfloat16. Prints
the address, and at the end the status as JSON and a digest of the module's values in bfloat16."""

import dataclasses
import hashlib
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from test_alone import Own

import waggle

torch.set_num_threads(1)


class NextByte(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bytes = torch.nn.Embedding(256, 8)
        self.hidden0 = torch.nn.Linear(128, 32)
        self.head = torch.nn.Linear(32, 256)

    def forward(self, x):
        return self.head(torch.relu(self.hidden0(self.bytes(x[:, :16]).flatten(1))))


def main(folder, peers, seed, epochs, optimizer="adamw", min_peers="1", slow="", device="cpu"):
    torch.manual_seed(int(seed))
    model = NextByte().to(device)
    more = dict(model="mlp", data="synthetic", layers=1, width=32, context=16)
    if optimizer == "masters":
        model.bfloat16()
        more["masters"] = True
    if optimizer in ("offload", "delay"):
        more["offload_optimizer" if optimizer == "offload" else "delay_optimizer_step"] = True
    inner = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0)
    if optimizer.startswith("sgd"):
        inner = torch.optim.SGD(model.parameters(), torch.tensor(0.05) if "tensor" in optimizer else 0.05, momentum=0.9,
                                **({"fused": True} if "fused" in optimizer else {}))
    if optimizer == "own":
        inner, more = Own(model.parameters(), 0.05), {}
    swarm = waggle.join("tests", initial_peers=[p for p in peers.split(",") if p], listen="127.0.0.1:0",
                        data_dir=folder)
    if "on device" in optimizer:
        more["sum_on_device"] = True
    opt = waggle.Optimizer(inner, swarm, model, target_batch_size=64, epochs=int(epochs), min_peers=int(min_peers),
                           **more)
    print("address", swarm.address, flush=True)
    while opt.last != "finished":
        opt.zero_grad()
        x = torch.randint(256, (8, 17)).to(device)
        loss = F.cross_entropy(model(x), x[:, 16])
        loss.backward()
        opt.step(samples=8, loss=loss)
        time.sleep(1 if slow and os.path.exists(slow) else 0.01)  # until the test removes the file
    opt.leave()
    values = torch.cat([p.detach().bfloat16().cpu().flatten() for p in model.parameters()])
    print("MODULE", hashlib.sha256(str(values.view(torch.int16).tolist()).encode()).hexdigest(), flush=True)
    print("STATUS", json.dumps(dataclasses.asdict(swarm.status())), flush=True)


main(*sys.argv[1:])
