"""Keyword arguments as options of `waggle train`."""

from __future__ import annotations

import datetime
import difflib
import logging
import math
import operator
import os
from collections.abc import Mapping
from typing import Any

from . import _waggle

_rates = ("lr", "warmup_epochs", "total_steps_in_epoch", "schedule_unit")

# Group, the name of the value, and what to do instead of an option that loops do not have.
_table = {name: tuple(row) for name, *row in _waggle.options()}
_not_for_loops = {name: instead for name, (_, _, instead) in _table.items() if instead}
_not_for_loops |= {
    "run": "pass it to waggle.join as its first argument",
    "learning_rate": "set it in the constructor of the torch optimizer, or pass lr for a rate of the run",
}
_not_for_loops["run_id"] = _not_for_loops["run"]
del _not_for_loops["leave_within"]  # which is a notice for C++, where the program owns the signals

# The arguments of waggle.Optimizer, and of waggle.join.
of_optimizer = {name for name, (group, *_) in _table.items() if group in ("training", "averaging")}
of_optimizer -= {*_not_for_loops, "leave_within"}
in_two_copies = ("offload_optimizer", "delay_optimizer_step")  # of the parameters; the latter implies the former
_in_python = {"frozen", "masters", "sum_on_device"}  # which are no options of `waggle train`
of_optimizer |= _in_python
of_join = ({name for name, (group, *_) in _table.items() if group == "join"} - {"run"}
           | {"client_mode", "encrypt", "leave_within", "log", "port_mapping"})


def error_of(code: str, text: str) -> _waggle.Error:
    error = _waggle.Error(text)
    error.code = code
    return error


def is_known(name: str) -> bool:
    """Whether it is one, or there is a sentence that says what to do instead."""
    return name != "run" and name in of_join | of_optimizer | set(_not_for_loops)


def plain(value: Any) -> Any:
    """What numpy or torch have as a number or a truth value, as Python's."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def whole(name: str, value: Any, least: int) -> int:
    """A number that the extension can take."""
    value = plain(value)
    try:
        if isinstance(value, bool):
            raise TypeError
        counted = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is of type {type(value).__name__}, and must be a whole number") from None
    if not least <= counted < 2**63:
        raise ValueError(f"{name} is {counted}, and must be a whole number from {least} to 2^63 - 1")
    return counted


def number(name: str, value: Any, kind: str = "a number") -> float:
    value = _typed(name, plain(value), (int, float), kind)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, and must be finite")
    return float(value)


def seconds(name: str, value: Any) -> float:
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    return number(name, value, "a number of seconds, or a datetime.timedelta")


def flag(name: str, value: Any) -> bool:
    return bool(_typed(name, plain(value), (bool,), "True or False"))


def _utf8(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {text!r}, and must be valid UTF-8") from None
    if "\0" in text:
        raise ValueError(f"{name} is {text!r}, and must not contain a zero byte")
    return text


def _text(name: str, value: Any) -> str:
    kind = _table[name][1]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
        kind = "TIME"
    if isinstance(value, (int, float)):
        if kind == "TIME":
            value = number(name, value)
        return f"{round(value * 1000)}ms" if kind == "TIME" else repr(value)
    if isinstance(value, (list, tuple)):
        return _utf8(name, ",".join(str(each) for each in value))
    if isinstance(value, (str, os.PathLike)):
        return _utf8(name, os.fspath(value))
    raise TypeError(f"{name} is of type {type(value).__name__}, and an option is a number, a text, "
                    "True or False, or a time as datetime.timedelta")


def text(name: str, value: Any) -> str:
    return str(_typed(name, value, (str,), "a text"))


def _typed(name: str, value: Any, kinds: tuple[type, ...], what: str) -> Any:
    if isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds):
        return _utf8(name, value) if isinstance(value, str) else value
    raise TypeError(f"{name} is of type {type(value).__name__}, and must be {what}")


def _refuse_unknown(where: str, name: str) -> None:
    if name in _not_for_loops:
        raise TypeError(f"{where} takes no {name}: {_not_for_loops[name]}")
    nearest = _waggle.nearest(name, sorted(of_join | of_optimizer))
    if f"_{name}_" not in f"_{nearest}_" and difflib.SequenceMatcher(None, name, nearest).ratio() < 0.6:
        nearest = _waggle.nearest(name, sorted(of_join if where == "waggle.join" else of_optimizer))
    takes = "waggle.join" if nearest in of_join else "waggle.Optimizer"
    raise TypeError(f"{where} takes no {name}; the nearest is {nearest}" + (f" of {takes}" if takes != where else ""))


def of_text(name: str, text: str) -> Any:
    """A text of the command line or of a run file, as the keyword argument takes it."""
    if name in ("target_batch_size", "epochs"):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"--{name.replace('_', '-')} {text}: is no whole number") from None
    if name in ("start_alone", "resume", "client_mode", "masters", "sum_on_device", "auxiliary", *in_two_copies):
        if text not in ("true", "false"):
            raise ValueError(f"--{name.replace('_', '-')} {text}: is neither true nor false")
        return text == "true"
    if name == "data_dir" or (name in ("swarm_key", "members_list") and not text.startswith(("key:", "list:"))):
        return os.path.abspath(text)  # the script may go to another folder
    if name in ("join_timeout", "leave_within"):
        for unit, seconds in (("ms", 1e-3), ("s", 1), ("m", 60), ("h", 3600), ("", 1)):
            if text.endswith(unit):
                try:
                    return float(text[:len(text) - len(unit)]) * seconds
                except ValueError:
                    break
        raise ValueError(f"--{name.replace('_', '-')} {text}: is no time, such as 15s")
    return text


def notice(name: str, within: Any) -> float:
    """The seconds of a notice."""
    value = seconds(name, within)
    _waggle.check_notice(value)
    return value


def of_file(path: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of waggle.join, and of waggle.Optimizer, in a run file."""
    of_peer: dict[str, Any] = {}
    of_training: dict[str, Any] = {}
    for name, text in _waggle.run_file(os.fspath(path)).items():
        (of_peer if name in of_join | {"run"} else of_training)[name] = of_text(name, text)
    return of_peer, of_training


def of_peer(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of swarm_options that waggle.join was called with."""
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name not in of_join:
            if name in of_optimizer:
                raise TypeError(f"waggle.join takes no {name}: pass it to waggle.Optimizer")
            _refuse_unknown("waggle.join", name)
        value = plain(value)
        if value is None:
            continue
        if name == "initial_peers":
            if isinstance(value, str):
                value = [each.strip() for each in value.split(",") if each.strip()]
            out[name] = [str(_typed(f"{name} has {each!r}, which", each, (str,), "a text HOST:PORT")) for each in
                         _typed(name, value, (list, tuple), "a list of texts HOST:PORT")]
        elif name == "log":  # not an option of the extension
            if not callable(value) and not isinstance(value, (logging.Logger, logging.LoggerAdapter)):
                raise TypeError(f"log is of type {type(value).__name__}, and must be a logging.Logger, or a function "
                                "of a level and a text")
        elif name == "leave_within":  # likewise: of the signals of this process
            notice(name, value)
        elif name == "client_mode":
            out.setdefault("more", {})["client-mode"] = _text(name, _typed(name, value, (bool,), "True or False"))
        elif name in ("encrypt", "port_mapping"):
            out.setdefault("more", {})[name.replace("_", "-")] = text(name, value)
        elif name in ("start_alone", "resume"):
            out[name] = _typed(name, value, (bool,), "True or False")
        elif name == "join_timeout":
            value = seconds(name, value)
            if not 0 <= value <= 1e9:
                raise ValueError(f"join_timeout is {value}, and must be a number of seconds from 0 on")
            out[name] = round(value * 1000)
        elif name in ("data_dir", "swarm_key", "members_list"):
            out[name] = _utf8(name, os.fspath(_typed(name, value, (str, os.PathLike), "a path")))
        else:
            out[name] = text(name, value)
    return out


def of_training(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for the keyword arguments of waggle.Optimizer."""
    out: dict[str, Any] = {}
    more: dict[str, str] = {}
    of_run = given.get("lr") is not None
    for name, value in given.items():
        if name not in of_optimizer:
            if name in of_join:
                raise TypeError(f"waggle.Optimizer takes no {name}: pass it to waggle.join")
            _refuse_unknown("waggle.Optimizer", name)
        value = plain(value)
        if value is None or name in _in_python:
            continue
        if name in ("target_batch_size", "epochs"):
            out[name] = whole(name, value, int(name != "epochs"))
        elif name in ("strategy", "model", "data") or (name == "schedule" and not of_run):
            out[name] = text(name, value)
        elif name in _rates and not of_run:
            raise ValueError(f"{name} needs lr: without it, the rate is that of the torch optimizer")
        else:
            more[name.replace("_", "-")] = _text(name, value)
    if "target_batch_size" in out and _waggle.counts_steps(out.get("strategy", "")):  # also if it is the default
        raise ValueError(f"target_batch_size belongs to the other strategies: with {out['strategy']} peers average after a "
                         "number of steps, so leave it out")
    out["rate_of_run"] = of_run
    out["more"] = more
    return out
