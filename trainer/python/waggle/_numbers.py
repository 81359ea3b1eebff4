"""The numbers of a torch optimizer that a loop may change at any step, and that the peers settle for each update."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from . import _waggle
from ._describe import Description, compared, pieces

# Where torch has the numbers of `waggle train`.
_places: dict[str, tuple[str, int | None]] = {
    "beta1": ("betas", 0), "beta2": ("betas", 1), "epsilon": ("eps", None), "smoothing": ("alpha", None)}
_surprising = 3  # times in a row that another rate than the loop's was used


def get_number(group: Mapping[str, Any], key: str, index: int | None) -> float:
    try:
        return float(group[key] if index is None else group[key][index])
    except (KeyError, IndexError, TypeError, ValueError):
        raise TypeError(f"{key} of a parameter group of the optimizer became {group.get(key)!r}: set it to what it was at the start, "
                        "with other numbers") from None


def set_number(group: MutableMapping[str, Any], key: str, index: int | None, number: float) -> None:
    """Keeps the type: a learning rate may be a tensor, betas are a tuple."""
    value = group[key]
    if index is not None:
        group[key] = type(value)(number if i == index else each for i, each in enumerate(value))
    elif isinstance(value, torch.Tensor):
        value.fill_(number)
    else:
        group[key] = type(value)(number) if isinstance(value, int) and number == int(number) else number


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)  # a limit may be inf


def _places_in(group: Mapping[str, Any], changed: Collection[str]) -> list[tuple[str, int | None]]:
    """Of an optimizer that only Python knows: all its numbers, the rate first, but for those that its steps change."""
    places: list[tuple[str, int | None]] = [("lr", None)] if "lr" in group and "lr" not in changed else []
    for key, value in sorted(compared(group, changed).items()):
        if _is_number(value):
            places.append((key, None))
        elif isinstance(value, (tuple, list)) and value and all(map(_is_number, value)):
            places += [(key, i) for i in range(len(value))]
    return places


class Numbers:
    """places: of each number in a parameter group. rate: that of the first group in the last update; None before."""

    def __init__(self, inner: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], of: Description) -> None:
        self._inner = inner
        group_of = {id(p): i for i, group in enumerate(inner.param_groups) for p in group["params"]}
        self._group_of = torch.tensor([group_of[id(p)] for p in parameters], device="cpu")
        # The settled numbers of a group are those of its first parameter.
        self._first = {group: i for i, group in reversed(list(enumerate(self._group_of.tolist())))}
        in_groups = [_places_in(group, of.changed) for group in inner.param_groups]
        self.places = ([_places.get(name, (name, None)) for name in _waggle.settled_numbers(of.kind)] if of.numbers
                       else [place for place in in_groups[0] if all(place in each for each in in_groups)])
        self._has_rate = bool(self.places) and self.places[0][0] == "lr"
        self.rate: float | None = None
        self.others_differ = False  # a schedule is followed, and not by all
        self._other = 0  # times in a row that another rate than the loop's was used
        self._warned = False
        self._values = torch.empty(0, device="cpu")
        self._written: object = None

    def own(self) -> list[list[float]]:
        return [[get_number(group, *place) for place in self.places] for group in self._inner.param_groups]

    def offer(self, wishes: bool, owns_rate: bool, present: list[bool]) -> torch.Tensor:
        """The numbers that this peer wishes for, without the rate if that is the run's, and which parameters have a
        gradient, as runtime/training/update_terms.hpp has it. Written anew only if something has changed."""
        now = (self.own() if wishes else None, present)
        if now != self._written:
            numbers = torch.zeros(len(self._group_of), len(self.places), 3, dtype=torch.float32, device="cpu")
            if now[0] is not None:
                numbers = pieces(torch.tensor(now[0], dtype=torch.float64, device="cpu"))[self._group_of]
            missing = len(self.places) if not wishes else int(not owns_rate and self._has_rate)
            numbers[:, :missing] = torch.tensor([torch.finfo(torch.float32).max, 0, 0], device="cpu")
            flags = pieces(torch.tensor(present, dtype=torch.float64, device="cpu"))
            self._values = torch.cat([numbers.reshape(-1), flags.reshape(-1)])
            self._written = now
        return self._values

    def all_follow(self, settled: list[float | None] | None) -> bool:
        """Whether no peer of the update wished for a rate."""
        return settled is not None and self._has_rate and settled[0] is None

    @contextlib.contextmanager
    def taken(self, settled: list[float | None] | None, sets_rate: bool, follows: bool = False) -> Iterator[None]:
        """In the block, the groups have the settled numbers; behind it, the loop's own, from which its schedulers go
        on. `sets_rate`: the loop does, or the schedule that it `follows`, so another one may surprise it."""
        groups = self._inner.param_groups
        own = self.own() if settled is not None else []
        for i, group in enumerate(groups if settled is not None else ()):
            first = self._first.get(i)
            for n, place in enumerate(self.places):
                number = None if first is None else settled[first * len(self.places) + n]  # type: ignore[index]
                # Below the smallest float32 a number loses digits on its way; NaN is near nothing.
                if number is not None and not abs(number - own[i][n]) <= 1e-44:
                    set_number(group, *place, number)
        if self._has_rate:
            self.rate = get_number(groups[0], "lr", None)
        used = self.own() if settled is not None else []
        try:
            yield
        finally:
            for group, before, during in zip(groups, own, used):
                for place, mine, settled_one in zip(self.places, before, during):
                    if mine != settled_one and get_number(group, *place) == settled_one:
                        set_number(group, *place, mine)
        if sets_rate and self.all_follow(settled):
            if not follows and not self._warned:
                self._warned = True
                warnings.warn("the other loops follow a schedule, and this one sets its rate itself, which they do not know: give its "
                              "scheduler to optimizer.follow(scheduler), or theirs to none", stacklevel=2)
        elif own and sets_rate and self.rate is not None:
            self._compare(own[0][0], follows)

    def _compare(self, wish: float, follows: bool) -> None:
        self._other = self._other + 1 if abs(wish - (self.rate or 0)) > 1e-6 * abs(wish) else 0  # a tensor is a float32
        if self._other == _surprising and not self._warned:
            self._warned = True
            self.others_differ = follows
            does = "follows a schedule that has" if follows else "set"
            warnings.warn(f"this loop {does} the learning rate {wish:g}, and the peers made the last {_surprising} updates "
                          f"with {self.rate:g}, the median of what their loops set: to have all loops count the run's "
                          "updates, give the scheduler of each to optimizer.follow(scheduler)", stacklevel=2)
