"""Loops whose samples are dealt: each enters one update a pass."""

import json
import pathlib

import pytest
import torch
from support import join, processes
from torch.utils.data import BatchSampler, DataLoader

import waggle

HERE = pathlib.Path(__file__).parent
SAMPLES = 403
PASSES = 2


def start_loop(start, folder, i, where, *more):
    return start.python(f"loop{i}", HERE / "shards_loop.py", folder / f"peer{i}", where, SAMPLES, PASSES, *more)


def ending(process):
    assert process.ended() == 0, process.log
    return json.loads(process.line("STATUS ")), json.loads(process.line("SEEN "))


def complete(status):
    return [[number + 1, SAMPLES, 0, 0] for number in range(PASSES)] + [[PASSES + 1, 0, 0, SAMPLES]] == status["passes"]


@pytest.mark.parametrize(("workers", "strategy"), [(0, "collaborative"), (2, "collaborative"), (2, "diloco:steps=4,overlap=1"),
                                                    (0, "daso:epochs=1000,batches=8,warmup=2")])
def test_each_sample_enters_one_update_a_pass_though_a_loop_is_killed(workers, strategy, tmp_path):
    with processes(tmp_path) as start:
        slow = tmp_path / "slow"  # until one is killed
        slow.touch()
        more = workers, 3, slow, 1_000_000, "", 0, strategy
        first = start_loop(start, tmp_path, 1, "", *more)
        where = first.line("address ")
        others = [start_loop(start, tmp_path, i, where, *more) for i in (2, 3)]
        doomed = others.pop()
        doomed.line("stepped")
        doomed.kill()
        slow.unlink()
        for each in (first, *others):
            status, seen = ending(each)
            assert status["finished"] and complete(status), status["passes"]
            if strategy == "collaborative":  # otherwise the optimizer sees this loop's own samples
                assert seen == [PASSES] * SAMPLES
            assert "stepped" in each.log


def test_a_loop_that_stops_goes_on_with_the_samples_that_no_update_has(tmp_path):
    with processes(tmp_path) as start:
        for steps in (4, 11, 60):
            ending(start_loop(start, tmp_path, 1, "", 0, 1, "", steps))
        status, seen = ending(start_loop(start, tmp_path, 1, "", 2))
        assert complete(status), status["passes"]
        assert seen == [PASSES] * SAMPLES


def alone(folder, samples=10, **more):
    swarm = join(folder)
    shards = swarm.shards(samples, **more)
    model = torch.nn.Linear(1, 1)
    return swarm, shards, waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, target_batch_size=4)


def test_a_sampler_of_torch_that_ends_with_each_pass(tmp_path):
    swarm, shards, opt = alone(tmp_path, passes=2)
    assert isinstance(shards, torch.utils.data.Sampler) and isinstance(shards, waggle.Shards)
    assert len(shards) == 10
    orders = []
    for _ in range(2):
        orders.append([])
        for batch in BatchSampler(shards, 4, drop_last=False):
            orders[-1] += batch
            opt.step(samples=len(batch))
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10)) and orders[0] != orders[1]
    assert opt.last == "finished" and swarm.finished and shards.passes_complete == 2
    assert swarm.status().passes[:2] == [waggle.SamplesSeen(1, 10, 0, 0), waggle.SamplesSeen(2, 10, 0, 0)]
    assert list(shards) == []
    swarm.leave()


def test_what_no_step_was_over_is_handed_out_again(tmp_path):
    swarm, shards, opt = alone(tmp_path)
    first = next(iter(DataLoader(range(10), 4, sampler=shards)))  # a look at the data
    old = iter(shards)
    batch = [next(old), next(old)]
    assert batch == first.tolist()[:2]
    with pytest.raises(ValueError, match="over 3 samples, and of those that the shards handed out, 2 were in no step"):
        opt.step(samples=3)
    opt.step(samples=2)
    new = iter(shards)
    assert next(new) == first[2].item()
    with pytest.raises(RuntimeError, match="another iteration"):
        next(old)
    with pytest.raises(ValueError, match="a loop with shards keeps nothing"):
        opt.keep(b"place")
    with pytest.raises(RuntimeError, match="drop_last of a DataLoader must be False"):
        while not swarm.finished:
            for batch in BatchSampler(shards, 16, drop_last=True):
                opt.step(samples=len(batch))
    swarm.leave()


def test_refusals(tmp_path):
    swarm = join(tmp_path)
    for arguments, kind, sentence in (((0,), ValueError, "samples is 0"),
                                      (("ten",), TypeError, "samples is of type str, and must be a whole number"),
                                      ((2**33,), ValueError, "1 to 4294967296 samples")):
        with pytest.raises(kind, match=sentence):
            swarm.shards(*arguments)
    with pytest.raises(ValueError, match="passes is 2097152, and must be from 1 to 1048576"):
        swarm.shards(10, passes=1 << 21)
    shards = swarm.shards(10)
    with pytest.raises(ValueError, match="are dealt already"):
        swarm.shards(10)
    with pytest.raises(waggle.Error, match="no optimizer yet"):
        next(iter(shards))
    model = torch.nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    for more, kind, sentence in ((dict(passes=2), TypeError, "takes no passes: pass them to .* in Python to swarm.shards"),
                                 (dict(epochs=2), ValueError, "passes and epochs exclude each other"),
                                 (dict(strategy="local-updates"), ValueError, "passes belongs to .*: strategy local-updates averages"),
                                 (dict(reuse_grad_buffers=True), ValueError, "passes and reuse_grad_buffers")):
        with pytest.raises(kind, match=sentence):
            waggle.Optimizer(sgd, swarm, model, **more)
    swarm.leave()
    late = join(tmp_path)
    opt = waggle.Optimizer(sgd, late, model)
    with pytest.raises(ValueError, match="before the optimizer is constructed"):
        late.shards(10)
    opt.leave()
