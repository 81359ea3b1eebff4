"""python3 -m waggle OPTIONS script.py ARGS: runs a training script of torch, without a change, as a
peer of a run.

    python3 -m waggle --run-id birds --listen '[::]:7700' --target-batch-size 256 train.py
    python3 -m waggle --run-id birds --initial-peers 10.0.0.1:7700 --target-batch-size 256 train.py

OPTIONS are those of `waggle.join` and `waggle.Optimizer`, which are those of `waggle train`. The script's
optimizer joins the run at its first step, with all others of its model: of the outermost module that was
called and has all their parameters. The number of samples is the first dimension of the first tensor that
this module, or a compiled function, got, and the loss is what backward was called on. Schedulers that the
script steps with each step of the optimizer follow the updates of the run.
"""

from __future__ import annotations

import os
import pathlib
import runpy
import sys
from typing import Any

from . import _needs, _options, _waggle


class Usage(Exception):
    """What the script must do instead, in one sentence."""


def _arguments(words: list[str]) -> tuple[str, dict[str, Any], dict[str, Any], list[str]]:
    """The run, the arguments of waggle.join and of waggle.Optimizer, the script and its arguments."""
    run = "waggle"
    of_peer: dict[str, Any] = {}
    of_training: dict[str, Any] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in ("-h", "--help"):
            print(__doc__)
            raise SystemExit(0)
        flag, equals, text = word.partition("=")
        name = flag.lstrip("-").replace("-", "_")
        if not _options.is_known(name):
            nearest = _waggle.nearest(name, sorted({"run_id", *_options.of_join, *_options.of_optimizer}))
            raise Usage(f"{flag} is no option; the nearest is --{nearest.replace('_', '-')}")
        if name == "loss_scale":
            raise Usage(f"{flag} is for loops that scale their loss by it: use torch's GradScaler in the script")
        if not equals:
            if name == "client_mode":
                text = "true"
            elif not words:
                raise Usage(f"{flag} needs a value")
            else:
                text = words.pop(0)
        if name == "run_id":
            run = text
        else:
            (of_peer if name in _options.of_join else of_training)[name] = _options.of_text(name, text)
    if not words:
        raise Usage("no script is named: python3 -m waggle --run-id NAME [OPTIONS] script.py [ARGS]")
    return run, of_peer, of_training, words


def main() -> int:
    try:
        run, of_peer, of_training, script = _arguments(sys.argv[1:])
        _options.of_peer(of_peer)  # before the script does anything
        _options.of_training(of_training)
    except (Usage, TypeError, ValueError) as e:
        print(f"waggle: {e}", file=sys.stderr)
        return 2
    try:
        with _needs.needs("torch", "python3 -m waggle"):
            from . import _launcher  # imports torch, which takes seconds

            launcher = _launcher.Launcher(run, of_peer, of_training, Usage)
            launcher.watch()
    except ImportError as e:
        print(f"waggle: {e}", file=sys.stderr)
        return 2

    sys.argv = script
    sys.path[0] = str(pathlib.Path(script[0]).resolve().parent)
    try:
        runpy.run_path(script[0], run_name="__main__")
        if launcher.optimizer is None:
            raise Usage(f"{script[0]} has ended without a step of an optimizer of torch: nothing was trained with other "
                         "peers")
    except Usage as e:
        print(f"waggle: {e}", file=sys.stderr)
        return 2
    launcher.optimizer.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
