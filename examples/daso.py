"""HeAT's DASO without torchrun: each process is an island. Start one, then others with --peer HOST:PORT of its log; the run
ends by itself after the cool-down. With --strategy daso:endless=1 it does not."""

import torch
import waggle
from bytes_model import ARGS, NextByte, windows

given = ARGS.strategy.startswith("daso")
model = NextByte()
swarm = waggle.join(ARGS.run, initial_peers=ARGS.peer, listen=ARGS.listen, data_dir=ARGS.data_dir)
optimizer = waggle.Optimizer(torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0), swarm, model,
                             strategy=ARGS.strategy if given else "daso:epochs=12,batches=50,warmup=2,cooldown=2",
                             min_peers=ARGS.min_peers, model="mlp", data="synthetic", layers=1, width=32, context=16)
shown: object = None
for batch in windows(ARGS.seed):
    optimizer.zero_grad()
    loss = model.loss(batch)
    loss.backward()
    optimizer.step(samples=len(batch), loss=loss)  # the loss decides how often the peers average
    status = swarm.status()
    at = status.strategy
    if at is not None and at[:2] != shown:
        shown = at[:2]
        print(f"{at.name}, epoch {at.epoch} of {at.epochs}: skips {at.skips}, wait {at.wait}, loss {at.loss:.3f}, a mean is "
              f"{status.mean_age} steps old", flush=True)
    if optimizer.last == "finished":
        break
print("ended with parameters", swarm.status().parameters, flush=True)
swarm.leave()  # waits for those that need the last state
