"""The handle of a peer."""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, Union

from . import _options, _waggle
from ._needs import needs

if TYPE_CHECKING:
    from ._ranks import Ranks
    from ._shards import Shards
    from ._stream import Stream
    from .data import Blocks

_L = TypeVar("_L", bound="Leaves")

_alive: weakref.WeakSet[Any] = weakref.WeakSet()  # peers and nodes that may have to say goodbye when the process ends
_noticed: weakref.WeakSet[Any] = weakref.WeakSet()  # peers of this process alone that leave soon
_logs: set[_Log] = set()  # that get lines
_of_one: Any = object()  # no group; None is what torch has for one before it is initialized

Log = Union[logging.Logger, "logging.LoggerAdapter[Any]", Callable[[str, str], object]]
_levels = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


class SamplesSeen(NamedTuple):
    """How often the samples of one pass over the data have entered an update of the run."""

    number: int  # of the pass, from 1 on
    once: int
    twice: int
    never: int


class StrategyPhase(NamedTuple):
    """Where the schedule of the strategy daso stands. Losses are means over the loops that give one; nan: not known."""

    name: str  # "warm-up", "cycling" or "cool-down"
    epoch: int  # of daso: that have ended
    epochs: int  # after which the run ends; 0: it does not
    skips: int  # batches from one round to the next; 0: each one, and all wait
    wait: int  # batches until the mean of a round is merged
    loss: float  # of the last epoch, which decides on the skips
    best_loss: float


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of the run as this peer knows it."""

    epoch: int  # updates, or averages, of the run so far
    finished: bool  # the last update of the run is applied, or this peer leaves by a notice
    group_size: int  # peers that average with this one, itself included
    samples_offered: int  # passed to step, or kept by the process before this one
    samples_used: int  # of these, samples that entered an update
    samples_dropped: int  # of these, samples that entered none and never will
    samples_pending: int  # all others; after leave: kept in data_dir for the next start
    state_downloads: int  # from other peers
    rounds: int  # rounds whose mean this peer applied
    waiting_for: str  # empty: this peer does not wait
    loss: float  # smoothed; nan before the first step
    strategy: StrategyPhase | None  # of daso
    mean_age: int | None  # steps from the copy that the last round averaged until its mean was merged
    parameters: str  # a digest of the parameters after the last update, in hexadecimal
    passes: list[SamplesSeen]  # with shards; the last one is not complete


class _Log:
    """Passes the log of a peer on, in a thread of its own: no thread of the peer waits for Python."""

    def __init__(self, to: Log) -> None:
        self.lines = _waggle.LogLines()
        self._to = to
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._pass_on, name="waggle-log", daemon=True)

    def start(self) -> None:
        _logs.add(self)
        self._thread.start()

    def end(self) -> None:
        """Waits for the last lines, of a peer that has left."""
        if self._process == os.getpid() and self._thread is not threading.current_thread():
            self.lines.end()
            self._thread.join(5)

    def _pass_on(self) -> None:
        while lines := self.lines.take():
            for level, text in lines:
                try:
                    if isinstance(self._to, (logging.Logger, logging.LoggerAdapter)):
                        self._to.log(_levels[level], "%s", text)
                    else:
                        self._to(level, text)
                except Exception:  # of the user's function; the next line may fare better
                    sys.excepthook(*sys.exc_info())
        _logs.discard(self)


class Leaves:
    """A context manager that leaves the run at the end, in a hurry after an exception."""

    def leave(self, *, in_a_hurry: bool = False) -> None:
        """As `Swarm.leave`."""
        raise NotImplementedError

    def __enter__(self: _L) -> _L:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.leave(in_a_hurry=kind is not None)


class Swarm(Leaves):
    """This process's peer of a run; `waggle.join` makes it. It neither listens nor dials before a
    `waggle.Optimizer` or a `waggle.Loop` is constructed with it, because peers compare optimizers,
    too. A context manager: leaves the run at the end, in a hurry after an exception.

    Use it from the thread of the loop; `status()`, `notice()`, `epoch` and the addresses from any. In a forked
    process (a worker of a DataLoader) every call raises `waggle.Error`.

    With `group`, the constructor of `Optimizer`, `weighed`, `step`, `kept`, `shards` and an iteration over them, `shared_weights` and
    `leave` are calls of all ranks in the same order; what one of them raises there, all raise. `epoch` and `finished`
    are as of the last of these calls, so that all ranks of a loop end with the same pass.
    """

    def __init__(self, run: str, given: dict[str, Any], of_file: Mapping[str, Any], ranks: Ranks | None = None) -> None:
        self._of_file = of_file  # arguments of the optimizer, in the run file
        self._given: dict[str, Any] = {"run": run, **_options.of_peer(given)}
        self._stream: Stream | None = None
        self._log = None if given.get("log") is None or (ranks is not None and ranks.rank > 0) else _Log(given["log"])
        lines = None if self._log is None else self._log.lines
        if ranks is None:
            self._peer = _waggle.Peer(self._given, lines)
        else:
            from ._group import GroupPeer

            self._peer = GroupPeer(ranks, self._given, lines)  # type: ignore[assignment]  # which has the same methods
        _alive.add(self._peer)
        if self._log is not None:
            self._log.start()

    @property
    def run(self) -> str:
        """The name of the run."""
        return str(self._given["run"])

    @property
    def id(self) -> str:
        """The identity of this peer: the public part of the key in its data_dir, in hexadecimal."""
        return self._peer.id

    @property
    def data_dir(self) -> str:
        """The folder with the identity and the checkpoints."""
        return self._peer.data_dir

    @property
    def address(self) -> str | None:
        """The "HOST:PORT" that this peer listens on. None before the optimizer is constructed, and
        in client_mode."""
        return self._peer.address

    @property
    def addresses(self) -> list[str]:
        """All "HOST:PORT" at which other machines can reach this peer."""
        return self._peer.addresses or ([self._peer.address] if self._peer.address else [])

    @property
    def join_line(self) -> str | None:
        """The statement with which a loop joins this run; None if nobody can join through this peer."""
        if not self.addresses:
            return None
        key = self._given.get("swarm_key")
        if key is not None and key.startswith("key:"):  # which nobody must read over a shoulder
            return f"waggle.join(config=FILE)  # with the FILE that `waggle invite --data-dir {self.data_dir}` prints"
        given = "".join(f"{name}={value!r}, " for name in ("swarm_key", "members") if (value := self._given.get(name)))
        return f"waggle.join({self.run!r}, {given}initial_peers={self.addresses!r})"

    @property
    def epoch(self) -> int:
        """The number of updates (or averages) of the run so far, as this peer knows it."""
        return self.status().epoch

    @property
    def finished(self) -> bool:
        """Whether the last update of the run is applied, or this peer leaves by a notice, so that nothing is left to compute."""
        return self.status().finished

    def status(self) -> Status:
        """Asks this process only, never the network; takes some ten microseconds. From another
        thread: what the loop's thread saw last, which looks every 100 ms while it waits."""
        now = self._peer.status()
        now["passes"] = [SamplesSeen(*each) for each in now["passes"]]
        now["strategy"] = now["strategy"] and StrategyPhase(*now["strategy"])
        return Status(**now)

    def shards(self, samples: int, *, passes: int = 1) -> Shards:
        """Deals `samples` samples, len(dataset), to the loops of the run: each sample of a pass enters one update
        of the whole swarm, whichever loops join, stop or die. The run ends after `passes` passes. Call it before
        the optimizer is constructed; all peers give the same numbers.

        Returns a sampler of torch.utils.data, for a DataLoader without `shuffle` and `drop_last`; if torch was
        not imported, the same without its base class. Raises TypeError or ValueError with a sentence."""
        samples, passes = _options.whole("samples", samples, 1), _options.whole("passes", passes, 1)
        self._peer.deal(samples, passes)
        if "torch" in sys.modules:
            from ._sampler import Sampler

            return Sampler(self._peer, samples)
        from ._shards import Shards

        return Shards(self._peer, samples)

    def stream(self, data: Blocks, *, passes: int = 1) -> Stream:
        """The same for data that is read a block at a time (`waggle.data`): blocks are dealt, and their records weigh.
        `status().passes` counts blocks. Call it before the optimizer is constructed; all peers compare the data. The records of a
        block may be at most target_batch_size. With group, the ranks take turns, and each steps over a block of its own. Raises
        TypeError or ValueError with a sentence."""
        from ._stream import Stream
        from .data import Blocks

        if not isinstance(data, Blocks):
            raise TypeError(f"data is of type {type(data).__name__}, and must be what a function of waggle.data returns, such "
                            "as waggle.data.jsonl(\"data/*.jsonl\")")
        self._stream = Stream(self.shards(len(data), passes=passes), data)
        self._stream.shards._ahead = deque()
        return self._stream

    def notice(self, within: float | timedelta) -> None:
        """The machine of this peer will be taken away in so many seconds, 1 to 3600: from now on the peer computes
        nothing new, and gives no new downloads if others can. `finished` becomes True, and `step` returns "finished",
        when its samples are in an update, at the latest when the time is over; then let the loop end, and leave. Of
        several notices, the shortest counts. From any thread. Raises TypeError or ValueError with a sentence."""
        _give_notice(self._peer, _options.notice("within", within))

    @property
    def _leaves_soon(self) -> bool:
        """With group, as of the last call on all ranks."""
        return bool(getattr(self._peer, "is_noticed", self._peer in _noticed))

    def leave(self, *, in_a_hurry: bool = False) -> None:
        """Leaves the run. Waits up to 5 s for a running round and for peers that need the last
        state, then writes a checkpoint and says goodbye. `in_a_hurry`: says goodbye within a second.
        A second call does nothing. From any thread: where the loop's thread waits in `step`, that raises
        waggle.Error; where it computes, the next `step` does."""
        self._peer.leave(in_a_hurry)
        if self._log is not None:
            self._log.end()

    def __repr__(self) -> str:
        return f"<waggle.Swarm {self.run!r} at {self.address or 'no address yet'}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a waggle.Swarm is a running peer, which cannot be copied or pickled")


def join(run: str | None = None, *, config: str | os.PathLike[str] | None = None,
         swarm_key: str | os.PathLike[str] | None = None, members: str | None = None,
         members_list: str | os.PathLike[str] | None = None, initial_peers: str | Sequence[str] | None = None, listen: str | None = None,
         announce: str | None = None, data_dir: str | os.PathLike[str] | None = None,
         client_mode: bool | None = None, log_level: str | None = None, log: Log | None = None,
         join_timeout: float | timedelta | None = None, start_alone: bool | None = None,
         resume: bool | None = None, leave_within: float | timedelta | None = None, group: Any = _of_one, **unknown: Any) -> Swarm:
    """Prepares a peer of the run named `run`: checks the options, locks the data folder, and reads or
    creates the identity.

    config: a run file, such as `waggle invite` prints, for whatever is not given here or to the optimizer; `run`, too.
    swarm_key: the file of the run's key, of which all its peers have copies; `run` is then only a label.
    members: the public key of whoever keeps the list of members; only peers on it belong to the run.
    members_list: the file of that list, if no initial peer has it.
    initial_peers: "HOST:PORT" of any peers of the run. None: those in the environment's
        WAGGLE_INITIAL_PEERS, INITIAL_PEERS or PL_INITIAL_PEERS; none there either: this peer starts
        the run.
    listen: "HOST:PORT,…"; port 0 is a free one, which `Swarm.address` has. Default: [::]:0, all of IPv4 and IPv6.
    announce: the address that other peers dial, if it differs.
    data_dir: the folder of the identity and the checkpoints, for one process at a time. Default: .waggle/TAG, or
        .waggle/TAG-2, … if another process uses it; TAG stands for the run.
    client_mode: only dial, accept no connections.
    log_level: "debug", "info" (default), "warn" or "error": the lines from this level on.
    log: a logging.Logger, or a function of a level and a text, that gets them, in a thread of its own. Default:
        standard error.
    join_timeout: seconds to look for the run before this peer starts it, if it may. If not, and
        nobody answers for forty times as long, `step` raises waggle.Error. Default: 15.
    start_alone: whether it may, although there are initial peers. Default: False.
    resume: read the newest checkpoint and write checkpoints. Default: True.
    leave_within: seconds, 1 to 3600: SIGTERM and SIGUSR1 are a notice (`leave_on_notice`) that the machine will be taken away so soon.
        With group, one of them to any rank is a notice for all. Only on the main thread. Default: they are none.
    group: a group of torch.distributed, such as torch.distributed.group.WORLD, all ranks of which call this and are one
        peer together. Rank 0 has it; on the others the swarm has no folder and no socket. See `Swarm`.

    Raises TypeError or ValueError with a sentence. Installs no signal handlers but those of leave_within, and with group on
    rank 0 one of SIGTERM if there is none, which ends the program by SystemExit.
    """
    of_file, of_training = ({}, {}) if config is None else _options.of_file(config)
    run = of_file.pop("run", None) if run is None else run
    if run is None:
        raise TypeError("waggle.join needs the name of the run, or a config that has it")
    given = dict(swarm_key=swarm_key, members=members, members_list=members_list, initial_peers=initial_peers, listen=listen, announce=announce, data_dir=data_dir,
                 client_mode=client_mode, log_level=log_level, log=log, join_timeout=join_timeout,
                 start_alone=start_alone, resume=resume, leave_within=leave_within, **unknown)
    given = {**given, **{name: value for name, value in of_file.items() if given.get(name) is None}}
    ranks = None
    if group is not _of_one:
        with needs("torch", "group"):
            from ._ranks import Ranks

        ranks = Ranks(group)
    within = given["leave_within"]
    if within is not None and threading.current_thread() is not threading.main_thread():
        raise ValueError("leave_within makes signals a notice, which only the main thread may do: call waggle.join there, or "
                         "swarm.notice from any thread")
    swarm = Swarm(_options.text("run", run), given, of_training, ranks)
    if within is not None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            leave_on_notice(number, within=within)
    return swarm


def _give_notice(peer: Any, within: float) -> None:
    _noticed.add(peer)
    peer.notice(within)


def leave_on_notice(number: int = signal.SIGTERM, *, within: float | timedelta = 25) -> None:
    """Makes a signal a notice (`Swarm.notice`) for all peers of this process: SIGTERM, which clouds, Kubernetes and
    Slurm send some time before they end a process, or SIGUSR1. A second one does what it did before. Call it on the
    main thread. Raises TypeError or ValueError with a sentence."""
    seconds = _options.notice("within", within)
    before = signal.getsignal(number)

    def on_notice(*_: object) -> None:
        signal.signal(number, signal.SIG_DFL if before is None else before)
        peers = [peer for peer in list(_alive) if hasattr(peer, "notice") and not peer.left]
        if not peers:  # nothing to wait for
            signal.raise_signal(number)
        for peer in peers:
            _give_notice(peer, seconds)

    try:
        signal.signal(number, on_notice)
    except OSError:
        raise ValueError(f"signal {number} cannot be a notice: it ends the process at once") from None


@atexit.register
def _leave_in_a_hurry() -> None:
    _waggle.end_program()  # daemon threads that wait in a peer stay there
    for peer in list(_alive):
        try:
            peer.leave(in_a_hurry=True)
        except _waggle.Error:
            pass  # a forked process, or a thread that does not come back
    for log in list(_logs):
        log.end()
