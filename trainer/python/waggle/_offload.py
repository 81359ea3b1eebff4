"""An optimizer of torch, made again over copies of its parameters in host memory."""

from __future__ import annotations

import collections
from typing import Any

import torch

from ._masters import Master
from ._several import parts_of
from ._trial import copied


class HostCopy(Master):
    """In float32, pinned if the parameter is on a GPU. Passes add up in the parameter's own .grad."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        memory = torch.empty(parameter.shape, dtype=torch.float32, device="cpu", pin_memory=parameter.is_cuda)
        self.master = torch.nn.Parameter(memory.copy_(parameter.detach()))

    def end(self) -> None:
        """There are no hooks."""

    def clear(self) -> None:
        """The loop does."""

    def take(self) -> None:
        """The copy's .grad is the parameter's."""
        gradient = self.parameter.grad
        self.master.grad = None if gradient is None else gradient.detach().to("cpu", torch.float32, copy=True)


def host_copies_of(named: list[tuple[str, torch.Tensor]], ranks: object) -> list[Master | None]:
    """Raises ValueError with a sentence."""
    if ranks is not None:
        raise ValueError("offload_optimizer and delay_optimizer_step do not go together with group: of modules by fully_shard, "
                         "CPUOffloadPolicy keeps the optimizer in host memory, and delay_grad_averaging hides rounds")
    return [HostCopy(name, p) for name, p in named]


def made_again(optimizer: torch.optim.Optimizer, copies: list[Master | None]) -> Any:
    """The optimizer over the copies, with its state and its hooks. Raises ValueError with a sentence."""
    memo: dict[int, Any] = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    memo.update({id(c.parameter): c.master for c in copies if c is not None})
    for each in parts_of(optimizer):
        memo[id(each.state)] = collections.defaultdict(dict)
    name = " and ".join(type(each).__name__ for each in parts_of(optimizer))
    if any(callable(getattr(each, "eval", None)) for each in parts_of(optimizer)):
        raise ValueError(f"{name} has train and eval, which change parameters where the optimizer steps: leave offload_optimizer and "
                         "delay_optimizer_step out")
    try:
        made = copied(optimizer, memo)
        for group in made.param_groups:
            group.update({key: value.to("cpu") for key, value in group.items() if isinstance(value, torch.Tensor)})
        for ours, theirs in [(made, optimizer), *zip(parts_of(made), parts_of(optimizer))]:
            vars(ours).update({name: hooks for name, hooks in vars(theirs).items() if "_hooks" in name})  # and later ones
        for ours, theirs in zip(parts_of(made), parts_of(optimizer)):
            if theirs.state:
                ours.load_state_dict(theirs.state_dict())
    except Exception as e:
        raise ValueError(f"{name} cannot be made again over copies of the parameters in host memory ({e}): leave offload_optimizer "
                         "and delay_optimizer_step out") from e
    held = {id(p) for group in made.param_groups for p in group["params"]}
    missing = [c.name for c in copies if c is not None and id(c.master) not in held]
    if missing:
        raise ValueError(f"{name} cannot be made again over copies of the parameters in host memory: its groups are not those it was "
                         f"constructed with, such as for parameter {missing[0]}")
    return made

