"""What `python3 -m waggle` does inside a script of torch."""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

import waggle

from ._model import makes_state
from ._schedulers import KINDS, family, is_of


class _Passes(threading.local):
    """What the forward and backward passes since the last step show."""

    depth = 0
    batch: int | None = None  # of the outermost forward passes since the last backward
    samples = 0
    loss: float | None = None
    without_dimension = False


_passes = _Passes()


def _first_tensor(values: Iterable[Any]) -> torch.Tensor | None:
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)):
            found = _first_tensor(value)
        elif isinstance(value, dict):
            found = _first_tensor(value.values())
        else:
            continue
        if found is not None:
            return found
    return None


def _watch_passes() -> None:
    call: Any = torch.nn.Module.__call__
    backward: Any = torch.Tensor.backward

    def watched_call(self: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
        if _passes.depth == 0 and torch.is_grad_enabled() and next(self.parameters(), None) is not None:
            tensor = _first_tensor((*arguments, *named.values()))
            if tensor is not None and tensor.dim() == 0:
                _passes.without_dimension = True
            elif tensor is not None:
                _passes.batch = max(_passes.batch or 0, tensor.shape[0])
        _passes.depth += 1
        try:
            return call(self, *arguments, **named)
        finally:
            _passes.depth -= 1

    def watched_backward(self: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        if self.numel() == 1:
            _passes.loss = (_passes.loss or 0.0) + self.item()
        _passes.samples += _passes.batch or 0
        _passes.batch = None
        return backward(self, *arguments, **named)

    torch.nn.Module.__call__ = watched_call
    torch.Tensor.backward = watched_backward  # type: ignore


def _module_of(optimizer: torch.optim.Optimizer) -> torch.nn.Module | None:
    """The smallest module with all parameters of the optimizer; None if there is none."""
    ours = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    found = []
    for each in gc.get_objects():
        if issubclass(type(each), torch.nn.Module):  # __class__ of some objects warns
            theirs = {id(p) for p in each.parameters() if p.requires_grad}
            if ours and theirs == ours:
                found.append((sum(1 for _ in each.modules()), type(each).__name__, each))
    return min(found, key=lambda f: f[:2])[2] if found else None


class Launcher:
    """Joins the run at the first step of the script's optimizer. `usage`: raised with what the script must
    do instead."""

    def __init__(self, run: str, of_peer: dict[str, Any], of_training: dict[str, Any],
                 usage: type[Exception]) -> None:
        self.usage = usage
        self.run, self.of_peer, self.of_training = run, of_peer, of_training
        self.optimizer: waggle.Optimizer | None = None
        self.inner: torch.optim.Optimizer | None = None
        self.inside = False
        self.said_finished = False
        self.steps = 0
        self.schedulers: list[weakref.ref[Any]] = []  # in the order of their construction

    def watch(self) -> None:
        _watch_passes()
        launcher = self
        construct = torch.optim.Optimizer.__init__

        def constructed(self: torch.optim.Optimizer, *arguments: Any, **named: Any) -> None:
            construct(self, *arguments, **named)
            self.step = types.MethodType(  # type: ignore
                lambda self, *a, **n: launcher.step(self, *a, **n), self)

        def new(cls: Any, *arguments: Any, **named: Any) -> Any:  # composite ones do not call the base's __init__
            made = object.__new__(cls)
            launcher.schedulers.append(weakref.ref(made))
            return made

        torch.optim.Optimizer.__init__ = constructed  # type: ignore
        for kind in KINDS:
            kind.__new__ = staticmethod(new)

    def join(self, optimizer: torch.optim.Optimizer) -> waggle.Optimizer:
        module = _module_of(optimizer)
        if module is None:
            raise self.usage("no module has exactly the parameters of the optimizer: write opt = waggle.Optimizer(opt, "
                         "waggle.join(…), …) into the script instead")
        try:
            swarm = waggle.join(self.run, **self.of_peer)
            self.inner = optimizer
            self.optimizer = waggle.Optimizer(optimizer, swarm, module, **self.of_training)
        except (TypeError, ValueError) as e:
            raise self.usage(str(e)) from e
        print(f"waggle: {type(optimizer).__name__} of {type(module).__name__} "
              f"({sum(p.numel() for p in module.parameters() if p.requires_grad)} values) is a peer of {self.run!r} at "
              f"{swarm.address}; batches of {_passes.samples} samples", file=sys.stderr, flush=True)
        return self.optimizer

    def follow(self, joined: waggle.Optimizer) -> None:
        """Schedulers that the script steps once for each step of the optimizer count the run's updates. Others, such
        as those of an epoch of the data, count what the script does."""
        def own(why: str) -> None:
            whose = "" if joined._model.ratios is not None else "; its rates are the script's own"
            print(f"waggle: {why}{whose}", file=sys.stderr, flush=True)

        followed = joined._model.followed
        for known in list(followed.all) if followed else ():
            assert followed
            if known.calls == 0 or (known.calls > 1 and self.steps == 1):  # later, a scaler left out a step
                followed.remove(known.scheduler)
                for _ in range(known.calls - 1):
                    known.scheduler.step()
                own(f"the script does not step the {type(known.scheduler).__name__} once for each step of the optimizer")
            known.calls = 0
        made = [s for s in (each() for each in self.schedulers) if s is not None and is_of(s, joined)]
        self.schedulers.clear()
        parts = [part for each in made for part in family(each)[1:]]
        for each in made:
            if any(each is part for part in parts):
                continue
            try:
                if self.steps > 0:
                    raise ValueError(f"the {type(each).__name__} was constructed after the first step")
                joined.follow(each)
            except (TypeError, ValueError) as e:
                own(str(e))
        self.steps += 1

    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None, **named: Any) -> Any:
        if self.inside:  # the run's update
            return type(optimizer).step(optimizer)
        if self.inner not in (None, optimizer):
            raise self.usage(f"a second optimizer, {type(optimizer).__name__}, steps: a launched script has one; write "
                         "waggle.Optimizer(…) and one waggle.join for each into the script instead")
        self.inside = True
        try:
            result = None
            if closure is not None:
                with torch.enable_grad():
                    result = closure()
            if _passes.samples == 0 and closure is None and makes_state(optimizer):
                return type(optimizer).step(optimizer) if self.optimizer is None else None  # later the state is the run's
            if _passes.samples == 0:
                why = ("the first tensor of the forward pass has no first dimension" if _passes.without_dimension else
                       "no forward and backward pass of a torch.nn.Module came before step")
                raise self.usage(f"the number of samples is not known, because {why}: write opt.step(samples=…) with "
                             "opt = waggle.Optimizer(opt, waggle.join(…), …) into the script instead")
            joined = self.optimizer or self.join(optimizer)
            self.follow(joined)
            joined.step(samples=_passes.samples, loss=_passes.loss)
            _passes.samples, _passes.loss = 0, None
            if joined.last == "finished" and not self.said_finished:
                self.said_finished = True
                print("waggle: the run has finished; the script goes on without training", file=sys.stderr, flush=True)
            return result
        finally:
            self.inside = False
