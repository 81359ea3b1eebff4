"""The gradients of the ranks of a group, as those of one peer."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.parallel

from ._ranks import Ranks, weighed
from ._swarm import Swarm


class _Mark:
    """A hook of a module, of whose copies it does nothing."""

    def __init__(self, of: Together | None = None) -> None:
        self._of = None if of is None else weakref.ref(of)

    def __call__(self, *_: Any) -> None:
        together = self._of() if self._of is not None else None
        if together is not None:
            together.waits()

    def __reduce__(self) -> Any:
        return _Mark, ()


class Together:
    """What `Optimizer.step` does on all ranks before rank 0 offers the gradient."""

    def __init__(self, swarm: Swarm, module: torch.nn.Module | None) -> None:
        self._peer: Any = swarm._peer
        self.ranks: Ranks = self._peer.ranks
        # Both have averaged the gradients before a step; in other modules each rank has its own.
        self._averages = isinstance(module, torch.nn.parallel.DistributedDataParallel)
        self._weighed = False  # the loss of this rank, so that the mean of the gradients is that over the samples
        self._busy: float | None = None  # seconds of this rank's own work in this pass, where it waits for others within a pass
        self._sharded = [m for m in module.modules() if hasattr(m, "reshard")] if module is not None else []
        if module is not None and self.waits_in_passes:
            waits = self._sharded or next(module.buffers(), None) is not None  # from the forward pass on, or from the backward pass on
            (module.register_forward_pre_hook if waits else module.register_forward_hook)(_Mark(self))

    @property
    def waits_in_passes(self) -> bool:
        return self._averages or bool(self._sharded)

    def waits(self) -> None:
        """This rank's own work is done, the first time in a pass."""
        if self._busy is None:
            self._busy = time.perf_counter() - self._peer.stepped_at

    @staticmethod
    def of(swarm: Swarm, module: torch.nn.Module | None) -> Together | None:
        return Together(swarm, module) if hasattr(swarm._peer, "ranks") else None

    def reshard(self) -> None:
        """A forward pass without a backward pass leaves whole parameters in the module, which would not see an update."""
        for each in self._sharded:
            each.reshard()  # type: ignore[operator]

    def weigh(self, loss: torch.Tensor, samples: int) -> torch.Tensor:
        total = sum(row[0] for row in self.ranks.meet("weighed", samples))
        if not self.waits_in_passes:
            return loss
        self._weighed = True
        return loss * (samples * self.ranks.size / total)

    def fails_to_begin(self, error: Exception) -> None:
        """The optimizer of this rank cannot be constructed: the others raise it, too, unless all have met already."""
        if not self._peer.began:
            self.ranks.meet("the constructor of waggle.Optimizer", failed=error)

    def fails(self, error: Exception) -> None:
        """The step of this rank: the others raise it, too."""
        self.ranks.meet("step", failed=error)

    def meet(self, samples: int, loss: float | None, finite: bool, claims: int,
             parameters: Sequence[torch.Tensor]) -> tuple[int, float | None, bool]:
        """Returns the samples and the loss of all ranks, and whether all gradients are finite. Afterwards .grad is the mean
        over the samples of all ranks. Raises ValueError if it cannot be."""
        of_pass = time.perf_counter() - self._peer.stepped_at
        busy, self._busy = of_pass if self._busy is None else self._busy, None
        own = [p.grad for p in parameters if p.grad is not None and not hasattr(p, "device_mesh")]
        scaled, self._weighed = self._weighed, False
        known = math.nan if loss is None else math.inf if math.isnan(loss) else loss  # inf: of all ranks the step is dropped
        rows = self.ranks.meet("step", samples, known, finite, len(own), scaled, claims, busy)
        self._peer.show_paces([row[6] for row in rows], time.perf_counter() - self._peer.stepped_at)
        for rank, (of_rank, _, _, count, is_weighed, of_blocks, _) in enumerate(rows):
            if count != rows[0][3]:
                raise ValueError(f"rank {rank} has gradients of {count:.0f} parameters, and rank 0 of {rows[0][3]:.0f}: use all "
                                 "parameters in the passes of all ranks, or DistributedDataParallel, which gives each its gradient")
            if self._peer.deals and (of_blocks != rows[0][5] or (of_rank != rows[0][0] and not of_blocks)):
                raise ValueError(f"rank {rank} has {of_blocks or of_rank:.0f} samples and rank 0 {rows[0][5] or rows[0][0]:.0f}, and the "
                                 "shards deal them in turn: give the DataLoaders of all ranks one batch_size")
            if of_rank != rows[0][0] and not is_weighed and self.waits_in_passes:
                raise ValueError(f"rank {rank} has {of_rank:.0f} samples and rank 0 {rows[0][0]:.0f}, and the mean that "
                                 "DistributedDataParallel and fully_shard make of their gradients has no weights: call "
                                 "optimizer.weighed(loss, samples=…).backward() on all ranks, or give them batches of one size")
        total, mean = weighed(rows)
        if not self._averages and self.ranks.size > 1:
            self.ranks.average(own, 1 / self.ranks.size if scaled else samples / total)
        return total, mean, all(row[2] for row in rows)
