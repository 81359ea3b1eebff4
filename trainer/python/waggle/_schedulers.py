"""Schedulers of torch that stand at the number of updates of the run."""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ._model import Model

_log = logging.getLogger(__name__)
_torch: Any = torch.optim.lr_scheduler
Scheduler: Any = getattr(_torch, "LRScheduler", None) or _torch._LRScheduler
KINDS: tuple[Any, ...] = (Scheduler, _torch.ReduceLROnPlateau)  # the latter is not of that base class in torch 1


def _parts(scheduler: Any) -> list[Any]:
    """Those that it consists of."""
    found = []
    for value in vars(scheduler).values():
        each = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else (value,)
        found += [part for part in each if isinstance(part, KINDS)]
    return found


def family(scheduler: Any) -> list[Any]:
    """The scheduler, its parts, and theirs."""
    found = [scheduler]
    for each in found:  # which grows
        found += [part for part in _parts(each) if all(part is not f for f in found)]
    return found


def is_of(scheduler: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Whether it sets the rates of this optimizer, also through a framework's wrapper of it."""
    groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", ())
    return any(theirs is ours for theirs in groups for ours in optimizer.param_groups)


def _position(scheduler: Any) -> int:
    """How often it was stepped. A ChainedScheduler does not count."""
    counts = (getattr(each, "last_epoch", None) for each in family(scheduler))
    return next((int(count) for count in counts if count is not None), 0)


def why_not(scheduler: Any) -> str | None:
    for each in family(scheduler):
        if isinstance(each, _torch.ReduceLROnPlateau):
            return "it depends on a metric, so use lr=… and schedule='plateau' of the run"
        if not isinstance(each, Scheduler):
            return "it is not derived from LRScheduler of torch"
        takes = [p.name for p in inspect.signature(each.step).parameters.values()
                 if p.name != "epoch" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if takes:
            return f"its step takes {takes[0]}, and follow knows the number of updates only, so set the rates in the loop"
    return None


def _copied(value: Any) -> Any:
    """Containers and tensors anew; anything else, such as a function, is the same."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, dict):
        copy = value.copy()
        for name, each in value.items():
            copy[name] = _copied(each)
        return copy
    return value


def _construct_again(scheduler: Any) -> None:
    """What the constructors do to it and to the rates."""
    for part in _parts(scheduler):
        _construct_again(part)
    if isinstance(scheduler, _torch.SequentialLR):
        _torch.SequentialLR.__init__(scheduler, scheduler.optimizer, scheduler._schedulers, scheduler._milestones)
    elif hasattr(scheduler, "base_lrs"):
        base = scheduler.base_lrs
        if hasattr(scheduler, "T_0"):
            scheduler.T_cur, scheduler.T_i = -1, scheduler.T_0
        Scheduler.__init__(scheduler, scheduler.optimizer)
        scheduler.base_lrs = base  # those of CyclicLR are its own


class _Followed:
    """One of them."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.own_class = type(scheduler)
        self.moves = True  # with the run; False: its own step() counts, until it is known what the loop does
        self.calls = 0  # of its step by the loop
        self.offset: int | None = None  # of its position from the updates of the run; None: it has not begun
        self.over = False

    def begin(self, offset: int) -> None:
        """The run's state may be older than ours, so this keeps what it is now."""
        self.offset = offset
        self.at = self.first = _position(self.scheduler)
        self.kept = self.picture()

    def picture(self) -> list[tuple[dict[str, Any], Any]]:
        functions = [f for each in family(self.scheduler) for f in getattr(each, "lr_lambdas", ())
                     if isinstance(getattr(f, "__dict__", None), dict)]
        return [(vars(each), _copied(vars(each))) for each in family(self.scheduler) + functions]

    def put(self, picture: list[tuple[dict[str, Any], Any]]) -> None:
        for values, kept in picture:
            values.update(_copied(kept))

    def target(self, updates: int) -> int:
        assert self.offset is not None
        if updates + self.offset < 0:  # the run is younger than what the loop loaded
            self.offset = 0
        return updates + self.offset

    def restore(self) -> None:
        self.put(self.kept)
        self.at, self.over = self.first, False

    def anew(self) -> None:
        self.at, self.over = 0, False
        followed, self.scheduler.__class__ = self.scheduler.__class__, self.own_class
        try:
            _construct_again(self.scheduler)
        finally:
            self.scheduler.__class__ = followed

    def step(self) -> None:
        self.at += 1
        if self.over:
            return
        try:
            self.own_class.step(self.scheduler)
        except Exception as e:  # such as of OneCycleLR, beyond its last step
            self.over = True
            _log.warning("the %s ends at update %d, and the rates stay as they are: %s", self.own_class.__name__,
                         self.at, e)


class Followed:
    """Those of one optimizer, in the order in which they are stepped. Where the run begins, or finds this peer, the
    count of its updates is that of the optimizer; one that does not count has made as many as they were stepped."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.all: list[_Followed] = []
        self._groups: list[dict[str, Any]] = []  # their numbers; empty: the run has not begun

    def add(self, scheduler: Any, moves: bool = True) -> None:
        """Raises TypeError with a sentence if it cannot be followed. A part of another one is moved with that one.
        Without `moves`, the run has begun (`begin`) before the loop steps it."""
        why = why_not(scheduler)
        if why is not None:
            raise TypeError(f"the {type(scheduler).__name__} cannot be followed: {why}")
        if any(scheduler is each for known in self.all for each in family(known.scheduler)):
            return
        for part in family(scheduler)[1:]:
            self.remove(part)
        added = _Followed(scheduler)
        added.moves = moves
        self.all.append(added)
        me = weakref.ref(self)

        def step(_: Any, *arguments: Any, **named: Any) -> None:
            added.calls += 1
            followed = me()
            lock: Any = contextlib.nullcontext() if followed is None else followed._model.lock
            with lock:
                if not added.moves:
                    added.own_class.step(added.scheduler, *arguments, **named)
                    added.at += 1
                elif followed is not None and added.offset is not None:
                    followed.move([added])
        # Not an attribute of the scheduler, which its state_dict would contain.
        scheduler.__class__ = type(added.own_class.__name__, (added.own_class,), {"step": step})

    def remove(self, scheduler: Any) -> None:
        """Its own step counts again."""
        for known in [each for each in self.all if each.scheduler is scheduler]:
            scheduler.__class__ = known.own_class
            self.all.remove(known)

    @contextlib.contextmanager
    def moved(self) -> Iterator[None]:
        """In the block, those that do not move yet stand where the run does."""
        those = [each for each in self.all if not each.moves]
        numbers = self._numbers() if those else []
        kept = [(each, each.at, each.over, each.picture()) for each in those]
        for each in those:
            each.moves = True
        try:
            if those:
                self.move()
            yield
        finally:
            for each, each.at, each.over, picture in kept:
                each.moves = False
                each.put(picture)
            if those:
                self._set_numbers(numbers)

    def moves(self) -> bool:
        return any(each.moves for each in self.all)

    def position(self) -> int:
        """Of the one that was stepped most."""
        return max((_position(each.scheduler) for each in self.all), default=0)

    def begin(self) -> None:
        """Before the first update or state of the run, and for those that are followed later."""
        model = self._model
        own = model.own_updates
        assert own is not None
        with_run = not self._groups
        if with_run:
            self._groups = self._numbers()
        for each in self.all:
            if each.offset is not None:
                continue
            at = _position(each.scheduler)
            if model.updates_here > 0:  # it may have been stepped since, but goes not back
                each.begin(max(0, at - model.updates()))
            else:
                each.begin(at - own if with_run or model.counts else 0)

    def move(self, those: list[_Followed] | None = None) -> None:
        """To the number of updates of the run."""
        self.begin()
        updates = self._model.updates()
        if those is not None and those[0].target(updates) > those[0].at + 1:
            those = None  # all turn by turn, because rates are often the product of factors
        moving = [each for each in self.all if each.moves]  # all, or none
        if any(each.target(updates) < each.at for each in moving):
            those = None
            self._back(updates)
        self._advance({each: each.target(updates) - each.at for each in those or moving})

    def _advance(self, left: dict[_Followed, int]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no step of the optimizer came before
            for n in range(max(left.values(), default=0), 0, -1):
                for each, steps in left.items():
                    if steps >= n:
                        each.step()

    def _back(self, updates: int) -> None:
        """To where the run began; if this peer had trained for longer than the run then, to their constructors, if
        from there they come here again."""
        self._restore()
        if all(each.target(updates) >= each.at for each in self.all):
            return
        try:
            self._anew()
            self._advance({each: each.first for each in self.all})
            known = self._numbers() == self._groups
            self._anew()
        except Exception:
            known = False
        if not known:
            self._restore()

    def _numbers(self) -> list[dict[str, Any]]:
        no_options = self._model.description.changed | {"params"}
        return [{name: _copied(value) for name, value in group.items() if name not in no_options}
                for group in self._model.shown.param_groups]

    def _restore(self) -> None:
        self._set_numbers(self._groups)
        for each in self.all:
            each.restore()

    def _set_numbers(self, groups: list[dict[str, Any]]) -> None:
        for group, kept in zip(self._model.shown.param_groups, groups):
            for name, value in kept.items():
                set_option(group, name, value)

    def _anew(self) -> None:
        for group in self._model.shown.param_groups:
            set_option(group, "lr", group.get("initial_lr", group["lr"]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for each in self.all:
                each.anew()


def set_option(group: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, torch.Tensor) and isinstance(group.get(name), torch.Tensor):
        group[name].copy_(value)  # which a compiled optimizer refers to
    else:
        group[name] = _copied(value)
