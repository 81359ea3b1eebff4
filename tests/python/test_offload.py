"""The optimizer in host memory, and beside the passes."""

import copy
import pathlib
import threading

import pytest
import torch
from support import batch, each_device, equal, join, loss_of, net, processes
from test_alone import MAKE, train
from test_optimizers import HOOKS, Free
from test_together import ending

import waggle

HERE = pathlib.Path(__file__).parent
SGD = lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)


@pytest.mark.parametrize("how", [dict(target_batch_size=4), dict(target_batch_size=4, reuse_grad_buffers=True),
                                 dict(strategy="local-updates")])
@pytest.mark.parametrize("kind", list(MAKE))
def test_in_host_memory_is_the_plain_loop_whatever_its_scheduler_does(kind, how, each_device, tmp_path):
    if each_device != "cpu":
        pytest.skip("a GPU rounds otherwise than a CPU")
    ours, plain = net(norm=True), net(norm=True)
    own = MAKE[kind](plain.parameters())
    inner = MAKE[kind](ours.parameters())
    rates = [torch.optim.lr_scheduler.StepLR(own, 3, 0.5)]
    with waggle.Optimizer(inner, join(tmp_path), ours, offload_optimizer=True, **how) as opt:
        rates.append(torch.optim.lr_scheduler.StepLR(opt, 3, 0.5))
        if "strategy" not in how:  # which counts averages
            opt.follow(rates[1])
        for i in range(20):
            for model, optimizer, scheduler in zip((plain, ours), (own, opt), rates):
                train(model, optimizer, i)
                scheduler.step()
            assert opt.last == "stepped" and equal(ours, plain), i
        assert opt.param_groups is inner.param_groups and not inner.state and len(opt.state) == len(list(ours.parameters()))
        assert all(value.is_cpu for state in opt.state.values() for value in state.values() if isinstance(value, torch.Tensor))
        assert rates[0].get_last_lr() == rates[1].get_last_lr()


@HOOKS
def test_what_the_loop_writes_to_data_holds_and_later_hooks_are_called(tmp_path):
    def steps(model, optimizer):
        calls = []
        optimizer.register_step_post_hook(lambda *_: calls.append(len(calls)))
        for i in range(8):
            train(model, optimizer, i)
            for p in model.parameters():
                p.data.clamp_(-0.1, 0.1)
        return calls

    ours, plain = net(), net()
    with waggle.Optimizer(SGD(ours.parameters()), join(tmp_path), ours, offload_optimizer=True, target_batch_size=4) as opt:
        assert steps(ours, opt) == steps(plain, SGD(plain.parameters())) == list(range(8))
    assert equal(ours, plain)


def test_halves_have_float32_copies(tmp_path):
    ours = net().bfloat16()
    with waggle.Optimizer(SGD(ours.parameters()), join(tmp_path), ours, masters=True, offload_optimizer=True, target_batch_size=4,
                          samples=4) as opt:
        masters = [p.detach().float() for p in ours.parameters()]
        own = SGD(masters)
        for i in range(5):
            x, y = batch(i)
            torch.nn.functional.mse_loss(ours(x.bfloat16()).float(), y).backward()
            for master, p in zip(masters, ours.parameters()):
                master.grad = p.grad.float()
            own.step()
            opt.step()
            opt.zero_grad()
            assert all(torch.equal(p, master.bfloat16()) for p, master in zip(ours.parameters(), masters)), i


def test_goes_on_from_a_checkpoint_and_from_a_state_that_was_loaded(tmp_path):
    plain = net()
    own = MAKE["AdamW"](plain.parameters())

    def steps(model, opt, begin):
        for i in range(begin, begin + 5):
            train(plain, own, i)
            train(model, opt, i)
            assert equal(model, plain), i

    for begin in (0, 5):
        model = net(seed=1 + begin)
        with waggle.Optimizer(MAKE["AdamW"](model.parameters()), join(tmp_path / "1"), model, offload_optimizer=True,
                              target_batch_size=4) as opt:
            if begin == 0:
                model.load_state_dict(plain.state_dict())
            opt.kept()
            steps(model, opt, begin)
            state = copy.deepcopy(opt.state_dict())
    for stepped in (False, True):  # given to the waggle.Optimizer, or to the optimizer before
        model = net()
        model.load_state_dict(plain.state_dict())
        inner = MAKE["AdamW"](model.parameters())
        if stepped:
            inner.load_state_dict(state)
        with waggle.Optimizer(inner, join(tmp_path / f"2{stepped}"), model, offload_optimizer=True, target_batch_size=4) as opt:
            if not stepped:
                opt.load_state_dict(state)
            steps(model, opt, 15 if stepped else 10)
            state = copy.deepcopy(opt.state_dict())


@pytest.mark.skipif(torch.__version__.startswith("1."), reason="on a CPU torch 1 has no scaler and no float16")
def test_a_grad_scaler_and_clipping_see_the_gradients_of_the_module(tmp_path):
    ours, plain = net(), net()
    own = MAKE["AdamW"](plain.parameters())
    with waggle.Optimizer(MAKE["AdamW"](ours.parameters()), join(tmp_path), ours, offload_optimizer=True, target_batch_size=4,
                          samples=4) as opt:
        scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**10) for _ in range(2)]
        for i in range(12):
            for model, optimizer, scaler in ((plain, own, scalers[0]), (ours, opt, scalers[1])):
                optimizer.zero_grad()
                scaler.scale(loss_of(model, i) * (1e38 if i == 2 else 1)).backward()  # which overflows once
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 0.05)
                scaler.step(optimizer)
                scaler.update()
            assert equal(ours, plain), i
        assert opt.swarm.epoch == 11


@pytest.mark.parametrize("how", ["its own rate", "a rate of the run", "follow"])
def test_a_delayed_update_is_that_of_the_plain_optimizer_with_a_gradient_that_misses_at_most_one(how, each_device, tmp_path):
    ours, plain = net(), net()
    updates, passes = 40, []
    more = {"lr": 1e-2} if how == "a rate of the run" else {}
    own = MAKE["AdamW"](plain.parameters())
    rates = torch.optim.lr_scheduler.StepLR(own, 3, 0.5)
    with waggle.Optimizer(MAKE["AdamW"](ours.parameters()), join(tmp_path), ours, delay_optimizer_step=True, target_batch_size=4,
                          epochs=updates, **more) as opt:
        scheduler = opt.follow(torch.optim.lr_scheduler.StepLR(opt, 3, 0.5)) if how == "follow" else None
        while opt.last != "finished":
            opt.zero_grad()
            loss = loss_of(ours, len(passes))
            loss.backward()
            passes.append((copy.deepcopy(ours), [p.grad.cpu().clone() for p in ours.parameters()]))
            opt.step(samples=4, loss=loss)
            assert opt.last in ("held", "stepped", "finished")
            if scheduler is not None:
                scheduler.step()
    plain.cpu()
    after = [copy.deepcopy(plain)]
    for _, gradients in passes[:updates]:
        for p, g in zip(plain.parameters(), gradients):
            p.grad = g
        own.step()
        if how == "follow":
            rates.step()
        after.append(copy.deepcopy(plain))
    ours.cpu()
    if each_device == "cpu":
        assert all(equal(model, after[i]) or equal(model, after[max(0, i - 1)]) for i, (model, _) in enumerate(passes[:updates]))
        assert equal(ours, plain)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours.parameters(), plain.parameters()))


class Slow(torch.optim.SGD):
    may_step = threading.Event()
    stepping = threading.Event()

    def step(self, closure=None):
        Slow.stepping.set()
        assert Slow.may_step.wait(60)
        return super().step(closure)


def test_passes_go_on_beside_an_update(tmp_path):
    model = net()
    Slow.may_step.set()  # for the trial
    with waggle.Optimizer(Slow(model.parameters(), 0.1), join(tmp_path), model, delay_optimizer_step=True, target_batch_size=4) as opt:
        Slow.may_step.clear()
        Slow.stepping.clear()
        before = copy.deepcopy(model)
        train(model, opt, 0)
        assert opt.last == "held" and equal(model, before)
        assert Slow.stepping.wait(60)  # while this thread is here
        loss_of(model, 1).backward()
        Slow.may_step.set()
        while opt.last == "held":  # until it is made
            train(model, opt, 2)
        assert opt.last == "stepped" and not equal(model, before)


def test_peers_that_offload_or_delay_end_with_the_parameters_of_those_that_do_not(tmp_path):
    with processes(tmp_path) as start:
        loops = []
        for i, how in enumerate(["adamw", "offload", "delay"]):
            where = loops[0].line("address ") if loops else ""
            loops.append(start.python(how, HERE / "loop.py", tmp_path / how, where, i, 30, how, 3))
        ends = [ending(loop) for loop in loops]
        assert len({end["parameters"] for end in ends}) == len({loop.line("MODULE ") for loop in loops}) == 1
        assert all(end["epoch"] == 30 and end["samples_used"] > 0 for end in ends)


class Locked(torch.optim.SGD):
    def load_state_dict(self, state_dict):
        raise RuntimeError("it takes no state")


def test_refusals(tmp_path):
    swarm = join(tmp_path)

    def refused(kind, sentence, model, optimizer=None, **more):
        optimizer = optimizer or SGD(model.parameters())
        with pytest.raises(kind, match=sentence):
            waggle.Optimizer(optimizer, swarm, model, **more)
        assert swarm.address is None

    refused(ValueError, "delay_optimizer_step is not for running statistics and other buffers, such as 1.running_mean.*"
                        "offload_optimizer may stay", net(norm=True), delay_optimizer_step=True)
    refused(TypeError, "offload_optimizer is of type int, and must be True or False", net(), offload_optimizer=1)
    refused(ValueError, "delay_optimizer_step and sum_on_device exclude each other", net(), delay_optimizer_step=True,
            sum_on_device=True)
    refused(ValueError, "delay_optimizer_step needs the second copy.*offload_optimizer", net(), delay_optimizer_step=True,
            offload_optimizer=False)
    refused(ValueError, "delay_optimizer_step", net(), delay_optimizer_step=True, strategy="local-updates")
    refused(ValueError, "Free has train and eval, which change parameters where the optimizer steps", model := net(),
            Free(model.parameters(), 0.1), offload_optimizer=True)
    stepped = net()
    locked = Locked(stepped.parameters(), 0.1, momentum=0.9)
    loss_of(stepped, 0).backward()
    locked.step()
    kept = dict(locked.state)
    refused(ValueError, r"Locked cannot be made again over copies of the parameters in host memory \(it takes no state\): leave "
                        "offload_optimizer and delay_optimizer_step out", stepped, locked, offload_optimizer=True)
    assert locked.state == kept
    with pytest.raises(TypeError, match="waggle.Loop takes no offload_optimizer: keep what"):
        waggle.Loop(swarm, waggle.LoopModel(), [("x", [2])], offload_optimizer=True)


class Failing(torch.optim.SGD):
    fails = False

    def step(self, closure=None):
        if Failing.fails:
            raise ZeroDivisionError("of the optimizer")
        return super().step(closure)


def test_an_update_that_fails_beside_the_passes_ends_the_loop_with_its_reason(tmp_path):
    model = net()
    swarm = join(tmp_path)
    opt = waggle.Optimizer(Failing(model.parameters(), 0.1), swarm, model, delay_optimizer_step=True, target_batch_size=4)
    Failing.fails = True
    with pytest.raises(ZeroDivisionError, match="of the optimizer"):
        for i in range(1000):
            train(model, opt, i)
    swarm.leave(in_a_hurry=True)
