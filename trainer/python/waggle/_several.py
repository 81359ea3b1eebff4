"""Several optimizers of one model, as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import torch


class _States(MutableMapping[Any, Any]):
    """Of each parameter, where its optimizer keeps it now."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = optimizers

    def _of(self, parameter: Any) -> Any:
        for each in self._optimizers:
            if parameter in each.state or any(p is parameter for group in each.param_groups for p in group["params"]):
                return each.state
        raise KeyError(parameter)

    def __getitem__(self, parameter: Any) -> Any:
        return self._of(parameter)[parameter]  # which makes one, as a defaultdict does

    def __setitem__(self, parameter: Any, state: Any) -> None:
        self._of(parameter)[parameter] = state

    def __delitem__(self, parameter: Any) -> None:
        del self._of(parameter)[parameter]

    def __contains__(self, parameter: Any) -> bool:
        return any(parameter in each.state for each in self._optimizers)

    def get(self, parameter: Any, default: Any = None) -> Any:
        return self[parameter] if parameter in self else default

    def pop(self, parameter: Any, *default: Any) -> Any:
        return self._of(parameter).pop(parameter, *default)

    def __iter__(self) -> Iterator[Any]:
        for each in self._optimizers:
            yield from each.state

    def __len__(self) -> int:
        return sum(len(each.state) for each in self._optimizers)


class Several(torch.optim.Optimizer):
    """Steps them one after the other. Groups and states are theirs."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = tuple(optimizers)
        self.defaults: dict[str, Any] = {}
        super().__setstate__({})  # the hooks

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return [group for each in self.optimizers for group in each.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        return _States(self.optimizers)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for each in self.optimizers:
            each.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in self.optimizers:
            each.zero_grad(set_to_none=set_to_none)

    def _switch(self, mode: str) -> None:
        for each in self.optimizers:
            if callable(switch := getattr(each, mode, None)):
                switch()

    def train(self) -> None:
        self._switch("train")

    def eval(self) -> None:
        self._switch("eval")

    def state_dict(self) -> dict[str, Any]:
        return {"optimizers": [each.state_dict() for each in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states = state_dict.get("optimizers", ())
        if len(states) != len(self.optimizers):
            raise ValueError(f"the state is of {len(states)} optimizers, and there are {len(self.optimizers)}")
        for each, state in zip(self.optimizers, states):
            each.load_state_dict(state)

    def __repr__(self) -> str:
        return " and ".join(map(repr, self.optimizers))


def parts_of(optimizer: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    """Those that it consists of: itself, or several."""
    return optimizer.optimizers if isinstance(optimizer, Several) else (optimizer,)


def as_one(optimizers: Sequence[Any]) -> torch.optim.Optimizer:
    """Raises TypeError or ValueError with a sentence."""
    for each in optimizers:
        if not isinstance(each, torch.optim.Optimizer):
            raise TypeError(f"optimizer is a list with a {type(each).__name__}, and must be an optimizer of torch, or a list "
                            "of them")
    held = [id(p) for each in optimizers for group in each.param_groups for p in group["params"]]
    if not held:
        raise ValueError("optimizer is a list without optimizers")
    if len(set(held)) < len(held):
        raise ValueError("two of the optimizers have a parameter in common: give each parameter to one of them")
    one: torch.optim.Optimizer = optimizers[0]
    return one if len(optimizers) == 1 else Several(optimizers)
