"""What the documents of hivemind, Lightning and HeAT show, in its closest form (documents.py)."""

import concurrent.futures
import json
import pathlib
import struct
import sys

import numpy as np
import pytest
import torch
from support import processes

import waggle

HERE = pathlib.Path(__file__).parent
STAND_INS = str(HERE / "stand_ins")


RECIPES = ["overlap", "offload", "buffers", "defaults"]
MODES = ["each step in turn", "offload_optimizer", "delay_optimizer_step", "delay_grad_averaging", "reuse_grad_buffers",
         "client_mode", "extra_tensors", "grad_compression", "PowerSGD", "use_local_updates", "offloaded local updates"]
# In this order, because each needs a pair of peers, and a pair of processes takes longer to import torch than for some of them.
ALL = ["averager", *("decentralized: " + name for name in ("optimizer", "SGD", "Adam")), *("Optimizer: " + name for name in MODES),
       "Optimizer: auxiliary", *("HeAT: " + name for name in ("DASO", "DataParallelOptimizer", "DataParallelOptimizer, not blocking")),
       *("Lightning: " + name for name in RECIPES)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two processes that run all in turn: of each, what both have at its end, and what they said."""
    folder = tmp_path_factory.mktemp("documents")
    try:
        import lightning
        path = [] if getattr(lightning, "__version__", None) else [STAND_INS]
    except ImportError:
        path = [STAND_INS]  # instead of Lightning
    with processes(folder) as start:
        def run(name, names, others):
            return start.python(name, HERE / "documents.py", ";".join(names), others, folder / name,
                                PYTHONPATH=":".join([*path, *sys.path]))

        first = run("first", [name.replace("auxiliary", "each step in turn") for name in ALL], "")
        second = run("second", ALL, folder / "first")

        awaited = []

        def of(name):
            i = ALL.index(name)
            assert not awaited, f"not run, because {awaited[0]!r} did not end: see there"
            awaited.append(name)
            theirs, ours = (json.loads(each.line(f"ENDED {i} ")) for each in (second, first))
            awaited.clear()
            return [ours, theirs], "".join(each.log.partition(f"BEGINS {i} ")[2].partition(f"BEGINS {i + 1} ")[0] for each in (first, second))

        of.processes = first, second
        yield of


def test_the_example_of_the_averager(both):
    for one in both("averager")[0]:
        assert one["metadata"] == [{"my_batch_size": 32}] * 2 and one["first"] == [3, 3, 3]
        assert one["b"] == [3, 3] and one["group"] and one["stage"] == "done"
        assert one["progress"] == [[1, 2.0, 3]] * 2 and one["bits"] == "01"


@pytest.mark.parametrize("name", ["optimizer", "SGD", "Adam"])
def test_decentralized_optimizers(name, both):
    ends, _ = both("decentralized: " + name)
    for end in ends:
        assert end["epoch"] == 6 and end["rounds"] > 0 and end["used"] > 0
    assert name == "optimizer" or ends[0]["rate"] < (0.05 if name == "SGD" else 0.01)


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_optimizer(mode, both):
    ends, _ = both("Optimizer: " + mode)
    for end in ends:
        assert end["epoch"] == 6 and end["rounds"] > 0 and end["used"] > 0
    if mode == "extra_tensors":
        assert all(any(1 < mean < 2 for mean in end["means"]) for end in ends)
    if "local" not in mode:
        assert ends[0]["parameters"] == ends[1]["parameters"] and ends[0]["values"] == ends[1]["values"]
        assert ends[0]["rate"] == ends[1]["rate"] == pytest.approx(1e-2 * 0.5**5)


def test_an_auxiliary_of_loops_computes_nothing_and_reduces_for_the_others(both):
    (first, helps), _ = both("Optimizer: auxiliary")
    assert helps["offered"] == 0 and helps["rounds"] > 0 and first["used"] > 0
    assert first["epoch"] == helps["epoch"] == 6 and first["values"] == helps["values"]


@pytest.mark.parametrize("name", ["DASO", "DataParallelOptimizer", "DataParallelOptimizer, not blocking"])
def test_optimizers_of_heat(name, both):
    ends, log = both("HeAT: " + name)
    assert ends[0]["parameters"] == ends[1]["parameters"] and ends[0]["rounds"] > 0
    if name == "DASO":
        assert "daso: its 6 epochs are over" in log and all(end["phase"] == "cool-down" for end in ends)
        assert log.count("this loop gives no loss") == 1 and all(0 < end["loss"] < 10 for end in ends)  # of the other one
    else:
        assert all(end["epoch"] == 6 for end in ends)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_of_lightning(recipe, both):
    """With Lightning where it is installed; else by the stand-in."""
    ends, log = both("Lightning: " + recipe)
    for end in ends:
        assert end["epoch"] == 3 and end["most"] == 2 and end["rounds"] > 0
        assert end["rate"] == pytest.approx(1e-2 * (0.5**2 if recipe in ("overlap", "offload") else 1))
    assert ends[0]["parameters"] == ends[1]["parameters"]
    assert log.count("host_maddrs: /ip4/0.0.0.0/udp/0/quic left out, as peers talk by TCP") == 2
    assert log.count("left out: delay_state_averaging=True (peers average gradients") == (2 if recipe == "overlap" else 0)
    assert log.count("left out: matchmaking_time=5.0 (all peers are one group") == (2 if recipe == "defaults" else 0)


def test_both_processes_end_in_order(both):
    both(ALL[-1])
    for each in both.processes:
        assert each.ended() == 0, each.log


class Digits:
    """Files as of MNIST: 28 x 28 bytes an image, a noisy picture of its label."""

    def __init__(self, folder, images=2000):
        random = np.random.default_rng(1)
        labels = random.integers(0, 10, images, np.uint8)
        pictures = random.integers(0, 256, (10, 28, 28))
        pixels = np.clip(pictures[labels] // 2 + random.integers(0, 128, (images, 28, 28)), 0, 255).astype(np.uint8)
        self.images, self.labels = folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte"
        self.images.write_bytes(struct.pack(">4i", 0x803, images, 28, 28) + pixels.tobytes())
        self.labels.write_bytes(struct.pack(">2i", 0x801, images) + labels.tobytes())

    def read(self):
        pixels, labels = np.fromfile(self.images, np.uint8, offset=16), np.fromfile(self.labels, np.uint8, offset=8)
        return torch.tensor(pixels).view(-1, 784).float() / 255, torch.tensor(labels).long()


def test_the_benchmark_of_the_optimizer_trains_its_mlp_on_eight_peers(tmp_path):
    """With hivemind's flags: three clients, batches of 2 to 16, updates that are delayed, in reused buffers."""
    x, y = Digits(tmp_path).read()
    address = concurrent.futures.Future()

    def peer(number):
        try:
            torch.manual_seed(number)
            model = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
            swarm = waggle.join("benchmark", listen="127.0.0.1:0", data_dir=tmp_path / str(number), log_level="error",
                                initial_peers=[] if number == 0 else [address.result(60)], client_mode=number > 4)
            opt = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, target_batch_size=256, epochs=25,
                                   samples=2 * number + 2, min_peers=8, reuse_grad_buffers=True, delay_grad_averaging=True,
                                   delay_optimizer_step=True)
        except BaseException as e:
            address.cancel() or address.done() or address.set_exception(e)
            raise
        if number == 0:
            address.set_result(swarm.address)
        opt.follow(torch.optim.lr_scheduler.StepLR(opt, 10, 0.1))
        random = torch.Generator().manual_seed(number)
        while opt.last != "finished":
            opt.zero_grad()
            picked = torch.randint(len(x), (2 * number + 2,), generator=random)
            loss = torch.nn.functional.cross_entropy(model(x[picked]), y[picked])
            loss.backward()
            opt.step(loss=loss)
        opt.leave()
        return swarm.status(), opt.rate, [p.tolist() for p in model.parameters()], (model(x).argmax(1) == y).float().mean().item()

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        ends = list(threads.map(peer, range(8)))
    for status, rate, values, right in ends:
        assert status.epoch == 25 and status.samples_used > 0 and rate == pytest.approx(0.1 * 0.1**2)
        assert values == ends[0][2] and right > 0.6, right  # by chance 0.1
