"""Gradients that add up on their device: here on a CPU, as if it were one, and on a device that runs late."""

import ctypes
import pathlib

import pytest
import torch
from support import PROGRAM, equal, join, loss_of, net, processes

import waggle
from waggle._gradients import DeviceSum, all_finite

HERE = pathlib.Path(__file__).parent
LATE = PROGRAM.with_name("liblazy_device.so")


def loop(folder, model, make=torch.optim.SGD, **more):
    more = {"target_batch_size": 8, "samples": 4, "sum_on_device": True, **more}
    return waggle.Optimizer(make(model.parameters(), 0.1), join(folder), model, **more)


def passed(model, optimizer, i):
    optimizer.zero_grad()
    loss_of(model, i).backward()
    optimizer.step()


@pytest.mark.parametrize("how", [{}, {"strategy": "local-updates"}, {"strategy": "data-parallel"},
                                 {"delay_grad_averaging": True}])
def test_one_pass_an_update_is_the_plain_loop(how, tmp_path):
    if "strategy" in how:
        how = {"target_batch_size": None, **how}
    ours, plain = net(norm=True), net(norm=True)
    own = torch.optim.AdamW(plain.parameters(), 0.1)
    with loop(tmp_path, ours, torch.optim.AdamW, **{"target_batch_size": 4, **how}) as opt:
        for i in range(20):
            passed(plain, own, i)
            passed(ours, opt, i)
            if "delay_grad_averaging" not in how:
                assert opt.last == "stepped" and equal(ours, plain), i
    if "delay_grad_averaging" in how:
        assert opt.swarm.status().epoch > 0


@pytest.mark.parametrize("in_place", [False, True])
def test_two_passes_an_update_are_copied_to_the_host_once(in_place, tmp_path, monkeypatch):
    ours, plain, reads = net(norm=True), net(norm=True), []
    read = DeviceSum.read
    monkeypatch.setattr(DeviceSum, "read", lambda *arguments: (reads.append(1), read(*arguments))[1])
    own = torch.optim.SGD(plain.parameters(), 0.1)
    with loop(tmp_path, ours, reuse_grad_buffers=in_place) as opt:
        for i in range(0, 20, 2):
            own.zero_grad()
            for k in (i, i + 1):
                (loss_of(plain, k) / 2).backward()
                passed(ours, opt, k)
                assert opt.last == ("held" if k == i else "stepped"), k
            own.step()
            for a, b in zip(ours.parameters(), plain.parameters()):
                torch.testing.assert_close(a, b)
    assert len(reads) == 10


def test_unequal_passes_weigh_by_their_samples_and_a_layer_may_be_left_out(tmp_path):
    ours, plain = net(), net()
    own = torch.optim.SGD(plain.parameters(), 0.1)
    with loop(tmp_path, ours) as opt:
        for i in range(0, 9, 3):
            own.zero_grad()
            opt.zero_grad()
            for k, samples in ((i, 2), (i + 1, 1), (i + 2, 5)):
                loss_of(ours, k).backward()
                (loss_of(plain, k) * samples / 8).backward()
                if k < i + 2:  # only the last pass has a gradient for it
                    ours[0].bias.grad = plain[0].bias.grad = None
                opt.step(samples=samples)
                opt.zero_grad()
            own.step()
            assert opt.last == "stepped"
            for a, b in zip(ours.parameters(), plain.parameters()):
                torch.testing.assert_close(a, b)


def test_a_pass_that_is_not_finite_costs_nothing_but_itself(tmp_path):
    model = net()
    with loop(tmp_path, model) as opt:
        outcomes = []
        for i in range(6):
            opt.zero_grad()
            loss_of(model, i).backward()
            if i == 2:
                model[0].weight.grad[0, 0] = float("nan")
            opt.step()
            outcomes.append(opt.last)
        status = opt.swarm.status()
    assert outcomes == ["held", "stepped", "dropped", "held", "stepped", "held"]
    assert status.samples_dropped == 4 and all(torch.isfinite(p).all() for p in model.parameters())


def test_the_samples_since_the_last_update_are_kept_over_a_stop(tmp_path):
    models = {}
    for stops in (False, True):
        folder = tmp_path / str(stops)
        models[stops] = model = net()
        opt = loop(folder, model, target_batch_size=12)
        for i in range(9):
            if stops and i in (4, 5):  # after one pass, and after two
                opt.leave()
                opt = loop(folder, model, target_batch_size=12)
                opt.kept()
            passed(model, opt, i)
        assert opt.swarm.status().epoch == 3
        opt.leave()
    assert equal(models[False], models[True])


@pytest.mark.parametrize("optimizers", [["sgd on device", "sgd on device"], ["sgd on device", "sgd"]])
def test_peers_with_and_without_end_with_equal_parameters(optimizers, tmp_path):
    with processes(tmp_path) as start:
        loops = []
        for i, optimizer in enumerate(optimizers):
            where = loops[0].line("address ") if loops else ""
            loops.append(start.python(f"loop{i}", HERE / "loop.py", tmp_path / f"peer{i}", where, i, 30, optimizer, 2))
        for each in loops:
            assert each.ended() == 0, each.log
        assert loops[0].line("MODULE ") == loops[1].line("MODULE ")


@pytest.fixture
def late():
    if not LATE.exists() or not torch.__version__.startswith("1.13"):
        pytest.skip("the device that runs late is compiled for another torch")
    ctypes.CDLL(str(LATE))
    return torch.device("privateuseone")


def test_a_sum_on_a_device_that_runs_late(late):
    """The gradient is cleared and written anew before anybody has waited for the device."""
    parameters = [torch.empty(3, 2, device=late), torch.empty(5, device=late)]
    total = DeviceSum(parameters)
    expected, alive = torch.zeros(11), []
    for update in range(2):
        expected.zero_()
        for k in range(3):
            values = torch.arange(11.0) + 100 * k + update
            for p, part in zip(parameters, (values[:6].view(3, 2), values[6:])):
                if p.grad is None:
                    p.grad = torch.zeros(part.shape).to(late)
                p.grad.zero_()
                alive.append(part.to(late))  # until it has been added
                p.grad.add_(alive[-1])
            assert all_finite(parameters)
            total.add(0 if k == 0 else 2 if k == 1 else 1, 1 if k == 0 else 3)
            expected = values.clone() if k == 0 else expected * (2 if k == 1 else 1) + 3 * values
            for p in parameters:
                p.grad.zero_()
        out = bytearray(44)
        total.read(memoryview(out).cast("f"))
        assert torch.frombuffer(out, dtype=torch.float32).tolist() == expected.tolist()
    alive.append(torch.full((5,), float("inf")).to(late))
    parameters[1].grad.add_(alive[-1])
    assert not all_finite(parameters)
    total.write(memoryview(out).cast("f"))
    again = bytearray(44)
    total.read(memoryview(again).cast("f"))
    assert again == out
