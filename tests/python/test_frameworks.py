"""The call sequences of frameworks that Debian does not have."""

import contextlib
import copy
import inspect
import pathlib
import subprocess
import sys

import pytest
import support
import torch
from support import GPU, batch, equal, join, loss_of, net

import waggle

sys.path.insert(0, str(pathlib.Path(__file__).parent / "stand_ins"))


def test_importing_waggle_imports_no_framework():
    loaded = subprocess.run([sys.executable, "-c", "import sys, waggle; print(*sys.modules)"], check=True,
                            capture_output=True, text=True).stdout.split()
    assert "waggle" in loaded
    assert not {"torch", "numpy", "lightning", "pytorch_lightning", "accelerate"} & set(loaded)


def test_methods_have_the_signatures_and_attributes_the_setters_of_torch(tmp_path):
    """Accelerate reads the signature of zero_grad; it and Lightning set the attributes."""
    for name, theirs in inspect.getmembers(torch.optim.Optimizer, inspect.isfunction):
        if name.startswith("__"):
            continue
        parameters = inspect.signature(getattr(waggle.Optimizer, name)).parameters
        for parameter in inspect.signature(theirs).parameters.values():
            ours = parameters[parameter.name]
            assert ours.kind is parameter.kind, name
            assert (ours.default is ours.empty) == (parameter.default is ours.empty) or name == "step", name
        own = [p for p in parameters if p not in inspect.signature(theirs).parameters]
        assert own == (["samples", "loss", "claims"] if name == "step" else []), name
    model = net()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    with waggle.Optimizer(inner, join(tmp_path), model, target_batch_size=4, samples=4) as opt:
        for name in ("state", "param_groups", "defaults"):
            setattr(opt, name, made := copy.copy(getattr(opt, name)))
            assert getattr(opt, name) is made and getattr(inner, name) is made
        for given, left in (({"set_to_none": False}, 0), ({"set_to_none": True}, None)):
            loss_of(model, 0).backward()
            opt.step()
            assert opt.last == "stepped"
            opt.zero_grad(**given)
            gradient = model[0].weight.grad
            assert gradient is None if left is None else not gradient.any()


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_reading_the_state_trains_nothing(kind, tmp_path):
    """torch.distributed.checkpoint has an optimizer without state step with rates of 0 and gradients of zeros."""
    def read(model, optimizer):
        if optimizer.state:
            return
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        optimizer.step(closure=None)
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)

    try:
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    except ImportError:
        get_optimizer_state_dict = read  # what torch 2 does
    ours, plain = net(), net()
    own = getattr(torch.optim, kind)(plain.parameters(), 0.1)
    inner = getattr(torch.optim, kind)(ours.parameters(), 0.1)
    with waggle.Optimizer(inner, join(tmp_path), ours, target_batch_size=4, samples=4) as opt:
        for i in range(-1, 3):
            for model, optimizer in ((ours, opt), (plain, own)):
                get_optimizer_state_dict(model, optimizer)
                if i >= 0:
                    loss_of(model, i).backward()
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
            assert equal(ours, plain), i
            assert opt.last == (None if i < 0 else "stepped")
            assert opt.swarm.status().samples_offered == 4 * (i + 1)
        assert "changed" not in opt._model.written()


def test_grad_scaler(tmp_path):
    """GradScaler, which is switched off without CUDA, hands the arguments on."""
    model = net()
    with waggle.Optimizer(torch.optim.AdamW(model.parameters(), 1e-2), join(tmp_path), model, target_batch_size=4) as opt:
        scaler = torch.cuda.amp.GradScaler(enabled=False)
        scaler.scale(loss_of(model, 2)).backward()
        scaler.step(opt, samples=3)
        scaler.update()
        assert opt.last == "held" and opt.swarm.status().samples_offered == 3


@pytest.mark.parametrize("how", [dict(target_batch_size=4), dict(target_batch_size=4, sum_on_device=True),
                                 dict(target_batch_size=4, offload_optimizer=True), dict(strategy="local-updates"),
                                 dict(target_batch_size=4, masters=True)])
def test_loss_scale_changes_no_bit_and_an_overflow_costs_its_step_alone(how, tmp_path):
    ours, plain = net(), net()
    if "masters" in how:
        ours, plain = ours.bfloat16(), plain.bfloat16()
    dtype = next(ours.parameters()).dtype
    own = torch.optim.AdamW(plain.parameters(), 1e-2)
    steps, scales = 6, []
    with contextlib.ExitStack() as at_end:
        kinds = [(ours, at_end.enter_context(waggle.Optimizer(torch.optim.AdamW(ours.parameters(), 1e-2), join(tmp_path), ours,
                                                              samples=4, loss_scale="dynamic", **how)))]
        if "masters" in how:
            kinds.append((plain, at_end.enter_context(waggle.Optimizer(own, join(tmp_path / "plain"), plain, samples=4, **how))))
        else:
            kinds.append((plain, own))
        for i in range(steps):
            for model, optimizer in kinds:
                optimizer.zero_grad()
                x, y = batch(i)
                loss = torch.nn.functional.mse_loss(model(x.to(dtype)).float(), y)
                if optimizer is kinds[0][1]:
                    scales.append((optimizer.scaled(loss) / loss).item())
                    optimizer.scaled(loss * (1e36 if i == 2 else 1)).backward()
                    optimizer.step(loss=loss)
                    assert (optimizer.last == "dropped") == (i == 2)
                elif i != 2:
                    loss.backward()
                    optimizer.step()
            assert equal(ours, plain), i
        assert scales == [65536] * 3 + [32768] * 3 and all(p.grad is None or p.grad.abs().max() < 100 for p in ours.parameters())
        loss_of(ours.float(), 0).backward() if "masters" not in how else None
        with pytest.raises(ValueError, match=r"call optimizer.scaled\(loss\).backward\(\) before each step, and leave out a GradScaler"):
            kinds[0][1].step()


def test_loss_scale_is_refused_where_it_cannot_be(tmp_path):
    model, swarm = net(), join(tmp_path)

    def refused(sentence, of=model, kind=ValueError, **more):
        with pytest.raises(kind, match=sentence):
            waggle.Optimizer(torch.optim.SGD(of.parameters(), 0.1), swarm, of, **more)

    refused("loss_scale: '3'.*power of two", loss_scale=3)
    refused("loss_scale: '-1'.*power of two", loss_scale=-1)
    refused("loss_scale: 'true' is not one of auto, dynamic, off, or a number", loss_scale=True)
    refused("loss_scale and reuse_grad_buffers exclude each other", loss_scale=1024, reuse_grad_buffers=True)
    refused("loss_scale and offload_optimizer exclude each other for parameters in half precision", net().bfloat16(), loss_scale=2,
            masters=True, offload_optimizer=True)
    with pytest.raises(TypeError, match="waggle.Loop takes no loss_scale"):
        waggle.Loop(swarm, waggle.LoopModel(), [("x", [2])], loss_scale=1024)
    with waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, loss_scale=1024.0) as opt:
        assert opt.scaled(torch.tensor(2.0, dtype=torch.float16)).item() == 2048


@pytest.mark.parametrize("device", [GPU])
def test_float16_with_a_grad_scaler_is_the_plain_loop(device, tmp_path, monkeypatch):
    monkeypatch.setattr(support, "DEVICE", device)
    ours, plain = net(), net()
    own = torch.optim.AdamW(plain.parameters(), 1e-2)
    with waggle.Optimizer(torch.optim.AdamW(ours.parameters(), 1e-2), join(tmp_path), ours, target_batch_size=4) as opt:
        # The first gradients overflow, so the scalers leave these steps out.
        scalers = [torch.cuda.amp.GradScaler(init_scale=2.0**20) for _ in range(2)]
        for i in range(20):
            for model, optimizer, scaler, more in ((plain, own, scalers[0], {}), (ours, opt, scalers[1], {"samples": 4})):
                optimizer.zero_grad()
                with torch.autocast(device, torch.float16):
                    loss = loss_of(model, i)
                scaler.scale(loss).backward()
                scaler.step(optimizer, **more)
                scaler.update()
            assert equal(ours, plain), i
        assert 0 < opt.swarm.epoch < 20


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, i):
        x, y = batch["in"], batch["out"]
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]


def batches(count, size=4):
    for i in range(count):
        x, y = batch(i, size)
        yield {"in": x, "out": y}


def strategy(folder, target, **more):
    from waggle.lightning import SwarmStrategy

    return SwarmStrategy(target, "tests", data_dir=folder / "peer", log_level="warn", host_maddrs=["/ip4/127.0.0.1/tcp/0"],
                         **more)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning_alone_is_the_plain_loop(accumulate, tmp_path, caplog):
    from lightning.pytorch.strategies import Trainer

    caplog.set_level("INFO")
    ours, plain = Module(), Module()
    made = strategy(tmp_path, 4 * accumulate)
    Trainer(made, accumulate).fit(ours, batches(10))
    assert made.torn_down
    assert "the batch has 4 samples" in caplog.text
    status = made.swarm.status()
    assert status.samples_offered == 40 and status.epoch == 10 // accumulate and made.num_peers >= 1
    (optimizer,), (scheduler,) = plain.configure_optimizers()
    for i, each in enumerate(batches(10)):
        if i % accumulate == 0:
            optimizer.zero_grad()
        (plain.training_step(each, i) / accumulate).backward()
        if i % accumulate == accumulate - 1:
            optimizer.step()
            scheduler.step()
    assert equal(ours, plain)


def test_lightning_stops_with_the_run(tmp_path):
    from lightning.pytorch.strategies import Trainer

    made = strategy(tmp_path, 4, batch_size=2, epochs=3)
    trainer = Trainer(made)
    trainer.fit(Module(), batches(100))
    assert trainer.should_stop and made.swarm.status().epoch == 3


def test_lightning_warns_of_a_zero_grad_of_the_modules_own(tmp_path):
    from lightning.pytorch.strategies import Trainer

    class Clears(Module):
        def optimizer_zero_grad(self, *_):
            raise AssertionError("by the stand-in nobody calls it")

    made = strategy(tmp_path, 8, epochs=1, reuse_grad_buffers=True, averaging_timeout=30.0)
    with pytest.warns(UserWarning, match="optimizer_zero_grad of the module is its own, and with reuse_grad_buffers"):
        Trainer(made).fit(Clears(), batches(4))
    assert made.swarm.status().epoch == 1


def test_lightning_refuses(tmp_path):
    from lightning.pytorch.strategies import Trainer
    from waggle.lightning import SwarmStrategy

    with pytest.raises(ValueError, match="host_maddrs: /ip4/0.0.0.0/udp/0/quic is no address of TCP"):
        SwarmStrategy(4, host_maddrs=["/ip4/0.0.0.0/udp/0/quic"])
    with pytest.raises(TypeError, match="the nearest is target_batch_size"):
        strategy(tmp_path, 4, target_bach_size=3)
    for name, value, kind, sentence in [
            ("batch_size", "4", TypeError, "of type str, and must be a whole number"), ("batch_size", 0, ValueError, "0, and must be"),
            ("delay_optimizer_step", "yes", TypeError, "of type str, and must be True or False"),
            ("matchmaking_time", "5s", TypeError, "of type str, and must be a number of seconds"),
            ("averaging_timeout", 0, ValueError, "0, and must be more than 0 seconds"),
            ("averager_opts", [], TypeError, "of type list, and must be a dictionary of options"),
            ("scheduler_fn", "StepLR", TypeError, "of type str, and must be a function"),
            ("host_maddrs", [5], TypeError, r"\[5\], and must be a list of texts")]:
        with pytest.raises(kind, match=f"{name} is {sentence}"):
            SwarmStrategy(4, **{name: value})
    with pytest.raises(ValueError, match="pass it as SwarmStrategy"):
        Trainer(strategy(tmp_path, 4)).fit(Module(), [{"words": "none"}])
