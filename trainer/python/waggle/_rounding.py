"""How an optimizer of torch rounds on this machine."""

from __future__ import annotations

import ctypes
import hashlib
import inspect
from collections.abc import Callable, Sequence

import torch

from ._describe import SWITCHES
from ._trial import hooks_of_all


_values_max = 2**20  # of the trial, of an optimizer that C++ does not know


def _fixed(shape: torch.Size, factor: int, first: int, device: torch.device) -> torch.Tensor:
    numbers = torch.arange(shape.numel(), device="cpu").mul_(factor).add_(first).remainder_(2003)
    return numbers.sub_(1001).to(torch.float64).div_(1001).to(torch.float32).view(shape).to(device)


def software_of(inner: torch.optim.Optimizer) -> str:
    """What of torch and of the options that are not compared decides about rounding."""
    switches = [f"{name}=True" for name in SWITCHES if any(group.get(name) for group in inner.param_groups)]
    if any(isinstance(group.get("lr"), torch.Tensor) for group in inner.param_groups):
        switches.append("a tensor as lr")
    return " with ".join(["that of PyTorch " + torch.__version__.split(".")[0], *filter(None, [" and ".join(switches)])])


def _shapes(parameters: Sequence[torch.Tensor]) -> list[torch.Size]:
    """Those of the parameters, from small to large, as far as a trial of them takes no time."""
    out: list[torch.Size] = []
    for shape in sorted({p.shape for p in parameters}, key=lambda s: (s.numel(), list(s))):
        if shape.numel() <= _values_max - sum(each.numel() for each in out):
            out.append(shape)
    return out


def rounding_of(inner: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], known: bool) -> int:
    """A hash of what three steps leave of fixed values: of one matrix if C++ knows the optimizer (updated_tensors.cpp);
    of others, in the shapes of the parameters, because sums of rows round by their lengths. 0: the class cannot be
    constructed from the options of a parameter group, or cannot train such tensors."""
    ours = {id(p): p for p in parameters}
    groups = [group for group in inner.param_groups if any(id(p) in ours for p in group["params"])]
    with_matrix = [group for group in groups if any(p.dim() > 1 for p in group["params"])]
    group = (with_matrix or groups)[0]  # vectors may have another weight decay
    device = parameters[0].device
    shapes = [] if known else _shapes([ours[id(p)] for p in group["params"] if id(p) in ours])
    tensors = [_fixed(shape, 7919, 0, device).requires_grad_() for shape in shapes or [torch.Size([17, 59])]]
    try:
        taken = inspect.signature(type(inner)).parameters
        options = {name: value for name, value in group.items() if name in taken and name != "params"}
        with torch.random.fork_rng([device.index] if device.type == "cuda" else []), hooks_of_all(None):
            make: Callable[..., torch.optim.Optimizer] = type(inner)
            rate = options.get("lr")
            rate = torch.full_like(rate, 0.01) if isinstance(rate, torch.Tensor) else 0.01
            trial = make(tensors, **{**options, "lr": rate})
            for i in range(3):
                for each in tensors:
                    each.grad = _fixed(each.shape, 7907, 104_729 * i, device)
                trial.step()
    except Exception:
        return 0
    hashed = hashlib.sha256()
    for each in tensors:
        values = each.detach().reshape(-1).cpu().view(torch.uint8)
        hashed.update((ctypes.c_char * values.numel()).from_address(values.data_ptr()))
    return max(int.from_bytes(hashed.digest()[:8], "big"), 1)
