"""Data that is dealt to the loops of a run a block at a time."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._options import whole
from ._shards import Shards
from .data import Block, Blocks

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from ._optimizer import Optimizer

    _Base = Dataset[Block]
else:
    _Base = object


class Stream(_Base):
    """Blocks that this loop gets; `Swarm.stream` makes it. A data set for a DataLoader, whose workers read the blocks, and
    `shards`, the sampler that deals their numbers: each record of a pass enters one update of the whole swarm, whichever
    loops join, stop or die.

    Each block must be in a step, in order, an empty one, too: it weighs as one record without a gradient. See `Shards`
    for how an iteration ends. In a worker, a stream can read blocks and nothing else."""

    shards: Shards

    def __init__(self, shards: Shards, data: Blocks) -> None:
        self.shards = shards
        self._data = data
        self._optimizer: weakref.ref[Optimizer] | None = None

    def __len__(self) -> int:
        """The blocks of a pass, of which this loop gets a part."""
        return len(self._data)

    def __getitem__(self, number: int) -> Block:
        """Reads a block. Raises what says which one cannot be read, and where; then its claim returns."""
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} blocks, and no number {number}")
        records = self._data.read(number)
        if not hasattr(records, "__getitem__") or not hasattr(records, "__len__"):
            raise TypeError(f"block {number} was read as a {type(records).__name__}, and must be a list of records")
        return Block(number, records)

    def __getstate__(self) -> dict[str, Any]:
        return {"_data": self._data}  # for a worker, which reads

    def batches(self, block: Block, size: int) -> Iterator[list[Any]]:
        """Lists of up to `size` records of the block: call `backward` on the mean loss of each. Clears the gradients at
        the beginning; at the end they are those of the mean over the block, also if the last list is shorter."""
        size = whole("size", size, 1)
        optimizer = self._optimizer() if self._optimizer else None
        if optimizer is None:
            raise ValueError("batches needs a waggle.Optimizer of the same swarm: construct it before")
        if optimizer._together is not None and optimizer._together.waits_in_passes:
            raise ValueError("the ranks wait for each other in each pass of DistributedDataParallel and fully_shard, and their blocks "
                             "have different numbers of batches: give waggle.Optimizer the plain module, or compute each block in one "
                             "pass, optimizer.weighed(loss, samples=max(len(block), 1)).backward()")
        optimizer.zero_grad()
        if not block and optimizer._together is not None:
            optimizer._zeros_for_gradients()  # the blocks of other ranks have some
        done = last = 0
        for begin in range(0, len(block), size):
            batch = block[begin:begin + size]
            if last and len(batch) != last:
                optimizer._scale_gradients(last / len(batch))
            last = len(batch)
            yield batch
            done += last
        if last and last != done:
            optimizer._scale_gradients(last / done)

    def _stepped(self, block: Block) -> int:
        """The weight of a block that is in the next step. Raises ValueError if it is not the next one."""
        ahead = self.shards._ahead
        if not ahead or ahead[0] != block.number:
            raise ValueError(f"block {block.number} is not the next one that this loop was dealt"
                             + (f", {ahead[0]}" if ahead else "") + ": give the DataLoader sampler=stream.shards and no "
                             "shuffle, and step over each block, in order")
        ahead.popleft()
        return max(len(block), 1)
