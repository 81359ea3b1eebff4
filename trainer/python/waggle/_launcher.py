"""What `python3 -m waggle` does inside a script of torch."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

import waggle

from ._describe import tensors_in, unwrapped
from ._model import makes_state
from ._needs import untested
from ._ranks import of_environment
from ._schedulers import KINDS, family, is_of, why_not

_compiler: Any = getattr(torch, "compiler", None)  # of torch 2
# What we put in place of torch's is run, not compiled. Modules are: they ask whether they are being compiled.
_runs: Callable[[Any], Any] = getattr(_compiler, "disable", lambda function: function)
_is_compiling: Callable[[], bool] = getattr(_compiler, "is_dynamo_compiling", lambda: False)


class _Passes(threading.local):
    """What the forward and backward passes since the last step show."""

    depth = 0  # of calls of modules that are trained, and of backward passes, which may repeat forward ones
    batch: int | None = None  # of the outermost forward passes since the last backward
    compiled: int | None = None  # the same, of the first compiled function whose result a backward pass can begin at
    entered: int | None = None  # of the compiled function that runs, which may contain the backward pass
    backwards = 0  # of all
    samples = 0
    loss: float | None = None
    scaled: tuple[Any, Any] = (None, None)  # a loss as a GradScaler returns it, and as it gets it
    without_dimension = False


_passes = _Passes()
_called: dict[int, weakref.ref[torch.nn.Module]] = {}  # outermost modules, until the optimizer has joined


def _batch_of(arguments: tuple[Any, ...], named: dict[str, Any]) -> int | None:
    for tensor in tensors_in([arguments, named]):
        if tensor.dim() > 0:
            return tensor.shape[0]
        _passes.without_dimension = True
    return None


def _is_watched() -> bool:
    return not _is_compiling() and _passes.depth == 0 and torch.is_grad_enabled()


def _watch_modules() -> None:
    call: Any = torch.nn.Module.__call__

    @functools.wraps(call)
    def watched(self: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
        if not _is_watched() or not any(p.requires_grad for p in self.parameters()):
            return call(self, *arguments, **named)
        batch = _batch_of(arguments, named)
        if batch is not None:
            _passes.batch = max(_passes.batch or 0, batch)
        _called.setdefault(id(self), weakref.ref(self))
        _passes.depth += 1
        try:
            return call(self, *arguments, **named)
        finally:
            _passes.depth -= 1

    torch.nn.Module.__call__ = watched
    # What is compiled is what the module calls, as without us.
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "skip_code"):
        frames.skip_code(watched.__code__)


def _watch_compiled() -> None:
    """Functions: a module that one contains is not called, but a compiled module is."""
    if not hasattr(torch, "compile"):
        return
    compiler: Any = torch.compile

    def watch(made: Any) -> Any:
        if isinstance(made, (torch.nn.Module, type)):
            return made

        @functools.wraps(made)
        def watched(*arguments: Any, **named: Any) -> Any:
            if not _is_watched():
                return made(*arguments, **named)
            batch, before = _batch_of(arguments, named), _passes.entered
            _passes.entered = before or batch
            try:
                result = made(*arguments, **named)
            finally:
                _passes.entered = before
            if _passes.compiled is None and any(tensor.requires_grad for tensor in tensors_in(result)):
                _passes.compiled = batch
            return result

        return watched

    @functools.wraps(compiler)
    def watched_compile(model: Any = None, *arguments: Any, **named: Any) -> Any:
        made = compiler(model, *arguments, **named)
        return watch(made) if model is not None else lambda function: watch(made(function))

    torch.compile = watched_compile


def _watch_backward() -> None:
    backward: Any = torch.autograd.backward  # which Tensor.backward calls

    @functools.wraps(backward)
    def watched(tensors: Any, *arguments: Any, **named: Any) -> Any:
        if _passes.depth > 0:  # of a checkpoint of activations
            return backward(tensors, *arguments, **named)
        for loss in tensors_in(tensors if isinstance(tensors, torch.Tensor) else list(tensors)):
            scaled, unscaled = _passes.scaled
            if loss.numel() == 1 and not loss.is_meta:  # which is refused at the first step
                _passes.loss = (_passes.loss or 0.0) + (unscaled if loss is scaled else loss).item()
        _passes.scaled = (None, None)
        _passes.samples += _passes.batch or _passes.compiled or _passes.entered or 0
        _passes.batch = _passes.compiled = None
        _passes.backwards += 1
        _passes.depth += 1
        try:
            return backward(tensors, *arguments, **named)
        finally:
            _passes.depth -= 1

    torch.autograd.backward = _runs(watched)


def _trained(parameters: Iterable[torch.Tensor]) -> set[int]:
    return {id(p) for p in parameters if p.requires_grad}


def _of_optimizer(optimizer: torch.optim.Optimizer) -> set[int]:
    return _trained(p for group in optimizer.param_groups for p in group["params"])


def _modules() -> Iterator[torch.nn.Module]:
    """Those that the script has called, then all. Large ones first, so a part has its names as in the whole."""
    def sorted_(found: Iterable[torch.nn.Module]) -> list[torch.nn.Module]:
        return sorted(map(unwrapped, found), key=lambda m: (-sum(1 for _ in m.modules()), type(m).__name__))

    yield from sorted_(m for m in (each() for each in _called.values()) if m is not None)
    yield from sorted_(m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module))  # __class__ of some warns


class Launcher:
    """Joins the run at the first step of the script's optimizer. `usage`: raised with what the script must
    do instead."""

    def __init__(self, run: str, of_peer: dict[str, Any], of_training: dict[str, Any],
                 usage: type[Exception]) -> None:
        self.usage = usage
        self.run, self.of_peer, self.of_training = run, of_peer, of_training
        self.optimizer: waggle.Optimizer | None = None
        self.inner: list[torch.optim.Optimizer] = []  # of the script, which make one update together
        self.waiting: dict[int, bool] = {}  # of these, by id: have they a gradient, until all have come to step
        self.waits_since = 0  # the number of backward passes then
        self.samples = 0  # of their gradients, and the loss
        self.loss: float | None = None
        self.clear: list[Callable[[], None]] = []  # their gradients, when that is done
        self.inside = False
        self.said_finished = False
        self.steps = 0
        self.constructed: list[weakref.ref[torch.optim.Optimizer]] = []
        self.schedulers: list[weakref.ref[Any]] = []  # in the order of their construction

    def watch(self) -> None:
        _watch_modules()
        _watch_compiled()
        _watch_backward()
        launcher = self
        construct = torch.optim.Optimizer.__init__
        step = _runs(lambda optimizer, *a, **n: launcher.step(optimizer, *a, **n))

        def constructed(self: torch.optim.Optimizer, *arguments: Any, **named: Any) -> None:
            construct(self, *arguments, **named)
            self.step = types.MethodType(step, self)  # type: ignore
            self.zero_grad = types.MethodType(launcher.clearing(type(self).zero_grad), self)  # type: ignore
            launcher.constructed.append(weakref.ref(self))

        def new(cls: Any, *arguments: Any, **named: Any) -> Any:  # composite ones do not call the base's __init__
            made = object.__new__(cls)
            launcher.schedulers.append(weakref.ref(made))
            return made

        torch.optim.Optimizer.__init__ = constructed  # type: ignore
        for kind in KINDS:
            kind.__new__ = staticmethod(new)
        self._watch_scaler()

    def clearing(self, zero_grad: Any) -> Any:
        @functools.wraps(zero_grad)
        def watched(optimizer: torch.optim.Optimizer, *arguments: Any, **named: Any) -> None:
            if id(optimizer) in self.waiting:
                self.clear.append(functools.partial(zero_grad, optimizer, *arguments, **named))
            else:
                zero_grad(optimizer, *arguments, **named)

        return _runs(watched)

    def _watch_scaler(self) -> None:
        """Steps that it leaves out are no steps here, and it hands over gradients without its factor."""
        launcher = self
        of_cuda: Any = torch.cuda.amp
        scaler = getattr(torch.amp, "GradScaler", None) or of_cuda.GradScaler
        scale, step = scaler.scale, scaler.step

        def watched_scale(self: Any, outputs: Any) -> Any:
            result = scale(self, outputs)
            _passes.scaled = (result, outputs)
            return result

        def watched_step(self: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
            result = step(self, optimizer, *arguments, **named)
            if _passes.samples > 0 or _passes.loss is not None:
                launcher.left_out(optimizer)
            return result

        scaler.scale, scaler.step = watched_scale, watched_step
        # Fused optimizers say that they take the factor themselves, in their constructors.
        setattr(torch.optim.Optimizer, "_step_supports_amp_scaling", property(lambda _: False, lambda _, value: None))

    def _together(self, optimizer: torch.optim.Optimizer) -> tuple[torch.nn.Module, list[torch.optim.Optimizer]]:
        """The module that it trains, alone or with others of the script, and all of these."""
        ours = _of_optimizer(optimizer)
        others = [o for o in (each() for each in self.constructed) if o is not None]
        for module in _modules():
            wanted = _trained(module.parameters())
            if not ours or not ours <= wanted:
                continue
            have, of = set(ours), {id(optimizer)}
            for each in others:
                theirs = _of_optimizer(each)
                if theirs and theirs <= wanted and not theirs & have:
                    have |= theirs
                    of.add(id(each))
            if have == wanted:
                return module, [each for each in others if id(each) in of]
        raise self.usage("no module has exactly the parameters of the optimizer: write opt = waggle.Optimizer(opt, "
                         "waggle.join(…), …) into the script instead")

    def join(self, optimizer: torch.optim.Optimizer) -> waggle.Optimizer:
        module, self.inner = self._together(optimizer)
        _called.clear()
        if self.of_training.get("lr") is None:  # else the run owns the rate
            for each in (known() for known in self.schedulers):
                why = None if each is None else why_not(each)
                if why is not None and any(is_of(each, inner) for inner in self.inner):
                    raise self.usage(f"the {type(each).__name__} cannot be followed: {why}")
        try:
            group = of_environment()
            swarm = waggle.join(self.run, **self.of_peer, **group)
            self.optimizer = waggle.Optimizer(self.inner if len(self.inner) > 1 else optimizer, swarm, module,
                                              **self.of_training)
        except (TypeError, ValueError) as e:
            raise self.usage(str(e)) from e
        except (AttributeError, RuntimeError) as e:
            if sentence := untested("torch"):
                raise self.usage(f"{sentence}: {e}") from e
            raise
        print(f"waggle: {' and '.join(type(each).__name__ for each in self.inner)} of {type(module).__name__} "
              f"({sum(p.numel() for p in module.parameters() if p.requires_grad)} values) is a peer of {self.run!r} at "
              f"{swarm.address}; batches of {_passes.samples} samples{' on each rank, which are one peer' if group else ''}",
              file=sys.stderr, flush=True)
        return self.optimizer

    def follow(self, joined: waggle.Optimizer) -> None:
        """Schedulers that the script steps once for each step of the optimizer count the run's updates. Others, such
        as those of an epoch of the data, count what the script does, as do all until the third step shows it."""
        def own(why: str) -> None:
            whose = "" if joined._model.ratios is not None else "; its rates are the script's own"
            print(f"waggle: {why}{whose}", file=sys.stderr, flush=True)

        followed = joined._model.followed
        for known in list(followed.all) if followed else ():
            assert followed
            if known.calls == 0 or (known.calls > 1 and self.steps == 1):  # later, a scaler left out a step
                followed.remove(known.scheduler)
                own(f"the script does not step the {type(known.scheduler).__name__} once for each step of the optimizer")
            known.moves, known.calls = self.steps > 1, 0
        made = [s for s in (each() for each in self.schedulers) if s is not None and is_of(s, joined)]
        self.schedulers.clear()
        parts = [part for each in made for part in family(each)[1:]]
        for each in made:
            if any(each is part for part in parts):
                continue
            try:
                if self.steps > 0:
                    raise ValueError(f"the {type(each).__name__} was constructed after the first step")
                joined._follow(each, False)
            except (TypeError, ValueError) as e:
                own(str(e))
        if self.steps == 0:
            joined._model.begin()
        self.steps += 1

    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None, **named: Any) -> Any:
        if self.inside:  # the run's update
            return type(optimizer).step(optimizer)
        if self.inner and all(each is not optimizer for each in self.inner):
            raise self.usage(f"a second optimizer, {type(optimizer).__name__}, steps, of another model: write "
                             "waggle.Optimizer(…) and one waggle.join for each model into the script instead")
        self.inside = True
        try:
            result = None
            if closure is not None:
                with torch.enable_grad():
                    result = closure()
            if _passes.samples == 0 and not self.waiting and closure is None and makes_state(optimizer):
                return type(optimizer).step(optimizer) if self.optimizer is None else None  # later the state is the run's
            if _passes.samples == 0 and not self.waiting:
                why = ("the first tensor of the forward pass has no first dimension" if _passes.without_dimension else
                       "no forward and backward pass of a torch.nn.Module came before step")
                raise self.usage(f"the number of samples is not known, because {why}: write opt.step(samples=…) with "
                                 "opt = waggle.Optimizer(opt, waggle.join(…), …) into the script instead")
            joined = self.optimizer or self.join(optimizer)
            if not self.waiting:
                self.follow(joined)
            self._arrive(optimizer, True)
            return result
        finally:
            self.inside = False

    def left_out(self, optimizer: torch.optim.Optimizer) -> None:
        """A scaler has seen gradients that are not finite, and does not step."""
        if len(self.inner) > 1 and any(each is optimizer for each in self.inner):
            self._arrive(optimizer, False)
        _passes.samples, _passes.loss = 0, None

    def _arrive(self, optimizer: torch.optim.Optimizer, steps: bool) -> None:
        """All optimizers of the model make one update."""
        if self.waiting and (id(optimizer) in self.waiting or _passes.backwards != self.waits_since):
            one, other = (next(type(each).__name__ for each in self.inner if (id(each) in self.waiting) == waits)
                          for waits in (False, True))
            raise self.usage(f"{one} of the same model does not step after each backward pass, as {other} does: step all "
                             "optimizers of a model one after the other")
        self.waits_since = _passes.backwards
        self.waiting[id(optimizer)] = steps
        if _passes.samples > 0:
            self.samples, self.loss = _passes.samples, _passes.loss
        _passes.samples, _passes.loss = 0, None
        if len(self.waiting) < len(self.inner):
            return
        all_step = all(self.waiting.values())
        self.waiting.clear()
        joined = self.optimizer
        if joined is not None and all_step:
            joined.step(samples=self.samples, loss=self.loss)
        while self.clear:
            self.clear.pop(0)()
        if joined is not None and joined.last == "finished" and joined.swarm._leaves_soon:
            joined.leave()
            print("waggle: this peer has left the run, because its machine will be taken away, and the script ends", file=sys.stderr,
                  flush=True)
            raise SystemExit(0)
        if joined is not None and joined.last == "finished" and not self.said_finished:
            self.said_finished = True
            print("waggle: the run has finished; the script goes on without training", file=sys.stderr, flush=True)
