"""What nobody trains, such as the base of adapters."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import pathlib
from typing import Any

import torch

from ._checkpoint import frozen_notes, serials_in
from ._describe import plain_name, unwrapped


def _update(hashed: Any, of: torch.Tensor) -> None:
    if hasattr(of, "__tensor_flatten__"):  # made of others, as a quantized one
        for name in of.__tensor_flatten__()[0]:
            _update(hashed, getattr(of, name))
        return
    values = of.detach().cpu().contiguous()
    hashed.update(f"{list(of.shape)} {values.element_size()} ".encode())
    hashed.update((ctypes.c_char * (values.numel() * values.element_size())).from_address(values.data_ptr()))


def frozen_tensors(module: torch.nn.Module | None) -> list[tuple[str, bytes]]:
    """The parameters that nobody trains, each with a digest of its values. Reads each once."""
    out = []
    for name, p in unwrapped(module).named_parameters() if module is not None else ():
        if not p.requires_grad and p.numel() > 0 and p.layout == torch.strided:
            hashed = hashlib.sha256()
            sharded: Any = p if hasattr(p, "device_mesh") else None
            _update(hashed, p if sharded is None else sharded.full_tensor())
            out.append((plain_name(name), hashed.digest()))
    return out


def compare_with_checkpoint(data_dir: str, frozen: list[tuple[str, bytes]] | None) -> None:
    """Checkpoints have what is trained only, so a note beside them says of which frozen values they are. None: of any.

    Raises ValueError if this peer would go on from a checkpoint of others."""
    newest = max(serials_in(pathlib.Path(data_dir, "checkpoints")), default=0)
    notes = frozen_notes(pathlib.Path(data_dir), newest)
    now = None if frozen is None else {name: digest.hex() for name, digest in frozen}
    known = notes[-1]["digests"] if notes else None
    for name, digest in (now or {}).items():
        if known and known.get(name, digest) != digest:
            raise ValueError(f"parameter {name}, which nobody trains, has other values than when the checkpoint in {data_dir} was "
                             "made: load those, or give this peer another data_dir; frozen=\"any\" goes on with these")
    if (known or None) != (now or None):
        file = pathlib.Path(data_dir, "frozen.json")
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps([*notes[-1:], {"from": newest + 1, "digests": now}]))
        os.replace(draft, file)
