"""The ranks of a group of torch.distributed, which train as one peer: rank 0 has it, and tells the others what to do."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import math
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed

from . import _waggle
from ._options import error_of

dist: Any = torch.distributed

Failure = tuple[str, str, str]  # the class of an error, its code and its text

_CALLS = ("waggle.join", "the constructor of waggle.Optimizer", "weighed", "step", "kept", "shards", "an iteration over the shards",
          "shared_weights", "leave")
_numbers = 7  # of each rank, with a call
_record_bytes = 1024  # of a record; a longer one needs a second message
_beat_seconds = 1.0  # in which rank 0 sees that another one has ended
_notice_seconds = 10.0
_bucket = 2**22  # values that are averaged at once


def _failure_of(error: BaseException) -> Failure:
    if isinstance(error, _waggle.Error):
        return "Error", error.code, str(error)
    known = next((kind for kind in (TypeError, ValueError) if isinstance(error, kind)), None)
    return (known.__name__, "", str(error)) if known else ("", "", f"{type(error).__name__}: {error}")


def _raise(failure: Failure, rank: int) -> NoReturn:
    kind, code, text = failure
    if kind in ("TypeError", "ValueError"):
        raise {"TypeError": TypeError, "ValueError": ValueError}[kind](f"rank {rank}: {text}")
    raise error_of(code or "shutting_down", f"rank {rank}: {text}")


class Ranks:
    """Of one group. `meet` begins a call that all ranks make; in it, rank 0 leads by records and the others follow.
    Messages go over a group of gloo of its own, so that a wait occupies no GPU and no watchdog of NCCL sees it."""

    def __init__(self, group: Any) -> None:
        if not dist.is_available() or not dist.is_initialized():  # then dist.group.WORLD is None
            raise ValueError("group is of torch.distributed, which is not initialized: call init_process_group before waggle.join")
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("this process is not in the group: call waggle.join on its ranks only")
        if not isinstance(group, dist.ProcessGroup):
            raise TypeError(f"group is of type {type(group).__name__}, and must be a group of torch.distributed, such as "
                            "torch.distributed.group.WORLD")
        if not hasattr(dist, "get_process_group_ranks") or torch.__version__.startswith(("1.", "2.0.")):
            raise ValueError(f"group needs torch 2.1 or later, and this is {torch.__version__}")
        self.group: Any = group
        self.members: list[int] = dist.get_process_group_ranks(group)
        self.rank, self.size = dist.get_rank(group), len(self.members)
        self._root = self.members[0]
        timeout = getattr(getattr(group, "options", None), "_timeout", None)
        with contextlib.suppress(Exception):  # of another backend
            timeout = group._get_backend(torch.device("cpu")).options._timeout
        self._channel: Any = dist.new_group(self.members, backend="gloo", timeout=timeout, use_local_synchronization=True)
        self._lock = threading.Lock()  # of a record with what follows it
        self._leads = False  # rank 0 is in a call, and the others listen
        self._waits_in: tuple[str, float] | None = None  # a call, for the others, since
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="waggle-ranks", daemon=True)
        self.failure: str | None = None  # why the ranks cannot talk any more
        self.waits_for: Callable[[], str] = lambda: ""
        self.on_failure: Callable[[], None] = lambda: None
        self.notice = math.inf  # seconds of the shortest one of this rank, and after a call of all
        self.on_notice: Callable[[float], None] = lambda within: None  # on rank 0, of any rank
        self._beats.start()

    # -- calls of all ranks

    def meet(self, call: str, *numbers: float, failed: BaseException | None = None) -> list[list[float]]:
        """Begins a call. Returns the numbers of each rank. Raises `failed`, or what another rank raised before, or that
        the ranks are in different calls."""
        self._waits_in = call, time.monotonic()
        found = self._gathered(_CALLS.index(call), failed is not None, *numbers, *[0.0] * (_numbers - len(numbers)))
        self._waits_in = None
        if failed is not None or any(row[1] for row in found):
            texts = self.each(None if failed is None else _failure_of(failed))
            if failed is not None:
                raise failed
            rank = next(i for i, text in enumerate(texts) if text is not None)
            _raise(texts[rank], rank)
        for rank, row in enumerate(found):
            if row[0] != found[0][0]:
                raise error_of("not_ready", f"rank {rank} of the group calls {_CALLS[int(row[0])]}, and rank 0 calls "
                                            f"{_CALLS[int(found[0][0])]}: all ranks make the same calls in the same order")
        return [row[2:] for row in found]

    def _gathered(self, *numbers: float) -> list[list[float]]:
        """Those of all ranks. A notice that one of them was given is that of all."""
        mine = torch.tensor([self.notice, *numbers], dtype=torch.float64)
        rows = torch.empty(self.size, len(mine), dtype=torch.float64)
        self._talk(lambda: dist.all_gather(list(rows.unbind(0)), mine, group=self._channel))
        within = min(row[0] for row in rows.tolist())
        if within < math.inf:
            self.notice = within
            if self.rank == 0:
                self.on_notice(within)
        return [row[1:] for row in rows.tolist()]

    def each(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        values: list[Any] = [None] * self.size
        self._talk(lambda: dist.all_gather_object(values, value, group=self._channel))
        return values

    def lead(self, work: Callable[[], Any], report: Callable[[], Any]) -> tuple[Any, Any]:
        """On rank 0, when all ranks have met. The others `follow`: all get the result and the report, or raise the same."""
        self._leads = True
        result, told, failed = None, None, None
        try:
            result = work()
            told = report()
        except BaseException as e:
            failed = e
        with self._lock:  # so that no beat comes after the end
            self._leads = False
        if self.failure is not None:
            raise error_of("shutting_down", self.failure) from failed
        try:
            self._send(("done", result, told, None if failed is None else _failure_of(failed)))
        except _waggle.Error:
            if failed is None:
                raise
        if failed is not None:
            raise failed
        return result, told

    def follow(self, obey: Callable[..., None]) -> tuple[Any, Any]:
        """On the others. obey(command, …) does this rank's part."""
        while True:
            command, *arguments = self._receive()
            if command == "wait":
                self._gathered()
            if command == "done":
                result, report, failure = arguments
                if failure is not None:
                    _raise(failure, 0)
                return result, report
            obey(command, *arguments)

    @contextlib.contextmanager
    def telling(self, *record: Any) -> Iterator[None]:
        """On rank 0: sends a record, and in the block what follows it."""
        with self._lock:
            if not self._leads:
                raise error_of("not_ready", f"{record[0]} needs all ranks of the group, and they are in no call")
            self._send(record)
            yield

    # -- tensors in host memory, in one dimension

    def spread(self, whole: torch.Tensor | None, cuts: Sequence[int]) -> torch.Tensor:
        """This rank's part of what rank 0 has; cuts: the values of each rank, or of all if there is one number."""
        if len(cuts) == 1:
            part = torch.empty(cuts[0], dtype=torch.float32) if whole is None else whole
            self._talk(lambda: dist.broadcast(part, self._root, group=self._channel))
            return part
        if whole is None:
            part = torch.empty(cuts[self.rank], dtype=torch.float32)
            if len(part) > 0:
                self._talk(lambda: dist.recv(part, self._root, group=self._channel))
            return part
        self._with_others(dist.isend, whole, cuts)
        return whole[:cuts[0]]

    def collect(self, part: torch.Tensor, cuts: Sequence[int], into: torch.Tensor | None) -> None:
        """The reverse, of parts that differ: rank 0 has the whole afterwards, where its own part is already."""
        if into is not None:
            self._with_others(dist.irecv, into, cuts)
        elif len(part) > 0:
            self._talk(lambda: dist.send(part, self._root, group=self._channel))

    def _with_others(self, talk: Any, whole: torch.Tensor, cuts: Sequence[int]) -> None:
        ends = list(itertools.accumulate(cuts))

        def talk_to_all() -> None:
            for work in [talk(whole[end - n:end], member, group=self._channel)
                         for member, n, end in zip(self.members[1:], cuts[1:], ends[1:]) if n > 0]:
                work.wait()
        self._talk(talk_to_all)

    def average(self, tensors: Sequence[torch.Tensor], weight: float) -> None:
        """The sum of the ranks' tensors, each times its rank's weight. Where they are, over the group of the user."""
        run: list[torch.Tensor] = []
        for i, tensor in enumerate(tensors):
            run.append(tensor)
            if i + 1 == len(tensors) or tensors[i + 1].device != tensor.device or sum(t.numel() for t in run) >= _bucket:
                flat = torch.cat([t.detach().reshape(-1) for t in run]).mul_(weight)
                self._talk(lambda: dist.all_reduce(flat, group=self.group))
                for t, mean in zip(run, torch.split(flat, [t.numel() for t in run])):
                    t.copy_(mean.view(t.shape))
                run = []

    def equalize(self, tensors: Sequence[torch.Tensor]) -> None:
        """All ranks get those of rank 0."""
        for tensor in tensors:
            self._talk(lambda: dist.broadcast(tensor, self._root, group=self.group))

    # -- records

    def _send(self, record: tuple[Any, ...]) -> None:
        text = pickle.dumps(record)
        first = torch.zeros(_record_bytes, dtype=torch.uint8)
        image = torch.frombuffer(bytearray(len(text).to_bytes(8, "little") + text), dtype=torch.uint8)
        first[:len(image)] = image[:_record_bytes]
        rest = image[_record_bytes:]
        self._talk(lambda: dist.broadcast(first, self._root, group=self._channel))
        if len(rest) > 0:
            self._talk(lambda: dist.broadcast(rest, self._root, group=self._channel))

    def _receive(self) -> Any:
        first = torch.empty(_record_bytes, dtype=torch.uint8)
        self._talk(lambda: dist.broadcast(first, self._root, group=self._channel))
        image = bytes(first.tolist())
        length = int.from_bytes(image[:8], "little")
        if length > _record_bytes - 8:
            rest = torch.empty(length - (_record_bytes - 8), dtype=torch.uint8)
            self._talk(lambda: dist.broadcast(rest, self._root, group=self._channel))
            image += bytes(rest.tolist())
        return pickle.loads(image[8:8 + length])

    def _talk(self, what: Callable[[], Any]) -> None:
        if self.failure is not None:
            raise error_of("shutting_down", self.failure)
        try:
            what()
        except (RuntimeError, ValueError) as e:  # of gloo, or NCCL, or of a group that is destroyed
            other = "another rank" if self.rank == 0 else "rank 0 or another rank"
            where = f", which rank {self.rank} awaited in {self._waits_in[0]}," if self._waits_in else ""
            self.failure = (f"{other} of the group{where} has ended or does not answer, so rank {self.rank} ends, too "
                            f"({str(e).splitlines()[0]})")
            raise error_of("shutting_down", self.failure) from None

    def _beat(self) -> None:
        """While rank 0 is in a call, tells the others that it still is, and sees whether they are there. Who waits for others
        to come into a call says so."""
        said = None
        while not self._ended.wait(_beat_seconds):
            waits = self._waits_in
            if waits is not None and waits is not said and time.monotonic() - waits[1] >= _notice_seconds:
                said = waits
                print(f"waggle: rank {self.rank} waits in {waits[0]} for other ranks of the group, which must call it, too",
                      file=sys.stderr, flush=True)
            try:
                with self._lock:
                    if self._leads:
                        self._send(("wait", self.waits_for()))
                        self._gathered()
            except _waggle.Error:
                self._ended.set()
                self.on_failure()

    def end(self) -> None:
        self._ended.set()
        if self._beats is not threading.current_thread():
            self._beats.join(5)
        self.failure = self.failure or "this peer has left the run"
        # Joins the threads of gloo. One that ends with a tensor of Python after Python has ended would abort the process.
        with contextlib.suppress(Exception):  # the user has destroyed all groups
            dist.destroy_process_group(self._channel)
        self.group = self._channel = None


def weighed(rows: Sequence[Sequence[float]]) -> tuple[int, float | None]:
    """The samples of all ranks, and the mean of the losses that they know, from (samples, loss or NaN)."""
    known = [(samples, loss) for samples, loss, *_ in rows if not math.isnan(loss)]
    of = sum(samples for samples, _ in known)
    return int(sum(row[0] for row in rows)), sum(samples * loss for samples, loss in known) / of if known else None


def of_environment() -> dict[str, Any]:
    """The arguments of waggle.join for a process that torchrun has started beside others. Raises ValueError."""
    ranks = os.environ.get("WORLD_SIZE", "1")
    if not ranks.isdigit() or int(ranks) < 2:
        return {}
    if not dist.is_initialized():
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ValueError(f"WORLD_SIZE is {ranks} in the environment, and {' and '.join(missing)} missing: start all ranks, which are "
                             "one peer, by torchrun, or leave WORLD_SIZE out of the environment of a peer of its own")
        dist.init_process_group("gloo")
        atexit.register(_end_groups)
    return {"group": dist.group.WORLD}


def _end_groups() -> None:
    """As at the end of `Ranks`, of the group of all processes."""
    if dist.is_initialized():
        dist.destroy_process_group()


def say_goodbye_on_term() -> None:
    """torchrun sends TERM to all ranks when one has ended, and Python then ends without what is to be done at exit."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
