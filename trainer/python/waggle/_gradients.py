"""Gradients of a torch module that are not in host memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from ._describe import here


def all_finite(parameters: Sequence[torch.Tensor]) -> bool:
    """Of what is in .grad. Waits for the backward pass."""
    largest: dict[torch.device, torch.Tensor] = {}
    for p in parameters:
        if p.grad is not None and here(p.grad).numel() > 0:
            of = torch.linalg.vector_norm(here(p.grad), math.inf)
            largest[p.device] = torch.maximum(largest.get(p.device, of), of)  # and NaN stays NaN
    return all(math.isfinite(value.item()) for value in largest.values())


class HostCopies:
    """In host memory, by numbers: pinned for a GPU, and kept for the next time."""

    def __init__(self) -> None:
        self._copies: dict[int, torch.Tensor] = {}

    def of(self, tensors: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Waits once for all copies from a GPU."""
        gpus = set()
        for i, tensor in tensors.items():
            if i not in self._copies:
                self._copies[i] = torch.empty(tensor.shape, dtype=torch.float32, device="cpu", pin_memory=tensor.is_cuda)
            self._copies[i].copy_(tensor.detach(), non_blocking=tensor.is_cuda)
            if tensor.is_cuda:
                gpus.add(tensor.device)
        for gpu in gpus:
            torch.cuda.current_stream(gpu).synchronize()  # type: ignore[no-untyped-call]
        return {i: self._copies[i] for i in tensors}


class DeviceSum:
    """The gradients of passes, added up where they are, in tensors that have their memory from then on. The host gets the
    sum once an update. Until something is added: what is in .grad."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        self._sums: list[torch.Tensor | None] | None = None  # None of a parameter: no pass had a gradient for it
        self._unused: dict[int, torch.Tensor] = {}
        self._host = HostCopies()

    @torch.no_grad()
    def add(self, keep: float, times: float) -> None:
        """The sum becomes `keep` times itself plus `times` .grad; keep of 0: there is none yet."""
        if self._sums is None:
            self._sums = [None] * len(self._parameters)
        sums = self._sums
        for i, p in enumerate(self._parameters):
            before, new = sums[i], None if p.grad is None else here(p.grad)
            if before is not None and keep not in (0, 1):
                before.mul_(keep)
            if before is not None and keep == 0:
                sums[i] = None
                self._unused[i] = before
            if new is None:
                continue
            if (total := sums[i]) is not None:
                total.add_(new, alpha=times)
            else:
                total = sums[i] = self._memory(i, here(p)).copy_(new)
                if times != 1:
                    total.mul_(times)

    def _memory(self, i: int, like: torch.Tensor) -> torch.Tensor:
        unused = self._unused.pop(i, None)
        return torch.empty(like.shape, dtype=like.dtype, device=like.device) if unused is None else unused

    def read(self, into: memoryview) -> None:
        sizes = [p.numel() for p in self._parameters]
        for part, values in zip(torch.split(torch.frombuffer(into, dtype=torch.float32), sizes), self.on_host()):
            part.zero_() if values is None else part.copy_(values)

    @torch.no_grad()
    def on_host(self) -> list[torch.Tensor | None]:
        """Those that this process has, each in one dimension. Copies nothing that is in host memory already."""
        sums = self._sums or [None if p.grad is None else here(p.grad) for p in self._parameters]
        there = {i: s.detach() for i, s in enumerate(sums)
                 if s is not None and s.device.type == "cpu" and s.dtype == torch.float32 and s.is_contiguous()}
        there |= self._host.of({i: s for i, s in enumerate(sums) if s is not None and i not in there})
        return [there[i].view(-1) if i in there else None for i in range(len(sums))]

    def write(self, values: memoryview) -> None:
        sizes = [p.numel() for p in self._parameters]
        self.write_parts(torch.split(torch.frombuffer(values, dtype=torch.float32), sizes))

    @torch.no_grad()
    def write_parts(self, parts: Iterable[torch.Tensor]) -> None:
        """Which had no gradient is not known any more; zeros are the same in a sum."""
        places = [here(p) for p in self._parameters]
        self._sums = [self._memory(i, p).copy_(part.view(p.shape)) for i, (p, part) in enumerate(zip(places, parts))]
