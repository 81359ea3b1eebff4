"""python3 -m waggle with scripts that know nothing of it."""

import ast
import os
import re
import signal
import sys

import pytest
import torch
from support import ROOT, processes

HERE = __import__("pathlib").Path(__file__).parent


LOOP = """
m = torch.nn.Linear(2, 2)
a, b = torch.optim.SGD([m.weight], 0.1), torch.optim.AdamW([m.bias], 0.1)
{}
for i in range(4):
    m(torch.ones(3, 2, dtype=m.bias.dtype)).sum().backward()
    {}
"""


SCHEDULED = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
rates = []

class Adam(torch.optim.Adam):
    def step(self, closure=None):
        rates.append([group["lr"] for group in self.param_groups])
        super().step()

m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
o = Adam([{"params": m[0].parameters(), "lr": 0.02}, {"params": m[2].parameters()}], 0.01)
r = torch.optim.lr_scheduler.StepLR(o, 1, 0.5)
for i in range(600):
    x = torch.randn(4, 4)
    o.zero_grad()
    torch.nn.functional.mse_loss(m(x)[:, 0], x.sum(1)).backward()
    o.step()
    if i % int(sys.argv[2]) == 0:
        r.step()
import os
os.write(1, f"RATES {rates}\\n".encode())  # at once: the log is in the same file
"""


SHARDED = """
import torch.distributed as ranks
from torch.distributed.tensor import Shard, distribute_tensor
ranks.init_process_group("gloo", store=ranks.HashStore(), rank=0, world_size=1)
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
m = torch.nn.Linear(2, 2)
m.weight, m.bias = (torch.nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])) for p in (m.weight, m.bias))
o = torch.optim.SGD(m.parameters(), 1)
m(distribute_tensor(torch.ones(3, 2), mesh, [Shard(0)])).sum().backward()
o.step()
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


@pytest.mark.parametrize("every", [1, 25])
def test_a_joiner_applies_what_it_missed_with_the_rates_of_the_update_and_not_of_its_scheduler(every, tmp_path):
    """Whether the scheduler counts steps, and so the run's updates, or epochs of the data, shows at the third step."""
    (tmp_path / "s.py").write_text(SCHEDULED)
    # Of 4, each pass may be an update, also that of a loop of which nobody knows yet what its scheduler counts.
    options = ["--target-batch-size", "8" if every == 1 else "4", "--epochs", "60", "--min-peers", "2", "--listen", "127.0.0.1:0"]
    with processes(tmp_path) as start:
        first = launch(start, "first", tmp_path, options, tmp_path / "s.py", 1, every)
        where = first.line("is a peer of 'tests' at ").split(";")[0]
        second = launch(start, "second", tmp_path, [*options, f"--initial-peers={where}"], tmp_path / "s.py", 2, every)
        for each in (first, second):
            assert each.ended() == 0, each.log
            said = each.log.count("StepLR once for each step of the optimizer; its rates are the script's own")
            assert said == (every > 1), each.log
            assert "differ" not in each.log and "ended at epoch 60 (the last)" in each.log, each.log
        ours, theirs = (ast.literal_eval(each.line("RATES "))[-50:] for each in (first, second))
        assert ours == theirs
        if every == 1:
            assert ours == [[0.02 * 0.5**n, 0.01 * 0.5**n] for n in range(10, 60)]
        digests = [re.search(r"parameters ([0-9a-f]{64})", each.log)[1] for each in (first, second)]
        assert digests[0] == digests[1]


def test_a_script_may_go_elsewhere_and_a_rank_alone_is_told_what_to_do(tmp_path):
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
        command = [sys.executable, "-m", "waggle", "--listen", "127.0.0.1:0", "--target-batch-size", "4", "--data-dir", folder,
                   tmp_path / "s.py"]
        rank = start("rank", *command, RANK="1", WORLD_SIZE="2")
        assert rank.ended() == 2 and "Traceback" not in rank.log, rank.log
        assert "waggle: WORLD_SIZE is 2 in the environment, and MASTER_ADDR and MASTER_PORT missing: start all ranks" in rank.log
        process = start("peer", *command)
        assert process.ended() == 0, process.log
        assert list((tmp_path / "peer/checkpoints").iterdir())
        assert not list((tmp_path / "elsewhere").iterdir())


def test_a_notice_ends_a_script_that_knows_nothing_of_it(tmp_path):
    (tmp_path / "s.py").write_text("""
import torch
m = torch.nn.Linear(2, 1)
o = torch.optim.SGD(m.parameters(), 0.1)
while True:
    m(torch.ones(4, 2)).sum().backward()
    o.step()
    print("stepped", flush=True)
""")
    with processes(tmp_path) as start:
        process = launch(start, "peer", tmp_path, ["--listen", "127.0.0.1:0", "--target-batch-size", "16", "--leave-within", "60s"],
                         tmp_path / "s.py")
        process.line("stepped")  # its first samples are offered
        process.kill(signal.SIGTERM)
        assert process.ended() == 0, process.log
        assert "because its machine will be taken away, and the script ends" in process.log
        offered, used, dropped, kept = map(int, re.search(r"(\d+) samples offered, (\d+) used, (\d+) dropped, (\d+) kept",
                                                          process.log).groups())
        assert dropped == 0 and kept < 16 and offered == used + kept, process.log


@pytest.mark.parametrize("options, script, sentence", [
    (["--target-batch", "3"], "pass", "--target-batch is no option; the nearest is --target-batch-size"),
    (["--loss-scale", "dynamic", "s.py"], None, "--loss-scale is for loops that scale their loss by it: use torch's GradScaler"),
    (["--run", "birds", "s.py"], None, "--run is no option; the nearest is --run-id"),
    (["--listen"], None, "--listen needs a value"),
    (["--strategy", "diloco", "--target-batch-size", "256"],
     "m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters(), 1); m(torch.ones(3, 2)).sum().backward(); o.step()",
     "waggle: target_batch_size belongs to the other strategies"),
    (["--epochs", "x", "s.py"], None, "is no whole number"),
    (["--leave-within", "0s", "s.py"], None, "must be from 1 s, which a goodbye takes, to 3600 s"),
    (["--leave-within", "24h", "s.py"], None, "must be from 1 s, which a goodbye takes, to 3600 s"),
    (["--leave-within", "soon", "s.py"], None, "--leave-within soon: is no time, such as 15s"),
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
    ([], "m = torch.nn.Linear(2, 2, device='meta'); o = torch.optim.SGD(m.parameters(), 1)\n"
         "m(torch.ones(3, 2, device='meta')).sum().backward(); o.step()",
     "parameter weight is on the device meta and has no values: give the module memory"),
    pytest.param([], SHARDED, "parameter weight is a DTensor of 1 rank: each has a part of it", marks=pytest.mark.skipif(
        torch.__version__ < "2.5", reason="DTensor is in another place")),
    (["--masters", "true"], LOOP.format("", "a.step(); b.step()"), "all trained parameters are float32 already"),
    (["--masters", "true"], LOOP.format("m.bfloat16(); b.load_state_dict({**b.state_dict(), 'state': {0: {'step': m.bias}}})",
                                        "a.step(); b.step()"), "the optimizer has a state already, which is of the parameters"),
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
