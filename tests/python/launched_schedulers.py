"""For test_schedulers.py: what `python3 -m waggle` does in a script, for one script after another, each alone and beside
the plain loop. Ends with exit code 1 and what differs."""

import copy
import os
import pathlib
import sys
import warnings

import torch
from support import loss_of, net
from test_schedulers import ALL, OPTIMIZERS, SEVERAL, rates, schedulers

from waggle import _launcher

STEPS = 24
warnings.simplefilter("ignore")  # SequentialLR calls step(0), which torch deprecates


class Wrapper(torch.optim.Optimizer):
    """As that of Accelerate, which schedulers are constructed of."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    defaults = property(lambda self: self.optimizer.defaults)

    def step(self, closure=None):
        self.optimizer.step(closure)

    def zero_grad(self):
        self.optimizer.zero_grad()


def each_step(name, wrap=lambda optimizer: optimizer):
    """A script that steps its schedulers after each step of the optimizer."""
    def script(model, inner, after):
        optimizer = wrap(inner)
        of = schedulers(name, optimizer)
        for i in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, i).backward()
            optimizer.step()
            for scheduler in of:
                scheduler.step()
            after(i, [scheduler.get_last_lr() for scheduler in of])
    return script


def sometimes(make, times, before=False):
    """times(i, schedulers): those that are stepped after (or before) step i; it may add some."""
    def script(model, optimizer, after):
        of = make(optimizer)
        for i in range(STEPS):
            if before:
                for scheduler in times(i, of):
                    scheduler.step()
            optimizer.zero_grad()
            loss_of(model, i).backward()
            optimizer.step()
            if not before:
                for scheduler in times(i, of):
                    scheduler.step()
            after(i, None)
    return script


def phases(i, of):
    if i == 10:
        of.append(rates.ExponentialLR(of[0].optimizer, 0.9))
    return [of[i > 10]]


def step_lr(o):
    return [rates.StepLR(o, 3, 0.5)]


SCRIPTS = {
    **{name: each_step(name) for name in [*ALL, *SEVERAL]},
    "of a framework's wrapper": each_step("SequentialLR", Wrapper),
    "once an epoch of the data": sometimes(step_lr, lambda i, of: of if i % 5 == 4 else []),
    "twice": sometimes(step_lr, lambda i, of: of * 2),
    "before each step": sometimes(step_lr, lambda i, of: of, before=True),
    "one after the other": sometimes(lambda o: [rates.LinearLR(o, 0.1, 1, 8), rates.ExponentialLR(o, 0.9)],
                                     lambda i, of: [of[i >= 8]]),
    "one that is made later": sometimes(lambda o: [rates.LinearLR(o, 0.1, 1, 8)], phases),
    "one that nobody steps": sometimes(lambda o: [rates.ExponentialLR(o, 0.9), rates.StepLR(o, 1)], lambda i, of: of[:1]),
}

folder = pathlib.Path(sys.argv[1])
begin = net()
launcher = _launcher.Launcher("tests", {}, {}, AssertionError)


def run(script):
    model = copy.deepcopy(begin)
    seen = []

    def after(i, last):
        seen.append((torch.cat([p.detach().flatten() for p in model.parameters()]), last))

    script(model, OPTIMIZERS["SGD"](model.parameters()), after)
    return seen


plain = {name: run(script) for name, script in SCRIPTS.items()}
launcher.watch()
differ = []
peers = []  # which would say goodbye one after the other
for name, of_plain in plain.items():
    print(f"case: {name}", file=sys.stderr, flush=True)
    peer = dict(listen="127.0.0.1:0", log_level="warn", data_dir=str(folder / name))
    launcher.__init__("tests", peer, {"target_batch_size": 4}, AssertionError)
    for i, ((a, rate), (b, wanted)) in enumerate(zip(run(SCRIPTS[name]), of_plain)):
        if not torch.equal(a, b) or rate != wanted:
            differ.append(f"{name}, step {i}: {rate} instead of {wanted}")
            break
    peers.append(launcher.optimizer)
    followed = launcher.optimizer._model.followed
    print("followed:", *(type(each.scheduler).__name__ for each in (followed.all if followed else ())), file=sys.stderr)
print(*differ, sep="\n")
sys.stdout.flush()
os._exit(bool(differ))
