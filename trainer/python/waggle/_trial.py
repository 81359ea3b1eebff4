"""What a step of an optimizer changes, found on a copy of it with few parameters."""

from __future__ import annotations

import collections
import contextlib
import copy
import dis
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ._several import parts_of

STEPS = 10  # of the trial: some, such as with a rectified rate, begin with other ones

_of_torch = set(vars(torch.optim.SGD([torch.zeros(1, device="cpu")], 0.1))) | {"_step_count", "_opt_called"}


def _copy_of(value: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value  # such as a lock: the copy uses it, too


def _apart(function: Any, memo: dict[int, Any]) -> Any:
    """A hook of the copy: what it refers to is copied, too, so that its calls change nothing else."""
    if id(function) in memo:
        return memo[id(function)]
    if isinstance(function, types.MethodType):
        return types.MethodType(_apart(function.__func__, memo), _copy_of(function.__self__, memo))
    if not isinstance(function, types.FunctionType):
        return _copy_of(function, memo)
    known = dict(function.__globals__)
    made = types.FunctionType(function.__code__, known, function.__name__, _copy_of(function.__defaults__, memo),
                              tuple(types.CellType() for _ in function.__closure__ or ()))
    made.__kwdefaults__ = _copy_of(function.__kwdefaults__, memo)
    memo[id(function)] = made  # which may refer to itself
    for ours, theirs in zip(made.__closure__ or (), function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # it is empty
            ours.cell_contents = _part(theirs.cell_contents, function, memo)
    for name in _globals_of(function.__code__) & set(known):
        known[name] = _part(known[name], function, memo)
    return made


def _globals_of(code: types.CodeType) -> set[str]:
    names = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals_of(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def _part(value: Any, of: types.FunctionType, memo: dict[int, Any]) -> Any:
    if isinstance(value, types.FunctionType):
        return _apart(value, memo) if value.__globals__ is of.__globals__ else value
    return value if isinstance(value, (type, types.ModuleType)) else _copy_of(value, memo)


@contextlib.contextmanager
def hooks_of_all(memo: dict[int, Any] | None) -> Iterator[None]:
    """In the block, steps call copies of the hooks of all optimizers; None: none of them."""
    of_torch = vars(sys.modules[torch.optim.Optimizer.__module__])
    tables = [of_torch.get(f"_global_optimizer_{when}_hooks", {}) for when in ("pre", "post")]
    kept = [dict(table) for table in tables]
    for table in tables:
        for key, hook in list(table.items()):
            table[key] = _nothing if memo is None else _apart(hook, memo)
    try:
        yield
    finally:
        for table, hooks in zip(tables, kept):
            table.update(hooks)


def _nothing(*_: Any) -> None:
    pass


def copied(optimizer: torch.optim.Optimizer, memo: dict[int, Any]) -> Any:
    """With all of its attributes, which __getstate__ of torch leaves out."""
    made = memo[id(optimizer)] = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name in ("step", "zero_grad"):
            continue  # wrappers, as of a scheduler, which refer to `optimizer`
        if "_hooks" in name and isinstance(value, dict):
            hooks, value = value, type(value)()
            value.update({key: _apart(hook, memo) for key, hook in hooks.items() if "step" in name})
        elif id(value) not in memo and isinstance(value, torch.optim.Optimizer):
            value = copied(value, memo)
        elif isinstance(value, tuple) and any(isinstance(each, torch.optim.Optimizer) for each in value):
            value = tuple(copied(each, memo) for each in value)
        else:
            value = _copy_of(value, memo)
        vars(made)[name] = value
    return made


def _picture(value: Any, seen: set[int]) -> Any:
    """What can be compared with the same later."""
    if isinstance(value, (bool, int, float, complex, str)):
        return value
    if id(value) in seen:
        return None
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else id(name): _picture(each, seen) for name, each in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return {i: _picture(each, seen) for i, each in enumerate(value)}
    if isinstance(value, type) or callable(value) or not isinstance(getattr(value, "__dict__", None), dict):
        return None
    return {name: _picture(each, seen) for name, each in vars(value).items() if name not in _of_torch
            or (isinstance(value, torch.optim.Optimizer) and name in ("state", "param_groups"))}


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    return type(a) is type(b) and (bool(a == b) or a != a)


class Trial:
    """states: what the optimizer keeps for each of `parameters`. of_groups: what its steps, `train` and `eval` change in
    each parameter group. modes: of that, what `eval` changes, and the value that `train` gives it.

    Raises ValueError or TypeError with a sentence if it cannot step, or keeps something else, which a peer that joins
    would not receive."""

    def __init__(self, inner: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> None:
        trained = {id(p) for p in parameters}
        memo: dict[int, Any] = {id(each.state): collections.defaultdict(dict) for each in parts_of(inner)}
        alike: dict[Any, torch.Tensor] = {}  # one for all of a group that have one shape
        for i, group in enumerate(inner.param_groups):
            for p in group["params"]:
                key = (i, tuple(p.shape), p.dtype, p.device, p.stride(), id(p) in trained)
                if key not in alike:
                    whole = torch.zeros(p.shape, dtype=p.dtype, device=p.device) if hasattr(p, "device_mesh") else torch.zeros_like(p)
                    alike[key] = whole.detach().requires_grad_(id(p) in trained)
                memo[id(p)] = alike[key]
        self._step_of = {id(p): memo[id(p)] for p in parameters}
        self._copy = made = copied(inner, memo)
        for group in made.param_groups:
            group["params"] = list({id(p): p for p in group["params"]}.values())
        self.of_groups: list[dict[str, Any]] = [{} for _ in made.param_groups]
        self.modes: dict[str, Any] = {}
        hooked = any(value for each in parts_of(made) for name, value in vars(each).items() if "_hooks" in name)
        of_torch = all(type(each).__module__.startswith("torch.optim.") for each in parts_of(inner)) and not hooked
        with torch.random.fork_rng([p.device.index for p in alike.values() if p.is_cuda]), hooks_of_all(memo):
            self._try(alike.values(), of_torch)
        self.states: list[dict[str, Any]] = [made.state.get(self._step_of[id(p)], {}) for p in parameters]
        known = {id(p) for p in alike.values()}
        for key in made.state:
            if id(key) not in known:
                raise TypeError(f"{type(inner).__name__} keeps {key!r} in its state, which is of no parameter: a peer that "
                                "joins receives what is kept for parameters and in their groups only")

    def _try(self, alike: Iterable[torch.Tensor], of_torch: bool) -> None:
        name = " and ".join(type(each).__name__ for each in parts_of(self._copy))
        before = {}
        try:
            self._switch("train")
            for i in range(1 if of_torch else STEPS):  # those of torch keep all in their states
                for p in alike:
                    if p.requires_grad:  # at first zeros, for which any optimizer has a step
                        p.grad = (0.01 * i * torch.linspace(-1, 1, p.numel(), device=p.device)).view_as(p).to(p)
                self._note(self._copy.step, into=self.of_groups)
                if i == 0:
                    before = self._attributes()
        except Exception as e:
            raise ValueError(f"{name} is not supported: a step of a copy of it, which shows what it keeps, fails "
                             f"({e})") from e
        after = {} if of_torch else self._attributes()
        for attribute in after:
            if not _equal(before.get(attribute), after[attribute]):
                raise TypeError(f"{name} keeps something in its attribute {attribute} that its steps change: a peer that "
                                "joins receives what is kept for parameters and in their groups only, so keep it there")
        modes: list[dict[str, Any]] = [{} for _ in self._copy.param_groups]
        self._switch("eval")
        self._note(lambda: self._switch("train"), into=modes)
        for mode, changed in zip(modes, self.of_groups):
            self.modes.update(mode)
            changed.update(mode)

    def _switch(self, mode: str) -> None:
        """Optimizers that average their steps have these, as modules do."""
        switch = getattr(self._copy, mode, None)
        if callable(switch):
            switch()

    def _note(self, call: Any, into: list[dict[str, Any]]) -> None:
        """Calls it, and notes what it changes in the groups."""
        groups = self._copy.param_groups
        before = [{option: _picture(value, set()) for option, value in group.items() if option != "params"}
                  for group in groups]
        call()
        for group, was, changed in zip(groups, before, into):
            for option, value in group.items():
                if option != "params" and not _equal(was.get(option), _picture(value, set())):
                    changed[option] = value

    def _attributes(self) -> dict[str, Any]:
        made = self._copy
        seen = {id(made), *map(id, made.state.values()),
                *(id(kept) for each in parts_of(made) for kept in (each.state, each.param_groups)),
                *map(id, made.param_groups), *(id(p) for group in made.param_groups for p in group["params"])}
        return {name if each is made else f"{name} of {type(each).__name__}": _picture(value, seen)
                for each in parts_of(made) for name, value in vars(each).items() if name not in _of_torch}
