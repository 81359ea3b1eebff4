"""How an optimizer of torch rounds on this machine."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence

import torch

from ._describe import SWITCHES
from ._trial import hooks_of_all


def _fixed(factor: int, first: int, device: torch.device) -> torch.Tensor:
    numbers = torch.arange(17 * 59, device="cpu").mul_(factor).add_(first).remainder_(2003)
    return numbers.sub_(1001).to(torch.float64).div_(1001).to(torch.float32).view(17, 59).to(device)


def software_of(inner: torch.optim.Optimizer) -> str:
    """What of torch and of the options that are not compared decides about rounding."""
    switches = [f"{name}=True" for name in SWITCHES if any(group.get(name) for group in inner.param_groups)]
    if any(isinstance(group.get("lr"), torch.Tensor) for group in inner.param_groups):
        switches.append("a tensor as lr")
    return " with ".join(["that of PyTorch " + torch.__version__.split(".")[0], *filter(None, [" and ".join(switches)])])


def rounding_of(inner: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> int:
    """A hash of the matrix that three steps leave of a fixed one, as C++ makes it (trainer/rounding.hpp). 0: the
    class cannot be constructed from the options of a parameter group, or cannot train such a matrix."""
    ours = {id(p): p for p in parameters}
    groups = [group for group in inner.param_groups if any(id(p) in ours for p in group["params"])]
    with_matrix = [group for group in groups if any(p.dim() > 1 for p in group["params"])]
    group = (with_matrix or groups)[0]  # vectors may have another weight decay
    matrix = _fixed(7919, 0, parameters[0].device).requires_grad_()
    try:
        taken = inspect.signature(type(inner)).parameters
        options = {name: value for name, value in group.items() if name in taken and name != "params"}
        with torch.random.fork_rng([matrix.device.index] if matrix.is_cuda else []), hooks_of_all(None):
            make: Callable[..., torch.optim.Optimizer] = type(inner)
            rate = options.get("lr")
            rate = torch.full_like(rate, 0.01) if isinstance(rate, torch.Tensor) else 0.01
            trial = make([matrix], **{**options, "lr": rate})
            for i in range(3):
                matrix.grad = _fixed(7907, 104_729 * i, matrix.device)
                trial.step()
    except Exception:
        return 0
    values = matrix.detach().reshape(-1).cpu().view(torch.uint8)
    return max(int.from_bytes(hashlib.sha256(bytes(values.tolist())).digest()[:8], "big"), 1)
