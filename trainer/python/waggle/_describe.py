"""What peers compare of a torch optimizer, and what they exchange of it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch

from . import _waggle
from ._several import parts_of
from ._trial import Trial

if TYPE_CHECKING:
    from ._ranks import Ranks

SWITCHES = ("foreach", "fused", "capturable", "differentiable")  # of the implementation
_not_compared = {"params", "lr", "initial_lr", *SWITCHES}  # and what changes with the rate
HALVES = (torch.bfloat16, torch.float16)
_squares = {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta", "exp_inf"}
_text_max = 400  # of the agreement's 3 KiB


def pieces(numbers: torch.Tensor) -> torch.Tensor:
    """Three float32 for each float64, whose sum it is, in a last dimension."""
    out = []
    for _ in range(3):
        out.append(numbers.to(torch.float32))
        numbers = numbers - out[-1].to(torch.float64)
    return torch.stack(out, -1)


class Statistic:
    """A value that an optimizer keeps for a parameter, or in parameter group number `group`, as float32 values.

    Tensors of float32, and of less, are copied. All other numbers become the sum of three float32 numbers each,
    which is exact for a float64, so that a peer that joins continues with the same bits."""

    def __init__(self, name: str, value: Any, group: int | None = None) -> None:
        self.name = name
        self.group = group
        self.sent_name = name if group is None else f"group.{name}"
        self.number: type[bool | int | float] | None = None
        if isinstance(value, (bool, int, float)):
            self.number = type(value)
            value = torch.tensor(float(value), dtype=torch.float64, device="cpu")
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"the optimizer keeps {name}, which is of type {type(value).__name__}: a peer that "
                            "joins can receive numbers and tensors only")
        if value.layout != torch.strided or value.is_complex() or value.is_quantized:
            raise TypeError(f"the optimizer keeps {name}, which is no dense tensor of real numbers")
        self.dtype = value.dtype
        self.device = value.device
        self.shape = tuple(value.shape)
        self.half = value.dtype in HALVES
        self.exact = value.dtype == torch.float32 or self.half
        self.sent_shape = list(self.shape) if self.exact else [3, *self.shape]
        self.never_negative = self.exact and name in _squares
        self.like: torch.Tensor | None = None  # the parameter of which each rank has a part, and so of this

    def read(self, state: Mapping[str, Any], into: torch.Tensor) -> None:
        value = state.get(self.name)
        if value is None:
            into.zero_()
        elif self.exact:
            into.copy_(here(value).reshape(-1))
        else:
            into.view(3, -1).copy_(pieces(torch.as_tensor(value, dtype=torch.float64, device="cpu").detach().reshape(-1)).T)

    def make(self, state: MutableMapping[str, Any]) -> None:
        """Adds the value to a state that does not have it."""
        if state.get(self.name) is None:
            state[self.name] = (self.number(0) if self.number is not None else
                                torch.zeros(self.shape, dtype=self.dtype, device=self.device) if self.like is None else
                                torch.zeros_like(self.like, dtype=self.dtype))

    def write(self, state: MutableMapping[str, Any], values: torch.Tensor) -> None:
        if self.exact:
            self.make(state)
            kept = here(state[self.name])
            kept.copy_(values.view(kept.shape))
            return
        exact = values.view(3, -1).to(torch.float64).sum(0)
        if self.number is not None:
            state[self.name] = self.number(exact.item())
        else:
            self.make(state)
            state[self.name].copy_(exact.view(self.shape))  # rounds back to what was read


def _number_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(_number_text(each) for each in value) + ")"
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    return type(value).__name__


def compared(group: Mapping[str, Any], changed: Collection[str] = ()) -> dict[str, Any]:
    """The options of a parameter group that must be equal on all peers. `changed`: those that a step changes."""
    return {name: value for name, value in group.items() if name not in _not_compared and name not in changed}


def _text_of(inner: torch.optim.Optimizer, changed: Collection[str]) -> str:
    groups = inner.param_groups
    first = compared(groups[0], changed)
    text = type(inner).__name__ + "(" + ", ".join(f"{n}={_number_text(v)}" for n, v in sorted(first.items())) + ")"
    for i, group in enumerate(groups[1:], 1):
        other = {n: v for n, v in compared(group, changed).items() if n not in first or first[n] != v}
        if other:
            text += f"; group {i} of {len(group['params'])}: " + ", ".join(
                f"{n}={_number_text(v)}" for n, v in sorted(other.items()))
    return text


def _own_text(inner: torch.optim.Optimizer, changed: Collection[str], more: str) -> str:
    text = " and ".join(_text_of(each, changed) for each in parts_of(inner))
    text = (text + more).replace("\n", " ")
    if len(text) > _text_max:
        text = text[:60] + "… " + hashlib.sha256(text.encode()).hexdigest()[:16]
    return text


_Numbers = dict[str, Any]


def _sgd(o: Mapping[str, Any]) -> _Numbers | None:
    return None if o["dampening"] else {"momentum": o["momentum"], "nesterov": o["nesterov"]}


def _adam(o: Mapping[str, Any]) -> _Numbers | None:
    return {"beta1": o["betas"][0], "beta2": o["betas"][1], "epsilon": o["eps"], "amsgrad": o["amsgrad"]}


def _adagrad(o: Mapping[str, Any]) -> _Numbers | None:
    return None if o["lr_decay"] or o["initial_accumulator_value"] else {"epsilon": o["eps"]}


def _rmsprop(o: Mapping[str, Any]) -> _Numbers | None:
    return {"smoothing": o["alpha"], "epsilon": o["eps"], "momentum": o["momentum"], "centered": o["centered"]}


# Those that C++ and `waggle train` know: with the same numbers, their peers can be in one run.
_known: dict[type, tuple[str, Callable[[Mapping[str, Any]], _Numbers | None]]] = {
          torch.optim.SGD: ("sgd", _sgd), torch.optim.Adam: ("adam", _adam),
          torch.optim.AdamW: ("adamw", _adam), torch.optim.Adagrad: ("adagrad", _adagrad),
          torch.optim.RMSprop: ("rmsprop", _rmsprop)}


def _known_identity(inner: torch.optim.Optimizer, trained: Set[int]) -> tuple[str, _Numbers] | None:
    """The name and the numbers of an optimizer of `waggle train`, or None."""
    if type(inner) not in _known:
        return None
    kind, read = _known[type(inner)]
    common: _Numbers | None = None
    matrices: set[float] = set()
    vectors: set[float] = set()
    for group in inner.param_groups:
        # Newer versions of torch have one class for Adam and AdamW, and say here which it is.
        if group.get("maximize") or group.get("decoupled_weight_decay", kind == "adamw") != (kind == "adamw"):
            return None
        numbers = read(group)
        if numbers is None or common not in (None, numbers):
            return None
        common = numbers
        for p in group["params"]:
            if id(p) in trained:
                (vectors if p.dim() < 2 else matrices).add(group["weight_decay"])
    decays = matrices or vectors
    decays_vectors = not matrices or not vectors or vectors == matrices
    if len(decays) > 1 or len(vectors) > 1 or (not decays_vectors and vectors != {0}):
        return None
    identity: _Numbers = {name: float(value) for name, value in (common or {}).items()}
    identity["weight_decay"] = float(next(iter(decays)))
    identity["decay_vectors"] = decays_vectors
    return kind, identity


class Description:
    """kind, numbers: the optimizer as peers compare it. statistics: a list of `Statistic` for each of
    `parameters`; what steps change in a group is one of the group's first. changed: the names of that. modes: what
    `train` sets in groups, unless all is done in one mode. counter: None, or the Statistic "step" that is not sent, because it is the
    number of the run's updates."""

    def __init__(self, inner: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> None:
        trial = Trial(inner, parameters)
        rows = [[Statistic(name, value) for name, value in state.items() if value is not None]
                for state in trial.states]
        for i, (group, values) in enumerate(zip(inner.param_groups, trial.of_groups)):
            ours = set(map(id, group["params"]))
            first = next((row for p, row in zip(parameters, rows) if id(p) in ours), None)
            if first is not None:
                first += [Statistic(name, value, i) for name, value in values.items()]
        self.changed = {name for values in trial.of_groups for name in values}
        self.modes = trial.modes
        self.counter: Statistic | None = None
        halves = sorted({f"; {s.name} in {str(s.dtype)[6:]}" for row in rows for s in row if s.half})
        self.kind = _own_text(inner, self.changed, "".join(halves))
        self.numbers: _Numbers = {}
        self.statistics = rows
        known = _known_identity(inner, {id(p) for p in parameters})
        if known:
            self._take_known(known, parameters)

    def _take_known(self, known: tuple[str, _Numbers], parameters: Sequence[torch.Tensor]) -> None:
        kind, numbers = known
        rows = []
        for p, row in zip(parameters, self.statistics):
            named = {s.name: s for s in row}
            wanted = [name for name, _, _ in _waggle.known_statistics(kind, numbers, list(p.shape))]
            if set(named) - {"step"} != set(wanted) or any(named[name].shape != tuple(p.shape) or named[name].half
                                                           for name in wanted):
                return  # of another version of torch, or changed by hooks
            rows.append([named[name] for name in wanted])
        self.counter = next((s for s in self.statistics[0] if s.name == "step"), None)
        self.kind, self.numbers, self.statistics = kind, numbers, rows
        for row in rows:
            for s in row:
                s.never_negative = s.name in _squares or s.name == "sum"

    def rows(self) -> list[list[tuple[str, list[int], bool]]]:
        return [[(s.sent_name, s.sent_shape, s.never_negative) for s in row] for row in self.statistics]


def initial_rate(group: Mapping[str, Any]) -> float:
    """Before a scheduler changed it. Of a tensor, the number with the fewest digits that gives it."""
    rate = group.get("initial_lr", group.get("lr", 0.0))
    if not isinstance(rate, torch.Tensor) or rate.dtype is torch.float64:
        return float(rate)
    rate = rate.detach().cpu()
    texts = (f"{rate.item():.{digits}g}" for digits in range(1, 18))
    return next((float(text) for text in texts if torch.full_like(rate, float(text)) == rate), float(rate))


def rate_ratios(inner: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> str:
    """A text about the rates of parameters relative to the first group's; empty if all are equal."""
    groups = {id(p): initial_rate(group) for group in inner.param_groups for p in group["params"]}
    first = initial_rate(inner.param_groups[0])
    if all(initial_rate(group) == first for group in inner.param_groups):
        return ""
    runs: list[list[Any]] = []
    for p in parameters:
        rate = groups[id(p)]
        if not runs or runs[-1][0] != rate:
            runs.append([rate, 0])
        runs[-1][1] += 1
    text = ", ".join(f"{rate / first if first else rate:g} for {count}" for rate, count in runs)
    return text if len(text) <= 256 else hashlib.sha256(text.encode()).hexdigest()[:16]


def tensors_in(value: Any, kinds: Any = (list, tuple)) -> Iterator[torch.Tensor]:
    """Those in an argument, or a batch: in mappings, dataclasses and `kinds`."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, Mapping):
        value = value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, (str, bytes)) or not isinstance(value, kinds):
        return
    for each in value:
        yield from tensors_in(each, kinds)


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """What is in a wrapper, such as DistributedDataParallel, that has no tensors of its own."""
    children = dict(module.named_children())
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if list(children) in (["module"], ["_orig_mod"]) and not own:
        return unwrapped(next(iter(children.values())))
    return module


def plain_name(name: str) -> str:
    """Without wrappers of modules inside, by torch.compile and by torch's activation checkpoints."""
    return name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")


def here(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process has; of most, all."""
    with torch.no_grad():
        mine: Any = tensor.detach()
        part: torch.Tensor = mine.to_local() if hasattr(tensor, "device_mesh") else mine
        return part


def cuts_of(what: str, of: torch.Tensor, ranks: Ranks) -> list[int]:
    """How many values of a tensor each of the ranks has; one number: all have all. Raises ValueError if it is no such."""
    mesh: Any = getattr(of, "device_mesh", None)
    if mesh is None:
        return [of.numel()]
    placements: Any = of.placements  # type: ignore[attr-defined]
    if mesh.ndim != 1 or mesh.mesh.flatten().tolist() != ranks.members:
        raise ValueError(f"{what} is a DTensor of a mesh {list(mesh.shape)} that is not the ranks of the group in their order: "
                         "fully_shard the module over a mesh of one dimension with all ranks of the group (tensor parallel "
                         "and hybrid meshes cannot take part)")
    if not placements[0].is_shard(0) or type(placements[0]).__name__ != "Shard":
        raise ValueError(f"{what} is a DTensor with the placement {placements[0]}, and can take part only with Shard(0), which "
                         "fully_shard makes (tensor parallel modules cannot)")
    rows = of.shape[0]
    each = -(-rows // ranks.size)
    return [max(0, min(each, rows - rank * each)) * (of.numel() // rows) for rank in range(ranks.size)]


def require_values(what: str, of: torch.Tensor, ranks: Ranks | None = None) -> None:
    """Raises ValueError if this process does not have all values of a tensor, nor the ranks."""
    if torch.nn.parameter.is_lazy(of):
        raise ValueError(f"{what} has no shape yet: pass a batch through the module before the waggle.Optimizer is "
                         "constructed")
    mesh = getattr(of, "device_mesh", None)
    if mesh is not None and ranks is not None:
        cuts_of(what, of, ranks)
    elif mesh is not None:
        count = mesh.size()
        raise ValueError(f"{what} is a DTensor of {count} rank{'s' * (count != 1)}: each has a part of it, and peers exchange "
                         "whole tensors, so make the ranks one peer by waggle.join(…, group=torch.distributed.group.WORLD)")
    if of.is_meta or hasattr(of, "fake_mode"):
        raise ValueError(f"{what} is on the device meta and has no values: give the module memory by to_empty(device=…), and "
                         "its values by load_state_dict, before the optimizer is constructed")
