"""Schedulers of torch, followed or launched: one peer alone has the rates of the plain loop, bit by bit."""

import concurrent.futures
import copy
import pathlib
import warnings

import pytest
import torch
from support import equal, join, loss_of, net, processes
from torch.optim import lr_scheduler as rates

import waggle
from waggle._model import Model
from waggle._schedulers import Followed

HERE = pathlib.Path(__file__).parent
PRELUDE = 12
pytestmark = pytest.mark.filterwarnings("ignore")  # SequentialLR calls step(0), which torch deprecates


class Root:
    """A function of LambdaLR that has a state."""

    def __init__(self):
        self.calls = 0

    def __call__(self, step):
        self.calls += 1
        return (1 + step) ** -0.5


class Warm(rates.StepLR):
    """Not in torch: goes on with another one after some steps."""

    def __init__(self, optimizer, after):
        self.after = after
        super().__init__(optimizer, 1, 1.5)

    def step(self, epoch=None):
        if self.last_epoch < 4:
            super().step()
        else:
            self.last_epoch += 1
            self.after.step()


def cyclic(o, **more):
    return rates.CyclicLR(o, 0.01, 0.1, 4, cycle_momentum="momentum" in o.defaults, **more)


ALL = {
    "LambdaLR": lambda o: rates.LambdaLR(o, lambda step: 1 / (1 + step)),
    "LambdaLR with a state": lambda o: rates.LambdaLR(o, Root()),
    "MultiplicativeLR": lambda o: rates.MultiplicativeLR(o, lambda step: 0.95),
    "StepLR": lambda o: rates.StepLR(o, 5, 0.5),
    "MultiStepLR": lambda o: rates.MultiStepLR(o, [3, 14, 20], 0.3),
    "ConstantLR": lambda o: rates.ConstantLR(o, 0.3, 15),
    "LinearLR": lambda o: rates.LinearLR(o, 0.1, 1, 17),
    "ExponentialLR": lambda o: rates.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: rates.PolynomialLR(o, 20, 2),
    "CosineAnnealingLR": lambda o: rates.CosineAnnealingLR(o, 9),
    "CosineAnnealingWarmRestarts": lambda o: rates.CosineAnnealingWarmRestarts(o, 4, 2),
    "CyclicLR": lambda o: cyclic(o, step_size_down=3, mode="exp_range", gamma=0.9),
    "OneCycleLR": lambda o: rates.OneCycleLR(o, 0.2, total_steps=40),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.02, 8),
    "own": lambda o: Warm(o, rates.ExponentialLR(o, 0.8)),
    "SequentialLR": lambda o: rates.SequentialLR(
        o, [rates.LinearLR(o, 0.1, 1, 5), rates.CosineAnnealingLR(o, 20)], [5]),
    "SequentialLR of three": lambda o: rates.SequentialLR(
        o, [rates.ConstantLR(o, 0.1, 4), rates.CosineAnnealingWarmRestarts(o, 5), rates.ExponentialLR(o, 0.9)], [4, 16]),
    "ChainedScheduler": lambda o: rates.ChainedScheduler([rates.ConstantLR(o, 0.1, 6), rates.ExponentialLR(o, 0.9)]),
    "ChainedScheduler of cycles": lambda o: rates.ChainedScheduler(
        [cyclic(o), rates.StepLR(o, 7, 0.5)]),
    "ChainedScheduler of a SequentialLR": lambda o: rates.ChainedScheduler(
        [rates.SequentialLR(o, [rates.ConstantLR(o, 0.5, 3), rates.StepLR(o, 4, 0.7)], [3]), rates.ExponentialLR(o, 0.95)]),
    "SequentialLR of a SequentialLR": lambda o: rates.SequentialLR(
        o, [rates.SequentialLR(o, [rates.LinearLR(o, 0.2, 1, 3), rates.StepLR(o, 2, 0.9)], [3]),
            rates.ExponentialLR(o, 0.9)], [8]),
}
SEVERAL = {
    "two": lambda o: [rates.StepLR(o, 5, 0.5), rates.LinearLR(o, 0.1, 1, 9)],
    "two of which one is of others": lambda o: [rates.ExponentialLR(o, 0.97), ALL["SequentialLR"](o)],
}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 0.1),
}


def schedulers(name, optimizer):
    made = (SEVERAL.get(name) or ALL[name])(optimizer)
    return made if isinstance(made, list) else [made]


def train(model, optimizer, of, steps, before=0, **more):
    for i in range(before, before + steps):
        optimizer.zero_grad()
        loss_of(model, i).backward()
        optimizer.step(**more)
        for each in of:
            each.step()


def numbers(optimizer):
    return [{n: v for n, v in group.items() if n in ("lr", "momentum", "betas")} for group in optimizer.param_groups]


def each(case, names):
    """In threads, because a peer that leaves waits."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(case, names))


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("prelude", [0, PRELUDE])
def test_each_scheduler_is_that_of_the_plain_loop(prelude, optimizer, tmp_path):
    begin = net()

    def case(name):
        plain, ours = copy.deepcopy(begin), copy.deepcopy(begin)
        own, inner = OPTIMIZERS[optimizer](plain.parameters()), OPTIMIZERS[optimizer](ours.parameters())
        own_rates, of = schedulers(name, own), schedulers(name, inner)
        train(plain, own, own_rates, prelude)
        train(ours, inner, of, prelude)
        with waggle.Optimizer(inner, join(tmp_path / name), ours, target_batch_size=4, samples=4) as opt:
            for scheduler in of:
                assert opt.follow(scheduler) is scheduler
            for i in range(prelude, 30):
                train(plain, own, own_rates, 1, i)
                train(ours, opt, of, 1, i)
                assert equal(ours, plain), (name, i)
                assert numbers(inner) == numbers(own), (name, i)
                assert [s.get_last_lr() for s in of] == [s.get_last_lr() for s in own_rates], (name, i)

    each(case, [*ALL, *SEVERAL])


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_each_scheduler_goes_back_with_a_state_that_is_older(optimizer, tmp_path):
    """Also behind the steps that this loop had made before it joined."""
    begin = net()

    def case(name):
        model, own = copy.deepcopy(begin), copy.deepcopy(begin)
        inner = OPTIMIZERS[optimizer](model.parameters())
        of = schedulers(name, inner)
        train(model, inner, of, PRELUDE)
        with waggle.Optimizer(inner, join(tmp_path / name), model, target_batch_size=4, samples=4) as opt:
            for scheduler in of:
                opt.follow(scheduler)
            train(model, opt, of, 10)
            for steps in (15, 30, 13, PRELUDE, 7, 9, 0, 20):
                plain = OPTIMIZERS[optimizer](own.parameters())
                plain_rates = schedulers(name, plain)
                for _ in range(steps):
                    for scheduler in plain_rates:
                        scheduler.step()
                opt._model.set_steps(steps)  # as a state of the run does
                for scheduler in of:
                    scheduler.step()
                if steps >= PRELUDE or name != "own":  # whose constructor is not known
                    assert numbers(inner) == numbers(plain), (name, steps)

    each(case, [*ALL, *SEVERAL])


def test_a_loop_that_starts_again_or_joins_has_the_rates_of_the_run(tmp_path):
    """SGD keeps no count of its steps, and the loop had made some before the run began."""
    begin = net()

    def case(optimizer):
        plain = copy.deepcopy(begin)
        own = OPTIMIZERS[optimizer](plain.parameters())
        own_rates = rates.StepLR(own, 5, 0.5)
        train(plain, own, [own_rates], PRELUDE)
        done = PRELUDE
        for prelude in (PRELUDE, PRELUDE, 0, 20):
            ours = copy.deepcopy(begin)
            inner = OPTIMIZERS[optimizer](ours.parameters())
            # Before the steps, or peers compare other rates.
            of = rates.StepLR(inner, 5, 0.5)
            train(ours, inner, [of], prelude)
            with waggle.Optimizer(inner, join(tmp_path / optimizer), ours, target_batch_size=4, samples=4) as opt:
                opt.follow(of)
                opt.kept()
                for i in range(done, done + 4):
                    train(plain, own, [own_rates], 1, i)
                    train(ours, opt, [of], 1, i)
                    assert opt.last == "stepped" and equal(ours, plain), (optimizer, prelude, i)
                    assert numbers(inner) == numbers(own)
            done += 4

    each(case, OPTIMIZERS)


def test_a_followed_schedule_is_stated_once_other_loops_set_other_rates():
    def made():
        model = net()
        inner = torch.optim.SGD(model.parameters(), 0.1)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        return Model(inner, list(model.named_parameters()), [], [None] * 4)
    follower, setter = made(), made()
    follower.followed = Followed(follower)
    follower.followed.add(rates.ExponentialLR(follower.inner, 0.5))
    setter.inner.param_groups[0]["lr"] = 0.7
    present, places = [True] * 4, len(setter.numbers.places)

    def update(*contributors):
        """Made by both. Returns the rates."""
        stated = [each.terms(present)[:3].double().sum().item() for each in contributors]
        rate = min((one for one in stated if one < 1e30), default=None)
        for each in (follower, setter):
            each._inner_step(0, [rate, *[None] * (places - 1)] * 4)
        return follower.numbers.rate, setter.numbers.rate

    assert update(follower) == pytest.approx((0.1, 0.7)), "the setter learns of no rate"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert update(setter) == update(follower, setter) == (0.7, 0.7), "it alone sets one, and the other adopts it"
        assert update(follower)[0] == 0.1 * 0.5**3
    with pytest.warns(UserWarning, match="follows a schedule that has the learning rate 0.00625, .* with 0.7"):
        assert update(setter) == (0.7, 0.7)
    for n in range(5, 11, 2):
        assert update(follower) == (0.1 * 0.5**n, 0.1 * 0.5**n), "where the run is"
        assert update(follower, setter) == (0.1 * 0.5**(n + 1), 0.1 * 0.5**(n + 1)), "of two the lower"


def test_a_scheduler_that_ends_before_the_run_stays_at_its_last_rate(tmp_path, caplog):
    model = net()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    of = rates.OneCycleLR(inner, 0.2, total_steps=6)
    with waggle.Optimizer(inner, join(tmp_path), model, target_batch_size=4, samples=4) as opt:
        opt.follow(of)
        train(model, opt, [of], 6)
        last = numbers(inner)
        train(model, opt, [of], 3)
        assert opt.last == "stepped" and numbers(inner) == last
    assert len(caplog.messages) == 1 and "the OneCycleLR ends at update 7" in caplog.text


def test_what_cannot_be_followed_is_refused_with_its_name(tmp_path):
    model = net()
    inner = torch.optim.SGD(model.parameters(), 0.1)

    class Metric(rates.StepLR):
        def step(self, metric=0):
            super().step()

    class Wrapper:
        def __init__(self, scheduler):
            self.scheduler = scheduler

    other = torch.optim.SGD(net().parameters(), 0.1)
    with waggle.Optimizer(inner, join(tmp_path), model, target_batch_size=4, samples=4) as opt:
        for made, kind, sentence in (
                (rates.ReduceLROnPlateau(inner), TypeError, "the ReduceLROnPlateau cannot be followed: it depends on a metric.*'plateau'"),
                (Metric(inner, 1), TypeError, "the Metric cannot be followed: its step takes metric"),
                (torch.optim.lr_scheduler, TypeError, "not a module: set the rates in the loop"),
                (rates.StepLR(other, 5), ValueError, "the StepLR belongs to another optimizer")):
            with pytest.raises(kind, match=sentence):
                opt.follow(made)
        parts = [rates.ConstantLR(inner, 0.5, 3), rates.ExponentialLR(inner, 0.5)]
        whole = rates.ChainedScheduler(parts)
        for scheduler in (parts[0], Wrapper(whole), whole, parts[1]):
            assert opt.follow(scheduler) is scheduler
        train(model, opt, [whole], 4)
        assert inner.param_groups[0]["lr"] == 0.1 * 0.5**4  # each part was stepped once for each update


def test_launched_scripts_have_the_rates_of_the_plain_loop(tmp_path):
    with processes(tmp_path) as start:
        process = start.python("launched", HERE / "launched_schedulers.py", tmp_path)
        assert process.ended() == 0, process.log
        own = "its rates are the script's own"
        for case, said in (
                ("StepLR", ["followed: StepLR"]), ("SequentialLR", ["followed: SequentialLR"]),
                ("of a framework's wrapper", ["followed: SequentialLR"]),
                ("two of which one is of others", ["followed: ExponentialLR SequentialLR"]),
                ("once an epoch of the data", ["waggle: the script does not step the StepLR once for each step of the "
                                               f"optimizer; {own}", "followed:"])):
            of_case = process.log.split(f"case: {case}\n")[1].split("case: ")[0]
            assert [line.strip() for line in of_case.splitlines() if "is a peer of" not in line] == said
