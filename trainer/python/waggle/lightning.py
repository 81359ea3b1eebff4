"""A strategy of Lightning that makes its Trainer a peer of a run.

    trainer = lightning.Trainer(strategy=waggle.lightning.SwarmStrategy(target_batch_size=256, run_id="birds"))

The arguments are those of Lightning's HivemindStrategy. Needs lightning (or pytorch_lightning) 2.0 or later.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import _options, _waggle
from ._needs import needs
from ._swarm import Swarm, join

with needs("torch", "waggle.lightning"):
    import torch

    from ._describe import tensors_in
    from ._optimizer import Optimizer
    from ._ranks import of_environment
    from ._schedulers import KINDS
with needs("pytorch_lightning", "waggle.lightning"):
    try:
        from lightning.pytorch.strategies import SingleDeviceStrategy
    except ImportError:
        from pytorch_lightning.strategies import SingleDeviceStrategy

_log = logging.getLogger(__name__)


def _listen(host_maddrs: str | Sequence[str]) -> str:
    """Addresses as of libp2p, or HOST:PORT, as waggle.join takes them."""
    if isinstance(host_maddrs, str):
        host_maddrs = host_maddrs.split(",")
    if not isinstance(host_maddrs, Sequence) or not all(isinstance(each, str) for each in host_maddrs):
        raise TypeError(f"host_maddrs is {host_maddrs!r}, and must be a list of texts, such as /ip4/0.0.0.0/tcp/7700")
    addresses = []
    of_quic = [each for each in host_maddrs if each.endswith("/quic")]
    if 0 < len(of_quic) < len(host_maddrs):
        _log.info("host_maddrs: %s left out, as peers talk by TCP", ", ".join(of_quic))
        host_maddrs = [each for each in host_maddrs if each not in of_quic]
    for each in host_maddrs:
        known = re.fullmatch(r"/(ip[46]|dns[46]?)/([^/]+)/tcp/(\d+)", each)
        if known is None and each.startswith("/"):
            raise ValueError(f"host_maddrs: {each} is no address of TCP, such as /ip4/0.0.0.0/tcp/7700")
        addresses.append(each if known is None else
                         f"[{known[2]}]:{known[3]}" if known[1] == "ip6" else f"{known[2]}:{known[3]}")
    return ",".join(addresses)


_of_search = ("matchmaking_time", "min_group_size", "group_bits")


def _meant(training: dict[str, Any]) -> dict[str, Any]:
    """Without what HivemindStrategy has for all runs, and which means nothing in this one."""
    out = dict(training)
    left_out = []
    if training.get("groups") in (None, "one"):
        left_out += [f"{name}={out.pop(name)} (all peers are one group, and nobody searches: groups='moshpit' makes many)"
                     for name in _of_search if out.get(name) is not None]
    if not _waggle.steps_each_pass(training.get("strategy") or "collaborative") and out.pop("delay_state_averaging", None):
        left_out.append("delay_state_averaging=True (peers average gradients, and so have equal states)")
    if left_out:
        _log.info("left out: %s", "; ".join(left_out))
    return out


class _Average:
    """Lightning's WeightAveraging, or its EMA, with each update of the run instead of each batch of this peer. A hook
    of the optimizer, in whose state the averages are, so that peers that join receive them."""

    def __init__(self, callback: Any, module: torch.nn.Module, updates: Callable[[], int], leave: Callable[[], None]) -> None:
        self._callback, self._module, self._updates = callback, module, updates
        self._of = {id(p): a for p, a in zip(module.parameters(), callback._average_model.module.parameters())}
        end = callback.on_train_end

        def leave_and_end(*arguments: Any) -> None:
            leave()  # with the weights, which then become the averages
            end(*arguments)

        # A batch and a pass over the data are this peer's own.
        self._hooks = {"on_train_batch_end": lambda *_: None, "on_train_epoch_end": lambda *_: None,
                       "on_train_end": leave_and_end}
        vars(callback).update(self._hooks)

    def __deepcopy__(self, memo: object) -> _Average:  # for the copy of the optimizer that shows what it keeps
        return self

    @torch.no_grad()
    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        averaged = self._callback._average_model
        states = []
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            own = self._of.get(id(p))
            state = optimizer.state[p]
            if own is None:  # of that copy
                state.update(average=torch.zeros_like(p), averaged=0)
                continue
            of_run = state.get("average")
            if of_run is not None and of_run is not own:
                own.copy_(of_run)
                averaged.n_averaged.fill_(state["averaged"])
            state["average"] = own
            states.append(state)
        if states and self._callback.should_update(step_idx=self._updates()):
            averaged.update_parameters(self._module)
        for state in states:
            state["averaged"] = int(averaged.n_averaged)

    def remove(self) -> None:
        for name in self._hooks:
            delattr(self._callback, name)


class SwarmStrategy(SingleDeviceStrategy):  # type: ignore[misc]  # Lightning need not be installed
    """Trains with all peers of the run, on one device of this machine.

    target_batch_size: samples of the whole swarm for one update; None with strategies that count steps.
    run_id: the name of the run.
    batch_size: samples of each batch of this peer; None: the first dimension of the first tensor in the
        batch, at each batch. With accumulate_grad_batches, batches add up.
    scheduler_fn: makes the scheduler of an optimizer, or is one. The schedulers that `configure_optimizers` returns
        need no such function. Either is moved to the number of updates of the run, whatever its interval is.
    averaging_timeout, matchmaking_time: seconds; None: the defaults of waggle. The latter means something with
        groups="moshpit"; otherwise it is left out, as is delay_state_averaging where gradients are averaged.
    verbose: log at level debug.
    averager_opts: more options of the group "averaging" of `waggle train`.
    host_maddrs: the addresses to listen on, as "/ip4/0.0.0.0/tcp/7700" or "HOST:PORT". Those of QUIC beside them are left out.
    initial_peers: "HOST:PORT" of peers, in a list or separated by commas. None: the environment's
        INITIAL_PEERS or PL_INITIAL_PEERS.
    more: other arguments of `waggle.join` and `waggle.Optimizer`.

    Processes that torchrun starts (with devices=1 in each) are one peer together: each trains on its own part of the data,
    as by a DistributedSampler, in batches of one size. devices=2 is refused, because one process trains on one device.

    The peer listens from the first batch on. Lightning's WeightAveraging and its EMA average after each update of the run, and
    peers that join receive the averages. When the run has ended, the Trainer stops. Raises TypeError or ValueError with
    a sentence.
    """

    strategy_name = "waggle"
    optimizers: Any  # of the base class

    def __init__(self, target_batch_size: int | None, run_id: str = "lightning_run", batch_size: int | None = None,
                 delay_state_averaging: bool | None = None, delay_optimizer_step: bool | None = None,
                 delay_grad_averaging: bool | None = None, offload_optimizer: bool | None = None,
                 reuse_grad_buffers: bool = False, scheduler_fn: Callable[[torch.optim.Optimizer], Any] | None = None,
                 matchmaking_time: float | None = None, averaging_timeout: float | None = None, verbose: bool = False,
                 averager_opts: Mapping[str, Any] | None = None, host_maddrs: Sequence[str] | None = None,
                 initial_peers: str | Sequence[str] | None = None, **more: Any) -> None:
        super().__init__()
        peer = {name: more.pop(name) for name in list(more) if name in _options.of_join}
        if host_maddrs:
            peer["listen"] = _listen(host_maddrs)
        if verbose:
            peer["log_level"] = "debug"
        delayed = {"delay_state_averaging": delay_state_averaging, "delay_optimizer_step": delay_optimizer_step,
                   "delay_grad_averaging": delay_grad_averaging, "offload_optimizer": offload_optimizer,
                   "reuse_grad_buffers": reuse_grad_buffers}
        delayed = {name: given is not None and _options.flag(name, given) for name, given in delayed.items()}
        for name, given in (("matchmaking_time", matchmaking_time), ("averaging_timeout", averaging_timeout)):
            if given is not None and _options.seconds(name, given) <= 0:
                raise ValueError(f"{name} is {given}, and must be more than 0 seconds")
        if averager_opts is not None and not isinstance(averager_opts, Mapping):
            raise TypeError(f"averager_opts is of type {type(averager_opts).__name__}, and must be a dictionary of options")
        if scheduler_fn is not None and not callable(scheduler_fn) and not isinstance(scheduler_fn, KINDS):
            raise TypeError(f"scheduler_fn is of type {type(scheduler_fn).__name__}, and must be a function that makes the scheduler of an "
                            "optimizer")
        self._training = _meant({"target_batch_size": target_batch_size, "matchmaking_time": matchmaking_time,
                                 "averaging_timeout": averaging_timeout, **{name: True for name in delayed if delayed[name]},
                                 **(averager_opts or {}), **more})
        _options.of_training({name: value for name, value in self._training.items() if name != "samples"})
        if self._training.get("loss_scale"):
            raise TypeError("SwarmStrategy takes no loss_scale: pass precision=\"16-mixed\" to the Trainer")
        self._batch_size = None if batch_size is None else _options.whole("batch_size", batch_size, 1)
        self._scheduler_fn = (lambda _: scheduler_fn) if isinstance(scheduler_fn, KINDS) else scheduler_fn
        self._samples = 0  # of the batches since the last step
        self._optimizer: Optimizer | None = None
        self._averages: list[_Average] = []
        self._failed = False
        self._swarm = join(run_id, initial_peers=initial_peers, **peer, **of_environment())

    @property
    def swarm(self) -> Swarm:
        """The peer."""
        return self._swarm

    @property
    def num_peers(self) -> int:
        """The peers that average with this one, itself included."""
        return max(1, self._swarm.status().group_size)

    @property
    def root_device(self) -> torch.device:
        kind = type(self.accelerator).__name__
        if kind == "CUDAAccelerator":
            return torch.device("cuda", torch.cuda.current_device())
        if kind == "CPUAccelerator":
            return torch.device("cpu")
        raise ValueError(f"SwarmStrategy trains on a CPU or a CUDA device, not with {kind}")

    def setup(self, trainer: Any) -> None:
        devices = getattr(getattr(trainer, "_accelerator_connector", None), "_devices_flag", 1)
        wanted = (len(devices) if isinstance(devices, (list, tuple)) else int(devices) if str(devices).isdigit() else 1)
        if wanted > 1:
            raise ValueError(f"devices is {devices}, and a process with SwarmStrategy trains on one device: pass devices=1 and start the "
                             f"script by torchrun --nproc-per-node {wanted}, whose ranks are one peer")
        super().setup(trainer)

    def on_train_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        first = next(tensors_in(batch, Iterable), None)
        samples = self._batch_size or (None if first is None else first.shape[0] if first.dim() > 0 else 1)
        if samples is None:
            raise ValueError("the batch has no tensor that shows its number of samples: pass it as "
                             "SwarmStrategy(batch_size=…)")
        if self._optimizer is None:
            if self._batch_size is None:
                _log.info("the batch has %d samples, by the first dimension of its first tensor", samples)
            self._join()
        self._samples += samples

    def _join(self) -> None:
        if len(self.optimizers) != 1:
            raise ValueError(f"SwarmStrategy trains with one optimizer, and configure_optimizers returned "
                             f"{len(self.optimizers)}")
        module = self.lightning_module
        for callback in getattr(module.trainer, "callbacks", ()):
            if type(callback).__name__ == "StochasticWeightAveraging":
                raise ValueError("SwarmStrategy cannot have StochasticWeightAveraging, which averages after each pass of this "
                                 "peer over its data: use WeightAveraging, which averages after each update of the run")
            if hasattr(callback, "_average_model") and hasattr(callback, "should_update"):
                if any(self._training.get(name) for name in _options.in_two_copies):
                    raise ValueError(f"SwarmStrategy cannot have {type(callback).__name__} and offload_optimizer: the averages are of the "
                                     "parameters where the optimizer steps, so leave offload_optimizer and delay_optimizer_step out")
                self._averages.append(_Average(callback, module, self._updates,
                                               self._swarm.leave))
                self.optimizers[0].register_step_post_hook(self._averages[-1])
        clears = getattr(type(module), "optimizer_zero_grad", None)
        of_lightning = clears is None or clears.__module__.startswith(("lightning.", "pytorch_lightning."))
        if self._training.get("reuse_grad_buffers") and not of_lightning:
            warnings.warn("optimizer_zero_grad of the module is its own, and with reuse_grad_buffers gradients add up in .grad until "
                          "the update: it must clear them by optimizer.zero_grad() only, which does nothing meanwhile", stacklevel=2)
        optimizer = Optimizer(self.optimizers[0], self._swarm, module, **self._training)
        schedulers = [config.scheduler for config in self.lr_scheduler_configs]
        if self._scheduler_fn is not None:
            schedulers = [self._scheduler_fn(optimizer)]
        for scheduler in schedulers:
            optimizer.follow(scheduler)
        self.optimizers = [optimizer]
        self._optimizer = optimizer
        if not os.environ.get("PL_INITIAL_PEERS") and self._swarm.addresses:
            _log.info("other machines join by the environment INITIAL_PEERS=%s", ",".join(self._swarm.addresses))

    def _updates(self) -> int:
        return 0 if self._optimizer is None else self._optimizer._model.steps_made

    def optimizer_step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any], model: Any = None,
                       **named: Any) -> Any:
        if optimizer is self._optimizer:
            named.setdefault("samples", self._samples)
        self._samples = 0
        result = super().optimizer_step(optimizer, closure, model, **named)
        if self._optimizer is not None and self._optimizer.last == "finished":
            self.lightning_module.trainer.should_stop = True
        return result

    def on_exception(self, exception: BaseException) -> None:
        self._failed = True
        super().on_exception(exception)

    def teardown(self) -> None:
        self._swarm.leave(in_a_hurry=self._failed)
        for each in self._averages:
            each.remove()
        super().teardown()
