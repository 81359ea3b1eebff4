"""The parameters, statistics and buffers of a torch module and optimizer, for a loop."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ._describe import Description, Statistic
from ._loop import LoopModel
from ._rounding import rounding_of

Named = list[tuple[str, torch.Tensor]]


class Followed:
    """A scheduler of torch that stands at the number of updates of the run."""

    def __init__(self, scheduler: Any, inner: torch.optim.Optimizer) -> None:
        self.scheduler = scheduler
        self._step = type(scheduler).step
        self._inner = inner
        self._initial = copy.deepcopy(scheduler.state_dict())
        self._options = [dict(group) for group in inner.param_groups]
        self._first = scheduler.last_epoch

    def move_to(self, position: int) -> None:
        if position < self.scheduler.last_epoch and self._first <= position:
            # The run's state is older than ours was.
            for group, options in zip(self._inner.param_groups, self._options):
                group.update({name: value for name, value in options.items() if name != "params"})
            self.scheduler.load_state_dict(copy.deepcopy(self._initial))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no step of the optimizer came before
            while self.scheduler.last_epoch < position:
                self._step(self.scheduler)


class Model(LoopModel):
    """The parameters, statistics and buffers of a torch module and optimizer. Refers to no peer, which
    refers to it."""

    _clears_gradients = True

    def __init__(self, inner: torch.optim.Optimizer, parameters: Named, buffers: Named) -> None:
        self.inner = inner
        self.parameters = parameters  # [(name, tensor)]
        self.buffers = buffers
        self.description = Description(inner, [p for _, p in parameters])
        # Tensor number `which` of the state: (parameter, None), (parameter, statistic) or (buffer, None).
        self.tensors: list[tuple[torch.Tensor, Statistic | None]] = [(p, None) for _, p in parameters]
        names = list(dict.fromkeys(s.name for row in self.description.statistics for s in row))
        for name in names:
            for (_, p), row in zip(parameters, self.description.statistics):
                self.tensors += [(p, s) for s in row if s.name == name]
        self.first_buffer = len(self.tensors)
        self.tensors += [(b, None) for _, b in buffers]
        self.finite_buffers = [b.detach().cpu().clone(memory_format=torch.contiguous_format) for _, b in buffers]
        self.passes = 0  # since the gradients were cleared
        self.ratios: list[float] | None = None  # of the groups' rates, if the run owns the rate
        self.followed: Followed | None = None
        self.epoch: Callable[[], int] | None = None  # where it stands; None: at the number of steps
        self.count_steps()

    def count_steps(self) -> None:
        """Of an optimizer that has stepped, or loaded a state, before."""
        states = [self.inner.state[p] for _, p in self.parameters if p in self.inner.state]
        counts = [int(state["step"]) for state in states if state.get("step") is not None]
        self.steps_made = max(counts, default=int(any(states)))

    def own_rates(self) -> None:
        rates = [float(group.get("lr", 0)) for group in self.inner.param_groups]
        if rates[0] == 0 and any(rates):
            raise ValueError("the learning rate of the optimizer's first parameter group is 0, and that of another "
                             "one is not: with lr, each group keeps its ratio to the first one, so put a group that "
                             "is trained first")
        self.ratios = [rate / rates[0] if rates[0] else 1.0 for rate in rates]

    def _inner_step(self, lr: float) -> None:
        if self.followed is not None:
            self.followed.move_to(self.steps_made if self.epoch is None else self.epoch())
        if self.ratios is not None:
            for group, ratio in zip(self.inner.param_groups, self.ratios):
                group["lr"] = lr * ratio
        self.inner.step()
        self.steps_made += 1

    def apply(self, gradient: memoryview, lr: float) -> None:
        values = torch.frombuffer(gradient, dtype=torch.float32)
        at = 0
        with torch.no_grad():
            for _, p in self.parameters:
                part = values[at:at + p.numel()].view(p.shape)
                at += p.numel()
                if p.grad is None or p.grad.layout != torch.strided:
                    p.grad = torch.empty_like(p)
                p.grad.copy_(part)
        self._inner_step(lr)

    def step(self, lr: float) -> None:
        self._inner_step(lr)

    def read(self, which: int, into: memoryview) -> None:
        tensor, statistic = self.tensors[which]
        values = torch.frombuffer(into, dtype=torch.float32)
        with torch.no_grad():
            if statistic is not None:
                statistic.read(self.inner.state.get(tensor, {}), values)
            else:
                values.copy_(tensor.detach().reshape(-1))

    def write(self, which: int, values: memoryview) -> None:
        tensor, statistic = self.tensors[which]
        new = torch.frombuffer(values, dtype=torch.float32)
        with torch.no_grad():
            if statistic is not None:
                statistic.write(self.inner.state[tensor], new)
                return
            tensor.copy_(new.view(tensor.shape))
            if which >= self.first_buffer:
                self.finite_buffers[which - self.first_buffer].copy_(tensor)

    def steps(self) -> int:
        return self.steps_made

    def rounding(self) -> int:
        return rounding_of(self.inner, [p for _, p in self.parameters])

    def set_steps(self, steps: int) -> None:
        self.steps_made = steps
        for (_, p), row in zip(self.parameters, self.description.statistics):
            if steps == 0:
                self.inner.state.pop(p, None)  # statistics may begin with other values than zeros
            elif row or self.description.counter is not None:
                state = self.inner.state[p]
                for statistic in row:
                    statistic.make(state)
                counter = self.description.counter
                if counter is not None:
                    counter.make(state)
                    state["step"] = (counter.number(steps) if counter.number else
                                     torch.full_like(state["step"], steps))


def tensors_of(module: torch.nn.Module | None, optimizer: torch.optim.Optimizer) -> tuple[Named, Named]:
    """The trained parameters and the running statistics, by name."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    known = {id(p) for p in held}
    if module is None:
        named = [(str(i), p) for i, p in enumerate(held)]
    else:
        named = list(module.named_parameters())
    parameters = []
    for name, p in named:
        if not p.requires_grad or p.numel() == 0:
            continue
        if p.dtype is not torch.float32 or p.layout != torch.strided:
            raise ValueError(f"parameter {name} is of type {p.dtype}, {p.layout}, and only dense float32 parameters can "
                             "take part: call float() on the module before the optimizer is constructed; passes may "
                             "compute in another format by torch.autocast")
        if id(p) not in known:
            raise ValueError(f"parameter {name} is trainable, but the optimizer does not have it: freeze it, or give it "
                             "to the optimizer")
        parameters.append((name, p))
    ours = {id(p) for _, p in parameters}
    for p in held:
        if p.requires_grad and p.numel() > 0 and id(p) not in ours:
            raise ValueError(f"the optimizer has a parameter with {p.numel()} values that the module does not have: pass "
                             "the module that has all of them")
    if not parameters:
        raise ValueError("there are no parameters to train")
    buffers = []
    seen = set()
    for name, b in module.named_buffers() if module is not None else ():
        if name.endswith(("running_mean", "running_var")) and b is not None and b.numel() > 0 \
                and b.dtype is torch.float32 and id(b) not in seen:
            seen.add(id(b))
            buffers.append((name, b))
    return parameters, buffers
