"""The loop of plain.py as a peer of a run, together with other loops or with `waggle train`."""

import torch
import waggle
from bytes_model import ARGS, NextByte, windows

model = NextByte()
optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0)
swarm = waggle.join(ARGS.run, initial_peers=ARGS.peer, listen=ARGS.listen, data_dir=ARGS.data_dir)
optimizer = waggle.Optimizer(optimizer, swarm, model, target_batch_size=ARGS.target, strategy=ARGS.strategy,
                             min_peers=ARGS.min_peers, model="mlp", data="synthetic",
                             layers=1, width=32, context=16)
for step, batch in zip(range(ARGS.steps), windows(ARGS.seed)):
    optimizer.zero_grad()
    loss = model.loss(batch)
    loss.backward()
    optimizer.step(samples=len(batch), loss=loss)
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
