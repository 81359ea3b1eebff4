"""Reads the checkpoints of a peer (the layout: runtime/training/training_state.hpp and state_table.hpp)."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pathlib
import struct
import tempfile
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._needs import needs
from ._options import error_of
from ._waggle import Error

if TYPE_CHECKING:
    import torch

_HEADER = struct.Struct("<8sQ32s32s32s32sQQQQ32s")
_TABLE = struct.Struct("<8s32sQQ")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run at an epoch. The tensors are read-only memoryviews of float32, by name; the
    statistics of the optimizer are called "exp_avg/head.weight". counters: buffers of whole numbers, each the sum of
    the last dimension, which is 3. frozen: of each parameter that the run has not trained, such as those of the base of
    an adapter, the digest, if the peer's data_dir has them."""

    epoch: int
    optimizer_steps: int
    parameters: dict[str, memoryview]
    statistics: dict[str, memoryview]
    buffers: dict[str, memoryview]
    counters: dict[str, memoryview]
    frozen: dict[str, str] = field(default_factory=dict)

    def state_dict(self, module: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
        """Parameters and buffers as tensors of torch, for `module.load_state_dict(…, strict=False)`: tied
        parameters are there once, and buffers that are not finite, such as masks, are not. With `module`, they have
        its names, whether the run has trained it, a part of it, or a module that contains it. Raises ValueError
        with a sentence if their names or shapes do not fit."""
        with needs("torch", "state_dict of a checkpoint"):
            import torch

        def tensor(values: memoryview) -> torch.Tensor:
            if values.ndim == 0:
                return torch.tensor(values.tolist(), dtype=torch.float32, device="cpu")
            return torch.frombuffer(bytearray(values), dtype=torch.float32).reshape(values.shape or ())

        out = {name: tensor(values) for name, values in {**self.parameters, **self.buffers}.items()}
        for name, values in self.counters.items():
            out[name] = tensor(values).to(torch.float64).sum(-1).to(torch.int64)
        return out if module is None else _fitted(out, module)

    def save_adapter(self, folder: str | os.PathLike[str], config: Any, adapter: str = "default") -> None:
        """Writes an adapter of peft, for PeftModel.from_pretrained. config: that of the adapter, such as
        model.peft_config["default"]. Raises `ValueError` if the checkpoint has none of this name."""
        from safetensors.torch import save_file

        tensors = {}
        for name, tensor in self.state_dict().items():
            parts = name.split(".")
            if adapter in parts:
                tensors[".".join(part for part in parts if part not in (adapter, "modules_to_save"))] = tensor
        if not tensors:
            raise ValueError(f"the checkpoint has no adapter {adapter}: its tensors are {', '.join(list(self.parameters)[:3])}, …")
        os.makedirs(folder, exist_ok=True)
        config.save_pretrained(os.fspath(folder))
        save_file(tensors, os.path.join(folder, "adapter_model.safetensors"), metadata={"format": "pt"})

    def merge_adapter(self, base: torch.nn.Module, config: Any, adapter: str = "default") -> Any:
        """Adds an adapter of peft to the weights of its base, which are changed, and returns the base, as of
        merge_and_unload: to save, or to use without peft. base: what the run got, before peft had it. config: as of
        `save_adapter`. Raises `ValueError` if the checkpoint has no such adapter, or the base is another one."""
        with needs("peft", "merge_adapter of a checkpoint"):
            from peft import PeftModel
        from ._frozen import frozen_tensors

        with tempfile.TemporaryDirectory() as folder:
            self.save_adapter(folder, config, adapter)
            model = PeftModel.from_pretrained(base, folder)
        for name, digest in frozen_tensors(model) if self.frozen else ():
            if self.frozen.get(name, digest.hex()) != digest.hex():
                raise ValueError(f"the adapter belongs to another base: its {name} has other values than when the checkpoint was "
                                 "made")
        return model.merge_and_unload()


def _fitted(tensors: dict[str, torch.Tensor], module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """With the names of the module: those there, or here, begin with what is around the one that was trained."""
    from ._describe import plain_name, unwrapped

    inside = unwrapped(module)
    state = inside.state_dict()
    names = dict(zip(map(plain_name, state), module.state_dict()))
    shapes = dict(zip(names, (value.shape for value in state.values())))
    trained = [plain_name(name) for name, p in inside.named_parameters() if p.requires_grad]
    some, first = max(tensors, key=len, default=""), max(trained, key=len, default="")
    around = [(name[:-len(some)], "") for name in names if name.endswith("." + some)]  # what the module has more
    around += [("", name[:-len(first)]) for name in tensors if first and name.endswith("." + first)]
    found = []
    for more, less in [("", ""), *dict.fromkeys(around)]:
        fit = {more + name[len(less):]: value for name, value in tensors.items() if name.startswith(less)}
        fit = {names[name]: value for name, value in fit.items() if shapes.get(name) == value.shape}
        if fit and (len(fit) == len(tensors) or all(names[name] in fit for name in trained)):
            if not more and not less:
                return fit
            found.append(fit)
    if len(found) == 1:
        return found[0]
    raise ValueError(f"the {len(tensors)} tensors of the checkpoint, such as {some}, fit in {'several parts' if found else 'no part'} "
                     f"of the {type(module).__name__}, which has {first or 'none that is trained'}: pass the module that the run "
                     "has trained")


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint: a file, or the newest one of a peer's `data_dir`. The peer may run. Raises
    `FileNotFoundError`, or `waggle.Error` with code "malformed" or "hash_mismatch" for a file that is
    damaged or is none. Of a folder, it then warns, and reads the one before."""
    file = pathlib.Path(path)
    if not file.is_dir():
        return _read(file)
    files = _newest_first(file / "checkpoints" if (file / "checkpoints").is_dir() else file)
    failed: Exception | None = None
    for each in files:
        try:
            return _read(each)
        except (Error, OSError) as e:
            failed = failed or e
            if each is not files[-1]:
                warnings.warn(f"{e}: the checkpoint before it is read", stacklevel=2)
    assert failed is not None
    raise failed


def _read(file: pathlib.Path) -> Checkpoint:
    image = memoryview(file.read_bytes())
    if len(image) < _HEADER.size + _TABLE.size:
        raise error_of("malformed", f"{file}: it is cut off")
    magic, epoch, *_, learner_bytes, digest = _HEADER.unpack_from(image)
    if magic != b"WGGLST03":
        raise error_of("malformed", f"{file}: it is no checkpoint of this version")
    learner = image[_HEADER.size:]
    if len(learner) != learner_bytes:
        raise error_of("malformed", f"{file}: it is cut off, or too long")
    hashed = hashlib.sha256(image[: _HEADER.size - 32])
    hashed.update(learner)
    if hashed.digest() != digest:
        raise error_of("hash_mismatch", f"{file}: its content has changed since it was written")
    magic, _, steps, table_bytes = _TABLE.unpack_from(learner)
    if magic != b"WGGLTB01":
        raise error_of("malformed", f"{file}: its table is none of this version")
    rows = learner[_TABLE.size:_TABLE.size + table_bytes]
    at = (_TABLE.size + table_bytes + 63) // 64 * 64
    found: tuple[dict[str, memoryview], ...] = ({}, {}, {}, {})
    where = {0: 0, 1: 1, 2: 1, 3: 2, 7: 3}  # parameter, statistic, square, buffer, counter; others: the strategy's
    begin = 0
    while begin < len(rows):
        kind, length = struct.unpack_from("<BH", rows, begin)
        begin += 3
        name = bytes(rows[begin:begin + length]).decode()
        begin += length
        dimensions = rows[begin]
        shape = struct.unpack_from(f"<{dimensions}Q", rows, begin + 1)
        begin += 1 + 8 * dimensions
        size = 4 * math.prod(shape)
        if kind in where:
            found[where[kind]][name] = learner[at:at + size].cast("f", list(shape))
        at += size
    serial = next((number for number, each in serials_in(file.parent).items() if each == file), 0)
    notes = frozen_notes(file.absolute().parent.parent, serial)
    parameters, statistics, buffers, counters = found
    return Checkpoint(epoch, steps, parameters, statistics, buffers, counters, (notes[-1]["digests"] or {}) if notes else {})


def serials_in(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """The checkpoints there, by their numbers, which grow."""
    files = folder.glob("checkpoint-*-*-*.wgl")
    return {int(number): file for file in files if (number := file.name.split("-")[1]).isdigit()}


def _newest_first(folder: pathlib.Path) -> list[pathlib.Path]:
    files = [file for _, file in sorted(serials_in(folder).items(), reverse=True)]
    if not files:
        raise FileNotFoundError(f"there is no checkpoint in {folder}")
    return files


def frozen_notes(data_dir: pathlib.Path, serial: int) -> list[dict[str, Any]]:
    """Of which values of what nobody trains the checkpoints up to number `serial` are, the newest last: see _frozen."""
    file = data_dir / "frozen.json"
    try:
        return [note for note in json.loads(file.read_text()) if note["from"] <= serial]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as e:
        warnings.warn(f"{file} cannot be read ({e}), so nobody compares what the checkpoint's run did not train", stacklevel=2)
        return []
