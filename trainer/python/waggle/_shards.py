"""The samples of a data set that a loop gets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from . import _waggle


class Shards:
    """The numbers of the samples that this loop gets, shuffled by run and pass; `Swarm.shards` makes it.

    Each `step` is over the next samples that were handed out, in their order: use all batches of a loader, in order,
    each in one step (a step may be over several). Also a batch whose gradient is of no use must be in a step, which
    drops what is not finite: after one without a step, the later ones count as the samples of the batch before.
    torch's GradScaler.step leaves out steps: compute in bfloat16, or call its unscale_ and then `step` yourself.
    A DataLoader may load ahead of the steps; little, because after a batch was dropped those ahead often are, too.

    An iteration ends with the pass, or when this loop has had all of its samples but not made its last steps yet:
    then those of loops that have died may follow, so iterate again until `swarm.finished`. What no step was over, and
    what was dropped (not finite, of outdated parameters), is handed out again. The state of the run says which
    samples were used, so a loop that was stopped goes on.

    For the thread of the loop. A new iteration ends the one before."""

    def __init__(self, peer: _waggle.Peer, samples: int) -> None:
        self._peer = peer
        self._samples = samples
        self._iterations = 0
        self._ahead: deque[int] | None = None  # of a stream: what was dealt, and is in no step

    def __len__(self) -> int:
        """The samples of a pass, of which this loop gets a part."""
        return self._samples

    @property
    def passes_complete(self) -> int:
        """The passes of the run that are complete, as this loop knows it."""
        return self._peer.passes_complete

    def __iter__(self) -> Iterator[int]:
        """Waits, for the first number, until this loop has samples, and so for the state of the run. Raises
        waggle.Error as a step does, and if there is no optimizer yet; RuntimeError if all samples are handed out again
        and again, and no step is over them."""
        self._iterations += 1
        return self._deal(self._iterations)

    def _deal(self, iteration: int) -> Iterator[int]:
        if iteration == self._iterations and self._peer.begin_shards():
            if self._ahead is not None:
                self._ahead.clear()
            while numbers := self._peer.next_shards(1):
                if self._ahead is not None:
                    self._ahead.append(numbers[0])
                yield numbers[0]
                if iteration != self._iterations:
                    raise RuntimeError("another iteration over the shards has begun")
