"""Keyword arguments as options of `waggle train`."""

from __future__ import annotations

import datetime
import logging
import os
import re
from collections.abc import Mapping, Set
from typing import Any

from . import _waggle

# Options that are members of swarm_options (actors/loop/swarm.hpp), by their names in Python.
_of_the_peer = {"initial_peers", "listen", "announce", "data_dir", "log_level", "join_timeout",
                "start_alone", "resume"}
of_join = _of_the_peer | {"client_mode", "log"}  # the arguments of waggle.join
_of_the_training = {"strategy", "target_batch_size", "epochs", "model", "data", "schedule"}
_rates = ("lr", "warmup_epochs", "total_steps_in_epoch")

_table = {name.replace("-", "_"): (group, value) for name, group, value in _waggle.options()}

_in_torch = "set it in the constructor of the torch optimizer"
_not_for_loops = {
    "run_id": "pass it to waggle.join as its first argument",
    "optimizer": "pass another torch optimizer",
    "weight_decay": _in_torch,
    "no_decay": "give vectors a parameter group with weight decay 0",
    "micro_batch": "pass the number of samples to step",
    "passes": "pass it to swarm.shards, which deals the samples",
    "device": "move the module before the torch optimizer is constructed",
    "from": "load the parameters before waggle.join",
    "replicas": "use torch's data parallelism in the loop",
    "devices": "use torch's data parallelism in the loop",
    "precision": "compute the loss in torch.autocast",
    "loss_scale": "use torch's GradScaler, as in a plain loop",
    "threads": "call torch.set_num_threads",
    "duration": "end the loop",
    "linger": "keep the loop running, or call leave",
    "seed": "call torch.manual_seed",
    "auxiliary": "start `waggle node` instead, which only reduces",
    "offload_optimizer": "the optimizer steps where its parameters are",
    "delay_optimizer_step": "its updates would need a thread of their own that calls Python",
    "identity": "copy the file into data_dir as identity.pem",
    "log_format": "the log of a loop is text",
}
# Hyper-parameters: options of this group that a torch optimizer has.
_hyper = {"momentum", "dampening", "nesterov", "beta1", "beta2", "epsilon", "amsgrad", "smoothing",
          "centered", "trust"}


def in_python(sentence: str) -> str:
    """A sentence that names options of the command line, with the names of arguments."""
    sentence = re.sub(r"swarm_options::more: ([a-z0-9-]+)", lambda m: m[1].replace("-", "_"), sentence)
    sentence = re.sub(r"swarm_options::(\w+)", r"\1", sentence).replace("max_epochs", "epochs")
    return re.sub(r"--([a-z][a-z0-9-]*)", lambda m: m[1].replace("-", "_"), sentence)


def _text(name: str, value: Any) -> str:
    kind = _table[name][1]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
        kind = "TIME"
    if isinstance(value, (int, float)):
        return f"{round(value * 1000)}ms" if kind == "TIME" else repr(value)
    if isinstance(value, (list, tuple)):
        return ",".join(str(each) for each in value)
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise TypeError(f"{name} is of type {type(value).__name__}, and an option is a number, a text, "
                    "True or False, or a time as datetime.timedelta")


def _typed(name: str, value: Any, kinds: tuple[type, ...], what: str) -> Any:
    if isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds):
        return value
    raise TypeError(f"{name} is of type {type(value).__name__}, and must be {what}")


def _refuse_unknown(where: str, name: str, known: Set[str]) -> None:
    if name in _not_for_loops or name in _hyper:
        raise TypeError(f"{where} takes no {name}: {_not_for_loops.get(name, _in_torch)}")
    raise TypeError(f"{where} takes no {name}; the nearest is {_waggle.nearest(name, sorted(known))}")


def of_peer(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of swarm_options that waggle.join was called with."""
    known = of_join
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            training = name in _of_the_training or _table.get(name, ("",))[0] in ("training", "averaging")
            if training and name not in _not_for_loops and name not in _hyper:
                raise TypeError(f"waggle.join takes no {name}: pass it to waggle.Optimizer")
            _refuse_unknown("waggle.join", name, known)
        if value is None:
            continue
        if name == "initial_peers":
            if isinstance(value, str):
                value = [each.strip() for each in value.split(",") if each.strip()]
            out[name] = [str(_typed(name, each, (str,), "a list of texts")) for each in
                         _typed(name, value, (list, tuple), "a list of texts HOST:PORT")]
        elif name == "log":  # not an option of the extension
            if not callable(value) and not isinstance(value, (logging.Logger, logging.LoggerAdapter)):
                raise TypeError(f"log is of type {type(value).__name__}, and must be a logging.Logger, or a function "
                                "of a level and a text")
        elif name == "client_mode":
            out.setdefault("more", {})["client-mode"] = _text(name, _typed(name, value, (bool,), "True or False"))
        elif name in ("start_alone", "resume"):
            out[name] = _typed(name, value, (bool,), "True or False")
        elif name == "join_timeout":
            if isinstance(value, datetime.timedelta):
                value = value.total_seconds()
            value = _typed(name, value, (int, float), "a number of seconds")
            if not 0 <= value <= 1e9:
                raise ValueError(f"join_timeout is {value}, and must be a number of seconds from 0 on")
            out[name] = round(value * 1000)
        elif name == "data_dir":
            out[name] = os.fspath(_typed(name, value, (str, os.PathLike), "a path"))
        else:
            out[name] = _typed(name, value, (str,), "a text")
    return out


def of_training(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for the keyword arguments of waggle.Optimizer."""
    known = {name for name, (group, _) in _table.items() if group in ("training", "averaging")}
    known -= set(_not_for_loops) | _hyper | _of_the_peer
    out: dict[str, Any] = {}
    more: dict[str, str] = {}
    of_run = given.get("lr") is not None
    for name, value in given.items():
        if name not in known:
            if name in of_join:
                raise TypeError(f"waggle.Optimizer takes no {name}: pass it to waggle.join")
            _refuse_unknown("waggle.Optimizer", name, known)
        if value is None:
            continue
        if name in ("target_batch_size", "epochs"):
            value = _typed(name, value, (int,), "a whole number")
            if not 0 <= value < 2**63:
                raise ValueError(f"{name} is {value}, and must be from {int(name != 'epochs')} on")
            out[name] = value
        elif name in ("strategy", "model", "data"):
            out[name] = _typed(name, value, (str,), "a text")
        elif name == "schedule" and not of_run:
            out[name] = _typed(name, value, (str,), "a text")
        elif name in _rates and not of_run:
            raise ValueError(f"{name} needs lr: without it, the rate is that of the torch optimizer")
        else:
            more[name.replace("_", "-")] = _text(name, value)
    out["rate_of_run"] = of_run
    out["more"] = more
    return out
