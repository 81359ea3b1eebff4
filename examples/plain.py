"""A training loop that uses only torch. swarm.py is the same loop as a peer of a run."""

import torch
from bytes_model import ARGS, NextByte, windows

model = NextByte()
optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0)
for step, batch in zip(range(ARGS.steps), windows(ARGS.seed)):
    optimizer.zero_grad()
    loss = model.loss(batch)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
