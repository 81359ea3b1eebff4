"""Float32 masters of parameters in half precision, which an optimizer trains in their place."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ._describe import HALVES


class Master:
    """Of one parameter. Passes add up in the master's .grad; the parameter's is the rounded sum, so that who clears,
    clips or sets either changes both. `name`: for sentences."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.master = torch.nn.Parameter(parameter.detach().to(torch.float32))
        self._copy: torch.Tensor | None = None  # .grad of the parameter; None: no pass since the last step
        self._versions = 0, 0  # of it and of the sum
        # Of the node that writes .grad, which lives as long as somebody holds it; torch 1 has no hook of the tensor behind it.
        me = weakref.ref(self)
        with torch.enable_grad():
            self._node: Any = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        of_parameter: Any = parameter
        self._hooks = (of_parameter.register_hook(lambda _: _called(me, Master.take)),
                       self._node.register_hook(lambda *_: _called(me, Master._after)))

    def end(self) -> None:
        """The parameter has no master any more."""
        for hook in self._hooks:
            hook.remove()

    # -- gradients

    def _sum(self) -> torch.Tensor | None:
        gradient, total = self.parameter.grad, self.master.grad
        if gradient is None:
            return total if self._copy is None else None
        if self._copy is None:  # none of a pass that this has seen
            return gradient.detach().to(torch.float32) if total is None else total.add_(gradient.detach())
        if gradient is self._copy and gradient._version == self._versions[0]:
            return total
        if total is not None and total._version != self._versions[1] and bool(gradient.any()):
            raise ValueError(f"the gradient of parameter {self.name} was changed in the module after that of its master in the "
                             "optimizer was, such as by a GradScaler: clip what optimizer.param_groups has")
        return gradient.detach().to(torch.float32)

    def take(self) -> None:
        """The master's .grad is the sum, and the parameter has none."""
        self.master.grad = self._sum()
        self.parameter.grad = self._copy = None

    def clear(self) -> None:
        self.master.grad = self.parameter.grad = self._copy = None

    def _after(self) -> None:
        new, master = self.parameter.grad, self.master
        assert new is not None
        with torch.no_grad():
            if master.grad is None:
                master.grad = new.detach().to(torch.float32)
            else:
                master.grad.add_(new)
                self.parameter.grad = new = master.grad.to(new.dtype)
        self._copy, self._versions = new, (new._version, master.grad._version)

    # -- values

    @torch.no_grad()
    def follow(self) -> None:
        """Takes what the loop has written to the parameter, also to its .data, which has no version."""
        new = self.parameter.to(self.master.device)
        given = self.master.to(new.dtype)
        if not torch.equal(new, given):
            self.master.copy_(torch.where(new == given, self.master, new.to(torch.float32)))

    @torch.no_grad()
    def give(self) -> None:
        """The parameter becomes the rounded master."""
        self.parameter.copy_(self.master)


def _called(of: weakref.ref[Master], what: Any) -> None:
    master = of()
    if master is not None:
        what(master)


def require_fresh(optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError unless masters may take the places of the optimizer's parameters."""
    if optimizer.state:
        raise ValueError("masters=True, and the optimizer has a state already, which is of the parameters themselves: construct "
                         "the optimizer anew, and load the state into the waggle.Optimizer")


def masters_of(optimizer: torch.optim.Optimizer, named: list[tuple[str, torch.Tensor]]) -> list[Master | None]:
    """For each parameter; None: it is float32. They take their places in the optimizer's groups.

    Raises ValueError if all are float32."""
    out = [Master(name, p) if p.dtype in HALVES else None for name, p in named]
    if not any(out):
        raise ValueError("masters=True, and all trained parameters are float32 already: leave masters out")
    replace(optimizer, {id(m.parameter): m.master for m in out if m is not None})
    return out


def undo(optimizer: torch.optim.Optimizer, masters: list[Master | None]) -> None:
    """Of a waggle.Optimizer that could not be constructed."""
    those = [m for m in masters if m is not None]
    replace(optimizer, {id(m.master): m.parameter for m in those})
    for m in those:
        m.end()


def replace(optimizer: torch.optim.Optimizer, by: dict[int, torch.Tensor]) -> None:
    for group in optimizer.param_groups:
        group["params"][:] = [by.get(id(p), p) for p in group["params"]]
