"""An optimizer of torch that trains with other peers."""

from __future__ import annotations

import copy
import operator
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import torch

from . import _waggle
from ._backward import Backward, check_buckets
from ._buffers import Buffer, buffers_of, extra_buffers, offer_buffers
from ._describe import HALVES, compared, here, initial_rate, plain_name, rate_ratios, unwrapped
from ._frozen import compare_with_checkpoint, frozen_tensors
from ._gradients import HostCopies, all_finite
from ._loop import Loop
from ._masters import Master, masters_of, require_fresh, undo
from ._model import Model, makes_state, tensors_of
from ._offload import host_copies_of, made_again
from ._options import error_of, flag, in_two_copies, of_training, plain, whole
from ._schedulers import KINDS, Followed, is_of
from ._several import as_one, parts_of
from ._swarm import Leaves, Swarm
from ._together import Together
from .data import Block


def _filled(module: torch.nn.Module) -> list[str]:
    """Those of its own buffers that are in its state, and have values."""
    return [name for name, b in module._buffers.items()
            if b is not None and b.numel() > 0 and name not in module._non_persistent_buffers_set]


class Optimizer(Leaves, torch.optim.Optimizer):
    """A torch optimizer that steps together with the other peers of a run.

    optimizer: any torch.optim.Optimizer over float32 parameters, also one of your own, or a list of them, each of
        which has a part of the parameters, as Muon the matrices and AdamW the rest: they make one update. What one keeps
        must be numbers and dense tensors, of parameters or in their groups (LBFGS and SparseAdam are refused).
    swarm: what `waggle.join` returned; one optimizer for each.
    module: gives the parameters their names, and its running means and variances are averaged, too.
        Without it the parameters are called 0, 1, … and buffers stay this peer's own.
    target_batch_size: samples of the whole swarm for one update; 256 unless the strategy counts steps.
    strategy: how the peers train together; a name as of `waggle train`. "collaborative": one update
        with the mean of all gradients. Others: the optimizer steps in each step, and the peers average
        parameters.
    epochs: updates (or averages) of the run; 0: until all leave, with daso until its epochs are over.
    model, data: names that peers compare. schedule: a name for the schedule of the rate, which they
        compare; with `lr`, the schedule of the run, as of `waggle train`, which then owns the rate.
    samples: of each `step` that does not say it; with "data-parallel:buckets=1", of each step.
    frozen: "equal": peers compare the values of parameters that nobody trains, of which a digest is made once. "any": they
        may differ.
    masters: for parameters in bfloat16 or float16: the optimizer trains a float32 copy of each, which takes its place in
        param_groups, and the module gets the rounded values after each update. Passes add up in the copy's .grad; peers
        exchange the copies, so others of the run may be without. Before the optimizer's first step.
    sum_on_device: whether gradients add up where the parameters are, in one more copy of the gradient, instead of in host
        memory, to which each pass is copied then. They are averaged between two passes. None: where that is no CPU.
    offload_optimizer: the optimizer, made again, steps on float32 copies of the parameters in host memory. `param_groups` stay
        those of the module, and `state` is that of the copies. On a CPU the bytes are the same.
    delay_optimizer_step: the same, on another thread while passes go on: each misses up to one update more. Where gradients are
        averaged; not with buffers, and what the loop writes to parameters is lost.
    loss_scale: "dynamic", or a power of two: `scaled` multiplies the loss by it for the backward pass, so that small gradients
        survive in float16, and `step` divides the gradients again. After an overflow, which drops its own samples alone, the
        next one is smaller. Instead of a GradScaler, and not with reuse_grad_buffers.
    auxiliary: computes nothing, and reduces for the others: `step()`, without samples, returns when the run is over. The module
        and the optimizer say what peers exchange.
    extra_tensors: a list, or by name: averaged as the module's buffers are, and given to peers that join.
    reuse_grad_buffers: backward passes add up in .grad until the update, which saves a vector and a pass over
        it. `zero_grad` then does nothing between two updates: clear or change .grad in no other way (GradScaler
        and clipping in the loop do), and pass equally many samples to each step. A gradient that is not finite is
        found when the sum is sent, and costs the sum. Not with delay_grad_averaging.
    Any other option of `waggle train` by name, with _ for -.

    It has param_groups, state and defaults of `optimizer`, so schedulers, GradScaler, Accelerate and
    Lightning use it as they use any. Use it from the thread that constructed it. A context manager:
    leaves the run at the end.

    Raises TypeError or ValueError with a sentence.
    """

    _step_supports_amp_scaling = False  # for GradScaler: unscale before step

    def __init__(self, optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer], swarm: Swarm,
                 module: torch.nn.Module | None = None, *,
                 target_batch_size: int | None = None, strategy: str = "collaborative", samples: int | None = None,
                 frozen: str = "equal", masters: bool = False, sum_on_device: bool | None = None,
                 extra_tensors: Mapping[str, torch.Tensor] | Sequence[torch.Tensor] = (), **options: Any) -> None:
        if frozen not in ("equal", "any"):
            raise ValueError(f"frozen is {frozen!r}, and must be 'equal' or 'any'")
        masters = flag("masters", masters)
        if sum_on_device is not None:
            sum_on_device = flag("sum_on_device", sum_on_device)
        if isinstance(optimizer, (list, tuple)):
            optimizer = as_one(optimizer)
        if isinstance(optimizer, Optimizer) or not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer is of type {type(optimizer).__name__}, and must be an optimizer of torch")
        if not isinstance(swarm, Swarm):
            raise TypeError(f"swarm is of type {type(swarm).__name__}: pass what waggle.join returns")
        if module is not None and not isinstance(module, torch.nn.Module):
            raise TypeError(f"module is of type {type(module).__name__}, and must be a torch.nn.Module")
        if strategy == "collaborative":
            strategy = swarm._of_file.get("strategy", strategy)
        options.update(target_batch_size=target_batch_size, strategy=strategy)
        if swarm._of_file:
            options = {**swarm._of_file, **{name: value for name, value in options.items() if value is not None}}
        if samples is not None:
            samples = whole("samples", samples, 1)
        if strategy is None:
            raise TypeError("strategy is None, and must be a text: leave it out for \"collaborative\"")
        of_training(options)  # before anything else is done with them
        self._inner = optimizer
        self._module = module
        self._swarm = swarm
        self._samples = samples
        self._needs_loss = str(options.get("schedule", "")).startswith("plateau") and "lr" in options
        self._last: str | None = None
        self._scale: float | None = None  # of the backward passes since the last step; None: no such pass
        options = {name: plain(value) for name, value in options.items()}
        for name in (*in_two_copies, "auxiliary"):
            if options.get(name) is not None:
                flag(name, options[name])
        beside, offloads = bool(options.get("delay_optimizer_step")), any(options.get(name) for name in in_two_copies)
        if beside and sum_on_device:
            raise ValueError("delay_optimizer_step and sum_on_device exclude each other: the sum is on the way to host memory "
                             "while the optimizer steps there, so leave sum_on_device out")
        if masters and not offloads:
            require_fresh(optimizer)
        extra = extra_buffers(extra_tensors)
        self._helps = bool(options.get("auxiliary"))
        self._together = together = Together.of(swarm, module)
        ranks = None if together is None else together.ranks
        of_half: list[Master | None] = []
        try:
            if together is not None and self._helps:
                raise ValueError("auxiliary does not go together with group: start one process that helps")
            if together is not None and masters:
                raise ValueError("masters=True does not go together with group yet: train in float32 with torch.autocast, or with "
                                 "MixedPrecisionPolicy of fully_shard")
            parameters, buffers = tensors_of(module, optimizer, masters, ranks)
            buffers = sorted(buffers + extra, key=lambda b: b.counts)
            if offloads:
                self._refuse_buffers(beside, buffers)
                if options.get("loss_scale") and any(p.dtype in HALVES for _, p in parameters):
                    raise ValueError("loss_scale and offload_optimizer exclude each other for parameters in half precision, whose gradients "
                                     "would be divided in that precision: leave offload_optimizer out, or use a GradScaler")
                of_half = host_copies_of(parameters, ranks)
                model = Model(made_again(optimizer, of_half), parameters, buffers, of_half, shown=optimizer, beside=beside)
            else:
                of_half = masters_of(optimizer, parameters) if masters else [None] * len(parameters)
                model = Model(optimizer, parameters, buffers, of_half, ranks)
            self._model = model
            self._tensors = model.passed
            on_device = sum_on_device
            if sum_on_device is None:
                on_device = not beside and not all(p.is_cpu for p in self._tensors)  # type: ignore[attr-defined]
            if on_device or model.is_sharded:
                model.add_on_device()
            if _waggle.sends_in_buckets(strategy) and not self._helps:
                given = {"group": together, "masters": masters, "offload_optimizer": options.get("offload_optimizer"),
                         "loss_scale": options.get("loss_scale"), "sum_on_device": on_device}
                check_buckets(self._tensors, samples, [name for name, value in given.items() if value])
                model._hears_gradients = True
            self._start(frozen, options)
        except BaseException as e:
            undo(optimizer, of_half)
            if together is not None and isinstance(e, Exception):
                together.fails_to_begin(e)
            raise
        if offloads:
            for each in parts_of(optimizer):
                each.state.clear()
        self._backward: Backward | None = None
        if model._hears_gradients and samples is not None:
            self._backward = Backward([name for name, _ in model.parameters], self._tensors, self._loop._peer, samples)
        self._offered: list[torch.Tensor | None] = []
        self._copies = HostCopies()  # of gradients that are not there, or not in one piece
        self._looks_at_gradients = model.sum is not None and not options.get("reuse_grad_buffers")
        self._kinds = [(p.dtype, p.device, p.shape) for p in model.of_module]
        self._settles = not _waggle.steps_each_pass(strategy)
        trained = {*map(id, self._tensors), *map(id, model.of_module)}
        self._untrained = [p for group in optimizer.param_groups for p in group["params"]
                           if id(p) not in trained and p.numel() > 0]
        self._remember_structure()
        if swarm._stream is not None:
            swarm._stream._optimizer = weakref.ref(self)
        if module is None:
            warnings.warn("without a module, the parameters are called 0, 1, … and running statistics stay this "
                          "peer's own: pass the module to waggle.Optimizer on all peers", stacklevel=2)

    @staticmethod
    def _refuse_buffers(beside: bool, buffers: Sequence[Buffer]) -> None:
        if beside and buffers:
            raise ValueError(f"delay_optimizer_step is not for running statistics and other buffers, such as {buffers[0].name}, which "
                             "passes would change while updates do: leave it out, and offload_optimizer may stay")

    def _start(self, frozen: str, options: dict[str, Any]) -> None:
        model, swarm, optimizer = self._model, self._swarm, self._inner
        if _waggle.steps_each_pass(options["strategy"]):
            peer = weakref.ref(swarm._peer)  # which refers to the model

            def epoch() -> int:
                now = peer()
                return 0 if now is None else now.epoch
            model.epoch = epoch
        if options.get("lr") is not None:
            model.own_rates()
        d = model.description
        values = None if frozen == "any" else frozen_tensors(self._module)
        if swarm._given.get("resume") is not False and swarm.data_dir:
            compare_with_checkpoint(swarm.data_dir, values)
        self._loop = Loop(swarm, model, [(name, p.shape) for name, p in model.parameters], statistics=d.rows(),
                          buffers=[(b.name, b.sent_shape) for b in model.buffers if not b.counts],
                          counters=[(b.name, b.sent_shape) for b in model.buffers if b.counts],
                          optimizer=d.kind, numbers=d.numbers, settled=len(model.numbers.places),
                          learning_rate=initial_rate(optimizer.param_groups[0]),
                          rate_ratios=rate_ratios(optimizer, model.passed),
                          frozen=values, **options)

    # -- the loop

    def step(self, closure: Callable[[], Any] | Block | None = None, *, samples: int | None = None,
             loss: float | torch.Tensor | None = None, claims: int = 0) -> Any:
        """Contributes the parameters' .grad: the mean over `samples` samples, whose mean loss is `loss`
        (a number or a tensor of one; for the status, may be left out). `closure`, if given, computes
        the gradient and returns the loss. Returns what the closure returns; `last` is the outcome.
        With a block of `Swarm.stream` instead, the samples are its records. `claims`: of `Swarm.shards` that deal blocks of
        your own, how many of those dealt it is over, if that is not the number of samples.

        The gradient changes nothing at once: when all peers together have target_batch_size samples,
        each writes the mean into .grad and steps. Waits until the next gradient can be computed; other
        threads run meanwhile, and Ctrl-C ends it.

        Raises ValueError if the samples are missing, 0 or too many; waggle.Error if a parameter was
        added, moved or cast, in another thread or a forked process, after the peer has left, if all
        initial peers refuse this one, if none answers (see waggle.join), and if it waits as long
        while this thread has other loops. Other failures of the network raise nothing."""
        if self._helps:
            if closure is not None or samples is not None or loss is not None:
                raise ValueError("an auxiliary computes nothing, and helps the others until the run is over: call step()")
            self._check_structure()
            addresses = [0] * len(self._tensors) + offer_buffers(self._model.buffers)
            addresses += [self._model.terms([False] * len(self._tensors)).data_ptr()] if self._settles else []
            self._last = self._loop._peer.offer(0, None, addresses)
            return None
        result = None
        if closure is None and samples is None and loss is None and makes_state(self):
            if self._model.own_updates is None:  # as of the plain loop; later the state is the run's
                self._model.make_state()
            return None
        claims = whole("claims", claims, 0)
        if isinstance(closure, Block):
            if self._swarm._stream is None:
                raise ValueError("the step is over a block, and the swarm has no stream: make it with swarm.stream")
            samples, claims, closure = self._swarm._stream._stepped(closure), 1, None
        elif self._swarm._stream is not None:
            raise ValueError("the swarm has a stream: call step(block) with each block")
        if closure is not None:
            if not callable(closure):
                raise TypeError(f"closure is of type {type(closure).__name__}, and must be callable: pass samples and loss "
                                "by name, as in step(samples=4)")
            with torch.enable_grad():
                result = closure()
            if loss is None and isinstance(result, (int, float, torch.Tensor)):
                loss = result
        if self._together is not None:
            self._together.reshard()
        try:
            samples, loss = self._checked(samples, loss)
            if self._backward is not None:
                self._backward.check(samples)
            scale = self._unscale()
        except Exception as e:
            if self._together is not None:
                self._together.fails(e)
            raise
        finite = not (self._looks_at_gradients or scale) or all_finite(self._tensors)
        if self._together is not None:
            samples, loss, finite = self._together.meet(samples, loss, finite, claims, self._tensors)
        addresses = self._addresses()
        try:
            self._last = self._loop._peer.offer(samples, loss, addresses, self._model.passes, self._model.written(), finite,
                                                scale=scale, **({"claims": claims} if claims else {}))
        except _waggle.Error as e:
            if self._model.failed is not None:
                raise self._model.failed from e
            raise
        finally:
            if self._backward is not None:
                self._backward.discard()
        if not self._loop._peer.adds_up:
            self._model.clear_masters()
        return result

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """With `loss_scale`, the loss to call backward of: `optimizer.scaled(loss).backward()`. The scale stays the same until the
        next `step`, which gets the loss itself. Do not clip gradients meanwhile: max_gradient_norm does. Without the
        option, `loss`."""
        scale = self._loop._peer.loss_scale
        if scale is None:
            return loss
        if self._scale is None:
            self._scale = scale
        return loss.float() * self._scale  # float16 has no 65536

    @torch.no_grad()
    def _unscale(self) -> float:
        """Returns the scale of the gradients so far; 0: there is none."""
        if self._loop._peer.loss_scale is None:
            return 0
        if self._scale is None:
            raise ValueError("with loss_scale, gradients must be those of the scaled loss: call optimizer.scaled(loss).backward() "
                             "before each step, and leave out a GradScaler")
        scale, self._scale = self._scale, None
        for m in filter(None, self._model.masters if self._model.shown is self._model.inner else ()):
            m.take()
        for p in self._tensors:
            if p.grad is not None:
                here(p.grad).div_(scale)
        return scale

    def weighed(self, loss: torch.Tensor, *, samples: int) -> torch.Tensor:
        """With a group of ranks whose batches differ, on all ranks before the backward pass of `loss`, the mean over `samples`
        samples of this rank: DistributedDataParallel and fully_shard then make the mean over all samples. Returns the
        loss to call backward of; without a group, and of other modules, `loss` itself."""
        return loss if self._together is None else self._together.weigh(loss, whole("samples", samples, 1))

    def _checked(self, samples: int | None, loss: Any) -> tuple[int, float | None]:
        samples = self._samples if samples is None else samples
        if samples is None:
            raise ValueError("samples is missing: pass the number of samples of the gradient to step, or to the "
                             "constructor of waggle.Optimizer")
        samples = whole("samples", samples, 1)
        if isinstance(loss, torch.Tensor):
            if loss.numel() != 1:
                raise ValueError(f"loss has {loss.numel()} values, and must be a number")
            loss = loss.item()
        if loss is not None:
            try:
                loss = float(None if isinstance(loss, (str, bytes)) else loss)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                raise TypeError(f"loss is {loss!r}, and must be a number") from None
        if loss is None and self._needs_loss:
            raise ValueError("the schedule plateau needs the loss of each step: pass it to step")
        self._check_structure()
        self._model.passes += 1  # also if the gradient is refused, which then is in the .grad that adds up
        return samples, loss

    def _zeros_for_gradients(self) -> None:
        for p in self._tensors:
            p.grad = torch.zeros_like(p)

    def _scale_gradients(self, by: float) -> None:
        for p in self._model.of_module:
            if p.grad is not None:
                p.grad.mul_(by)

    def keep(self, what: bytes) -> None:
        """As `Loop.keep`."""
        self._loop.keep(what)

    def kept(self) -> bytes:
        """As `Loop.kept`."""
        return self._loop.kept()

    @property
    def last(self) -> str | None:
        """The outcome of the last step: "held", "stepped", "synced", "dropped" or "finished" (see
        `Loop.offer`); None before the first."""
        return self._last

    @property
    def rate(self) -> float | None:
        """The learning rate of the first parameter group in the last update; None before. Where gradients are averaged,
        all peers take the same: the median, weighted by samples, of what their loops have set (of two the lower). So
        with the momentum, the betas and the weight decay. The groups keep what this loop has set."""
        return self._model.numbers.rate

    @property
    def swarm(self) -> Swarm:
        """The peer."""
        return self._swarm

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """As of the inner optimizer, whose default it has. Allowed at any time. With `reuse_grad_buffers`, it does
        nothing between two updates."""
        if self._backward is not None:
            self._backward.discard()
        if not self._loop._peer.adds_up:
            self._inner.zero_grad(**({} if set_to_none is None else {"set_to_none": set_to_none}))
            self._model.clear_masters()
            self._model.passes = 0

    def follow(self, scheduler: Any) -> Any:
        """Takes over a scheduler of torch.optim.lr_scheduler, or one derived from them that needs nothing but the
        number of steps: from now on its own step() moves it to the number of updates of the run, and so does each
        update before it is made, so all peers use one rate, also those that join later. Where it stands when the
        run begins is where the loop stands then. With strategies that step in each pass: to the run's epoch.
        Several are stepped in the order of the calls of follow; of one that consists of others, follow that one.

        Returns the scheduler."""
        self._follow(scheduler, True)
        return scheduler

    def _follow(self, scheduler: Any, moves: bool) -> None:
        followed = scheduler if isinstance(scheduler, KINDS) else getattr(scheduler, "scheduler", scheduler)
        if not isinstance(followed, KINDS):
            raise TypeError(f"follow takes a scheduler of torch.optim.lr_scheduler, not a {type(scheduler).__name__}: set "
                            "the rates in the loop instead")
        if not is_of(followed, self._inner):
            raise ValueError(f"the {type(followed).__name__} belongs to another optimizer")
        if self._model.ratios is not None:
            raise ValueError("with lr, the run owns the rate: use schedule=…, or leave lr out")
        self._model.followed = self._model.followed or Followed(self._model)
        self._model.followed.add(followed, moves)
        self._remember_structure()

    def shared_weights(self) -> AbstractContextManager[None]:
        """See `Loop.shared_weights`: `with optimizer.shared_weights(): evaluate(module)`."""
        self._check_structure()
        return self._loop.shared_weights()

    def leave(self, *, in_a_hurry: bool = False) -> None:
        self._swarm.leave(in_a_hurry=in_a_hurry)

    # -- an optimizer of torch

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self._inner.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self._inner.param_groups = groups

    @property
    def state(self) -> Any:
        return self._model.inner.state

    @state.setter
    def state(self, state: Any) -> None:
        self._model.inner.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        return self._inner.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self._inner.defaults = defaults

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # before the constructor
            raise AttributeError(name)
        return getattr(self._inner, name)

    def state_dict(self) -> dict[str, Any]:
        with self._model.changing:
            return self._model.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Before the first step, and before `kept`: what a run starts from. Later the state is the run's."""
        if self._last is not None or self._model.own_updates is not None:
            raise error_of("not_ready", "the state of the optimizer is that of the run: call load_state_dict before "
                                        "the first step, and before kept")
        inner = self._model.inner
        before = copy.deepcopy(inner.state_dict())
        inner.load_state_dict(state_dict)
        for group, known in zip(inner.param_groups, self._groups):
            for name, value in compared(group).items():
                if name in known and known[name] != value:
                    inner.load_state_dict(before)
                    raise ValueError(f"the state has {name} = {value}, and the optimizer was constructed with "
                                     f"{known[name]}, which the peers compare: construct it with the former")
        self._model.count_steps()
        self._model.copy_numbers(inner, self._inner)
        self._remember_structure()

    def add_param_group(self, param_group: object) -> NoReturn:
        raise error_of("schema_mismatch", "a parameter group cannot be added: peers must have the same optimizer, so "
                                          "add it before the waggle.Optimizer is constructed, on all peers")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a waggle.Optimizer is part of a running peer, which cannot be copied or pickled: use "
                        "state_dict")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__getstate__()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self.__getstate__()

    def __repr__(self) -> str:
        return f"<waggle.Optimizer of {self._inner!r} in {self._swarm!r}>"

    # -- what must not change

    def _remember_structure(self) -> None:
        changed = self._model.description.changed
        self._groups = [compared(group, changed) for group in self._inner.param_groups]
        self._lists = [list(group["params"]) for group in self._inner.param_groups]
        self._remember_modules()

    def _remember_modules(self) -> None:
        self._parts = [(m, list(m._parameters.values()), dict(m._modules), _filled(m))
                       for m in (self._module.modules() if self._module is not None else ())]

    @staticmethod
    def _refuse_change(what: str, how: str, cure: str = "so change the module before") -> NoReturn:
        raise error_of("schema_mismatch", f"{what} {how} since the waggle.Optimizer was constructed: the state of the run cannot "
                                          f"change, {cure}, on all peers")

    def _check_modules(self, module: torch.nn.Module) -> None:
        """After some change of its parts: it may be a wrapper, or a layer without values."""
        parameters = dict(module.named_parameters())
        held = set(map(id, parameters.values()))
        for (known_as, _), p in zip(self._model.parameters, self._model.of_module):
            if id(p) not in held:
                self._refuse_change(f"parameter {known_as}", "was removed or replaced by another tensor")
        known = set(map(id, self._model.of_module))
        for name, p in parameters.items():
            if p.requires_grad and p.numel() > 0 and id(p) not in known:
                self._refuse_change(f"parameter {plain_name(name)}", "was added")
        filled = {(id(m._buffers), name) for m, _, _, names in self._parts for name in names}
        for b in buffers_of(unwrapped(module)):
            if (id(b.table), b.key) not in filled:
                self._refuse_change(f"buffer {b.name}", "was added, or got its first values,",
                                    "so pass a batch through the module before, or register it with persistent=False")
        self._remember_modules()

    def _check_structure(self) -> None:
        for m, parameters, modules, filled in self._parts:
            held = m._parameters.values()
            if (len(held) != len(parameters) or any(map(operator.is_not, held, parameters)) or m._modules != modules
                    or _filled(m) != filled):
                assert self._module is not None
                self._check_modules(self._module)
                break
        if unknown := self._model.unknown:
            raise error_of("schema_mismatch", f"the optimizer keeps {unknown}, which a step of a copy of it did not show, so a "
                                              "peer that joins would not receive it: register hooks of the optimizer before "
                                              "the waggle.Optimizer is constructed, on all peers")
        groups = self._inner.param_groups
        if len(groups) != len(self._groups):
            raise error_of("schema_mismatch", f"the number of the optimizer's parameter groups changed from "
                                              f"{len(self._groups)} to {len(groups)}: peers must have the same optimizer")
        for i, (group, options, tensors) in enumerate(zip(groups, self._groups, self._lists)):
            if len(group["params"]) != len(tensors) or any(map(operator.is_not, group["params"], tensors)):
                raise error_of("schema_mismatch", f"the tensors of the optimizer's parameter group {i} changed: peers "
                                                  "must have the same optimizer")
            numbers = {key for key, _ in self._model.numbers.places}
            for name, value in options.items():
                now = group.get(name)
                if name == "momentum" and bool(now) != bool(value):
                    raise error_of("schema_mismatch", f"momentum of the optimizer's parameter group {i} changed from {value} "
                                                      f"to {now}: peers exchange what the optimizer keeps for it, so "
                                                      "construct it with one, or without")
                if name not in numbers and now is not value and now != value:
                    raise error_of("schema_mismatch", f"{name} of the optimizer's parameter group {i} changed from "
                                                      f"{value} to {now}: peers must have the same optimizer; only "
                                                      "its numbers may change")

    def _check_tensor(self, i: int) -> None:
        name, p = self._model.parameters[i][0], self._tensors[i]
        of_module, (dtype, device, shape) = self._model.of_module[i], self._kinds[i]
        how = (f"became {of_module.dtype}" if of_module.dtype is not dtype else
               f"was moved to {of_module.device}" if of_module.device != device else
               "changed its shape" if of_module.shape != shape else None)
        if how is not None:
            self._refuse_change(f"parameter {name}", how)
        if not of_module.requires_grad:
            self._refuse_change(f"parameter {name}", "was frozen", "so let it require a gradient, and set its .grad to None before "
                                                                   "each step that leaves it as it is")
        if p.grad is not None and p.grad.layout != torch.strided:
            raise error_of("schema_mismatch", f"the gradient of parameter {name} is sparse, and peers average dense ones: "
                                              "construct its layer with sparse=False")

    def _addresses(self) -> list[int]:
        """Where the gradients are (0: there is none, or peers ask for it) and the buffers. Keeps what is there alive."""
        for p in self._untrained:
            if p.requires_grad and p.grad is not None:
                raise error_of("schema_mismatch", f"parameter {self._name_of(p)} has a gradient, and did not require one "
                                                  "when the waggle.Optimizer was constructed: the state of the run cannot "
                                                  "change, so unfreeze it before, on all peers")
        for i, m in enumerate(self._model.masters if self._model.shown is self._model.inner else ()):
            if m is not None:
                self._check_tensor(i)
                m.take()
        self._offered = offered = [p.grad for p in self._tensors]
        if self._model.sum is None:
            addresses = self._addresses_of(offered)
        else:
            addresses = [0] * len(offered)
            for i in range(len(offered)):
                self._check_tensor(i)
        with torch.no_grad():
            addresses += offer_buffers(self._model.buffers)
        if self._settles:
            terms = self._model.terms([g is not None for g in offered])
            addresses.append(terms.data_ptr())
        return addresses

    def _addresses_of(self, gradients: list[torch.Tensor | None]) -> list[int]:
        addresses = []
        others = []
        float32, strided = torch.float32, torch.strided
        for p, g, (_, _, shape) in zip(self._tensors, gradients, self._kinds):
            # A gradient has the type and the device of its parameter.
            if (g is not None and g.is_cpu  # type: ignore[attr-defined]
                    and g.dtype is float32 and g.layout is strided and g.is_contiguous() and p.requires_grad and p.shape == shape):
                addresses.append(g.data_ptr())
            else:
                others.append(len(addresses))
                addresses.append(0)
        for i in others:
            self._check_tensor(i)
        copied = self._copies.of({i: g for i in others if (g := gradients[i]) is not None})
        for i, copy_of in copied.items():
            addresses[i] = copy_of.data_ptr()
        return addresses

    def _name_of(self, parameter: torch.Tensor) -> str:
        for name, p in self._module.named_parameters() if self._module is not None else ():
            if p is parameter:
                return name
        return f"of {list(parameter.shape)}"
