"""The peer of a group of ranks, on each of them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from . import _waggle
from ._loop import LoopModel
from ._options import error_of
from ._ranks import Ranks, say_goodbye_on_term

_ahead = 16  # samples of each rank that are drawn at once


class Leading(LoopModel):
    """On rank 0: the model whose tensors are on all ranks. Each method sends a command, and each rank does its part."""

    _clears_gradients = True

    def __init__(self, model: Any, ranks: Ranks, peer: GroupPeer) -> None:
        self._model, self._ranks, self._peer = model, ranks, peer
        self._on_device, self._rounds = model._on_device, model._rounds

    def _command(self, name: str, *arguments: Any) -> Any:
        return self._ranks.telling(name, self._peer.epoch, *arguments)

    def settle(self, numbers: list[float | None], present: list[bool]) -> None:
        self._model.settle(numbers, present)

    def apply(self, gradient: memoryview, lr: float) -> None:
        with self._command("apply", lr, self._model.settled):
            parts = list(self._model.spread(self._ranks, torch.frombuffer(gradient, dtype=torch.float32)))
        self._model.apply_parts(parts, lr)

    def step(self, lr: float) -> None:
        with self._command("step", lr):
            pass
        self._model.step(lr)

    def read(self, which: int, into: memoryview) -> None:
        whole = torch.frombuffer(into, dtype=torch.float32)
        cuts = self._model.cuts(which)
        if len(cuts) == 1:  # all ranks have it
            self._model.read_part(which, whole)
            return
        with self._command("read", which):
            self._model.read_part(which, whole[:cuts[0]])
            self._ranks.collect(whole[:0], cuts, whole)

    def write(self, which: int, values: memoryview) -> None:
        with self._command("write", which):
            part = self._ranks.spread(torch.frombuffer(values, dtype=torch.float32), self._model.cuts(which))
        self._model.write_part(which, part)

    def read_left_out(self, into: memoryview) -> None:
        self._model.read_left_out(into)

    def write_left_out(self, values: memoryview) -> None:
        self._model.write_left_out(values)
        with self._command("left_out", self._model.left_out.tolist()):
            pass

    def steps(self) -> int:
        return int(self._model.steps())

    def set_steps(self, steps: int) -> None:
        with self._command("set_steps", steps):
            pass
        self._model.set_steps(steps)

    def rounding(self) -> int:
        return int(self._model.rounding())

    def add_gradient(self, keep: float, times: float) -> None:
        if self._model.is_sharded:
            with self._command("add_gradient", keep, times):
                pass
        self._model.add_gradient(keep, times)

    def read_gradient(self, into: memoryview) -> None:
        if not self._model.is_sharded:
            self._model.read_gradient(into)
            return
        with self._command("read_gradient"):
            self._model.collect_gradient(self._ranks, torch.frombuffer(into, dtype=torch.float32))

    def write_gradient(self, values: memoryview) -> None:
        if not self._model.is_sharded:
            self._model.write_gradient(values)
            return
        with self._command("write_gradient"):
            parts = list(self._model.spread(self._ranks, torch.frombuffer(values, dtype=torch.float32)))
        self._model.sum.write_parts(parts)

    def share_buffers(self) -> None:
        """Passes of the ranks have changed theirs."""
        if self._model.buffers:
            with self._command("buffers"):
                _share_buffers(self._model, self._ranks)


def _share_buffers(model: Any, ranks: Ranks) -> None:
    """All ranks get those of rank 0, as they were last offered."""
    sizes = [b.last.numel() for b in model.buffers]
    if sizes:
        whole = torch.cat([b.last.view(-1) for b in model.buffers]) if ranks.rank == 0 else None
        values = torch.split(ranks.spread(whole, [sum(sizes)]), sizes)
        with torch.no_grad():
            for b, part in zip(model.buffers if ranks.rank > 0 else (), values):
                b.write(part)


class GroupPeer:
    """A `_waggle.Peer`, of which each call is one of all ranks but for those that only look. `own`: on rank 0."""

    def __init__(self, ranks: Ranks, options: dict[str, Any], log: _waggle.LogLines | None) -> None:
        self.ranks = ranks
        self.own: _waggle.Peer | None = None
        self._model: Any = None
        self._leading: Leading | None = None
        self._seen: dict[str, Any] = {"adds_up": False, "left": False, "address": None, "addresses": [], "passes_complete": 0,
                                      "loss_scale": None}
        self._mine: list[int] = []  # samples that are dealt to this rank and not handed out yet
        self._rows: list[int] | None = None  # different samples of each round of the deal that no step was over; None: no shards
        self._waits_for = ""
        self._devices: list[str] = []  # of the ranks
        self._paces: list[tuple[float, float]] = []  # of the ranks: seconds of their own work in a pass, and of the pass, smoothed
        self.stepped_at = time.perf_counter()  # the end of the last step
        self.began = False  # all ranks construct the optimizer
        ranks.meet("waggle.join")

        def make() -> tuple[str, str]:
            self.own = peer = _waggle.Peer(options, log)
            ranks.waits_for = lambda: str(peer.status()["waiting_for"])
            ranks.on_failure = lambda: peer.leave(True)
            ranks.on_notice = peer.notice
            say_goodbye_on_term()
            return peer.id, peer.data_dir
        self.id, folder = self._all("", make)
        self.data_dir = folder if ranks.rank == 0 else ""

    def _all(self, call: str, work: Any) -> Any:
        """A call of all ranks: rank 0 does the work, and the others do what it needs of them."""
        if call:
            self.ranks.meet(call)
        if self.ranks.rank == 0:
            result, self._seen = self.ranks.lead(work, self._report)
        else:
            result, self._seen = self.ranks.follow(self._obey)
        self._waits_for = ""
        return result

    def _report(self) -> dict[str, Any]:
        assert self.own is not None
        names = ("adds_up", "left", "address", "addresses", "passes_complete", "loss_scale")
        return {"status": self.own.status(), "epoch": self.own.epoch, "noticed": self.ranks.notice < math.inf,
                **{name: getattr(self.own, name) for name in names}}

    def _obey(self, command: str, *arguments: Any) -> None:
        if command == "wait":
            self._waits_for = arguments[0]
            return
        self._seen["epoch"], *more = arguments
        model, ranks = self._model, self.ranks
        if command == "apply":
            lr, settled = more
            model.settled = settled
            model.apply_parts(model.spread(ranks, None), lr)
        elif command == "step":
            model.step(more[0])
        elif command == "read":
            cuts = model.cuts(more[0])
            part = torch.empty(cuts[ranks.rank], dtype=torch.float32)
            model.read_part(more[0], part)
            ranks.collect(part, cuts, None)
        elif command == "write":
            model.write_part(more[0], ranks.spread(None, model.cuts(more[0])))
        elif command == "left_out":
            model.left_out.copy_(torch.tensor(more[0]))
        elif command == "set_steps":
            model.set_steps(more[0])
        elif command == "add_gradient":
            model.add_gradient(*more)
        elif command == "read_gradient":
            model.collect_gradient(ranks, None)
        elif command == "write_gradient":
            model.sum.write_parts(model.spread(ranks, None))
        elif command == "buffers":
            _share_buffers(model, ranks)
        else:
            raise AssertionError(command)

    # -- calls of all ranks

    def start(self, model: Any, options: dict[str, Any], parameters: Any, statistics: Any, buffers: Any, *more: Any) -> None:
        if not hasattr(model, "apply_parts"):  # on all ranks
            raise TypeError("waggle.Loop trains whole arrays of one process: leave group out of waggle.join, or use waggle.Optimizer")
        self.began = True
        self.ranks.meet("the constructor of waggle.Optimizer")
        rows = self.ranks.each([f"{name} {shape}" for name, shape in parameters] + [f"{each[0]} {each[1]}" for each in buffers]
                               + [f"{model.steps_made} steps of the optimizer", f"statistics {statistics}"])
        for rank, row in enumerate(rows):
            if row != rows[0]:
                ours, theirs = next(pair for pair in zip([*rows[0], "nothing more"], [*row, "nothing more"]) if pair[0] != pair[1])
                raise ValueError(f"the ranks of the group have different modules: rank 0 has {ours[:200]}, and rank {rank} has "
                                 f"{theirs[:200]}")
        self._model = model
        self._devices = self.ranks.each(str(model.parameters[0][1].device))
        self.ranks.equalize([p.detach() for _, p in model.parameters if not hasattr(p, "device_mesh")])
        _share_buffers(model, self.ranks)
        self._leading = Leading(model, self.ranks, self)
        self._all("", lambda: self.own.start(  # type: ignore[union-attr]
            self._leading, options, parameters, statistics, buffers, *more))

    def offer(self, samples: int, loss: float | None, addresses: list[int] | None = None, passes: int = 1,
              written: str = "", finite: bool = True, claims: int = 0, scale: float = 0) -> str:
        """When the ranks have met, with the samples and the loss of all."""
        def work() -> str:
            assert self.own is not None and self._leading is not None
            of_blocks = {"claims": claims} if claims else {}
            weight = samples
            if self._rows is not None:
                each = claims or samples // self.ranks.size
                dealt, self._rows = sum(self._rows[:each]), self._rows[each:]
                if claims:
                    of_blocks["claims"] = dealt
                else:
                    weight = dealt or samples
            outcome = self.own.offer(weight, loss, addresses, passes, written, finite, scale=scale, **of_blocks)
            if outcome in ("stepped", "synced"):
                self._leading.share_buffers()
            return outcome
        outcome = str(self._all("", work))
        self.stepped_at = time.perf_counter()
        return outcome

    def show_paces(self, seconds: Sequence[float], of_pass: float) -> None:
        """What the ranks needed for their own work in a pass, of so many seconds with the waits for each other."""
        if self.own is not None:
            before = self._paces or [(each, of_pass) for each in seconds]
            self._paces = [(0.8 * mine + 0.2 * now, 0.8 * whole + 0.2 * of_pass) for (mine, whole), now in zip(before, seconds)]
            self.own.show_ranks([(device, *pace) for device, pace in zip(self._devices, self._paces)])

    def kept(self) -> bytes:
        return bytes(self._all("kept", lambda: self.own.kept()))  # type: ignore[union-attr]

    def show_shared(self) -> None:
        self._all("shared_weights", lambda: self.own.show_shared())  # type: ignore[union-attr]

    def show_own(self) -> None:
        if not self.left:
            self._all("shared_weights", lambda: self.own.show_own())  # type: ignore[union-attr]

    def deal(self, samples: int, passes: int) -> None:
        self._all("shards", lambda: self.own.deal(samples, passes))  # type: ignore[union-attr]
        self._rows = []

    def begin_shards(self) -> bool:
        self._mine, self._rows = [], []
        return bool(self._all("an iteration over the shards", lambda: self.own.begin_shards()))  # type: ignore[union-attr]

    def next_shards(self, most: int) -> list[int]:
        if not self._mine:
            dealt: list[int] = self._all("an iteration over the shards", self._draw)
            self._mine = dealt[self.ranks.rank::self.ranks.size]
        out, self._mine = self._mine[:most], self._mine[most:]
        return out

    def _draw(self) -> list[int]:
        """The ranks take turns, so that a step of all is over the next ones. At the end some come twice, which count once,
        because the ranks make equally many passes."""
        assert self.own is not None and self._rows is not None
        size = self.ranks.size
        drawn = self.own.next_shards(_ahead * size)
        while len(drawn) % size > 0 and (more := self.own.next_shards(size - len(drawn) % size)):
            drawn += more
        full, rest = divmod(len(drawn), size)
        self._rows += [size] * full + [rest] * (rest > 0)
        return drawn + [drawn[i % len(drawn)] for i in range(-len(drawn) % size)] if drawn else []

    def leave(self, in_a_hurry: bool) -> None:
        """In a hurry: of this rank, and the others see it."""
        if self.left:
            return
        try:
            if not in_a_hurry and self.ranks.failure is None:
                try:
                    self._all("leave", lambda: self.own.leave(False))  # type: ignore[union-attr]
                    return
                except _waggle.Error:
                    if self.ranks.failure is None:
                        raise
                    print(f"waggle: {self.ranks.failure}", file=sys.stderr, flush=True)
            if self.own is not None:
                self.own.leave(True)
                self._seen = self._report()
        finally:
            self._seen = {**self._seen, "left": True}
            self.ranks.end()

    # -- of this rank

    def notice(self, within: float) -> None:
        """Of any rank, for all: rank 0 learns it with the next call, or within a second of a wait."""
        self.ranks.notice = min(self.ranks.notice, within)
        if self.own is not None:
            self.own.notice(within)

    def keep(self, what: bytes) -> None:
        if self.own is not None:
            self.own.keep(what)

    def gradient(self) -> memoryview:
        raise error_of("not_ready", "waggle.Loop takes no group")

    def wish(self, rate: float | None) -> None:
        if self.own is not None:
            self.own.wish(rate)

    def status(self) -> dict[str, Any]:
        """On rank 0 of now, but for what a loop may end by, which is that of the last call on all ranks."""
        seen: dict[str, Any] = self._seen.get("status", {})
        if self.own is None:
            return {**seen, "waiting_for": self._waits_for}
        return {**self.own.status(), **{name: seen[name] for name in ("epoch", "finished") if name in seen}}

    @property
    def is_noticed(self) -> bool:
        return bool(self._seen.get("noticed"))

    @property
    def deals(self) -> bool:
        """Samples, to the ranks in turn."""
        return self._rows is not None

    @property
    def epoch(self) -> int:
        return self.own.epoch if self.own is not None else int(self._seen.get("epoch", 0))

    @property
    def left(self) -> bool:
        return bool(self._seen["left"])

    @property
    def passes_complete(self) -> int:
        return int(self._seen["passes_complete"])

    @property
    def loss_scale(self) -> float | None:
        known: float | None = self._seen["loss_scale"]
        return known

    @property
    def adds_up(self) -> bool:
        return bool(self._seen["adds_up"])

    @property
    def address(self) -> str | None:
        known: str | None = self._seen["address"]
        return known

    @property
    def addresses(self) -> Sequence[str]:
        return list(self._seen["addresses"])
