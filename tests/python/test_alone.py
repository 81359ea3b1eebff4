"""One peer alone is the plain loop, bit by bit: on a CPU, and on a GPU where there is one."""

import copy

import pytest
import torch
from support import batch, each_device, equal, join, loss_of, net

import waggle

STEPS = 200
pytestmark = pytest.mark.usefixtures("each_device")


class Own(torch.optim.Optimizer):
    """Not in torch: keeps a tensor, a number of float64, and a row for each matrix; has a limit that is infinite."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "limit": float("inf")})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"] = torch.ones_like(p)
                    state["seen"] = 0.1
                    state["rows"] = torch.zeros(p.shape[0], device=p.device)
                state["seen"] = state["seen"] / 1.1 + 1e-9
                state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["rows"].add_(p.grad.reshape(p.shape[0], -1).pow(2).sum(1)).mul_(0.99)
                p.sub_(min(group["lr"], group["limit"]) * state["mean"] / (1 + state["seen"] + state["rows"].sqrt().mean()))


MAKE = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, 1e-2),
    "Own": lambda p: Own(p, 0.1),
    "groups": lambda p: (lambda p: torch.optim.RMSprop([{"params": p[:2]}, {"params": p[2:], "lr": 3e-3}], 1e-3))(list(p)),
}


def train(model, optimizer, i, **more):
    optimizer.zero_grad()
    loss = loss_of(model, i)
    loss.backward()
    optimizer.step(**({"samples": 4, "loss": loss, **more} if isinstance(optimizer, waggle.Optimizer) else {}))


@pytest.mark.parametrize("strategy", ["collaborative", "local-updates"])
@pytest.mark.parametrize("kind", list(MAKE))
def test_is_the_plain_loop(kind, strategy, tmp_path):
    if strategy != "collaborative" and kind == "groups":
        pytest.skip("once is enough")
    ours, plain = net(norm=True), net(norm=True)
    own = MAKE[kind](plain.parameters())
    with waggle.Optimizer(MAKE[kind](ours.parameters()), join(tmp_path), ours, target_batch_size=4,
                          strategy=strategy) as opt:
        for i in range(STEPS):
            train(plain, own, i)
            train(ours, opt, i)
            assert opt.last == "stepped", i
            assert equal(ours, plain), i
        status = opt.swarm.status()
        assert status.samples_offered == 4 * STEPS and status.samples_dropped == 0


def test_shows_the_weights_that_peers_share(tmp_path):
    ours = net(norm=True)
    with waggle.Optimizer(MAKE["AdamW"](ours.parameters()), join(tmp_path), ours,
                          strategy="diloco:steps=1000") as opt:
        first, mean = copy.deepcopy(ours), ours[1].running_mean
        with opt.shared_weights():
            assert equal(ours, first)  # nothing is shared yet
        for i in range(3):
            train(ours, opt, i)
        own, buffer = copy.deepcopy(ours), mean.clone()
        with pytest.raises(ZeroDivisionError):
            with opt.shared_weights():
                assert all(map(torch.equal, ours.parameters(), first.parameters()))
                assert not torch.equal(next(ours.parameters()), next(own.parameters()))
                assert torch.equal(mean, buffer)
                with pytest.raises(RuntimeError, match="shared parameters"):
                    opt.step(samples=4)
                1 / 0
        assert equal(ours, own)
        with opt.shared_weights():
            opt.leave()  # a loop keeps what it has learned since the last round
            assert equal(ours, own)


@pytest.mark.parametrize("on_inner, how", [(False, dict(target_batch_size=4)), (True, dict(strategy="data-parallel"))])
def test_follows_a_scheduler(on_inner, how, tmp_path):
    ours, plain = net(), net()
    own = torch.optim.SGD(plain.parameters(), 0.1)
    own_rates = torch.optim.lr_scheduler.StepLR(own, 7, 0.5)
    inner = torch.optim.SGD(ours.parameters(), 0.1)
    with waggle.Optimizer(inner, join(tmp_path), ours, **how) as opt:
        rates = opt.follow(torch.optim.lr_scheduler.StepLR(inner if on_inner else opt, 7, 0.5))
        for i in range(40):
            train(plain, own, i)
            own_rates.step()
            train(ours, opt, i)
            rates.step()
            assert equal(ours, plain), i
        assert rates.get_last_lr() == [0.1 * 0.5**5]
        assert "step" not in rates.state_dict()


def test_frozen_tied_and_empty_parameters(tmp_path):
    def tied():
        model = net()
        model.add_module("tied", torch.nn.Linear(5, 2).to(model[0].weight.device))
        model.tied.weight = model[2].weight
        model.register_parameter("empty", torch.nn.Parameter(torch.zeros(0, 3, device=model[0].weight.device)))
        model.register_buffer("running_mean", torch.zeros(0))
        model[0].bias.requires_grad_(False)
        return model, [p for p in model.parameters() if p.requires_grad]

    (ours, of_ours), (plain, of_plain) = tied(), tied()
    frozen = ours[0].bias.clone()

    def loss(model, i):
        x, y = batch(i)
        hidden = model[1](model[0](x))
        return torch.nn.functional.mse_loss(model[2](hidden) + model.tied(hidden) + model.empty.sum(), y)

    own = torch.optim.Adam(of_plain, 1e-2)
    with waggle.Optimizer(torch.optim.Adam(of_ours, 1e-2), join(tmp_path), ours, target_batch_size=4, samples=4) as opt:
        for i in range(30):
            for model, optimizer in ((plain, own), (ours, opt)):
                optimizer.zero_grad(set_to_none=i % 2 == 0)
                loss(model, i).backward()
                optimizer.step()
            assert equal(ours, plain), i
    assert torch.equal(ours[0].bias, frozen)


@pytest.mark.parametrize("kind", ["AdamW", "NAdam", "Own"])
def test_goes_on_from_its_checkpoint(kind, tmp_path):
    plain, ours = net(), net()
    own = MAKE[kind](plain.parameters())
    with waggle.Optimizer(MAKE[kind](ours.parameters()), join(tmp_path), ours, target_batch_size=4) as opt:
        for i in range(5):
            train(plain, own, i)
            train(ours, opt, i)
    again = net(seed=2)
    with waggle.Optimizer(MAKE[kind](again.parameters()), join(tmp_path), again, target_batch_size=4) as opt:
        train(again, opt, 99)
        assert opt.last == "synced" and opt.swarm.epoch == 5
        assert equal(again, plain)
        for i in range(5, 9):
            train(plain, own, i)
            train(again, opt, i)
            assert equal(again, plain), i
        state, theirs = opt.state_dict()["state"], own.state_dict()["state"]
        for i, values in theirs.items():
            for name, value in values.items():
                assert torch.equal(*(torch.as_tensor(v, dtype=torch.float64) for v in (state[i][name], value))), name


@pytest.mark.parametrize("strategy", ["collaborative", "diloco:steps=5", "local-updates"])
def test_goes_on_after_any_step_as_without_the_stop(strategy, tmp_path):
    def run(folder, until, seed=1):
        model = net(seed)
        inner = MAKE["AdamW"](model.parameters())
        how = {} if ":" in strategy else {"target_batch_size": 12}
        with waggle.Optimizer(inner, join(tmp_path / folder), model, strategy=strategy, **how) as opt:
            if strategy != "local-updates":  # where no pass waits for a round, and so for its rate
                opt.follow(torch.optim.lr_scheduler.StepLR(inner, 1, 0.9))
            for i in range(int(opt.kept() or b"0"), until):
                opt.keep(str(i + 1).encode())
                train(model, opt, i)
                assert opt.last in ("held", "stepped")
        return model

    whole = run("whole", 11)
    for stop in (0, 1, 3, 5, 7):
        run(str(stop), stop)
        assert equal(run(str(stop), 11, seed=2), whole), stop
    with waggle.Optimizer(MAKE["AdamW"](net().parameters()), join(tmp_path / "long")) as opt:
        with pytest.raises(ValueError, match="at most 65536 bytes"):
            opt.keep(bytes(65537))


def test_begins_with_a_state_that_was_loaded(tmp_path):
    plain = net()
    own = torch.optim.Adam(plain.parameters(), 1e-2)
    for i in range(3):
        train(plain, own, i)
    ours = copy.deepcopy(plain)
    with waggle.Optimizer(torch.optim.Adam(ours.parameters(), 1e-2), join(tmp_path), ours, target_batch_size=4) as opt:
        opt.load_state_dict(copy.deepcopy(own.state_dict()))  # newer versions of torch keep its tensors
        for i in range(3, 9):
            train(plain, own, i)
            train(ours, opt, i)
            assert equal(ours, plain), i
        with pytest.raises(waggle.Error, match="before the first step"):
            opt.load_state_dict(own.state_dict())
    with waggle.Optimizer(torch.optim.Adam(ours.parameters(), 1e-2), join(tmp_path), ours, target_batch_size=4) as opt:
        opt.kept()
        with pytest.raises(waggle.Error, match="the state of the optimizer is that of the run: .* and before kept"):
            opt.load_state_dict(own.state_dict())


def test_adam_and_adamw_are_those_of_waggle_train():
    from waggle._describe import Description

    for kind, cls in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        weight = torch.nn.Parameter(torch.zeros(2, 3))
        inner = cls([weight])
        assert Description(inner, [weight]).kind == kind
        for decoupled in (True, False):  # newer versions of torch have this option
            inner.param_groups[0]["decoupled_weight_decay"] = decoupled
            assert (Description(inner, [weight]).kind == kind) == (decoupled == (kind == "adamw"))


def test_accumulates_until_the_target(tmp_path):
    ours, plain = net(), net()
    own = torch.optim.SGD(plain.parameters(), 0.1)
    with waggle.Optimizer(torch.optim.SGD(ours.parameters(), 0.1), join(tmp_path), ours, target_batch_size=8) as opt:
        for i in range(0, 20, 2):
            own.zero_grad()
            ((loss_of(plain, i) + loss_of(plain, i + 1)) / 2).backward()
            own.step()
            train(ours, opt, i)
            assert opt.last == "held"
            train(ours, opt, i + 1)
            assert opt.last == "stepped"
            for a, b in zip(ours.parameters(), plain.parameters()):
                torch.testing.assert_close(a, b)


def test_gradients_add_up_where_they_are(tmp_path):
    ours, plain = net(norm=True), net(norm=True)
    own = torch.optim.SGD(plain.parameters(), 0.1)
    with waggle.Optimizer(torch.optim.SGD(ours.parameters(), 0.1), join(tmp_path), ours, target_batch_size=8,
                          reuse_grad_buffers=True, samples=4) as opt:
        for i in range(0, 20, 2):
            own.zero_grad()
            for k in (i, i + 1):
                loss_of(plain, k).backward()
                opt.zero_grad()
                loss_of(ours, k).backward()
                opt.step()
                assert opt.last == ("held" if k == i else "stepped"), k
            for p in plain.parameters():
                p.grad *= 0.5
            own.step()
            assert equal(ours, plain), i
        opt.zero_grad()
        loss_of(ours, 0).backward()
        opt.step()
        assert opt.last == "held"
        with pytest.raises(ValueError, match="over 3 samples, and the one before it over 4: with reuse_grad_buffers"):
            opt.step(samples=3)
        opt.zero_grad()
        loss_of(ours, 1).backward()
        opt.step()
        assert opt.last == "dropped", "the gradient that was refused is in the sum"


def test_a_sum_that_is_not_finite_is_dropped_when_it_is_sent(tmp_path):
    model = net()
    with waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), join(tmp_path), model, target_batch_size=8,
                          reuse_grad_buffers=True, samples=4) as opt:
        outcomes = []
        for i in range(8):
            opt.zero_grad()
            loss_of(model, i).backward()
            if i == 2:
                model[0].weight.grad[0, 0] = float("inf")
            opt.step()
            outcomes.append(opt.last)
        assert outcomes[:4] == ["held", "stepped", "held", "dropped"] and "stepped" in outcomes[4:]
        assert all(torch.isfinite(p).all() for p in model.parameters())
        status = opt.swarm.status()
        assert status.samples_dropped >= 8


@pytest.mark.parametrize("strategy", ["collaborative", "local-updates"])
def test_gradients_that_are_missing_or_not_contiguous(strategy, tmp_path):
    ours, plain = net(), net()
    own = torch.optim.SGD(plain.parameters(), 0.1)
    with waggle.Optimizer(torch.optim.SGD(ours.parameters(), 0.1), join(tmp_path), ours, target_batch_size=4,
                          strategy=strategy, max_gradient_norm=1e9, samples=4) as opt:
        for i in range(4):
            for model, optimizer in ((plain, own), (ours, opt)):
                optimizer.zero_grad(set_to_none=True)
                loss_of(model, i).backward()
                model[0].bias.grad = None
                weight = model[0].weight.grad
                model[0].weight.grad = weight.t().contiguous().t()
                torch.set_default_dtype(torch.float64)  # which is not that of the copies
                optimizer.step()
                torch.set_default_dtype(torch.float32)
            assert equal(ours, plain), i


@pytest.mark.skipif(not hasattr(torch, "set_default_device"), reason="torch 1 has none")
def test_another_default_device_changes_nothing(tmp_path):
    """Tensors that name no device of theirs would be on it."""
    ours, plain = net(norm=True), net(norm=True)
    own = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    inner = torch.optim.SGD(ours.parameters(), 0.1, momentum=0.9)
    try:
        torch.set_default_device("meta")
        with waggle.Optimizer(inner, join(tmp_path), ours, target_batch_size=4, samples=4) as opt:
            for i in range(4):
                for model, optimizer in ((plain, own), (ours, opt)):
                    optimizer.zero_grad()
                    with torch.device("cpu"):
                        loss_of(model, i).backward()
                    weight = model[0].weight.grad
                    model[0].weight.grad = weight.t().contiguous().t()
                    optimizer.step()
                assert opt.last == "stepped" and equal(ours, plain), i
        state = waggle.load_checkpoint(tmp_path / "peer").state_dict()
        assert all(torch.equal(value, plain.state_dict()[name]) for name, value in state.items())
    finally:
        torch.set_default_device(None)


def test_a_checkpoint_is_continued_with_the_frozen_values_that_it_was_made_with(tmp_path):
    """Such as the base of an adapter. Beginning anew, or after any values, another one is right."""
    def steps(base, refused=False, frozen="equal", **more):
        model = net()
        with torch.no_grad():
            model[0].weight.fill_(base)
        model[0].requires_grad_(False)
        with join(tmp_path, **more) as swarm:
            if refused:
                with pytest.raises(ValueError, match="parameter 0.weight, which nobody trains, has other values than when the "
                                                     "checkpoint in .*peer was made: load those, or"):
                    waggle.Optimizer(torch.optim.SGD(model[2].parameters(), 0.1), swarm, model, frozen=frozen)
                return
            with waggle.Optimizer(torch.optim.SGD(model[2].parameters(), 0.1), swarm, model, target_batch_size=4,
                                  frozen=frozen) as opt:
                opt.kept()
                train(model, opt, 0)
                assert opt.last == "stepped"

    steps(1)
    steps(2, refused=True)
    steps(2, resume=False)
    steps(1)
    steps(2, frozen="any")
    steps(3)
    steps(1, refused=True)
    next(tmp_path.rglob("frozen.json")).write_text("half a no")
    with pytest.warns(UserWarning, match="frozen.json cannot be read"):
        steps(3)


def test_a_loop_of_arrays(tmp_path):
    class Line(waggle.LoopModel):
        def __init__(self):
            self.values = torch.zeros(3)
            self.count = 0

        def apply(self, gradient, lr):
            self.values -= 0.5 * torch.frombuffer(gradient, dtype=torch.float32)
            self.count += 1

        def read(self, which, into):
            into[:] = memoryview(bytearray(self.values.numpy().tobytes())).cast("f")

        def steps(self):
            return self.count

    line = Line()
    with waggle.Loop(join(tmp_path), line, [("line", [3])], optimizer="half", target_batch_size=4) as loop:
        for _ in range(3):
            gradient = loop.gradient
            for i in range(3):
                gradient[i] = i + 1.0
            assert loop.offer(4) == "stepped"
    assert line.values.tolist() == [-1.5, -3.0, -4.5]


def test_a_checkpoint_gives_tensors_the_names_of_a_module(tmp_path):
    def inside(*names):
        model = net(seed=2)
        for name in names:
            model = torch.nn.ModuleDict({name: model})
        return model

    trained = torch.nn.Sequential()
    trained.add_module("body", net())
    with waggle.Optimizer(torch.optim.SGD(trained.parameters(), 0.1), join(tmp_path), trained, target_batch_size=4) as opt:
        loss_of(trained, 0).backward()
        opt.step(samples=4)
    found = waggle.load_checkpoint(tmp_path / "peer")
    for module in (trained, inside(), inside("body"), inside("body", "around"), torch.nn.DataParallel(inside("body"))):
        state = found.state_dict(module)
        assert set(state) == set(module.state_dict())
        module.load_state_dict(state)
        assert all(torch.equal(a, b) for a, b in zip(module.parameters(), trained.parameters()))
    for module, sentence in ((torch.nn.Linear(3, 3), "fit in no part of the Linear, which has weight: pass the module"),
                             (torch.nn.ModuleDict({"a": inside("body"), "b": inside("body")}), "fit in several parts")):
        with pytest.raises(ValueError, match=sentence):
            found.state_dict(module)
