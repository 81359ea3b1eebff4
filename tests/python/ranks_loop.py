"""A rank of a peer for test_ranks.py, started by torchrun, or without it a peer of one process. Prints the address, and at the
end the status as JSON and the values of parameters and statistics."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist

import waggle

torch.set_num_threads(1)


def made(kind, width):
    model = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for part in (model[0], model[2], model):
            fully_shard(part)
    return torch.nn.parallel.DistributedDataParallel(model) if kind == "ddp" else model


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    for name, kind, default in (("kind", str, "plain"), ("peer", str, ""), ("strategy", str, "collaborative"), ("epochs", int, 20),
                                ("samples", int, 8), ("target", int, 0), ("seed", int, 1), ("min-peers", int, 1),
                                ("fail-on", int, -1), ("how", str, ""), ("slow", pathlib.Path, None), ("timeout", int, 0),
                                ("shards", int, 0), ("uneven", int, 0), ("leave-within", float, None),
                                ("lag", float, 0), ("loss-scale", str, None), ("ranks-meet", str, None),
                                ("blocks", int, 0)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    args = parser.parse_args()
    group, rank, ranks = {}, 0, 1
    if "RANK" in os.environ:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", args.ranks_meet, rank=rank, world_size=ranks)
        # A time that is shorter than a wait counts from here on, for one rank may take longer to import torch.
        within = datetime.timedelta(seconds=args.timeout)
        group = {"group": dist.new_group(timeout=within) if args.timeout else dist.group.WORLD}
    fails = args.how if rank == args.fail_on else ""
    torch.manual_seed(args.seed)
    model = made(args.kind, 7 if fails == "module" else 5)
    inner = torch.optim.AdamW(model.parameters(), 1e-2)
    swarm = waggle.join("tests", initial_peers=[p for p in args.peer.split(",") if p], listen="127.0.0.1:0", data_dir=args.folder,
                        leave_within=args.leave_within, **group)
    shards = swarm.shards(args.shards) if args.shards else None
    records = [list(range(4 * i, 4 * i + i % 4)) for i in range(args.blocks)]  # some blocks are empty
    stream = swarm.stream(waggle.data.blocks(args.blocks, records.__getitem__)) if records else None
    target = {"target_batch_size": args.target} if args.target else {}
    extra = torch.zeros(2)
    opt = waggle.Optimizer(inner, swarm, model, strategy=args.strategy, epochs=args.epochs, min_peers=args.min_peers,
                           loss_scale=args.loss_scale, extra_tensors=[extra], **target)
    if rank == 0:
        print("address", swarm.address, flush=True)
    random = torch.Generator().manual_seed(1000 + args.seed)
    data = torch.randn(args.shards, 6, generator=random)
    data_of_blocks = torch.randn(4 * args.blocks, 6, generator=random)
    dealt = []

    def of_block(numbers):
        x = data_of_blocks[numbers] if numbers else torch.zeros(1, 6)
        return (model(x)[:, 0] - x.sum(1)).square().mean()

    def step_over_blocks():
        for block in torch.utils.data.DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=1):
            dealt.extend(block)
            if args.kind == "plain" or fails == "batches":
                for batch in stream.batches(block, 2):
                    of_block(batch).backward()
            else:
                opt.zero_grad()
                opt.weighed(of_block(list(block)), samples=max(len(block), 1)).backward()
            opt.step(block)

    def batches():
        if shards is not None:
            for numbers in torch.utils.data.DataLoader(range(args.shards), args.samples, sampler=shards):
                dealt.extend(numbers.tolist())
                yield data[numbers]
        else:
            begin, end = (each * args.samples + (args.uneven if each == 1 else 0) for each in (rank, rank + 1))
            yield torch.randn(args.samples * ranks, 6, generator=random)[begin:end]

    step = 0
    while stream is not None and not swarm.finished:
        step_over_blocks()
    while not swarm.finished:
        for x in batches():
            if step == 3 and fails == "kept":
                opt.kept()
            if step == 3 and fails == "raise":
                raise RuntimeError("this rank has failed")
            opt.zero_grad()
            time.sleep(args.lag if rank == args.fail_on else 0)  # what makes a rank slow
            loss = (model(x)[:, 0] - x.sum(1)).square().mean()
            opt.scaled(opt.weighed(loss, samples=len(x)) if args.uneven else loss).backward()
            extra.fill_(10 * step + rank)
            opt.step(samples=0 if fails == "samples" else len(x) - (fails == "batch"),
                     loss=float("nan") if step == 3 and fails == "nan" else loss)
            step += 1
            print("stepped", step, opt.last, flush=True)
            time.sleep(0.5 if args.slow is not None and args.slow.exists() else 0)  # until the test removes the file
    opt.leave()
    values = [whole(p.detach()).flatten().tolist() for p in model.parameters()]
    kept = [whole(inner.state[p][name]).flatten().tolist() for p in model.parameters() for name in sorted(inner.state[p])]
    lines = [f"\nDEALT {json.dumps(dealt)}", f"STATUS {rank} {json.dumps(dataclasses.asdict(swarm.status()))}",
             f"VALUES {rank} {json.dumps([values, kept])}", f"EXTRA {extra.tolist()}\n"]
    os.write(1, "\n".join(lines).encode())  # at once: the ranks share the file
    if group:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
