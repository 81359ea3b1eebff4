"""Packages that only parts of this one need."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator

# The versions that the tests run with; of torch, Python 3.9 has only older ones.
_install = {"torch": ("PyTorch", "torch==2.13.0" if sys.version_info >= (3, 10) else "torch==2.8.0"),
            "pytorch_lightning": ("Lightning", "lightning"), "peft": ("peft", "peft")}
_tested = {"torch": ((1, 13), (2, 13)), "pytorch_lightning": ((2, 6), (2, 6)), "peft": ((0, 21), (0, 21))}  # from, to
_warned: set[str] = set()


def untested(package: str) -> str:
    """A sentence if the package is of a version that no test has run with; empty: it is not."""
    found = next((m for m in map(sys.modules.get, (package.replace("pytorch_", ""), package)) if m is not None), None)
    version = getattr(found, "__version__", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    first, last = _tested[package]
    if numbers is None or first <= (int(numbers[1]), int(numbers[2])) <= last:
        return ""
    older = (int(numbers[1]), int(numbers[2])) < first
    between = " to ".join(dict.fromkeys(f"{major}.{minor}" for major, minor in (first, last)))
    return (f"{_install[package][0]} {version} is {'older' if older else 'newer'} than what waggle is tested with, which is "
            f"{between}")


@contextlib.contextmanager
def needs(package: str, part: str) -> Iterator[None]:
    """Around the first import of the package: without it, or if its version does not do, an ImportError says what to
    install. An untested version that does is warned of once."""
    name, what = _install[package]
    try:
        yield
    except (ImportError, AttributeError) as e:
        if not isinstance(e, ModuleNotFoundError) or e.name != package:  # it is there, but lacks something
            if sentence := untested(package):
                raise ImportError(f"{sentence}, and lacks something ({e}): {sys.executable} -m pip install {what}") from e
            raise
        raise ImportError(f"{part} needs {name}, which {sys.executable} does not find: {sys.executable} -m pip install {what}",
                          name=package) from None
    sentence = untested(package)
    if sentence and package not in _warned:
        _warned.add(package)
        warnings.warn_explicit(sentence, UserWarning, "waggle", 0)
