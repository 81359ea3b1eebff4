"""Optimizers that keep a part of their state elsewhere than torch's do."""

import copy
import threading

import pytest
import torch
from support import equal, join, loss_of, net

import waggle
from waggle._model import Model


class Free(torch.optim.Optimizer):
    """Free of a schedule: counts and weights in the parameter groups, and has two modes."""

    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr, k=0, weight_sum=0.0, train_mode=False))

    def train(self):
        self._switch(True, 0.1)

    def eval(self):
        self._switch(False, 1 - 1 / 0.9)

    @torch.no_grad()
    def _switch(self, mode, weight):
        for group in self.param_groups:
            if group["train_mode"] != mode:
                group["train_mode"] = mode
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(self.state[p]["z"], weight)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if not group["train_mode"]:
                raise RuntimeError("call train() before")
            weight = (1 + group["k"]) ** 0.5 * group["lr"]
            group["weight_sum"] += weight
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, weight / group["weight_sum"]).sub_(p.grad, alpha=group["lr"] * 0.1)
                z.sub_(p.grad, alpha=group["lr"])
            group["k"] += 1


class Ahead(torch.optim.Optimizer):
    """Looks ahead around another optimizer, whose state is its own, and goes back every third step."""

    def __init__(self, base, own_state=False):
        self.base, self.param_groups, self.defaults = base, base.param_groups, base.defaults
        self.state = {} if own_state else base.state
        for group in self.param_groups:
            group["counter"] = 0

    def zero_grad(self):
        self.base.zero_grad()

    def state_dict(self):
        return self.base.state_dict()

    @torch.no_grad()
    def step(self, closure=None):
        self.base.step()
        for group in self.param_groups:
            group["counter"] = (group["counter"] + 1) % 3
            for p in group["params"]:
                slow = self.state.setdefault(p, {}).setdefault("slow", p.clone())
                if group["counter"] == 0:
                    slow.lerp_(p, 0.5)
                    p.copy_(slow)


class Noisy(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(torch.randn_like(p), alpha=group["lr"] * 0.01)


MAKE = {
    "free": lambda p: Free(p, 0.05),
    "ahead": lambda p: Ahead(torch.optim.Adam(p, 0.02)),
    "ahead of groups": lambda p: (lambda p: Ahead(torch.optim.SGD(
        [{"params": p[:1]}, {"params": p[1:], "lr": 0.02}], 0.05, momentum=0.9)))(list(p)),
}


def train(model, optimizer, i):
    if isinstance(getattr(optimizer, "_inner", optimizer), Free):
        optimizer.train()
    optimizer.zero_grad()
    loss_of(model, i).backward()
    optimizer.step()


@pytest.mark.parametrize("kind", list(MAKE))
def test_what_is_kept_in_groups_is_a_part_of_the_state(kind, tmp_path):
    """Alone it is the plain loop, also of a loop that starts again from another model."""
    plain = net()
    own = MAKE[kind](plain.parameters())
    for start in range(3):
        ours = net(seed=start + 1)
        with waggle.Optimizer(MAKE[kind](ours.parameters()), join(tmp_path), ours, target_batch_size=4, samples=4) as opt:
            if kind == "free" and start == 2:
                opt.train()
            opt.kept()
            for i in range(4 * start, 4 * start + 4):
                train(plain, own, i)
                train(ours, opt, i)
                assert opt.last == "stepped" and equal(ours, plain), (start, i)
            for ours_of, theirs in zip(opt.param_groups, own.param_groups):
                assert {n: v for n, v in ours_of.items() if n != "params"} == \
                       {n: v for n, v in theirs.items() if n != "params"}
            if kind == "free" and start == 1:
                opt.eval()  # to measure, and it ends so
                own.eval()
                assert equal(ours, plain)
    status = opt.swarm.status()
    assert status.samples_dropped == 0


def test_a_trial_changes_nothing_of_the_optimizer(tmp_path):
    """Neither the random numbers that come next."""
    model = net()
    lock = threading.Lock()
    for kind, make in {**MAKE, "noisy": lambda p: Noisy(p, 0.1)}.items():
        inner = make(model.parameters())
        inner.lock = lock  # which cannot be copied
        torch.optim.lr_scheduler.StepLR(inner, 1)  # whose wrapper of step refers to the optimizer
        before = copy.deepcopy((inner.state_dict(), model.state_dict()))
        torch.manual_seed(5)
        with waggle.Optimizer(inner, join(tmp_path / kind), model):
            assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(5))), kind
            assert inner.state_dict() == before[0] and inner.lock is lock
            assert all(torch.equal(value, before[1][name]) for name, value in model.state_dict().items())


def test_what_is_kept_elsewhere_is_refused_before_the_peer_listens(tmp_path):
    model = net()

    class Counts(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            super().step()

    class Lists(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            self.param_groups[0]["words"] = [*self.param_groups[0].get("words", ()), "one"]

    class Global(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            self.state["all"]["steps"] = 1

    swarm = join(tmp_path)
    for inner, kind, sentence in (
            (Ahead(torch.optim.Adam(model.parameters(), 0.1), own_state=True), TypeError,
             "Ahead keeps something in its attribute base that its steps change"),
            (Counts(model.parameters(), 0.1), TypeError, "Counts keeps something in its attribute calls"),
            (Lists(model.parameters(), 0.1), TypeError, "the optimizer keeps words, which is of type list"),
            (Global(model.parameters(), 0.1), TypeError, "Global keeps 'all' in its state, which is of no parameter")):
        with pytest.raises(kind, match=sentence):
            waggle.Optimizer(inner, swarm, model)
        assert swarm.address is None
    assert "calls" not in vars(Counts(model.parameters(), 0.1))


class Wrapped(torch.nn.Module):
    """As DistributedDataParallel and DataParallel are."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def compiled(module):
    """As torch.compile does it: a part, and the whole."""
    class Optimized(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self._orig_mod = inner

        def forward(self, x):
            return self._orig_mod(x)

    module[0] = Optimized(module[0])
    return Optimized(module)


def test_a_wrapped_module_has_the_names_of_the_plain_one(tmp_path):
    with waggle.Optimizer(torch.optim.SGD((plain := net(norm=True)).parameters(), 0.1), join(tmp_path / "1"), plain,
                          target_batch_size=4, samples=4) as first:
        train(plain, first, 0)
    for wrap in (Wrapped, compiled, lambda m: Wrapped(compiled(m))):
        ours = net(seed=2, norm=True)
        whole = wrap(ours)
        inner = torch.optim.SGD(whole.parameters(), 0.1)
        with waggle.Optimizer(inner, join(tmp_path / "1"), whole, target_batch_size=4, samples=4) as opt:
            opt.kept()  # the state of the plain one
            assert opt.swarm.epoch == 1
            assert [n for n, _ in opt._model.parameters] == [n for n, _ in first._model.parameters]
            assert [b.name for b in opt._model.buffers] == [b.name for b in first._model.buffers]
            for a, b in zip(whole.parameters(), plain.parameters()):
                assert torch.equal(a, b)


HOOKS = pytest.mark.skipif(not hasattr(torch.optim.SGD, "register_step_post_hook"), reason="torch 1 has no hooks of optimizers")
calls = []


def momentum_in_bfloat16(optimizer, arguments, named):
    calls.append(1)
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            state["momentum_buffer"] = state["momentum_buffer"].bfloat16()
            state["seen"] = state.get("seen", 0) + 1


@HOOKS
@pytest.mark.parametrize("everywhere", [False, True])
def test_what_hooks_keep_is_a_part_of_the_state(everywhere, tmp_path):
    """Alone it is the plain loop, also of a loop that starts again from another model. Trials call copies of the hooks."""
    def make(model):
        made = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        if not everywhere:
            made.register_step_post_hook(momentum_in_bfloat16)
        return made

    calls.clear()
    plain = net()
    if everywhere:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        handle = register_optimizer_step_post_hook(momentum_in_bfloat16)
    try:
        own = make(plain)
        for start in range(2):
            ours = net(seed=start + 1)
            with waggle.Optimizer(make(ours), join(tmp_path), ours, target_batch_size=4, samples=4) as opt:
                opt.kept()
                assert len(calls) == 8 * start
                for i in range(4 * start, 4 * start + 4):
                    train(plain, own, i)
                    train(ours, opt, i)
                    assert opt.last == "stepped" and equal(ours, plain), (start, i)
                kept = opt.state[ours[0].weight]
                assert kept["momentum_buffer"].dtype is torch.bfloat16 and kept["seen"] == 4 * start + 4
    finally:
        if everywhere:
            handle.remove()


@HOOKS
@pytest.mark.parametrize("steps", [0, 3])
def test_a_hook_that_comes_later_and_keeps_something_is_refused(steps, tmp_path):
    model = net()
    with waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), join(tmp_path), model, target_batch_size=4,
                          samples=4) as opt:
        for _ in range(steps):
            train(model, opt, 0)
        opt.register_step_post_hook(momentum_in_bfloat16)
        train(model, opt, 0)
        with pytest.raises(waggle.Error, match="keeps momentum_buffer of parameter 0.weight as torch.bfloat16, which a step of "
                                               "a copy .*: register hooks of the optimizer before") as refused:
            train(model, opt, 1)
        assert refused.value.code == "schema_mismatch"


@HOOKS
def test_a_trial_calls_hooks_without_an_effect(tmp_path):
    """An average of the weights, say, which is made once an update."""
    model = net()
    average = copy.deepcopy(model)
    inner = torch.optim.SGD(model.parameters(), 0.05)
    made = {"updates": 0}

    def hook(optimizer, arguments, named):
        made["updates"] += 1
        for p, q in zip(average.parameters(), model.parameters()):
            p.data.lerp_(q, 1 / (made["updates"] + 1))

    inner.register_step_post_hook(hook)
    before = copy.deepcopy(average)
    with waggle.Optimizer(inner, join(tmp_path), model, target_batch_size=8, samples=4) as opt:
        assert made["updates"] == 0 and equal(average, before)
        for i in range(4):
            train(model, opt, i)
        assert made["updates"] == opt.swarm.epoch == 2 and not equal(average, before)


def test_several_optimizers_of_one_model_make_one_update(tmp_path):
    """Each with a scheduler; behind a stop, all of their states are there again."""
    def made(model):
        of_matrices = getattr(torch.optim, "Muon", lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9))
        optimizers = [of_matrices([p for p in model.parameters() if p.dim() > 1], 0.1),
                      torch.optim.AdamW([p for p in model.parameters() if p.dim() < 2], 0.1)]
        return optimizers, [torch.optim.lr_scheduler.StepLR(each, n, 0.5) for n, each in enumerate(optimizers, 3)]

    def step(model, i, optimizers, schedulers, **more):
        loss_of(model, i).backward()
        for each in optimizers:
            each.step(**more)
        for each in schedulers:
            each.step()
        for each in optimizers:
            each.zero_grad()

    begin = net()
    plain = copy.deepcopy(begin)
    own = made(plain)
    for start in (0, 6):
        ours = copy.deepcopy(begin)
        optimizers, schedulers = made(ours)
        with waggle.Optimizer(optimizers, join(tmp_path), ours, target_batch_size=4, samples=4) as opt:
            for each in schedulers:
                opt.follow(each)
            opt.kept()
            for i in range(start, start + 6):
                step(plain, i, *own)
                step(ours, i, [opt], schedulers)
                assert opt.last == "stepped" and equal(ours, plain), i
            opt.zero_grad(set_to_none=False)
            assert len(opt.param_groups) == 2 and len(opt.state) == 4 and "Adam" in repr(opt)


def test_several_optimizers_that_are_not_of_one_model_are_refused(tmp_path):
    model = net()
    one, *rest = model.parameters()
    sgd = torch.optim.SGD([one], 0.1)
    swarm = join(tmp_path)
    for optimizers, error, sentence in (
            ([], ValueError, "a list without optimizers"),
            ([sgd, model], TypeError, "a list with a Sequential"),
            ([sgd, torch.optim.Adam(model.parameters())], ValueError, "have a parameter in common"),
            ([sgd], ValueError, "parameter 0.bias is trainable, .* or pass all optimizers of the module as a list"),
            ([sgd, torch.optim.LBFGS(rest)], ValueError, "SGD and LBFGS is not supported")):
        with pytest.raises(error, match=sentence):
            waggle.Optimizer(optimizers, swarm, model, target_batch_size=4)
    swarm.leave()


@pytest.mark.parametrize("make", [lambda p: torch.optim.AdamW(p, 0.01), lambda p: torch.optim.NAdam(p, 0.01)])
def test_a_statistic_that_is_averaged_before_the_first_step_is_of_no_harm(make):
    """A round of parameters may end before the first pass of this peer."""
    ours, plain = net(), net()
    model = Model(make(ours.parameters()), list(ours.named_parameters()), [], [None] * 4)
    own = make(plain.parameters())
    name = [s.sent_name for p, s in model.tensors if s is not None and torch.Size(s.shape) == p.shape][-1]
    for which, (parameter, statistic) in enumerate(model.tensors):
        if statistic is not None and statistic.sent_name == name:
            model.write_part(which, torch.zeros(parameter.numel()))
    for i in range(3):
        for each in (ours, plain):
            each.zero_grad()
            loss_of(each, i).backward()
        model.step(0.01)
        own.step()
    assert equal(ours, plain)
