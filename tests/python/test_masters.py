"""Parameters in half precision: alone, the bytes of the master loop that people write by hand."""

import copy
import pathlib
import sys

import pytest
import torch
from support import batch, equal, join, net, processes

import waggle

ADAMW = lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1)
SGD = lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)


def half(seed=1, dtype=torch.bfloat16):
    """Some parameters are float32, two are one, one is frozen."""
    model = net(seed, norm=True).to(dtype)
    model[1].float()
    model.add_module("tied", torch.nn.Linear(5, 2).to(dtype))
    model.tied.weight = model[3].weight
    model[0].bias.requires_grad_(False).zero_()
    return model


def loss_of(model, i, scale=1.0):
    x, y = batch(i)
    kind = model[0].weight.dtype
    hidden = model[2](model[1](model[0](x.to(kind)).float())).to(kind)
    return scale * torch.nn.functional.mse_loss((model[3](hidden) + model.tied(hidden)).float(), y)


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


class ByHand:
    def __init__(self, model, make):
        self.model = model
        self.pairs = [(p, torch.nn.Parameter(p.detach().float())) for p in trained(model)]
        self.optimizer = make([master for _, master in self.pairs])

    def take(self):
        """After each pass."""
        for p, master in self.pairs:
            if p.grad is not None:
                master.grad = p.grad.float() if master.grad is None else master.grad + p.grad.float()
            p.grad = None

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for p, master in self.pairs:
                p.copy_(master)

    def is_that_of(self, ours, opt):
        masters = [p for group in opt.param_groups for p in group["params"]]
        return equal(ours, self.model) and all(torch.equal(a, b) for a, (_, b) in zip(masters, self.pairs))


@pytest.mark.parametrize("how", ["step each", "two passes a step", "two steps an update", "reuse_grad_buffers", "local-updates"])
@pytest.mark.parametrize("make", [SGD, ADAMW])
def test_is_the_loop_by_hand(make, how, tmp_path):
    ours, plain = half(), half()
    own = ByHand(plain, make)
    passes = 1 if how in ("step each", "local-updates") else 2
    more = {"reuse_grad_buffers": True} if how == "reuse_grad_buffers" else {}
    if how == "local-updates":
        more["strategy"] = how
    with waggle.Optimizer(make(trained(ours)), join(tmp_path), ours, masters=True, samples=4,
                          target_batch_size=8 if how in ("two steps an update", "reuse_grad_buffers") else 4, **more) as opt:
        for i in range(30):
            for k in range(passes):
                loss_of(plain, 2 * i + k).backward()
                own.take()
            for _, master in own.pairs:
                master.grad /= 1 if how == "two passes a step" else passes
            own.step()
            for k in range(passes):
                if how != "two passes a step" or k == 0:
                    ours.zero_grad() if i % 2 and not more else opt.zero_grad()
                loss_of(ours, 2 * i + k).backward()
                if how != "two passes a step" or k == 1:
                    opt.step()
                    assert all(p.grad is None for p in ours.parameters() if p.dtype is torch.bfloat16)
            assert opt.last == "stepped" and own.is_that_of(ours, opt), i
    assert ours[0].weight.dtype is torch.bfloat16
    assert not torch.equal(own.pairs[0][1], own.pairs[0][0].float())  # the master has what the parameter has not


def test_what_the_loop_writes_to_data_becomes_the_masters(tmp_path):
    ours = half()
    with waggle.Optimizer(SGD(trained(ours)), join(tmp_path), ours, masters=True, samples=4, target_batch_size=4) as opt:
        for i in range(3):
            for p in ours.parameters():
                p.data.fill_(0.5)
            opt.zero_grad()
            (0 * loss_of(ours, i)).backward()
            opt.step()
            assert all(bool((p == 0.5).all()) for group in opt.param_groups for p in group["params"]), i


def test_who_clears_or_clips_the_module_clears_or_clips_the_master(tmp_path):
    ours, plain = half(), half()
    own = ByHand(plain, SGD)
    with waggle.Optimizer(SGD(trained(ours)), join(tmp_path), ours, masters=True, target_batch_size=4, samples=4) as opt:
        def steps(i, change=lambda: None, of_own=lambda: None):
            for model in (ours, plain):
                loss_of(model, i).backward()
            change()
            own.take()
            of_own()
            opt.step()
            own.step()
            opt.zero_grad()
            assert own.is_that_of(ours, opt), i

        steps(0)
        for clear in (lambda: ours.zero_grad(set_to_none=True), lambda: ours.zero_grad(set_to_none=False), opt.zero_grad,
                      lambda: opt._inner.zero_grad(set_to_none=True), lambda: opt._inner.zero_grad(set_to_none=False)):
            loss_of(plain, 9)
            loss_of(ours, 9).backward()  # which is left out
            clear()
            for p in ours[1].parameters():
                p.grad = None  # which are float32
            steps(1)
        clip = torch.nn.utils.clip_grad_norm_
        steps(2, lambda: [clip(trained(model), 0.1) for model in (ours, plain)])
        steps(3, lambda: clip([p for g in opt.param_groups for p in g["params"]], 0.1),
              lambda: clip([master for _, master in own.pairs], 0.1))
        steps(4, lambda: [setattr(model[0].weight, "grad", None) for model in (ours, plain)])
        loss_of(ours, 5).backward()
        opt.param_groups[0]["params"][0].grad.mul_(0.5)  # as a GradScaler does
        clip(trained(ours), 0.1)
        with pytest.raises(ValueError, match="gradient of parameter 0.weight was changed in the module after .*clip what "
                                             "optimizer.param_groups has"):
            opt.step()


@pytest.mark.skipif(torch.__version__.startswith("1."), reason="on a CPU torch 1 has no scaler and no float16")
def test_float16_with_a_grad_scaler_is_the_loop_by_hand(tmp_path):
    ours, plain = half(dtype=torch.float16), half(dtype=torch.float16)
    own = ByHand(plain, ADAMW)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3) for _ in range(2)]
    left_out = 0
    with waggle.Optimizer(ADAMW(trained(ours)), join(tmp_path), ours, masters=True, target_batch_size=4, samples=4) as opt:
        for i in range(20):
            scalers[0].scale(loss_of(plain, i)).backward()
            own.take()
            scalers[0].unscale_(own.optimizer)
            torch.nn.utils.clip_grad_norm_([master for _, master in own.pairs], 0.5)
            before = scalers[0].get_scale()
            scalers[0].step(own.optimizer)
            scalers[0].update()
            left_out += scalers[0].get_scale() < before
            own.optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                for p, master in own.pairs:
                    p.copy_(master)
            opt.zero_grad()
            scalers[1].scale(loss_of(ours, i)).backward()
            scalers[1].unscale_(opt)
            torch.nn.utils.clip_grad_norm_([p for g in opt.param_groups for p in g["params"]], 0.5)
            scalers[1].step(opt)
            scalers[1].update()
            assert own.is_that_of(ours, opt), i
        assert 0 < left_out < 20 and opt.swarm.epoch == 20 - left_out


def test_goes_on_from_its_checkpoint_and_from_a_state_that_was_loaded(tmp_path):
    plain = half()
    own = ByHand(plain, ADAMW)
    for begin in (0, 5):
        ours = half(seed=begin)
        with waggle.Optimizer(ADAMW(trained(ours)), join(tmp_path / "1"), ours, masters=True, target_batch_size=4,
                              samples=4) as opt:
            if begin == 0:
                ours.load_state_dict(plain.state_dict())  # reaches the masters
            assert opt.kept() == b""
            for i in range(begin, begin + 5):
                loss_of(plain, i).backward()
                own.take()
                own.step()
                loss_of(ours, i).backward()
                opt.step()
                opt.zero_grad()
                assert own.is_that_of(ours, opt), i
            state = copy.deepcopy(opt.state_dict())
    read = waggle.load_checkpoint(tmp_path / "1/peer")
    assert torch.equal(read.state_dict()["0.weight"], own.pairs[0][1])
    again = half(seed=3)
    again.load_state_dict(read.state_dict(), strict=False)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), plain.parameters()) if a.requires_grad)
    again.load_state_dict(plain.state_dict())  # with what is frozen and what passes change
    with waggle.Optimizer(ADAMW(trained(again)), join(tmp_path / "2"), again, masters=True, target_batch_size=4, samples=4) as opt:
        opt.load_state_dict(state)
        for p, master in own.pairs:
            master.data.copy_(p)  # the module has no more
        for i in range(10, 15):
            loss_of(plain, i).backward()
            own.take()
            own.step()
            loss_of(again, i).backward()
            opt.step()
            opt.zero_grad()
            assert own.is_that_of(again, opt), i


def test_takes_four_bytes_a_value(tmp_path):
    """And none for gradients between a step and the next pass."""
    model = half()
    with waggle.Optimizer(SGD(trained(model)), join(tmp_path), model, masters=True, target_batch_size=4, samples=4) as opt:
        loss_of(model, 0).backward()
        opt.step()
        masters = [p for g in opt.param_groups for p in g["params"] if all(p is not own for own in model.parameters())]
        halves = [p for p in trained(model) if p.dtype is torch.bfloat16]
        assert len(masters) == len(halves) == 4  # of tied ones there is one
        assert sum(p.numel() * p.element_size() for p in masters) == 4 * sum(p.numel() for p in halves)
        assert all(p.grad is None for p in masters + halves)


def test_refusals(tmp_path):
    swarm = join(tmp_path)

    def refused(kind, sentence, model, optimizer=None, masters=True, **more):
        optimizer = optimizer or SGD(trained(model))
        before = [list(map(id, group["params"])) for group in optimizer.param_groups]
        with pytest.raises(kind, match=sentence):
            waggle.Optimizer(optimizer, swarm, model, masters=masters, **more)
        assert [list(map(id, group["params"])) for group in optimizer.param_groups] == before and swarm.address is None

    refused(ValueError, "masters=True, and all trained parameters are float32 already: leave masters out", net())
    refused(TypeError, "masters is of type int, and must be True or False", half(), masters=1)
    refused(ValueError, "parameter 0.weight is of type torch.float64.*float", net().double())
    refused(ValueError, r'parameter 0.weight is of type torch.bfloat16.*pass masters=True to waggle.Optimizer \(in a launched '
                        r'script --masters true\).*dtype="float32"', half(), masters=False)
    adapters = torch.nn.Sequential()
    adapters.add_module("lora_A", torch.nn.Linear(2, 2).bfloat16())
    refused(ValueError, "parameter base.lora_A.weight is of type.*leave autocast_adapter_dtype of peft at True",
            torch.nn.ModuleDict({"base": adapters}), masters=False)
    stepped = half()
    optimizer = SGD(trained(stepped))
    loss_of(stepped, 0).backward()
    optimizer.step()
    refused(ValueError, "masters=True, and the optimizer has a state already", stepped, optimizer)
    refused(ValueError, "codec: 'float17'", half(), codec="float17")
    model = half()
    with waggle.Optimizer(SGD(trained(model)), swarm, model, masters=True, target_batch_size=4, samples=4) as opt:
        model.float()
        with pytest.raises(waggle.Error, match="parameter 0.weight became torch.float32"):
            opt.step()


SCRIPT = """
import torch
from test_masters import ADAMW, half, loss_of, trained

model = half().float() if READS else half()
optimizer = ADAMW(trained(model))
if READS:  # as torch.distributed.checkpoint does
    optimizer.param_groups[0]["lr"] = 0.0
    for p in trained(model):
        p.grad = torch.zeros_like(p)
    optimizer.step(closure=None)
    optimizer.param_groups[0]["lr"] = 1e-2
for i in range(6):
    optimizer.zero_grad(set_to_none=True)
    loss_of(model, i).backward()
    optimizer.step()
print("values", [p.tolist() for p in model.parameters()])
"""


def test_a_launched_script(tmp_path):
    """Without the option, its end says what to do. Reading the state trains nothing."""
    path = {"PYTHONPATH": ":".join([str(pathlib.Path(__file__).parent), *sys.path])}
    with processes(tmp_path) as start:
        def script(reads):
            file = tmp_path / "script.py"
            file.write_text(SCRIPT.replace("READS", str(reads)))
            return file

        def launched(name, *more, reads=False):
            made = start(name, sys.executable, "-m", "waggle", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / f"of {name}",
                         "--target-batch-size", 4, *more, script(reads), **path)
            return made.ended(), made

        code, refused = launched("refused")
        assert code == 2 and "Traceback" not in refused.log, refused.log
        assert refused.log.count("in a launched script --masters true") == 1
        code, ours = launched("launched", "--masters", "true")
        assert code == 0, ours.log
        plain = half()
        own = ByHand(plain, ADAMW)
        for i in range(6):
            loss_of(plain, i).backward()
            own.take()
            own.step()
        assert ours.line("values ") == str([p.tolist() for p in plain.parameters()])
        code, reads = launched("reads", reads=True)
        assert code == 0 and "ended at epoch 6" in reads.log, reads.log
        alone = start.python("plain", script(True), **path)
        assert alone.ended() == 0 and reads.line("values ") == alone.line("values "), alone.log
