"""python3 -m waggle with scripts that know nothing of it."""

import os
import re
import sys

import pytest
from support import ROOT, processes

HERE = __import__("pathlib").Path(__file__).parent


LOOP = """
m = torch.nn.Linear(2, 2)
a, b = torch.optim.SGD([m.weight], 0.1), torch.optim.AdamW([m.bias], 0.1)
{}
for i in range(4):
    m(torch.ones(3, 2)).sum().backward()
    {}
"""


def launch(start, name, folder, options, *script):
    return start(name, sys.executable, "-m", "waggle", "--run-id", "tests", "--data-dir", folder / name, *options, *script)


@pytest.mark.parametrize("script", [ROOT / "examples/plain.py", HERE / "closure_script.py"])
def test_two_unchanged_scripts_end_with_equal_parameters(script, tmp_path):
    def arguments(seed):
        return ("--seed", seed, "--steps", 1000) if script.name == "plain.py" else (seed,)

    options = ["--target-batch-size", "64", "--epochs", "50", "--min-peers", "2", "--listen", "127.0.0.1:0"]
    with processes(tmp_path) as start:
        first = launch(start, "first", tmp_path, options, script, *arguments(1))
        where = first.line("is a peer of 'tests' at ").split(";")[0]
        second = launch(start, "second", tmp_path, [*options, f"--initial-peers={where}"], script, *arguments(2))
        for each in (first, second):
            assert each.ended() == 0, each.log
            assert "AdamW of " in each.log and "batches of 8 samples" in each.log, each.log
            assert "ended at epoch 50 (the last)" in each.log, each.log
        digests = [re.search(r"parameters ([0-9a-f]{64})", each.log)[1] for each in (first, second)]
        assert digests[0] == digests[1]


def test_a_rank_is_told_what_it_becomes_and_a_script_may_go_elsewhere(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s.py").write_text(f"""
import os, torch
os.chdir({str(tmp_path / "elsewhere")!r})
m = torch.nn.Linear(2, 1)
o = torch.optim.SGD(m.parameters(), 0.1)
m(torch.ones(4, 2)).sum().backward()
o.step()
""")
    with processes(tmp_path) as start:
        folder = os.path.relpath(tmp_path / "peer")
        process = start("rank", sys.executable, "-m", "waggle", "--listen", "127.0.0.1:0", "--target-batch-size", "4",
                        "--data-dir", folder, tmp_path / "s.py", RANK="1", WORLD_SIZE="2")
        assert process.ended() == 0, process.log
        assert process.log.count("waggle: rank 1 of 2 becomes a peer of its own") == 1
        assert list((tmp_path / "peer/checkpoints").iterdir())
        assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("options, script, sentence", [
    (["--target-batch", "3"], "pass", "--target-batch is no option; the nearest is --target-batch-size"),
    (["--run", "birds", "s.py"], None, "--run is no option; the nearest is --run-id"),
    (["--listen"], None, "--listen needs a value"),
    (["--strategy", "diloco", "--target-batch-size", "256"],
     "m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters(), 1); m(torch.ones(3, 2)).sum().backward(); o.step()",
     "waggle: target_batch_size belongs to the other strategies"),
    (["--epochs", "x", "s.py"], None, "is no whole number"),
    ([], "print('nothing')", "has ended without a step"),
    ([], "p = torch.nn.Parameter(torch.ones(2)); o = torch.optim.SGD([p], 1); p.sum().backward(); o.step()",
     "no forward and backward pass of a torch.nn.Module came before step"),
    ([], "m = torch.nn.PReLU(); o = torch.optim.SGD(m.parameters(), 1); m(torch.tensor(-1.)).sum().backward(); o.step()",
     "has no first dimension"),
    ([], "m = torch.nn.Linear(2, 2); a = torch.optim.SGD([m.weight, m.bias], 1); b = torch.optim.SGD([m.bias], 1)\n"
         "m(torch.ones(3, 2)).sum().backward(); a.step(); b.step()", "a second optimizer, SGD, steps"),
    ([], LOOP.format("r = torch.optim.lr_scheduler.ReduceLROnPlateau(a)", "a.step(); b.step()"),
     "the ReduceLROnPlateau cannot be followed: it depends on a metric"),
    ([], LOOP.format("", "a.step(); b.step() if i % 2 else None"), "AdamW of the same model does not step after each "
                                                                   "backward pass, as SGD does"),
    ([], LOOP.format("", "a.step()"), "AdamW of the same model does not step after each backward pass, as SGD does"),
])
def test_what_cannot_be_launched(options, script, sentence, tmp_path):
    command = list(options)
    if script is not None:
        (tmp_path / "s.py").write_text("import torch\n" + script)
        command.append(tmp_path / "s.py")
    with processes(tmp_path) as start:
        process = start("launched", sys.executable, "-m", "waggle", *(["--data-dir", tmp_path / "d"] if script else []),
                        *command)
        assert process.ended() == 2, process.log
        assert sentence in process.log
