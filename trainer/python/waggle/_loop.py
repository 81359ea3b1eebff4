"""A loop over any arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _options, _waggle
from ._swarm import Leaves, Swarm


class LoopModel:
    """What a `Loop` needs of a model: parameters, and an optimizer with its statistics. Every buffer
    is a memoryview of float32 that is valid during the call only. All methods are called on the
    thread that calls `Loop.offer`, inside that call, or in `leave`."""

    _clears_gradients = False  # and so counts the passes that add up
    _has_copies = False  # it changes copies of the parameters, which `refresh` takes over
    _on_device = False  # it keeps gradients where they are, and has add_gradient, read_gradient, write_gradient
    _hears_gradients = False  # its loop says in the backward pass which gradients are complete
    _rounds = ""  # what of the software decides about `rounding`, which peers compare in words

    def settle(self, numbers: list[float | None], present: list[bool]) -> None:
        """What the peers have settled for the next `apply`: for each parameter the numbers of its optimizer (None:
        nobody wishes for one), and whether any peer has a gradient for it. Only where gradients are averaged."""

    def apply(self, gradient: memoryview, lr: float) -> None:
        """One optimizer step with `gradient`, the values of all parameters in order (and behind
        them nothing). `lr`: the rate of the run, or the one that the peers have settled: the median of `Loop.rate`
        of all, so that all make the same step."""
        raise NotImplementedError

    def step(self, lr: float) -> None:
        """The same with the gradient that the loop has just offered."""
        raise NotImplementedError

    def read(self, which: int, into: memoryview) -> None:
        """Writes tensor number `which` into the buffer: the parameters, then each statistic of all
        parameters that have it, in the order of its first appearance, then the buffers."""
        raise NotImplementedError

    def write(self, which: int, values: memoryview) -> None:
        """Takes the values of tensor number `which` from the buffer."""
        raise NotImplementedError

    def read_left_out(self, into: memoryview) -> None:
        """How many updates had no gradient for each parameter, if the model leaves such parameters out (`settle`)."""
        into[:] = memoryview(bytes(into.nbytes)).cast("f")

    def write_left_out(self, values: memoryview) -> None:
        """Takes these numbers."""

    def steps(self) -> int:
        """The number of optimizer steps so far."""
        raise NotImplementedError

    def set_steps(self, steps: int) -> None:
        """The last thing of a state that is loaded: the number of steps of its optimizer."""
        raise NotImplementedError

    def rounding(self) -> int:
        """A number of up to 64 bits that is equal on two peers if their updates of equal values have equal bits, as
        a hash of a fixed update has; 0: not known. Peers whose numbers differ compare their parameters up to
        rounding."""
        return 0


def _sizes(name: str, shape: Sequence[int]) -> list[int]:
    if not isinstance(name, str) or not isinstance(shape, Sequence):
        raise TypeError(f"a tensor is ({name!r}, {shape!r}), and must be a name and the list of its dimensions")
    return [_options.whole(f"a dimension of {name}", each, 1) for each in shape]


class Loop(Leaves):
    """The loop under `Optimizer`, for arrays of numpy, JAX, or anything else with buffers.

    parameters: [(name, shape)]. statistics: for each parameter [(name, shape, never_negative)].
    buffers: [(name, shape)], values that passes change, such as running means, which are averaged.
    optimizer: its name and `numbers`: one of `waggle train` (then a `waggle train` of the same model
        can take part), or any other text, which peers compare.
    learning_rate: the initial one, which peers compare unless `lr` is given. rate_ratios: a text
        about the rates of parts of the model, which peers compare.
    counters: the same, behind the buffers, of whole numbers that passes change, of which peers take the largest: three
        float32 each, whose sum it is. settled: how many numbers `settle` gets for a parameter; None: those that
        `waggle train` has for `optimizer`, or the rate alone. frozen: names and digests of what nobody trains, which
        peers compare; None: anything.
    Other arguments: as of `Optimizer`.
    """

    def __init__(self, swarm: Swarm, model: LoopModel, parameters: Iterable[tuple[str, Sequence[int]]], /, *,
                 statistics: Sequence[Sequence[tuple[str, Sequence[int], bool]]] | None = None,
                 buffers: Iterable[tuple[str, Sequence[int]]] = (), optimizer: str = "own",
                 numbers: Mapping[str, float] | None = None, learning_rate: float = 0.0, rate_ratios: str = "",
                 counters: Iterable[tuple[str, Sequence[int]]] = (), settled: int | None = None,
                 frozen: Sequence[tuple[str, bytes]] | None = (),
                 **options: Any) -> None:
        if not isinstance(swarm, Swarm):
            raise TypeError(f"swarm is of type {type(swarm).__name__}: pass what waggle.join returns")
        if swarm._of_file:
            options = {**swarm._of_file, **{name: value for name, value in options.items() if value is not None}}
        if options.get("reuse_grad_buffers") and not model._clears_gradients:
            raise TypeError("waggle.Loop takes no reuse_grad_buffers: add up in arrays of your own, and offer their "
                            "mean")
        for name in (*_options.in_two_copies, "loss_scale") if not model._has_copies else ():
            if options.get(name):
                raise TypeError(f"waggle.Loop takes no {name}: " + (
                    "offer gradients that are divided by a scale of your own" if name == "loss_scale" else
                    "keep what `apply` changes wherever you like"))
        training = _options.of_training(options)
        merged: dict[str, Any] = {**swarm._given, **training,
                                  "more": {**swarm._given.get("more", {}), **training["more"]}}
        if swarm._stream is not None:
            merged["data"] = ", ".join(filter(None, [merged.get("data"), swarm._stream._data.description]))
        self.swarm = swarm
        self._peer = swarm._peer
        named = [(name, _sizes(name, shape)) for name, shape in parameters]
        if statistics is None:
            statistics = [[] for _ in named]
        optimizer = _options.text("optimizer", optimizer)
        if _waggle.steps_each_pass(str(merged.get("strategy", ""))):
            settled = 0
        elif settled is None:
            settled = len(_waggle.settled_numbers(optimizer))
        changed = [(name, _sizes(name, shape), False) for name, shape in buffers]
        changed += [(name, _sizes(name, shape), True) for name, shape in counters]
        self._peer.start(model, merged, named, statistics, changed, optimizer, dict(numbers or {}), settled,
                         float(learning_rate), rate_ratios, frozen, model._rounds, model._on_device,
                         model._hears_gradients)
        self._owns_rate = not merged["rate_of_run"]
        self.rate = float(learning_rate)

    @property
    def gradient(self) -> memoryview:
        """A writable buffer of float32, the same at each call: the gradients of all parameters, in
        order, and behind them the values of the buffers. Fill it before `offer`. Do not use it
        after `leave`."""
        return self._peer.gradient()

    @property
    def rate(self) -> float:
        """The learning rate that this loop wants from its next `offer` on; at first `learning_rate`. Where gradients
        are averaged, `apply` gets the median of the loops' rates."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = float(rate)
        self._peer.wish(self._rate if self._owns_rate else None)

    def offer(self, samples: int, loss: float | None = None, *, claims: int = 0) -> str:
        """Contributes what is in `gradient`: the mean over `samples` samples. `loss`: the mean loss of
        the same samples, for the status. With auxiliary=True, 0: it returns when the run is over. `claims`: how many blocks of a stream they are. Returns when the next
        gradient can be computed:

        "held": it counts toward the next update. "stepped": it counts, and the update was applied (or,
        with a strategy that averages parameters, the optimizer has stepped). "synced": the state of
        the run was loaded instead. "dropped": it was not finite, or of outdated parameters or samples. "finished":
        the run is over.

        Other threads run while it waits; Ctrl-C ends it. Raises ValueError for a
        wrong number of samples, waggle.Error if all initial peers refuse this one, if none answers (see
        waggle.join), if this peer has ended, or in another thread or process. Other failures of the
        network raise nothing."""
        more: dict[str, Any] = {"claims": _options.whole("claims", claims, 1)} if claims else {}
        return self._peer.offer(_options.whole("samples", samples, 0), loss, **more)

    def keep(self, what: bytes) -> None:
        """Keeps at most 64 KiB for the next start from this data_dir: what the loop needs to go on, such as the
        place in its data. Call it before a step: it is kept with the samples of that step. Raises ValueError if
        it is longer, and with buckets=1 after a backward pass, of which other peers may have a part by then: call it
        before backward."""
        if not isinstance(what, bytes):
            raise TypeError(f"keep takes bytes, and this is of type {type(what).__name__}: encode it, such as by json")
        self._peer.keep(what)

    def kept(self) -> bytes:
        """Before the first step of a loop that may have stopped before: waits as a step does, loads the checkpoint
        or the state of the run, and returns what was kept with the last sample in it or, if the loop had left in
        order, with its last step. Empty: nothing. A peer alone that leaves after any step goes on bit for bit.
        Raises as a step does."""
        return self._peer.kept()

    @contextlib.contextmanager
    def shared_weights(self) -> Iterator[None]:
        """In the `with` block the model has the parameters that all peers share instead of its own, to measure or
        save them: with the strategies diloco and daso the anchor. With others, and before the first step, they are
        its own. Buffers stay as they are, and what the block writes to parameters is lost. A round's result waits
        for the block, as for a pass.

        Raises RuntimeError if the block steps or contains another such block."""
        self._peer.show_shared()
        try:
            yield
        finally:
            self._peer.show_own()

    def leave(self, *, in_a_hurry: bool = False) -> None:
        self.swarm.leave(in_a_hurry=in_a_hurry)
