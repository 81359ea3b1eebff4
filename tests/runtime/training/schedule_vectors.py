#!/usr/bin/env python3
"""Writes schedule_vectors.json: learning rates per epoch, from torch.optim.lr_scheduler where it has the schedule, else
from Hugging Face's formula as a LambdaLR. The peak is 0.1. Needs PyTorch. Usage: schedule_vectors.py > schedule_vectors.json
"""
import json
import math
import warnings

import torch
from torch.optim import lr_scheduler as lrs

warnings.simplefilter("ignore")
PEAK = 0.1


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)


def rates(make, epochs):
    inner = optimizer()
    schedule = make(inner)
    out = []
    for _ in range(epochs):
        out.append(inner.param_groups[0]["lr"])
        inner.step()
        schedule.step()
    return out


def rule(f):
    return lambda inner: lrs.LambdaLR(inner, f)


def warmup_linear(w, total):
    return lambda e: e / max(1, w) if e < w else max(0.0, (total - e) / max(1, total - w))


def warmup_cosine(w, total):
    """Rises to the peak in the last epoch of the warm-up, unlike Hugging Face's."""
    return lambda e: (e + 1) / w if e < w else 0.5 * (1 + math.cos(math.pi * min((e - w) / (total - w), 1)))


def inverse_sqrt(w):
    return lambda e: e / max(1, w) if e < w else 1 / math.sqrt(e / w)


def wsd(w, decay, total):
    def f(e):
        if e < w:
            return e / max(1, w)
        if e < total - decay:
            return 1.0
        if e < total:
            return max(0.0, 0.5 * (1 + math.cos(math.pi * (e - (total - decay)) / max(1, decay))))
        return 0.0

    return f


# schedule, --warmup-epochs, --epochs, scheduler, epochs to compare
runs = [
    ("constant", 0, 0, rule(lambda e: 1.0), 10),
    ("warmup-cosine", 4, 20, rule(warmup_cosine(4, 20)), 25),
    ("step:every=3", 0, 0, lambda o: lrs.StepLR(o, 3), 20),
    ("step:every=7,factor=0.5", 0, 0, lambda o: lrs.StepLR(o, 7, 0.5), 30),
    ("multi-step:at=3+8+9", 0, 0, lambda o: lrs.MultiStepLR(o, [3, 8, 9]), 15),
    ("multi-step:factor=0.5,at=5+5", 0, 0, lambda o: lrs.MultiStepLR(o, [5, 5], 0.5), 10),
    ("exponential:factor=0.9", 0, 0, lambda o: lrs.ExponentialLR(o, 0.9), 40),
    ("linear:epochs=5", 0, 0, lambda o: lrs.LinearLR(o), 10),
    ("linear:from=1,to=0.25,epochs=9", 0, 0, lambda o: lrs.LinearLR(o, 1, 0.25, 9), 15),
    ("cosine", 0, 20, lambda o: lrs.CosineAnnealingLR(o, 20), 21),
    ("cosine:floor=0.01,epochs=13", 0, 0, lambda o: lrs.CosineAnnealingLR(o, 13, 0.01), 14),
    ("cosine-restarts:first=7", 0, 0, lambda o: lrs.CosineAnnealingWarmRestarts(o, 7), 30),
    ("cosine-restarts:first=3,growth=2,floor=0.02", 0, 0, lambda o: lrs.CosineAnnealingWarmRestarts(o, 3, 2, 0.02), 50),
    ("polynomial:epochs=5", 0, 0, lambda o: lrs.PolynomialLR(o, 5), 8),
    ("polynomial:power=2.5", 0, 30, lambda o: lrs.PolynomialLR(o, 30, 2.5), 33),
    ("one-cycle", 0, 50, lambda o: lrs.OneCycleLR(o, PEAK, 50, cycle_momentum=False), 50),
    ("one-cycle:rise=0.45,start-divisor=10,end-divisor=100,epochs=17", 0, 0,
     lambda o: lrs.OneCycleLR(o, PEAK, 17, pct_start=0.45, div_factor=10, final_div_factor=100, cycle_momentum=False), 17),
    ("warmup-linear:warmup=4", 0, 20, rule(warmup_linear(4, 20)), 25),
    ("warmup-linear:warmup=0,epochs=9", 0, 0, rule(warmup_linear(0, 9)), 12),
    ("warmup-constant:warmup=6", 0, 0, rule(lambda e: min(1, e / 6)), 12),
    ("inverse-sqrt:warmup=10", 0, 0, rule(inverse_sqrt(10)), 100),
    ("wsd:warmup=5,decay=10", 0, 40, rule(wsd(5, 10, 40)), 45),
    ("linear:epochs=5/cosine:floor=0.001,epochs=20", 0, 0,
     lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o), lrs.CosineAnnealingLR(o, 20, 0.001)], [5]), 26),
    ("linear:epochs=5/cosine:floor=0.001,epochs=20/step:every=4,factor=0.5", 0, 0,
     lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o), lrs.CosineAnnealingLR(o, 20, 0.001), lrs.StepLR(o, 4, 0.5)],
                                [5, 25]), 40),
]
out = [
    {"schedule": text, "warmup_epochs": w, "epochs": total, "rates": [float(f"{r:.15g}") for r in rates(make, n)]}
    for text, w, total, make, n in runs
]
print("[" + ",\n ".join(json.dumps(run) for run in out) + "]")
