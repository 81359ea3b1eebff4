"""Peers without a model: the DHT of a run, and averagers of arrays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Union

from . import _options, _waggle
from ._swarm import Leaves, Log, _alive, _Log

Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]
_deepest = 32  # lists and dictionaries within each other


def _check(name: str, value: Any, depth: int = 0) -> None:
    if depth > _deepest:
        raise ValueError(f"{name} has more than {_deepest} lists or dictionaries within each other")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} holds {value}, and JSON has finite numbers only")
    if isinstance(value, (list, tuple)):
        for each in value:
            _check(name, each, depth + 1)
    elif isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{name} has a key of type {type(key).__name__}, and the keys of JSON are texts")
            _check(name, each, depth + 1)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise TypeError(f"{name} holds a {type(value).__name__}: peers exchange None, True and False, numbers, texts, and "
                        "lists and dictionaries of these; nothing is pickled")


def _encode(name: str, value: Json, bytes_max: int) -> bytes:
    _check(name, value)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds a text that is no valid UTF-8") from None
    if len(text) > bytes_max:
        raise ValueError(f"{name} has {len(text)} bytes as JSON: it may have at most {bytes_max}")
    return text


def _decode(text: bytes) -> Json:
    """What another peer gave; None if it is no JSON as above."""
    try:
        value: Json = json.loads(text)
        _check("", value)
    except (ValueError, TypeError, RecursionError):
        return None
    return value


def _addresses(name: str, given: str | Sequence[str] | None) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} is of type {type(given).__name__}, and must be a text like 10.0.0.1:7700, or a list of them")
    all = given.split(",") if isinstance(given, str) else list(given)
    for each in all:
        if not isinstance(each, str):
            raise TypeError(f"{name} holds a {type(each).__name__}, and an address is a text like 10.0.0.1:7700")
    return [each.strip() for each in all if each.strip()]


_checks: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("run", "prefix", "group_bits", "codec", "log_level", "key", "subkey"), _options.text),
    **dict.fromkeys(("target_group_size", "min_group_size", "part_size_bytes", "min_vector_size", "retries", "expected_peers",
                     "bytes_max"), lambda name, value: _options.whole(name, value, 0)),
    **dict.fromkeys(("matchmaking_time", "request_timeout", "allreduce_timeout", "sender_timeout", "reducer_timeout", "timeout",
                     "declare_state_period", "shutdown_timeout", "ttl"), _options.seconds),
    **dict.fromkeys(("alpha", "bandwidth", "weight", "state_sharing_priority", "scheduled_time"), _options.number),
    **dict.fromkeys(("auxiliary", "client_mode", "allow_retries", "require_trigger", "keep_group", "allow_state_sharing"),
                    _options.flag),
}


def _checked(name: str, value: Any) -> Any:
    """As the extension takes it. Raises TypeError or ValueError with a sentence."""
    check = _checks.get(name)
    return value if check is None else check(name, value)


def _given(**options: Any) -> dict[str, Any]:
    return {name: _checked(name, value) for name, value in options.items() if value is not None}


def _node_of(node: Any) -> Node:
    if not isinstance(node, Node):
        raise TypeError(f"node is of type {type(node).__name__}: pass what waggle.node returns")
    return node


class Node(Leaves):
    """A peer without a model; `waggle.node` makes it. Thread-safe. Leaves the run at the end of `with`, or of the
    process."""

    def __init__(self, options: dict[str, Any], log: Log | None) -> None:
        self.run: str = options["run"]
        self._log = None if log is None else _Log(log)
        self._peer = _waggle.Node(options, None if self._log is None else self._log.lines)
        self._left = False
        _alive.add(self)
        if self._log is not None:
            self._log.start()

    @property
    def id(self) -> str:
        """The identity of this peer, in hexadecimal."""
        return self._peer.id

    @property
    def address(self) -> str:
        """The "HOST:PORT" that this peer listens on."""
        return self._peer.address

    @property
    def addresses(self) -> list[str]:
        """Those at which others reach it."""
        return self._peer.addresses

    def wait_until_ready(self, timeout: float = 30) -> None:
        """Waits until an initial peer has answered, if there are any. Raises waggle.Error."""
        self._peer.wait_until_ready(_checked("timeout", timeout))

    def status(self) -> dict[str, Any]:
        """What this peer serves as /api/v1/status."""
        now: dict[str, Any] = json.loads(self._peer.status_json())
        return now

    def leave(self, *, in_a_hurry: bool = False) -> None:
        """Says goodbye and ends; steps of its averagers fail. A second call does nothing."""
        if self._left:
            return
        self._peer.leave(1 if in_a_hurry else 5)
        self._left = True
        if self._log is not None:
            self._log.end()

    def __repr__(self) -> str:
        return f"<waggle.Node {self.run!r} at {self.address}>"


def node(run: str, *, swarm_key: str | os.PathLike[str] | None = None, members: str | None = None,
         members_list: str | os.PathLike[str] | None = None, encrypt: bool = True, listen: str | Sequence[str] | None = None, initial_peers: str | Sequence[str] | None = None,
         announce: str | Sequence[str] | None = None, client_mode: bool = False,
         data_dir: str | os.PathLike[str] | None = None, agreed: Mapping[str, str] | None = None,
         shutdown_timeout: float | None = None, log_level: str = "warn", log: Log | None = None) -> Node:
    """Starts a peer without a model in the run of this name, for waggle.DHT and waggle.Averager.

    swarm_key, members, members_list: as of waggle.join.
    encrypt: False: no link is encrypted, which both ends must say.
    listen: "HOST:PORT,…"; port 0 is a free one. Default: [::]:0, all of IPv4 and IPv6.
    initial_peers: any peers of the run. None: others join through this one.
    announce: the addresses that others dial, if they differ.
    client_mode: only dial, accept no connections.
    data_dir: the folder of its identity and known addresses. None: a new identity, and nothing is stored.
    agreed: what must be equal on all peers of the run, by name.

    Raises ValueError with a sentence."""
    return Node(_given(run=run, swarm_key=swarm_key, members=members, encrypt=encrypt,
                       members_list=None if members_list is None else os.fspath(members_list), listen=_addresses("listen", listen) or None,
                       initial_peers=_addresses("initial_peers", initial_peers), announce=_addresses("announce", announce),
                       client_mode=client_mode, data_dir=None if data_dir is None else os.fspath(data_dir),
                       agreed=None if agreed is None else {_options.text("agreed", name): _options.text("agreed", value)
                                                           for name, value in agreed.items()},
                       shutdown_timeout=shutdown_timeout, log_level=log_level), log)


class DHT:
    """The part of a run's distributed hash table that is open to applications: small values, as JSON. Any peer can read
    and replace them. Thread-safe; the GIL is free while a call waits, and `asyncio.to_thread(dht.get, key)` does not hold
    up a loop of asyncio."""

    _bytes_max = 65536

    def __init__(self, node: Node) -> None:
        self.node = _node_of(node)

    def store(self, key: str, value: Json, *, ttl: float, subkey: str = "", timeout: float = 10) -> None:
        """Stores the value for `ttl` seconds, at most a day. The one that expires last replaces others. Raises
        waggle.Error if no peer stored it by `timeout`, TypeError or ValueError for what is no JSON or too long."""
        self.node._peer.put(_checked("key", key), _checked("subkey", subkey), _encode("value", value, self._bytes_max),
                            _checked("ttl", ttl), _checked("timeout", timeout))

    def get(self, key: str, *, timeout: float = 10) -> Json:
        """The value; a dictionary by subkey if there are subkeys; None if there is none."""
        found = {subkey: _decode(text) for subkey, text in
                 self.node._peer.get(_checked("key", key), _checked("timeout", timeout)).items()}
        if not found or list(found) == [""]:
            return found.get("")
        return found

    def get_many(self, keys: Iterable[str], *, timeout: float = 10) -> dict[str, Json]:
        """The same for several keys, at once."""
        if isinstance(keys, str) or not isinstance(keys, Iterable):
            raise TypeError(f"keys is of type {type(keys).__name__}, and must be a list of texts")
        all = list(dict.fromkeys(keys))
        if not all:
            return {}
        with ThreadPoolExecutor(min(len(all), 16)) as threads:
            return dict(zip(all, threads.map(lambda key: self.get(key, timeout=timeout), all)))


_types = {"float32", "float64", "float16", "bfloat16"}


class _Tensor:
    """An array that stays where it is."""

    def __init__(self, name: str, of: Any) -> None:
        self.name, self.of = name, of
        self.row = self._look()

    def _look(self) -> tuple[str, str, list[int], int]:
        of, name = self.of, f"tensor {self.name!r}"
        if not isinstance(self.name, str):
            raise TypeError(f"the name of a tensor is a text, and not a {type(self.name).__name__}")
        if hasattr(of, "data_ptr"):
            kind, address = str(of.dtype).rpartition(".")[2], of.data_ptr()
            if of.device.type != "cpu":
                raise ValueError(f"{name} is on {of.device}: average a copy on the CPU")
            contiguous = of.is_contiguous()
        elif hasattr(of, "__array_interface__"):
            kind, (address, read_only) = of.dtype.name, of.__array_interface__["data"]
            if read_only or not of.dtype.isnative:
                raise ValueError(f"{name} {'is read-only' if read_only else 'has another byte order'}")
            contiguous = of.flags.c_contiguous
        else:
            raise TypeError(f"{name} is a {type(of).__name__}, and must be an array of numpy or a tensor of torch")
        if kind not in _types:
            raise TypeError(f"{name} is of {kind}, and must be of float32, float64, float16 or bfloat16")
        if not contiguous:
            raise ValueError(f"{name} is not contiguous: average a contiguous copy")
        return self.name, kind, [int(n) for n in of.shape], address

    def require_same(self) -> None:
        if self._look() != self.row:
            raise _options.error_of("schema_mismatch", f"tensor {self.name!r} was moved, cast or reshaped since the averager was "
                                                       "constructed: change its values only")


def _array(kind: str, shape: list[int], values: bytearray, of_torch: bool) -> Any:
    if not of_torch and kind != "bfloat16":  # which numpy has not
        import numpy
        return numpy.frombuffer(values, kind).reshape(shape)
    import torch
    dtype = getattr(torch, kind)
    return torch.frombuffer(values, dtype=dtype).reshape(shape) if values else torch.empty(shape, dtype=dtype)


def _state_of(averager: weakref.ref[Averager]) -> Callable[[], tuple[bytes, list[tuple[str, str, list[int], int]], object]]:
    """What gives the state to the peer, as long as there is the averager."""
    def state() -> tuple[bytes, list[tuple[str, str, list[int], int]], object]:
        of = averager()
        if of is None:
            raise RuntimeError("the averager has ended")
        metadata, tensors = of.get_current_state()
        encoded = b"" if metadata is None else _encode("metadata", metadata, 65536)
        return encoded, [_Tensor(name, t).row for name, t in tensors.items()], tensors
    return state


class Step:
    """A step of an averager. Thread-safe. Without a reference to it, the step is cancelled. `await step` is
    `step.result()` in a loop of asyncio."""

    def __init__(self, averager: Averager, peer: _waggle.Step, gathers: bool) -> None:
        self._averager, self._peer, self._gathers = averager, peer, gathers
        self.contributors: list[str] = []  # after `result`: the peers whose values are in the mean
        self.weight_sum = 0.0
        self.all_took_part = True  # False: a peer was lost on the way

    @property
    def stage(self) -> str:
        """"looking for group", "awaiting trigger", "running" or "done"."""
        return self._peer.stage

    def allow_allreduce(self) -> None:
        """Reads the tensors; from now on the round may begin. Raises waggle.Error if a value is not finite."""
        self._averager._require_same()
        self._peer.allow_allreduce()

    def cancel(self) -> None:
        """Unless its round has ended, `result` raises waggle.Error with the code "cancelled". The group goes on."""
        self._peer.cancel()

    def result(self, timeout: float | None = None) -> dict[str, Json]:
        """Waits until the step has ended, writes the mean to the tensors, and returns what each peer of the group gave to
        `gather`, by its id. Raises waggle.Error with the reason, and then the tensors are unchanged; TimeoutError after
        `timeout` seconds, and then the step goes on."""
        self._averager._require_same()
        report = self._peer.wait(None if timeout is None else _checked("timeout", timeout))
        if report is None:
            raise TimeoutError("the step has not ended yet")
        self.contributors, self.weight_sum = report["contributors"], report["weight_sum"]
        self.all_took_part = report["all_took_part"]
        if not self._gathers:
            return dict.fromkeys(self.contributors)
        return {peer: _decode(text) for peer, text in report["gathered"].items()}

    def __await__(self) -> Generator[Any, None, dict[str, Json]]:
        return asyncio.get_running_loop().run_in_executor(None, self.result).__await__()


class Averager:
    """Averages arrays with other peers, where they are: the same bytes on each of them afterwards.

        averager = waggle.Averager(node, {"w": w}, prefix="docs", target_group_size=2)
        averager.step()

    tensors: arrays of numpy or tensors of torch (on the CPU, contiguous) of float32, float64, float16 or bfloat16, by name.
        Peers average the same ones, in the same order. Sums are of float64; the mean is rounded to the type once.
    prefix: its name; peers average under the same one, and a peer has one averager of a name.
    target_group_size, min_group_size: a group begins at once with the first number of peers, 64 at most, and otherwise after
        `matchmaking_time` seconds with the second one.
    group_bits: the bucket in which to look for partners, as digits 0 and 1; "auto": as many as the swarm needs.
    request_timeout, allreduce_timeout, sender_timeout, reducer_timeout: of an answer of a peer, a round, and a member that
        sends no values, or no sums.
    alpha: how far the tensors move towards the mean. codec, part_size_bytes, bandwidth, min_vector_size: as the options of
        `waggle train`. auxiliary: only reduce for others; the tensors say which, and stay as they are.
    retries: after rounds that failed, in one step.
    allow_state_sharing, state_sharing_priority: whether other peers may load the state of this one (`get_current_state`), and
        whom they prefer: the highest. They can be set while it runs, too. A peer that refuses is not waited for.
    declare_state_period: seconds between the records in the DHT that say so.

    Thread-safe, but one step at a time. Raises TypeError or ValueError with a sentence."""

    def __init__(self, node: Node, tensors: Mapping[str, Any], *, prefix: str, target_group_size: int = 64,
                 min_group_size: int = 2, matchmaking_time: float = 1.0, request_timeout: float | None = None,
                 group_bits: str = "", allreduce_timeout: float = 60.0, sender_timeout: float | None = None,
                 reducer_timeout: float | None = None, alpha: float = 1.0, part_size_bytes: int | None = None,
                 codec: str = "none", bandwidth: float | None = None, min_vector_size: int = 0, auxiliary: bool = False,
                 retries: int = 3, allow_state_sharing: bool | None = None, state_sharing_priority: float = 0.0,
                 declare_state_period: float = 30.0) -> None:
        self.node = _node_of(node)
        auxiliary = _checked("auxiliary", auxiliary)
        self._shares: bool = not auxiliary if allow_state_sharing is None else _checked("allow_state_sharing", allow_state_sharing)
        self._priority = _options.number("state_sharing_priority", state_sharing_priority)
        if not isinstance(tensors, Mapping):
            raise TypeError(f"tensors is of type {type(tensors).__name__}, and must be a dictionary of arrays by name, as in "
                            '{"w": w}')
        self._tensors = [_Tensor(name, of) for name, of in tensors.items()]
        self._by_name = dict(tensors)
        if not self._tensors:
            raise ValueError("tensors is empty: there is nothing to average")
        self._holder: int | None = None  # a thread in get_tensors
        self._peer = _waggle.Averager(node._peer, _given(
            name=_checked("prefix", prefix), target_group_size=target_group_size, min_group_size=min_group_size,
            matchmaking_time=matchmaking_time, request_timeout=request_timeout, group_bits=group_bits,
            allreduce_timeout=allreduce_timeout, sender_timeout=sender_timeout, reducer_timeout=reducer_timeout,
            alpha=alpha, part_size_bytes=part_size_bytes, codec=codec, bandwidth=bandwidth,
            min_vector_size=min_vector_size, auxiliary=auxiliary, retries=retries, allow_state_sharing=self._shares,
            state_sharing_priority=self._priority, declare_state_period=declare_state_period),
            [t.row for t in self._tensors], _state_of(weakref.ref(self)))

    @contextlib.contextmanager
    def get_tensors(self) -> Iterator[dict[str, Any]]:
        """The tensors by name. Meanwhile no step of another thread reads or writes them."""
        held = self._peer.hold()
        self._holder = threading.get_ident()
        try:
            yield self._by_name
        finally:
            self._holder = None
            held.release()

    def _require_same(self) -> None:
        if self._holder == threading.get_ident():
            raise RuntimeError("this thread holds the tensors: leave `with get_tensors()` first")
        for tensor in self._tensors:
            tensor.require_same()

    def step(self, *, gather: Json = None, scheduled_time: float | None = None, weight: float = 1.0, timeout: float = 60.0,
             allow_retries: bool = True, require_trigger: bool = False, wait: bool = True, expected_peers: int = 0,
             keep_group: bool = False) -> Any:
        """Finds a group and averages with it. Returns what each of its peers gave to `gather`, by its id; with wait=False
        at once a waggle.Step.

        gather: JSON-like, at most 1,024 bytes.
        scheduled_time: when the round begins, as of time.time(); the clock of the group's leader counts. Who is late begins
            late, nobody early.
        weight: of this peer's values. timeout: seconds for everything.
        require_trigger: the round waits for Step.allow_allreduce, which reads the tensors; otherwise they are read now. Peers
            that are ready wait for `sender_timeout` (5 s), then they go on without this one.
        expected_peers: the group begins with so many. keep_group: begin at once with the peers of the last round.

        Raises waggle.Error with the reason, and then the tensors are unchanged."""
        if require_trigger and wait:
            raise ValueError("require_trigger needs wait=False: call allow_allreduce of the step that is returned")
        self._require_same()
        step = Step(self, self._peer.begin(_given(
            gather=b"" if gather is None else _encode("gather", gather, 1024), scheduled_time=scheduled_time, weight=weight,
            timeout=timeout, allow_retries=allow_retries, require_trigger=require_trigger, expected_peers=expected_peers,
            keep_group=keep_group)), gather is not None)
        return step.result() if wait else step

    def get_current_state(self) -> tuple[Json, Mapping[str, Any]]:
        """What a peer gets that loads the state of this one: metadata (JSON-like, at most 65,536 bytes) and tensors by name.
        A subclass may return others. A thread of the peer calls it at any time."""
        with self.get_tensors() as tensors:
            return None, {name: of.detach().clone() if hasattr(of, "data_ptr") else of.copy() for name, of in tensors.items()}

    def load_state_from_peers(self, wait: bool = True, timeout: float | None = None, *, bytes_max: int = 1 << 30) -> Any:
        """Downloads what `get_current_state` of another averager of this prefix returns, which shares its state: of the one
        with the highest priority, or the next one if it is lost. Returns metadata and new tensors by name (as those of this
        averager, of torch or numpy) and changes none; with wait=False at once a concurrent.futures.Future. Raises
        waggle.Error: "no_donor" after `timeout` seconds (60), "not_owner" at once if all others refuse."""
        if not wait:
            future: Future[Any] = Future()
            future.set_running_or_notify_cancel()

            def load() -> None:
                try:
                    future.set_result(self.load_state_from_peers(True, timeout, bytes_max=bytes_max))
                except BaseException as e:
                    future.set_exception(e)
            threading.Thread(target=load, daemon=True, name="waggle-load-state").start()
            return future
        metadata, rows = self._peer.load_state(60.0 if timeout is None else _checked("timeout", timeout),
                                               _checked("bytes_max", bytes_max))
        of_torch = any(hasattr(t.of, "data_ptr") for t in self._tensors)
        return _decode(metadata), {name: _array(kind, shape, values, of_torch) for name, kind, shape, values in rows}

    @property
    def allow_state_sharing(self) -> bool:
        return self._shares

    @allow_state_sharing.setter
    def allow_state_sharing(self, allowed: bool) -> None:
        allowed = _options.flag("allow_state_sharing", allowed)
        self._peer.allow_state_sharing(allowed)
        self._shares = allowed

    @property
    def state_sharing_priority(self) -> float:
        return self._priority

    @state_sharing_priority.setter
    def state_sharing_priority(self, priority: float) -> None:
        priority = _checked("state_sharing_priority", priority)
        self._peer.set_state_sharing_priority(priority)
        self._priority = priority

    @property
    def group_bits(self) -> str:
        """The bucket in which the next step looks for partners. It changes with each group."""
        return self._peer.group_bits

    @group_bits.setter
    def group_bits(self, bits: str) -> None:
        self._peer.set_group_bits(_checked("group_bits", bits))

    def shutdown(self) -> None:
        """Ends it: a step that runs fails, other peers go on, and the prefix is free again."""
        self._peer.end()
