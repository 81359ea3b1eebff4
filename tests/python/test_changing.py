"""Loops that change something after their first step: alone they are the plain loop, bit by bit; together all peers make
the same updates."""

import json
import math
import pathlib
import warnings

import pytest
import torch
from support import batch, equal, eventually, join, loss_of, net, once, one_joins_later_and_one_is_killed, processes

import waggle
from waggle._model import Model

HERE = pathlib.Path(__file__).parent
STEPS = 24


class Changing(torch.nn.Module):
    """Has what passes change beside running statistics, a layer that no pass uses, and one that is used late."""

    def __init__(self):
        super().__init__()
        self.body = net(norm=True)
        self.unused = torch.nn.Linear(3, 3)
        self.late = torch.nn.Linear(6, 2)
        self.empty = torch.nn.Parameter(torch.empty(0))
        self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("codebook", torch.zeros(4))
        self.register_buffer("exact", torch.tensor(0.1, dtype=torch.float64))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("used", torch.zeros(3, dtype=torch.bool))
        self.register_buffer("mask", torch.full((2, 2), -math.inf))
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, x):
        if self.training:
            self.codebook[int(self.seen) % 4] += x.mean().item()
            self.exact = self.exact / 1.1 + 1e-9  # another tensor in its place
            self.seen += 1
            self.used[int(self.seen) % 3] = True
        out = self.body(x)
        return out + self.late(x) if self.seen > STEPS // 2 else out


def by_hand(optimizer, i, loss):
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * (0.55 + 0.45 * math.cos(i / 5))
        group["weight_decay"] = 0.1 / (1 + i)
        if "betas" in group:
            group["betas"] = (0.9 - 0.01 * i, 0.99)
        if "momentum" in group:
            group["momentum"] = 0.9 - 0.02 * i


def scheduled(make):
    kept = {}

    def change(optimizer, i, loss):
        if optimizer not in kept:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kept[optimizer] = make(optimizer)
            return
        (kept[optimizer].step(loss) if isinstance(kept[optimizer], torch.optim.lr_scheduler.ReduceLROnPlateau)
         else kept[optimizer].step())
    return change


CHANGES = {
    "by hand": lambda: by_hand,
    "StepLR": lambda: scheduled(lambda o: torch.optim.lr_scheduler.StepLR(o, 5, 0.5)),
    "OneCycleLR": lambda: scheduled(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=STEPS + 1)),
    "ReduceLROnPlateau": lambda: scheduled(lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1)),
}
OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
    "SGD": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, 1e-2, weight_decay=0.01),
    "groups": lambda p: (lambda p: torch.optim.Adam([{"params": p[:3], "lr": 0.02}, {"params": p[3:]}], 0.01))(list(p)),
}


def trained(model, optimizer, change, steps=range(STEPS), **more):
    for i in steps:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, i)
        loss.backward()
        change(optimizer, i, loss.item())
        optimizer.step(**more)


@pytest.mark.parametrize("strategy", ["collaborative", "local-updates"])
@pytest.mark.parametrize("kind", list(OPTIMIZERS))
@pytest.mark.parametrize("how", list(CHANGES))
def test_alone_it_is_the_plain_loop(how, kind, strategy, tmp_path):
    if strategy == "local-updates" and (how, kind) not in (("by hand", "AdamW"), ("StepLR", "SGD")):
        pytest.skip("once each is enough")
    torch.manual_seed(1)
    ours = Changing()
    torch.manual_seed(1)
    plain = Changing()
    trained(plain, OPTIMIZERS[kind](p for p in plain.parameters() if p.requires_grad), CHANGES[how]())
    with waggle.Optimizer(OPTIMIZERS[kind](p for p in ours.parameters() if p.requires_grad), join(tmp_path), ours,
                          target_batch_size=4, strategy=strategy) as opt:
        trained(ours, opt, CHANGES[how](), samples=4)
        assert opt.rate == pytest.approx(opt.param_groups[0]["lr"], rel=1) or how != "by hand"
    assert equal(ours, plain)
    assert ours.exact.dtype is torch.float64 and ours.seen == STEPS


def test_what_passes_change_is_in_the_checkpoint_and_comes_back(tmp_path):
    torch.manual_seed(1)
    whole = Changing()
    trained(whole, OPTIMIZERS["AdamW"](p for p in whole.parameters() if p.requires_grad), CHANGES["by hand"]())
    for part in (range(15), range(15, STEPS)):
        torch.manual_seed(1)
        model = Changing()
        optimizer = OPTIMIZERS["AdamW"](p for p in model.parameters() if p.requires_grad)
        with waggle.Optimizer(optimizer, join(tmp_path), model, target_batch_size=4) as opt:
            opt.kept()
            trained(model, opt, CHANGES["by hand"](), part, samples=4)
    assert torch.equal(model.codebook, whole.codebook) and torch.equal(model.seen, whole.seen)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters()))
    state = waggle.load_checkpoint(tmp_path / "peer").state_dict()
    assert state["seen"] == STEPS and state["seen"].dtype is torch.int64
    assert torch.equal(state["codebook"], whole.codebook) and "mask" not in state and "cache" not in state


def test_a_layer_that_is_unfrozen_later_is_refused_by_name(tmp_path):
    model = net()
    model[0].weight.requires_grad_(False)
    with waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), join(tmp_path), model, target_batch_size=4) as opt:
        trained(model, opt, lambda *_: None, range(2), samples=4)
        model[0].weight.requires_grad_(True)
        with pytest.raises(waggle.Error, match="parameter 0.weight has a gradient") as refused:
            trained(model, opt, lambda *_: None, range(2, 4), samples=4)
        assert refused.value.code == "schema_mismatch"


class Late(torch.nn.Module):
    """Gets a buffer in its first pass."""

    def __init__(self, persistent):
        super().__init__()
        self.layers = net()
        self.register_buffer("scale", None, persistent=persistent)

    def forward(self, x):
        if self.scale is None:
            self.scale = x.std(0)
        return self.layers(x / self.scale)


def crop(model):
    model[2].weight.data, model[2].bias.data = model[2].weight.data[:1].clone(), model[2].bias.data[:1].clone()


REFUSED = {
    "parameter 2.weight changed its shape": crop,
    "parameter 2.weight was removed or replaced": lambda model: model.__setitem__(2, torch.nn.Linear(5, 2)),
    "parameter 0.gain was added": lambda model: setattr(model[0], "gain", torch.nn.Parameter(torch.ones(2))),
    "parameter late.weight was added": lambda model: model.add_module("late", torch.nn.Linear(2, 2)),
    "parameter 0.weight was frozen .*set its .grad to None": lambda model: model[0].weight.requires_grad_(False),
    "buffer mean was added": lambda model: model.register_buffer("mean", torch.zeros(2)),
    "buffer late.running_mean was added": lambda model: model.add_module("late", torch.nn.BatchNorm1d(2, affine=False)),
}


@pytest.mark.parametrize("said", list(REFUSED))
def test_what_is_put_in_another_place_or_shape_later_is_refused_by_name(said, tmp_path):
    model = net()
    model[0].register_parameter("gain", None)
    with waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), join(tmp_path), model, target_batch_size=4) as opt:
        trained(model, opt, lambda *_: None, range(2), samples=4)
        REFUSED[said](model)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        with pytest.raises(waggle.Error, match=said) as refused:
            opt.step(samples=4)
        assert refused.value.code == "schema_mismatch"


def test_a_buffer_that_the_first_pass_makes_is_refused_if_a_state_would_have_it(tmp_path):
    for persistent in (False, True):
        model = Late(persistent)
        with waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), join(tmp_path), model, target_batch_size=4) as opt:
            if persistent:
                with pytest.raises(waggle.Error, match="buffer scale was added, or got its first values, .*persistent=False"):
                    trained(model, opt, lambda *_: None, range(1), samples=4)
            else:
                trained(model, opt, lambda *_: None, range(4), samples=4)


def test_wrappers_and_layers_without_values_may_change(tmp_path):
    def change(model):
        def each(optimizer, i, loss):
            if i == 3:
                model.mask = torch.tensor([1.0])  # that was not finite, and so is a constant
                model[1] = torch.nn.ReLU()
            if i in (5, 7):
                model[2] = torch.nn.Sequential(model[2]) if i == 5 else model[2][0]
        return each
    ours, plain = net(), net()
    ours.register_buffer("mask", torch.tensor([math.inf]))
    trained(plain, OPTIMIZERS["AdamW"](plain.parameters()), change(plain), range(12))
    with waggle.Optimizer(OPTIMIZERS["AdamW"](ours.parameters()), join(tmp_path), ours, target_batch_size=4) as opt:
        trained(ours, opt, change(ours), range(12), samples=4)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters()))


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "NAdam"])
def test_a_state_that_the_loop_has_cleared_begins_anew_also_after_a_stop(kind, tmp_path):
    def clear(optimizer, i, loss):
        if i == 6:
            optimizer.state.clear()
    plain = net()
    trained(plain, OPTIMIZERS[kind](plain.parameters()), clear, range(16))
    for part in (range(9), range(9, 16)):
        ours = net()
        with waggle.Optimizer(OPTIMIZERS[kind](ours.parameters()), join(tmp_path), ours, target_batch_size=4) as opt:
            opt.kept()
            trained(ours, opt, clear, part, samples=4)
    assert equal(ours, plain)


@pytest.mark.parametrize("name, value", [("lr", None), ("betas", (0.9,)), ("eps", "none")])
def test_what_becomes_no_number_is_refused_by_name(name, value, tmp_path):
    model = net()
    with waggle.Optimizer(torch.optim.Adam(model.parameters(), 0.1), join(tmp_path), model, target_batch_size=4) as opt:
        opt.param_groups[0][name] = value
        with pytest.raises(TypeError, match=f"{name} of a parameter group of the optimizer became .*: set it to what it was"):
            trained(model, opt, lambda *_: None, range(1), samples=4)


def test_a_rate_that_is_no_number_stays_the_loops_own():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), math.nan)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    ours = Model(optimizer, list(model.named_parameters()), [], [None] * 4)
    ours._inner_step(0, [0.5, *[None] * (len(ours.numbers.places) - 1)] * 4)
    assert ours.numbers.rate == 0.5 and math.isnan(optimizer.param_groups[0]["lr"])
    assert torch.equal(model[2].bias, net()[2].bias - 0.5)


def test_a_switch_that_is_changed_later_is_refused_by_name(tmp_path):
    model = net()
    with waggle.Optimizer(torch.optim.Adam(model.parameters(), 0.1), join(tmp_path), model, target_batch_size=4) as opt:
        trained(model, opt, lambda *_: None, range(2), samples=4)
        opt.param_groups[0]["amsgrad"] = True
        with pytest.raises(waggle.Error, match="amsgrad of the optimizer's parameter group 0 changed"):
            trained(model, opt, lambda *_: None, range(2, 3), samples=4)


@once
@pytest.mark.parametrize("how", ["cosine", "epoch", "plateau", "StepLR", "the run's"])
def test_peers_that_set_their_rates_themselves_hold_one_model(how, tmp_path):
    """Three, of which one is killed and one joins later."""
    epochs = 40
    with processes(tmp_path) as start:
        loops = one_joins_later_and_one_is_killed(tmp_path / "slow", lambda i, where, min_peers, slow: start.python(
            f"loop{i}", HERE / "rates_loop.py", tmp_path / f"peer{i}", where, i, epochs, how, min_peers, slow))
        ends = []
        for each in loops:
            assert each.ended() == 0, each.log
            ends.append(json.loads(each.line("STATUS ")))
            assert "differ" not in each.log, each.log
        assert len({end["parameters"] for end in ends}) == 1
        assert len({end["seen"] for end in ends}) <= 3 and min(end["seen"] for end in ends) > epochs / 4
        # Whoever a busy machine leaves behind downloads again; the logs say above that nobody did because models differ.
        assert min(end["state_downloads"] for end in ends[1:]) >= 1, [each.log for each in loops]


@once
def test_who_wants_another_rate_than_the_others_is_told_once(tmp_path):
    with processes(tmp_path) as start:
        first = start.python("loop0", HERE / "rates_loop.py", tmp_path / "peer0", "", 0, 12, "constant", 2)
        second = start.python("loop1", HERE / "rates_loop.py", tmp_path / "peer1", first.line("address "), 1, 12,
                              "larger", 2)
        for each in (first, second):
            assert each.ended() == 0, each.log
        assert second.log.count("this loop set the learning rate 0.2") == 1
        assert "with 0.05" in second.log and "optimizer.follow(scheduler)" in second.log
        assert "this loop set" not in first.log
        assert first.line("RATE ") == second.line("RATE ") == "0.05"
        assert eventually(lambda: json.loads(first.line("STATUS "))["parameters"]
                          == json.loads(second.line("STATUS "))["parameters"], 1)
