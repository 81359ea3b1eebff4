"""Shared by plain.py and swarm.py: a model, its data, and the command line."""

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F

CONTEXT = 16  # number of bytes that a prediction depends on
WIDTH = 32  # values of the hidden layer


class NextByte(torch.nn.Module):
    """Predicts the last byte of a window from the concatenated embeddings of the other bytes. The same
    model, with the same tensor names, as `waggle train --model mlp --layers 1 --width 32 --context 16`."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = torch.nn.Embedding(256, 8)
        self.hidden0 = torch.nn.Linear(CONTEXT * 8, WIDTH)
        self.head = torch.nn.Linear(WIDTH, 256)

    def loss(self, windows: torch.Tensor) -> torch.Tensor:
        x = self.bytes(windows[:, :CONTEXT]).flatten(1)
        return F.cross_entropy(self.head(torch.relu(self.hidden0(x))), windows[:, CONTEXT])


def windows(seed: int) -> Iterator[torch.Tensor]:
    """Endless int64 [batch, context + 1] of a text in which each letter is followed by one of four."""
    chain = torch.Generator().manual_seed(20_260_101)
    followers = torch.randint(64, (64, 4), generator=chain).tolist()
    choices = torch.randint(4, (1 << 16,), generator=chain).tolist()
    letters, now = [], 0
    for choice in choices:
        now = followers[now][choice]
        letters.append(32 + now)
    text = torch.tensor(letters)
    own = torch.Generator().manual_seed(seed)
    while True:
        begin = torch.randint(len(text) - CONTEXT, (ARGS.batch, 1), generator=own)
        yield text[begin + torch.arange(CONTEXT + 1)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=8, help="samples per step")
    parser.add_argument("--seed", type=int, default=1)
    of_swarm = parser.add_argument_group("used by swarm.py only")
    of_swarm.add_argument("--run", default="waggle")
    of_swarm.add_argument("--peer", action="append", help="HOST:PORT of a peer of the run")
    of_swarm.add_argument("--listen")
    of_swarm.add_argument("--data-dir")
    of_swarm.add_argument("--strategy", default="collaborative")
    of_swarm.add_argument("--target", type=int, default=64, help="samples of the whole swarm per update")
    of_swarm.add_argument("--min-peers", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.strategy.startswith("decentralized"):
        arguments.target = None  # they count steps
    return arguments


ARGS = _arguments()
