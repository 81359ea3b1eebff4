"""The samples of a data set that a loop gets, for a DataLoader of torch."""

from __future__ import annotations

from torch.utils.data import Sampler as _Base

from ._shards import Shards


class Sampler(Shards, _Base[int]):
    __doc__ = Shards.__doc__
