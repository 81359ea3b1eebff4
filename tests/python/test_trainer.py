"""Loops beside `waggle train`, which has the same torch."""

import pathlib

import pytest
import torch
from support import PROGRAM, eventually, processes
from test_together import EPOCHS, ending, status_of

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.skipif(not torch.__version__.startswith("1."), reason="the AdamW of torch 2 rounds otherwise")


def test_two_and_waggle_train_end_with_equal_parameters_though_one_is_killed(tmp_path):
    with processes(tmp_path) as start:
        first = start("train", PROGRAM, "train", "--run-id", "tests", "--model", "mlp", "--layers", "1", "--width", "32", "--context",
                      "16", "--target-batch-size", "64", "--epochs", EPOCHS, "--micro-batch", "8", "--listen", "127.0.0.1:0",
                      "--data-dir", tmp_path / "train", "--step-interval", "20ms", "--linger", "5m", "--device", "cpu", "--min-peers", 4)
        where = first.line("listening on ")
        loops = [start.python(f"loop{seed}", HERE / "loop.py", tmp_path / f"loop{seed}", where, seed, EPOCHS, "adamw",
                              4) for seed in (2, 3)]
        doomed = start.python("doomed", HERE / "loop.py", tmp_path / "doomed", where, 4, EPOCHS, "adamw", 4)
        doomed.line("samples in the last update")
        doomed.kill()
        ends = [ending(loop) for loop in loops]
        theirs = eventually(lambda: (s := status_of(where)).get("epoch") == EPOCHS and s)
        for end in ends:
            assert end["finished"] and end["epoch"] == EPOCHS
            assert end["parameters"] == theirs["parameters"]
            assert end["samples_used"] > 0
            assert end["samples_offered"] == sum(end[f"samples_{what}"] for what in ("used", "dropped", "pending"))
            assert end["samples_pending"] < 64  # the gradient since the last update is kept for the next start
