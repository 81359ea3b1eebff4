"""Packages that only parts of this one need."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

# The versions that the tests run with; of torch, Python 3.9 has only older ones.
_install = {"torch": ("PyTorch", "torch==2.13.0" if sys.version_info >= (3, 10) else "torch==2.8.0"),
            "pytorch_lightning": ("Lightning", "lightning")}


@contextlib.contextmanager
def needs(package: str, part: str) -> Iterator[None]:
    """Around the first import of the package: without it, an ImportError says how to install it."""
    try:
        yield
    except ModuleNotFoundError as e:
        if e.name != package:  # it is there, but lacks something itself
            raise
        name, what = _install[package]
        raise ImportError(f"{part} needs {name}, which {sys.executable} does not find: {sys.executable} -m pip install {what}",
                          name=package) from None
