"""Makes a training loop of PyTorch a peer of a run that many machines train together.

    swarm = waggle.join("birds", initial_peers=["10.0.0.1:7700"])
    opt = waggle.Optimizer(torch.optim.AdamW(net.parameters(), 1e-3), swarm, net, target_batch_size=256)
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step(samples=len(x), loss=loss)
        if opt.last == "finished":
            break

`waggle.node` is a peer without a model, for `waggle.Averager` and `waggle.DHT`.

Importing this module does not import torch: `Loop`, which `Optimizer` uses, trains any arrays.
"""

from typing import TYPE_CHECKING, Any

from . import data
from ._checkpoint import Checkpoint, load_checkpoint
from ._loop import Loop, LoopModel
from ._needs import needs
from ._node import DHT, Averager, Node, Step, node
from ._shards import Shards
from ._swarm import SamplesSeen, Status, Swarm, join, leave_on_notice
from ._waggle import Error, __version__

if TYPE_CHECKING:
    from ._optimizer import Optimizer

__all__ = ["Averager", "Checkpoint", "DHT", "Error", "Loop", "LoopModel", "Node", "Optimizer", "SamplesSeen", "Shards",
           "Status", "Step", "Swarm", "data", "join", "leave_on_notice", "load_checkpoint", "node", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Optimizer":
        with needs("torch", "waggle.Optimizer"):
            from ._optimizer import Optimizer

        return Optimizer
    raise AttributeError(f"module 'waggle' has no attribute '{name}'")
