"""Observes peers through their status documents, and judges whether a peer is in step with the others.

In step: the phase is training or averaging, the epoch differs by at most one from the highest epoch of the other
peers at the same moment, and this peer and another one have completed a round recently. The judgement uses only
samples (History, in_step, verdict, one_history), so that it can be tested without peers.
"""
import bisect
import math
import ctypes
import json
import socket
import statistics
import threading
import time
from typing import NamedTuple, Optional

PERIOD = 0.05  # seconds between two requests to a peer
TIMEOUT = 0.5  # seconds of one request; a frozen peer does not answer
DOCUMENT_AGE = 0.3  # seconds; a peer updates its status every 0.1 s, later on a busy machine
FRESH = 1.0  # seconds; a peer that has not answered for longer is ignored
ROUND_AGE = 1.5  # seconds; largest age of the last round of a peer in step; three epochs if that is more
GRACE = 0.5  # seconds; shorter interruptions do not end a spell, as samples have gaps on a busy machine
WORKING = ("training", "averaging")
CLONE_NEWNET = 0x40000000


class Sample(NamedTuple):
    at: float
    phase: str
    epoch: Optional[int]
    rounds: int
    parameters: str = ""
    branch: str = ""  # of the run's history


class History:
    """The samples of one life (process) of a peer, in order."""

    def __init__(self):
        self.samples, self.times = [], []
        self.round_times, self.epoch_times = [], []
        self.status = None  # the last status document

    def add(self, sample, status=None):
        last = self.samples[-1] if self.samples else None
        if last is None or sample.rounds > last.rounds:
            if sample.rounds > 0:
                self.round_times.append(sample.at)
        if last is not None and sample.epoch != last.epoch:
            self.epoch_times.append(sample.at)
        self.status = status
        self.samples.append(sample)
        self.times.append(sample.at)  # updated last, because readers in other threads use it

    def before(self, at):
        place = bisect.bisect_right(self.times, at)
        return self.samples[place - 1] if place else None

    def after(self, at):
        place = bisect.bisect_left(self.times, at)
        return self.samples[place] if place < len(self.times) else None

    def between(self, begin, end):
        return self.samples[bisect.bisect_left(self.times, begin):bisect.bisect_right(self.times, end)]

    def round_age(self, at):
        place = bisect.bisect_right(self.round_times, at)
        return at - self.round_times[place - 1] if place else float("inf")

    def epoch_seconds(self, at):
        """The median length of the last five epochs before `at`, so that one long pause has no effect."""
        place = bisect.bisect_right(self.epoch_times, at)
        recent = self.epoch_times[max(0, place - 6):place]
        return statistics.median(b - a for a, b in zip(recent, recent[1:])) if len(recent) > 1 else 0.0

    def longest_pause(self, begin, end):
        """The longest time within [begin, end] in which no round was completed."""
        inside = [t for t in self.round_times if begin < t < end]
        marks = [begin, *inside, end]
        return max(b - a for a, b in zip(marks, marks[1:]))


def others(peer, peers):
    return [p.history for p in peers if p is not peer and p.lives]


def in_step(sample, history, others_histories):
    """Whether the peer of `history` was in step at `sample`. A peer alone is never in step."""
    at = sample.at
    if sample.phase not in WORKING or sample.epoch is None:
        return False
    low = high = None
    epoch_seconds = 0.0
    took_part = False
    for other in others_histories:
        before, after = other.before(at), other.after(at)
        if before is None or before.epoch is None or at - before.at > FRESH or before.phase not in WORKING:
            continue
        low = max(low or 0, before.epoch)
        high = max(high or 0, (after or before).epoch or 0, before.epoch)
        epoch_seconds = max(epoch_seconds, other.epoch_seconds(at))
        took_part = took_part or other.round_age(at) <= round_age_max(epoch_seconds)
    if low is None:
        return False
    # The documents of two peers may be up to DOCUMENT_AGE old, so they show different moments.
    slack = 1 + (math.floor(DOCUMENT_AGE / epoch_seconds) if epoch_seconds > 0 else 0)
    close = low - slack <= sample.epoch <= high + slack
    return close and took_part and history.round_age(at) <= round_age_max(epoch_seconds)


def round_age_max(epoch_seconds):
    return max(ROUND_AGE, 3 * epoch_seconds)


class Verdict(NamedTuple):
    first: Optional[float]  # when it was in step for the first time
    settled: Optional[float]  # start of the first spell that lasted for `hold`
    stays: bool  # whether that was the first spell
    pending: bool  # whether the current spell may still last for `hold`


def spells_of(history, others_histories, since, now):
    """[(begin, end)] of the periods in step. If the last one has not ended, its end is `now`."""
    begin = out_since = previous = None
    spells = []

    def leave(at):
        nonlocal begin, out_since
        if begin is None:
            return
        out_since = at if out_since is None else out_since
        if at - out_since > GRACE:
            spells.append((begin, out_since))
            begin = out_since = None

    for sample in history.between(since, now):
        if previous is not None and sample.at - previous > FRESH:  # the peer did not answer
            leave(previous)
            leave(sample.at)
        previous = sample.at
        # Rounds before `since` do not count: the peer must have completed a round since then.
        if history.round_age(sample.at) > sample.at - since or not in_step(sample, history, others_histories):
            leave(sample.at)
        else:
            begin = sample.at if begin is None else begin
            out_since = None
    if begin is not None:
        if now - previous > FRESH:
            leave(previous)
            leave(now)
        if begin is not None:
            spells.append((begin, out_since or now))
    return spells


def verdict(history, others_histories, since, now, hold):
    spells = spells_of(history, others_histories, since, now)
    if not spells:
        return Verdict(None, None, False, False)
    lasting = [begin for begin, end in spells if end - begin >= hold]
    begin, end = spells[-1]
    return Verdict(spells[0][0], lasting[0] if lasting else None, bool(lasting) and lasting[0] == spells[0][0],
                   not lasting and now - end < GRACE and now - begin < hold)


def share_in_step(history, others_histories, begin, end):
    """(seconds in step, length of the interval) for [begin, end]."""
    if end <= begin:
        return 0.0, 0.0
    inside = sum(min(b, end) - a for a, b in spells_of(history, others_histories, begin, end))
    return inside, end - begin


# -- histories -----------------------------------------------------------------------------------------


def digests_of(history, since, until=float("inf")):
    """{epoch: {digest: first seen}}"""
    found = {}
    for sample in history.between(since, until):
        # A state that is loaded but not trained on does not belong to the run.
        if sample.epoch is not None and sample.parameters and sample.phase in WORKING:
            found.setdefault(sample.epoch, {}).setdefault(sample.parameters, sample.at)
    return found


def agreements(histories, since, until=float("inf")):
    """The times at which all peers had been seen with the same parameters at the same epoch, or trained on one branch.

    With many peers and short epochs, samples rarely show all of them at the same epoch. Peers on one branch have the
    same parameters at the same epoch; `disagreements` checks that.
    """
    seen = [digests_of(history, since, until) for history in histories]
    moments = []
    for epoch, digests in seen[0].items():
        for digest in digests:
            times = [one.get(epoch, {}).get(digest) for one in seen]
            if None not in times:
                moments.append(max(times))
    for sample in histories[0].between(since, until):
        latest = [history.before(sample.at) for history in histories]
        if sample.branch and all(one is not None and one.at >= max(since, sample.at - GRACE) and one.phase in WORKING
                                 and one.branch == sample.branch for one in latest):
            moments.append(sample.at)
    return sorted(moments)


def disagreements(histories, since, until=float("inf")):
    """The times at which an epoch had been seen with different parameters, in order."""
    seen = {}
    for history in histories:
        for epoch, digests in digests_of(history, since, until).items():
            for digest, at in digests.items():
                known = seen.setdefault(epoch, {})
                known[digest] = min(at, known.get(digest, at))
    # The first of them dates it: the side that is ahead of the other shows numbers of epochs that the other reaches only
    # after both are one.
    return sorted(min(digests.values()) for digests in seen.values() if len(digests) > 1)


def one_history(histories, since, until=float("inf")):
    """The time of the first agreement that no disagreement followed; None: there is none yet."""
    last = max(disagreements(histories, since, until), default=since)
    return next((at for at in agreements(histories, since, until) if at >= last), None)


# -- requests ------------------------------------------------------------------------------------------


def enter_namespace(name):
    """Enters the namespace with the calling thread only."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


def ask(host, port, page="/api/v1/status"):
    with socket.create_connection((host, port), timeout=TIMEOUT) as connection:
        connection.sendall(f"GET {page} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = bytearray()
        while part := connection.recv(65536):
            answer += part
    return json.loads(answer.partition(b"\r\n\r\n")[2])


class Observer(threading.Thread):
    """Requests the status of one peer until it is stopped, from within the network namespace of the peer."""

    def __init__(self, peer):
        super().__init__(daemon=True)
        self.peer, self.history = peer, peer.history
        self.stopped = threading.Event()

    def stop(self):
        self.stopped.set()

    def run(self):
        peer = self.peer
        if peer.namespace:
            enter_namespace(peer.namespace)
        # Wait for the address in the log of this life, even if the port is known from the previous life.
        while not peer.look_for_address():
            if self.stopped.wait(PERIOD) or peer.child.poll() is not None:
                return
        while not self.stopped.wait(PERIOD):
            if peer.frozen:
                continue
            try:
                status = ask(peer.host, peer.port)
                rounds = status["rounds"]
                sample = Sample(time.monotonic(), status["phase"], status["epoch"],
                                rounds["complete"] + rounds["shrunk"], status.get("parameters") or "",
                                status.get("history") or "")
            except (OSError, ValueError, KeyError, TypeError):
                continue
            self.history.add(sample, status)
