"""Frameworks themselves, where they are installed: one peer alone is what each does without waggle, bit by bit."""

import pathlib
import sys

import pytest
import support
import torch
from support import GPU, batch, each_device, equal, join, net, processes

import waggle

COUNT = 12
HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize("precision", ["no", pytest.param("fp16", marks=GPU.marks)])
def test_accelerate(precision, each_device, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    if precision == "fp16" and each_device == "cpu":
        pytest.skip("a CPU has no float16")

    def trained(wrap):
        accelerate.state.AcceleratorState._reset_state(True)
        accelerator = accelerate.Accelerator(cpu=each_device == "cpu", mixed_precision=precision)
        assert accelerator.device.type == each_device
        model = net()
        optimizer = wrap(torch.optim.AdamW(model.parameters(), 1e-2), model)
        model, optimizer = accelerator.prepare(model, optimizer)
        for i in range(COUNT):
            x, y = batch(i)
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
        return accelerator.unwrap_model(model, keep_fp32_wrapper=False)

    swarm = join(tmp_path)
    ours = trained(lambda o, model: waggle.Optimizer(o, swarm, model, target_batch_size=4, samples=4))
    assert swarm.epoch > COUNT // 2  # the scaler may have left out a few steps
    swarm.leave()
    assert equal(ours, trained(lambda o, model: o))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


@pytest.mark.parametrize("precision", ["fp32", "bf16", pytest.param("fp16", marks=GPU.marks)])
def test_transformers(precision, each_device, tmp_path):
    transformers = pytest.importorskip("transformers")
    if precision == "fp16" and each_device == "cpu":
        pytest.skip("a CPU has no float16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "DEVICE", "cpu")  # the Trainer moves it
        data = [{"x": x, "labels": y} for x, y in map(lambda i: [t[0] for t in batch(i)], range(100))]

    def trained(wrap):
        args = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, max_steps=COUNT, seed=3, report_to=[],
            save_strategy="no", use_cpu=each_device == "cpu", dataloader_drop_last=True, disable_tqdm=True,
            bf16=precision == "bf16", fp16=precision == "fp16")
        model = Net()
        optimizer, scheduler = wrap(torch.optim.AdamW(model.parameters(), 1e-2), model)
        transformers.Trainer(model, args, train_dataset=data, optimizers=(optimizer, scheduler)).train()
        return model

    def rates(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    swarm = join(tmp_path)

    def wrap(inner, model):
        optimizer = waggle.Optimizer(inner, swarm, model, target_batch_size=4, samples=4)
        return optimizer, optimizer.follow(rates(optimizer))

    ours = trained(wrap)
    assert swarm.epoch > COUNT // 2
    swarm.leave()
    assert equal(ours, trained(lambda inner, model: (inner, rates(inner))))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", pytest.param("16-mixed", marks=GPU.marks)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning(accumulate, precision, each_device, tmp_path):
    lightning = pytest.importorskip("lightning", minversion="2.0")
    from waggle.lightning import SwarmStrategy

    if precision == "16-mixed" and each_device == "cpu":
        pytest.skip("a CPU has no float16")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net(norm=True)

        def training_step(self, batch, i):
            x, y = batch
            return torch.nn.functional.mse_loss(self.net(x), y)

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
            if precision == "16-mixed":  # the scheduler of a Trainer also counts steps that the scaler leaves out
                return optimizer
            return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5), "interval": "step"}]

    def trained(**more):
        module = Module()
        trainer = lightning.Trainer(accelerator="cpu" if each_device == "cpu" else "gpu", devices=1, max_epochs=1,
                                    precision=precision, accumulate_grad_batches=accumulate, logger=False,
                                    enable_progress_bar=False, enable_model_summary=False,
                                    default_root_dir=tmp_path / "out", **more)
        data = [[t.cpu() for t in batch(i)] for i in range(COUNT)]
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=None))
        return module

    strategy = SwarmStrategy(4 * accumulate, "tests", data_dir=tmp_path / "peer", log_level="warn",
                             host_maddrs=["/ip4/127.0.0.1/tcp/0"])
    ours = trained(strategy=strategy)
    assert strategy.swarm.status().epoch > COUNT // accumulate // 2
    assert equal(ours, trained())
    assert list((tmp_path / "out").rglob("*.ckpt"))


SCRIPT = """
import torch
from test_installed_frameworks import Net, batch

torch.manual_seed(3)
if {accelerate}:
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=30)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for i in range(20):
        optimizer.zero_grad()
        accelerator.backward(model(*batch(i))["loss"])
        optimizer.step()
        scheduler.step()
    scheduler = scheduler.scheduler
else:
    from transformers import Trainer, TrainingArguments
    data = [{{"x": x, "labels": y}} for x, y in map(lambda i: [t[0] for t in batch(i)], range(100))]
    model = Net()
    args = TrainingArguments(output_dir={folder!r}, per_device_train_batch_size=4, max_steps=20, warmup_steps=5, seed=3,
                             learning_rate=1e-2, lr_scheduler_type="cosine", report_to=[], save_strategy="no",
                             use_cpu=True, dataloader_drop_last=True, disable_tqdm=True)
    trainer = Trainer(model, args, train_dataset=data)
    trainer.train()
    scheduler = trainer.lr_scheduler
print("position", scheduler.last_epoch)
print("parameters", [p.tolist() for p in model.parameters()])
"""


@pytest.mark.parametrize("framework", ["accelerate", "transformers"])
def test_a_launched_script_of_a_framework(framework, tmp_path):
    """Its scheduler is of the framework's wrapper of the optimizer, or wrapped itself."""
    pytest.importorskip(framework)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(accelerate=framework == "accelerate", folder=str(tmp_path / "out")))
    path = {"PYTHONPATH": ":".join([str(HERE), *sys.path])}
    with processes(tmp_path) as start:
        def launch(target):
            launched = start("launched", sys.executable, "-m", "waggle", "--listen", "127.0.0.1:0", "--data-dir",
                             tmp_path / f"peer {target}", "--target-batch-size", target, script, **path)
            assert launched.ended() == 0, launched.log
            assert f"ended at epoch {80 // target}" in launched.log and "the script's own" not in launched.log, launched.log
            return launched

        plain = start.python("plain", script, **path)
        assert plain.ended() == 0, plain.log
        assert launch(4).line("parameters [") == plain.line("parameters [")
        assert launch(8).line("position ") == "10"


AVERAGES = """
import os, sys, time
import lightning, torch, waggle
from lightning.pytorch.callbacks import EMAWeightAveraging, WeightAveraging
from test_installed_frameworks import batch, net
from waggle.lightning import SwarmStrategy

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, i):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)

class Say(lightning.Callback):
    def on_before_zero_grad(self, trainer, *_):
        if trainer.global_step == 0:
            print("address", strategy.swarm.address, flush=True)
        time.sleep(0.1 if os.path.exists(slow) else 0)

folder, peers, slow = sys.argv[1:]
strategy = SwarmStrategy(32, "tests", data_dir=folder, host_maddrs=["/ip4/127.0.0.1/tcp/0"], initial_peers=peers or None,
                         epochs=300)
average = EMAWeightAveraging(decay=0.99) if {ema} else WeightAveraging()
trainer = lightning.Trainer(strategy=strategy, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, callbacks=[average, Say()])
module = Module()
data = [batch(i, 8) for i in range(5000)]
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=None))
status = strategy.swarm.status()
print("digest of", status.epoch, status.parameters)
print("in the module", [p.tolist() for p in module.parameters()])
print("in the checkpoint", [value.tolist() for _, value in sorted(waggle.load_checkpoint(folder).state_dict(module).items())])
"""


@pytest.mark.parametrize("ema", [True, False])
def test_averages_of_weights_in_lightning_are_equal_also_on_a_peer_that_joins(ema, tmp_path):
    pytest.importorskip("lightning", minversion="2.6")
    script = tmp_path / "script.py"
    script.write_text(AVERAGES.replace("{ema}", str(ema)))
    path = {"PYTHONPATH": ":".join([str(HERE), *sys.path])}
    with processes(tmp_path) as start:
        slow = tmp_path / "slow"  # until the second one has joined
        slow.touch()
        first = start.python("first", script, tmp_path / "1", "", slow, **path)
        second = start.python("second", script, tmp_path / "2", first.line("address "), slow, **path)
        second.line("downloaded the state of epoch")
        slow.unlink()
        for each in (first, second):
            assert each.ended() == 0, each.log
        for what in ("digest of ", "in the module ", "in the checkpoint "):
            assert first.line(what) == second.line(what), what
        assert first.line("in the module ") != first.line("in the checkpoint ")
