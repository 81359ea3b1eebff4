"""The parameters, statistics and buffers of a torch module and optimizer, for a loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ._buffers import Buffer, buffers_of
from ._describe import HALVES, Description, Statistic, cuts_of, here, plain_name, require_values, unwrapped
from ._gradients import DeviceSum
from ._loop import LoopModel
from ._masters import Master
from ._numbers import Numbers, set_number
from ._rounding import rounding_of, software_of
from ._schedulers import Followed, set_option

if TYPE_CHECKING:
    from ._ranks import Ranks

Named = list[tuple[str, torch.Tensor]]


class Model(LoopModel):
    """The parameters, statistics and buffers of a torch module and optimizer. Refers to no peer, which
    refers to it.

    shown: the loop's optimizer, if `inner` is that one made again over the masters. beside: then `apply` and all that is
    about the state are called on another thread while the loop computes, and `refresh` on the loop's."""

    _clears_gradients = _has_copies = True

    def __init__(self, inner: torch.optim.Optimizer, parameters: Named, buffers: list[Buffer],
                 masters: list[Master | None], ranks: Ranks | None = None, *,
                 shown: torch.optim.Optimizer | None = None, beside: bool = False) -> None:
        self.inner = inner
        self.shown = inner if shown is None else shown
        self.beside = beside
        self.lock = threading.RLock()  # of the numbers in `shown`, and of schedulers
        self.changing = threading.RLock()  # of the optimizer's state
        self.failed: Exception | None = None  # of an update that the loop did not wait for
        self.of_module = [p for _, p in parameters]
        self.masters = masters
        # [(name, tensor)], which the optimizer has
        self.parameters = parameters = [(name, p if m is None else m.master) for (name, p), m in zip(parameters, masters)]
        self.buffers = buffers
        self.description = Description(inner, [p for _, p in parameters])
        # Tensor number `which` of the state: (parameter, None) or (parameter, statistic). Behind them the buffers.
        self.tensors: list[tuple[torch.Tensor, Statistic | None]] = [(p, None) for _, p in parameters]
        self._number_of = {id(p): i for i, (_, p) in enumerate(parameters)}
        names = list(dict.fromkeys(s.sent_name for row in self.description.statistics for s in row))
        for name in names:
            for (_, p), row in zip(parameters, self.description.statistics):
                self.tensors += [(p, s) for s in row if s.sent_name == name]
        self._cuts = [[p.numel()] if ranks is None else cuts_of(f"parameter {name}", p, ranks) for name, p in parameters]
        self.is_sharded = any(hasattr(p, "device_mesh") for _, p in parameters)
        self._give_parts()
        # By parameter, the updates without a gradient.
        self.left_out = torch.zeros(len(parameters), dtype=torch.float32, device="cpu")
        self.numbers = self.wishes = Numbers(inner, [p for _, p in parameters], self.description)
        if shown is not None:
            self.wishes = Numbers(shown, self.of_module, self.description)
        self.settled: tuple[list[float | None], list[bool]] | None = None  # of the next apply
        # With the numbers that all peers begin with.
        self._rounding = rounding_of(inner, [p for _, p in parameters], bool(self.description.numbers))
        self._rounds = software_of(inner)
        self.sum: DeviceSum | None = None  # None: gradients add up in host memory
        self.passes = 0  # since the gradients were cleared
        # Of the parameters after our last change.
        self._versions: list[int] = [p._version for p in self.of_module] if beside else []
        self.ratios: list[float] | None = None  # of the groups' rates, if the run owns the rate
        self.followed: Followed | None = None
        self.all_follow = False  # so did all that contributed to the last update
        self.epoch: Callable[[], int] | None = None  # where they stand; None: at the number of steps
        self.counts = any(s.name == "step" for row in self.description.statistics for s in row) \
            or self.description.counter is not None
        self.own_updates: int | None = None  # before the run's, of this loop; None: the run has not begun
        self.updates_here = 0
        self.unknown = ""  # see unknown_state
        self._trains = False  # in this mode, and a state of the other one is loaded
        self._early: set[torch.Tensor] = set()  # a statistic of theirs was averaged before the optimizer kept any
        self.count_steps()

    def _give_parts(self) -> None:
        """What is kept for a parameter is where the parameter is. Raises ValueError if it has no place there."""
        for (name, p), row in zip(self.parameters, self.description.statistics):
            for s in row if hasattr(p, "device_mesh") else ():
                if s.group is None and s.exact and s.shape == tuple(p.shape):
                    s.like = p
                elif s.group is None and torch.Size(s.shape).numel() > 1:
                    raise ValueError(f"the optimizer keeps {s.name} of shape {list(s.shape)} in {s.dtype} for parameter {name} of shape "
                                     f"{list(p.shape)}, of which each rank has a part: only what has the shape of its parameter can "
                                     "be in parts, so use an optimizer such as AdamW, or DistributedDataParallel")

    def cuts(self, which: int) -> list[int]:
        """How many values of tensor number `which` of the state each rank has; one number: all have all."""
        if which >= len(self.tensors):
            return [self.buffers[which - len(self.tensors)].last.numel()]
        tensor, statistic = self.tensors[which]
        if statistic is not None and statistic.like is None:
            return [torch.Size(statistic.sent_shape).numel()]
        return self._cuts[self._number_of[id(tensor)]]

    def spread(self, ranks: Ranks, whole: torch.Tensor | None) -> Iterable[torch.Tensor]:
        """The parts of this rank of the values of all parameters, which rank 0 has; each is received when it is taken."""
        sizes = [sum(cuts) for cuts in self._cuts]
        if not self.is_sharded:
            return torch.split(ranks.spread(whole, [sum(sizes)]), sizes)
        wholes: Sequence[torch.Tensor | None] = [None] * len(sizes)
        if whole is not None:
            wholes = torch.split(whole, sizes)
        return (ranks.spread(each, cuts) for each, cuts in zip(wholes, self._cuts))

    def collect_gradient(self, ranks: Ranks, whole: torch.Tensor | None) -> None:
        """The reverse, of what has added up."""
        assert self.sum is not None
        wholes: Sequence[torch.Tensor | None] = [None] * len(self._cuts)
        if whole is not None:
            wholes = torch.split(whole, [sum(cuts) for cuts in self._cuts])
        for values, each, cuts in zip(self.sum.on_host(), wholes, self._cuts):
            if values is None:
                values = torch.zeros(cuts[min(ranks.rank, len(cuts) - 1)], dtype=torch.float32)
            if each is not None:
                each[:cuts[0]].copy_(values)
            if len(cuts) > 1:
                ranks.collect(values, cuts, each)

    def count_steps(self) -> None:
        """Of an optimizer that has stepped, or loaded a state, before."""
        states = [self.inner.state[p] for _, p in self.parameters if p in self.inner.state]
        counts = [int(state["step"]) for state in states if state.get("step") is not None]
        self.steps_made = max(counts, default=int(any(states)))
        for i, (_, p) in enumerate(self.parameters):
            if counts:
                self.left_out[i] = self.steps_made - int(self.inner.state.get(p, {}).get("step", 0))

    def updates(self) -> int:
        """Of the run, for schedulers."""
        return self.steps_made if self.epoch is None else self.epoch()

    def begin(self) -> None:
        """Before the first update or state of the run."""
        if self.own_updates is None:
            self.steps_made = self.steps()
            self.own_updates = 0 if self.epoch is not None else self.steps_made
        if self.followed is not None:
            self.followed.begin()

    def own_rates(self) -> None:
        rates = [float(group.get("lr", 0)) for group in self.inner.param_groups]
        if rates[0] == 0 and any(rates):
            raise ValueError("the learning rate of the optimizer's first parameter group is 0, and that of another "
                             "one is not: with lr, each group keeps its ratio to the first one, so put a group that "
                             "is trained first")
        self.ratios = [rate / rates[0] if rates[0] else 1.0 for rate in rates]

    def terms(self, present: list[bool]) -> torch.Tensor:
        """What this loop wishes for the next update. Nothing if it follows a schedule: that knows the update's own
        number, while a pass may count toward a later one than the next. Where others set other rates, or while it may turn
        out to, and the last update does not show that others do, the rates of the schedule where the run is: loops that set
        theirs need one."""
        followed, differ = self.followed, self.numbers.others_differ
        follows = followed is not None and not differ and (followed.moves() or (self.all_follow and bool(followed.all)))
        with self.lock, followed.moved() if followed is not None else contextlib.nullcontext():
            if followed is not None and differ:
                followed.move()
            return self.wishes.offer(not follows, self.ratios is None, present)

    def settle(self, numbers: list[float | None], present: list[bool]) -> None:
        self.settled = numbers, present

    def _inner_step(self, lr: float, numbers: list[float | None] | None = None) -> None:
        with self.lock, contextlib.ExitStack() as at_end:
            self.begin()
            if self.followed is not None:
                self.followed.move()
                self.all_follow = self.ratios is None and self.numbers.all_follow(numbers)
                if self.all_follow:
                    at_end.enter_context(self.followed.moved())
            if self.ratios is not None:
                for optimizer in {id(each): each for each in (self.shown, self.inner)}.values():
                    for group, ratio in zip(optimizer.param_groups, self.ratios):
                        set_number(group, "lr", None, lr * ratio)
            if self.shown is self.inner:
                return self._step_with(numbers)
            self.copy_numbers(self.shown, self.inner)
        try:
            self._step_with(numbers)
        except Exception as e:
            self.failed = e
            raise

    def copy_numbers(self, source: torch.optim.Optimizer, to: torch.optim.Optimizer) -> None:
        """The options of the groups that a loop may change."""
        for theirs, ours in zip(source.param_groups, to.param_groups) if source is not to else ():
            for name in theirs.keys() - self.description.changed - {"params"}:
                set_option(ours, name, theirs[name])

    def _step_with(self, numbers: list[float | None] | None) -> None:
        absent = [i for i, (_, p) in enumerate(self.parameters) if p.grad is None]
        for m in filter(None, self.masters if not self.beside else ()):
            m.follow()
        followed = self.followed if self.followed is not None and self.followed.all else None
        sets_rate = self.ratios is None and (followed is None or followed.moves())
        with self.numbers.taken(numbers, sets_rate, followed is not None), self.changing:
            while self._early:  # it begins all of its statistics, or none
                self.inner.state.pop(self._early.pop(), None)
            begins = [i for i, ((_, p), row) in enumerate(zip(self.parameters, self.description.statistics))
                      if (row or self.description.counter) and not self.inner.state.get(p)]
            if begins:  # also anew, when the loop has cleared its state
                self.left_out[begins] = self.steps_made
            self.inner.step()
        self.steps_made += 1
        self.updates_here += 1
        if absent:
            self.left_out[absent] += 1
        self.unknown = self.unknown_state()
        if not self.beside:
            self.refresh()

    def refresh(self) -> None:
        for m in filter(None, self.masters):
            m.give()
        self._versions = [p._version for p in self.of_module]

    @property
    def passed(self) -> list[torch.Tensor]:
        """Those whose .grad the passes fill."""
        return [p for _, p in self.parameters] if self.shown is self.inner else self.of_module

    def add_on_device(self) -> None:
        """Before the loop begins."""
        self.sum = made = DeviceSum(self.passed)
        self._on_device = True
        self.add_gradient, self.read_gradient, self.write_gradient = made.add, made.read, made.write

    def unknown_state(self) -> str:
        """The first value that the optimizer keeps and a peer that joins would not receive; empty: none."""
        for (name, p), row in zip(self.parameters, self.description.statistics):
            known = {"step", *(s.name for s in row)}
            for key, value in self.inner.state.get(p, {}).items():
                if value is not None and key not in known:
                    return f"{key} of parameter {name}"
                if any(s.name == key and s.dtype != getattr(value, "dtype", s.dtype) for s in row):
                    return f"{key} of parameter {name} as {value.dtype}"
        return ""

    def written(self) -> str:
        """The first parameter that the loop has changed since our last change, such as an Embedding with max_norm in
        its passes; empty: none. Peers then hold different parameters."""
        if self._versions and not self.is_sharded:  # those of parts count what fully_shard does, too
            for (name, _), p, version in zip(self.parameters, self.of_module, self._versions):
                if p._version != version:
                    return name
        return ""

    def clear_masters(self) -> None:
        """Gradients of theirs and of their parameters; the next pass begins with its own."""
        for m in filter(None, self.masters):
            m.clear()

    def apply(self, gradient: memoryview, lr: float) -> None:
        sizes = [p.numel() for _, p in self.parameters]
        self.apply_parts(torch.split(torch.frombuffer(gradient, dtype=torch.float32), sizes), lr)

    def apply_parts(self, parts: Iterable[torch.Tensor], lr: float) -> None:
        """Of each parameter, the values that this process has."""
        (numbers, present), self.settled = self.settled or (None, [True] * len(self.parameters)), None
        with torch.no_grad():
            for (_, p), part, is_present in zip(self.parameters, parts, present):
                if not is_present:  # no peer has a gradient: the optimizer leaves it out
                    p.grad = None
                    continue
                if p.grad is None or p.grad.layout != torch.strided:
                    p.grad = torch.empty_like(p)
                place = here(p.grad)
                place.copy_(part.view(place.shape))
        self._inner_step(lr, numbers)

    def step(self, lr: float) -> None:
        self._take_gradients()
        self._inner_step(lr)

    def _take_gradients(self) -> None:
        for m in filter(None, self.masters if self.shown is not self.inner else ()):
            m.take()

    def make_state(self) -> None:
        """By a step that trains nothing."""
        self._take_gradients()
        self.copy_numbers(self.shown, self.inner)
        self.inner.step()
        self.count_steps()

    def _kept(self, statistic: Statistic, state: dict[str, Any]) -> dict[str, Any]:
        """Where it is: in the state of its parameter, or in a group."""
        return state if statistic.group is None else self.inner.param_groups[statistic.group]

    def read(self, which: int, into: memoryview) -> None:
        self.read_part(which, torch.frombuffer(into, dtype=torch.float32))

    def read_part(self, which: int, values: torch.Tensor) -> None:
        with torch.no_grad():
            if which >= len(self.tensors):
                return self.buffers[which - len(self.tensors)].read(values)
            tensor, statistic = self.tensors[which]
            if statistic is not None:
                statistic.read(self._kept(statistic, self.inner.state.get(tensor, {})), values)
            else:
                if (m := self.masters[which]) is not None and not self.beside:
                    m.follow()
                values.copy_(here(tensor).reshape(-1))

    def write(self, which: int, values: memoryview) -> None:
        self.write_part(which, torch.frombuffer(values, dtype=torch.float32))

    def write_part(self, which: int, new: torch.Tensor) -> None:
        with torch.no_grad():
            if which >= len(self.tensors):
                return self.buffers[which - len(self.tensors)].write(new)
            tensor, statistic = self.tensors[which]
            if statistic is not None:
                if statistic.group is None and not self.inner.state.get(tensor):
                    self._early.add(tensor)
                kept = self._kept(statistic, self.inner.state[tensor])
                before = kept.get(statistic.name)
                statistic.write(kept, new)
                if statistic.group is not None and statistic.name in self.description.modes:
                    mode = self.description.modes[statistic.name]
                    self._trains |= before == mode and kept[statistic.name] != mode
            else:
                place = here(tensor)
                place.copy_(new.view(place.shape))
                if self.beside:
                    return
                if (m := self.masters[which]) is not None:
                    m.give()
                if self._versions:
                    self._versions[which] = self.of_module[which]._version

    def read_left_out(self, into: memoryview) -> None:
        torch.frombuffer(into, dtype=torch.float32).copy_(self.left_out)

    def write_left_out(self, values: memoryview) -> None:
        self.left_out.copy_(torch.frombuffer(values, dtype=torch.float32))

    def steps(self) -> int:
        if self.own_updates is None and not self.counts and self.followed is not None:
            return max(self.steps_made, self.followed.position())  # SGD keeps no count
        return self.steps_made

    def rounding(self) -> int:
        return self._rounding

    def set_steps(self, steps: int) -> None:
        self.begin()
        self._early.clear()
        if self._trains:
            self._trains = False
            self.inner.train()  # type: ignore[attr-defined]
        self.steps_made = steps
        if not self.beside:
            self._versions = [p._version for p in self.of_module]
        for (_, p), row, left_out in zip(self.parameters, self.description.statistics, self.left_out.tolist()):
            made = max(steps - int(left_out), 0)
            if made == 0:
                self.inner.state.pop(p, None)  # statistics may begin with other values than zeros
            elif row or self.description.counter is not None:
                state = self.inner.state[p]
                for statistic in row:
                    statistic.make(self._kept(statistic, state))
                counter = self.description.counter
                if counter is not None:
                    counter.make(state)
                    state["step"] = (counter.number(made) if counter.number else
                                     torch.full_like(state["step"], made))


def tensors_of(module: torch.nn.Module | None, optimizer: torch.optim.Optimizer,
               masters: bool, ranks: Ranks | None = None) -> tuple[Named, list[Buffer]]:
    """The trained parameters, by name, and the buffers that peers exchange. masters: those in half precision get one."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    known = {id(p) for p in held}
    if module is None:
        named = [(str(i), p) for i, p in enumerate(held)]
    else:
        module = unwrapped(module)
        named = [(plain_name(name), p) for name, p in module.named_parameters()]
    parameters = []
    for name, p in named:
        require_values(f"parameter {name}", p, ranks)
        if not p.requires_grad or p.numel() == 0:
            continue
        if p.layout != torch.strided or p.dtype not in (torch.float32, *(HALVES if masters else ())):
            cure = ("call float() on the module before the optimizer is constructed" if p.dtype not in HALVES or masters else
                    "leave autocast_adapter_dtype of peft at True" if ".lora_" in name else
                    'pass masters=True to waggle.Optimizer (in a launched script --masters true), which trains a float32 copy, '
                    'or make the module float32, by from_pretrained(…, dtype="float32") or float(), where passes may compute '
                    "in another format by torch.autocast")
            raise ValueError(f"parameter {name} is of type {p.dtype}, {p.layout}, and only dense float32 parameters can "
                             f"take part: {cure}")
        if hasattr(p, "__tensor_flatten__") and not hasattr(p, "device_mesh"):
            raise ValueError(f"parameter {name} is a {type(p).__name__}, which is made of other tensors, and peers exchange plain "
                             "ones: put a plain tensor in its place, or freeze it")
        if id(p) not in known:
            raise ValueError(f"parameter {name} is trainable, but the optimizer does not have it: freeze it, or give it "
                             "to the optimizer, or pass all optimizers of the module as a list")
        parameters.append((name, p))
    ours = {id(p) for _, p in parameters}
    for p in held:
        if p.requires_grad and p.numel() > 0 and id(p) not in ours:
            raise ValueError(f"the optimizer has a parameter with {p.numel()} values that the module does not have: pass "
                             "the module that has all of them")
    if not parameters:
        raise ValueError("there are no parameters to train")
    return parameters, buffers_of(module)


def makes_state(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step now trains nothing: by rates of 0 and gradients of zeros torch's distributed checkpoint has an
    optimizer make the state that it reads."""
    groups = optimizer.param_groups
    if optimizer.state or any("lr" not in group or float(group["lr"]) != 0 for group in groups):
        return False
    gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
    return len(gradients) > 0 and not any(bool(g.any()) for g in gradients)
