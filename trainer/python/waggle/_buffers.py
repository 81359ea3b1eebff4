"""What passes change in a module beside its parameters' gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ._describe import pieces, plain_name, require_values
from ._options import error_of


_small = 4096  # whole numbers that are copied at each step anyway


class Buffer:
    """A buffer of a module, by its place there: a pass may put another tensor in it. Floating-point ones are averaged as
    float32; of whole numbers the peers take the largest, three float32 values each."""

    def __init__(self, name: str, table: dict[str, torch.Tensor | None], key: str) -> None:
        self.name = name
        self.table, self.key = table, key
        now = self.tensor
        self._kind = now.dtype, now.shape, now.device
        self.counts = not now.is_floating_point()
        self.sent_shape = [*now.shape, 3] if self.counts else list(now.shape)
        self.last = torch.empty(self.sent_shape, dtype=torch.float32, device="cpu")  # finite values, as they are sent
        self._encode(now, self.last.view(-1))
        self._host = torch.empty_like(now, device="cpu", pin_memory=True) if now.is_cuda else None
        self._seen = (id(now), now._version)  # what they are of

    @property
    def tensor(self) -> torch.Tensor:
        now = self.table.get(self.key)
        if now is None:
            raise error_of("schema_mismatch", f"buffer {self.name} was removed since the waggle.Optimizer was constructed")
        return now

    def _encode(self, of: torch.Tensor, into: torch.Tensor) -> None:
        values = of.detach().reshape(-1)
        into.copy_(pieces(values.to("cpu", torch.float64)).view(-1) if self.counts else values)

    def begin_offer(self) -> bool:
        """Returns whether the values may have changed since the last offer. Those on a GPU are copied from it, when the
        device has come so far."""
        now = self.tensor
        if (now.dtype, now.shape, now.device) != self._kind:
            dtype, shape, device = self._kind
            raise error_of("schema_mismatch",
                           f"buffer {self.name} is {list(now.shape)} of {now.dtype} on {now.device}, and was {list(shape)} of "
                           f"{dtype} on {device} when the waggle.Optimizer was constructed: change its values only")
        # The kernels of normalizations write to their running statistics without a new version.
        changed = not self.counts or now.numel() <= _small or self._seen != (id(now), now._version)
        if changed and self._host is not None:
            self._host.copy_(now.detach(), non_blocking=True)
        self._seen = (id(now), now._version)
        return changed

    def end_offer(self) -> None:
        """Of values that may have changed. If a pass has made them not finite, they become those before it: otherwise one
        such batch would spoil all later ones."""
        values = torch.empty_like(self.last)
        self._encode(self.tensor if self._host is None else self._host, values.view(-1))
        if torch.isfinite(values).all():
            self.last.copy_(values)
        else:
            self.write(self.last.view(-1))

    def read(self, into: torch.Tensor) -> None:
        self._encode(self.tensor, into)

    def write(self, values: torch.Tensor) -> None:
        now = self.tensor
        if self.counts:
            now.copy_(values.view(-1, 3).to(torch.float64).sum(1).view(now.shape))
        else:
            new = values.view(now.shape).to(now.device)
            # Numbers of another type keep their bits where the float32 is the same.
            now.copy_(new if now.dtype is torch.float32 else torch.where(now.to(torch.float32) == new, now, new.to(now.dtype)))
        self.last.view(-1).copy_(values)
        self._seen = (id(now), now._version)


def buffers_of(module: torch.nn.Module | None) -> list[Buffer]:
    """Those that the module's state has, the counting ones last. One that is not finite at the start is no measurement
    but a constant, such as a mask."""
    buffers = []
    seen = set()
    for prefix, m in module.named_modules() if module is not None else ():
        for key, b in m._buffers.items():
            if b is None or key in m._non_persistent_buffers_set or id(b) in seen:
                continue
            seen.add(id(b))
            name = plain_name(f"{prefix}.{key}" if prefix else key)
            require_values(f"buffer {name}", b)
            if b.numel() > 0 and b.layout == torch.strided and not b.is_complex() and not b.is_quantized and torch.isfinite(b).all():
                buffers.append(Buffer(name, m._buffers, key))
    return sorted(buffers, key=lambda b: b.counts)


def extra_buffers(extra: Any) -> list[Buffer]:
    """Of `extra_tensors`. Raises TypeError or ValueError with a sentence."""
    if isinstance(extra, torch.Tensor) or not isinstance(extra, (Mapping, list, tuple)):
        raise TypeError(f"extra_tensors is of type {type(extra).__name__}, and must be a list of tensors, or tensors by name")
    named = extra.items() if isinstance(extra, Mapping) else ((f"extra.{i}", t) for i, t in enumerate(extra))
    table: dict[str, torch.Tensor | None] = {}
    for name, t in named:
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided or t.is_complex() or t.is_quantized or t.numel() == 0:
            raise TypeError(f"extra_tensors: {name} is of type {type(t).__name__}, and must be a dense tensor with real values")
        require_values(f"extra tensor {name}", t)
        if not torch.isfinite(t).all():
            raise ValueError(f"extra_tensors: {name} has values that are not finite, which the others would get")
        table[str(name)] = t
    return [Buffer(name, table, name) for name in table]


def offer_buffers(buffers: list[Buffer]) -> list[int]:
    """The addresses of their values as they are now. Waits once for all copies from a GPU."""
    changed = [b for b in buffers if b.begin_offer()]
    for gpu in {b.tensor.device for b in changed if b.tensor.is_cuda}:
        torch.cuda.current_stream(gpu).synchronize()  # type: ignore[no-untyped-call]
    for b in changed:
        b.end_offer()
    return [b.last.data_ptr() for b in buffers]
