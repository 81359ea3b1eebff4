"""Trains on lines of JSON in files that may be larger than memory. Blocks of the files are dealt to all loops of the run, so
that each record enters one update a pass.

    python3 examples/stream.py --data 'data/*.jsonl'                   # the first peer; its log names its port
    python3 examples/stream.py --data 'data/*.jsonl' --peer HOST:PORT  # further ones, with the same files
"""

import argparse
from typing import Any

import torch
import torch.nn.functional as F
import waggle
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True, help="a pattern of files; each line has a member text")
parser.add_argument("--block", default="4MiB")
parser.add_argument("--passes", type=int, default=3)
parser.add_argument("--target", type=int, default=4096, help="records of all peers for an update, and at most of a block")
parser.add_argument("--min-peers", type=int, default=1)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--peer", action="append", help="HOST:PORT of a peer of the run")
parser.add_argument("--listen")
parser.add_argument("--data-dir")
args = parser.parse_args()

model = torch.nn.Embedding(256, 256)  # the next byte after each


def loss(records: list[dict[str, Any]]) -> torch.Tensor:
    texts = [torch.tensor(list(record["text"].encode())) for record in records]
    return torch.stack([F.cross_entropy(model(text[:-1]), text[1:]) for text in texts]).mean()


swarm = waggle.join("stream", initial_peers=args.peer, listen=args.listen, data_dir=args.data_dir)
stream = swarm.stream(waggle.data.jsonl(args.data, block=args.block), passes=args.passes)
optimizer = waggle.Optimizer(torch.optim.AdamW(model.parameters(), 1e-2), swarm, model, target_batch_size=args.target,
                             min_peers=args.min_peers)
loader = DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=args.workers)
while not swarm.finished:
    for block in loader:
        total = 0.0
        for batch in stream.batches(block, 32):
            of_batch = loss(batch)
            of_batch.backward()
            total += of_batch.item() * len(batch)
        optimizer.step(block, loss=total / len(block) if len(block) else None)
print("passes:", *swarm.status().passes[:-1])
swarm.leave()
