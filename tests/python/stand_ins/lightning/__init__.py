from torch.nn import Module as LightningModule

from .pytorch.strategies import Trainer
