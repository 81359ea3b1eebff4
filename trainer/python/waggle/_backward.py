"""Gradients that peers may receive while the backward pass computes others (data-parallel:buckets=1)."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from . import _waggle


def check_buckets(tensors: Sequence[torch.Tensor], samples: int | None, others: Sequence[str]) -> None:
    """`others`: what else the optimizer was asked for that changes gradients, or keeps them elsewhere. Raises ValueError."""
    def refuse(why: str) -> NoReturn:
        raise ValueError(f"buckets=1 sends gradients during the backward pass: {why}, or leave out buckets=1")

    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        refuse(f"torch {torch.__version__} does not say when they are complete, so install 2.1 or later")
    if others:
        refuse(f"leave out {others[0]}, with which they change after it, or are elsewhere")
    if not all(p.is_cpu for p in tensors):  # type: ignore[attr-defined]
        refuse("each copy from a GPU would wait for the pass, so train on a CPU")
    if samples is None:
        refuse("peers weigh them by samples before step is called, so pass samples to the constructor of waggle.Optimizer")


def _remove(handles: Sequence[Any]) -> None:
    for handle in handles:
        handle.remove()


class Backward:
    """Tells the peer in each backward pass which gradients of `tensors`, float32 on a CPU, are complete. One backward pass
    for each step, which offers what the pass has left."""

    def __init__(self, names: Sequence[str], tensors: Sequence[torch.Tensor], peer: Any, samples: int) -> None:
        self._names, self._tensors, self._samples = names, tensors, samples
        self._peer = weakref.ref(peer)  # which refers to the model
        self._seen: dict[int, tuple[torch.Tensor, int]] = {}  # its gradient, kept alive, and that one's version
        self._owner = os.getpid(), threading.get_ident()
        this = weakref.ref(self)

        def hook_of(i: int) -> Any:
            def completed(parameter: torch.Tensor) -> None:
                if (backward := this()) is not None and parameter.grad is not None:
                    backward._completed(i, parameter.grad)
            return completed

        handles = [p.register_post_accumulate_grad_hook(hook_of(i))  # type: ignore[attr-defined]
                   for i, p in enumerate(tensors)]
        self._unhook = weakref.finalize(self, _remove, handles)
        self._unhook.atexit = False

    def _is_own(self) -> bool:
        """Not in another thread, or in a process that was forked: what they compute is none of the peer's."""
        return self._owner == (os.getpid(), threading.get_ident())

    def _completed(self, i: int, gradient: torch.Tensor) -> None:
        if not self._is_own():
            return
        peer = self._peer()
        if peer is None or peer.left:
            self._unhook()
            return
        if i in self._seen:
            raise ValueError(f"parameter {self._names[i]} got a second gradient before step, and other peers may have the first "
                             "already: call backward once for each step, zero_grad of the waggle.Optimizer after one that "
                             "failed, or leave out buckets=1")
        self._seen[i] = gradient, gradient._version
        if gradient.dtype is torch.float32 and gradient.layout is torch.strided and gradient.is_contiguous():
            with contextlib.suppress(_waggle.Error):  # another thread leaves: the step says so
                peer.computed(i, gradient.data_ptr(), self._samples)

    def check(self, samples: int) -> None:
        """Before the peer gets the whole gradient. Raises ValueError."""
        why = "" if samples == self._samples else \
            f"the step is over {samples} samples, and peers have weighed its gradient as over {self._samples}"
        for i, (gradient, version) in self._seen.items():
            if self._tensors[i].grad is not gradient or gradient._version != version:
                why = f"the gradient of parameter {self._names[i]} changed after its backward pass"
        if why:
            self.discard()
            raise ValueError(f"{why}, in which other peers may have received it: use max_gradient_norm to clip, equal batches, "
                             "or leave out buckets=1")

    def discard(self) -> None:
        """The gradients are cleared, offered, or not those of one pass: the peer points to none of them any more."""
        if not self._is_own():
            return
        peer = self._peer()
        if self._seen and peer is not None and not peer.left:
            with contextlib.suppress(_waggle.Error):
                peer.discard_pass()
        self._seen.clear()
