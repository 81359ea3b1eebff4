"""The loop of swarm.py on several devices or CPUs of one machine, which are one peer: torchrun --nproc-per-node 2 ranks.py"""

import torch
import torch.distributed as dist
import waggle
from bytes_model import ARGS, NextByte, windows
from torch.distributed.fsdp import fully_shard  # type: ignore[attr-defined]  # of torch 2.6 and later


class Loss(NextByte):
    def forward(self, batch: torch.Tensor) -> torch.Tensor:  # which fully_shard and DistributedDataParallel need
        return self.loss(batch)


dist.init_process_group("gloo")  # on GPUs "cpu:gloo,cuda:nccl", and the model on the device LOCAL_RANK
model = Loss()
for part in (model.bytes, model.hidden0, model.head, model):  # or DistributedDataParallel(model), or neither
    fully_shard(part)
optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0)
swarm = waggle.join(ARGS.run, initial_peers=ARGS.peer, listen=ARGS.listen, data_dir=ARGS.data_dir, group=dist.group.WORLD)
optimizer = waggle.Optimizer(optimizer, swarm, model, target_batch_size=ARGS.target, strategy=ARGS.strategy,
                             min_peers=ARGS.min_peers, model="mlp", data="synthetic",
                             layers=1, width=32, context=16)
for step, batch in zip(range(ARGS.steps), windows(ARGS.seed + dist.get_rank())):
    optimizer.zero_grad()
    loss = model(batch)
    loss.backward()
    optimizer.step(samples=len(batch), loss=loss)
    if step % 100 == 0 and dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
swarm.leave()
dist.destroy_process_group()
