#!/usr/bin/env python3
"""Writes plateau_vectors.json: learning rates after each loss, by the definition that PyTorch documents for
ReduceLROnPlateau with mode "min". With --torch, by PyTorch itself (its output is the same). Losses are float32 values.
Usage: plateau_vectors.py [--torch] > plateau_vectors.json
"""
import json
import math
import random
import struct
import sys

PEAK = 0.1


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def rates_by_definition(losses, factor, patience, threshold, absolute, cooldown, floor, eps):
    rate, best, bad, waits = PEAK, math.inf, 0, 0
    out = []
    for loss in losses:
        if loss < (best - threshold if absolute else best * (1 - threshold)):
            best, bad = loss, 0
        else:
            bad += 1
        if waits > 0:
            waits, bad = waits - 1, 0
        if bad > patience:
            lower = max(rate * factor, floor)
            rate = lower if rate - lower > eps else rate
            waits, bad = cooldown, 0
        out.append(rate)
    return out


def rates_of_torch(losses, factor, patience, threshold, absolute, cooldown, floor, eps):
    import torch

    inner = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        inner, factor=factor, patience=patience, threshold=threshold, threshold_mode="abs" if absolute else "rel",
        cooldown=cooldown, min_lr=floor, eps=eps)
    out = []
    for loss in losses:
        schedule.step(loss)
        out.append(inner.param_groups[0]["lr"])
    return out


def falling(epochs, slope, noise, seed, end=0.0):
    """Exponential decay to `end` with noise."""
    random.seed(seed)
    return [end + math.exp(-slope * e) + noise * (random.random() - 0.5) for e in range(epochs)]


# text, losses; omitted numbers have PyTorch's defaults
defaults = {"factor": 0.1, "patience": 10, "threshold": 1e-4, "absolute": 0, "cooldown": 0, "floor": 0, "eps": 1e-8}
runs = [
    ("plateau", [1.0] * 40),
    ("plateau", falling(120, 0.1, 0.05, 1)),
    ("plateau:patience=0", [2, 1, 1, 0.5, 0.6, 0.4, 0.4, 0.4, 0.4]),
    ("plateau:patience=0,factor=0", [1, 1, 0.5, 0.6, 0.6]),
    ("plateau:patience=2,factor=0.5", falling(100, 0.05, 0.2, 2)),
    ("plateau:patience=3,cooldown=5,factor=0.3", falling(100, 0.2, 0.1, 3)),
    ("plateau:patience=1,cooldown=1", [1.0] * 30),
    ("plateau:patience=0,factor=0.5,floor=0.02", [1.0] * 12),
    ("plateau:patience=0,factor=0.5,eps=0.01", [1.0] * 12),
    ("plateau:patience=0,factor=0.9,floor=0.05,eps=0", [1.0] * 20),
    ("plateau:patience=2,threshold=0.1", [1 / (1 + 0.05 * e) for e in range(60)]),
    ("plateau:patience=2,threshold=0.1,absolute=1", [2 - 0.04 * e for e in range(60)]),
    ("plateau:patience=2,threshold=0.0625,absolute=1", [8 - 0.0625 * e for e in range(20)]),
    ("plateau:patience=1,threshold=0", [1, 1, 0.999999, 1, 1, 1]),
    ("plateau:patience=2,factor=0.5", [-1 - 0.1 * (e % 7) for e in range(30)]),
    ("plateau:patience=4,factor=0.2,cooldown=2,absolute=1", falling(150, 0.03, 0.3, 4, -0.5)),
]
rates = rates_of_torch if "--torch" in sys.argv else rates_by_definition
out = []
for text, losses in runs:
    numbers = dict(defaults)
    for setting in text.split(":")[1].split(",") if ":" in text else []:
        name, value = setting.split("=")
        numbers[name] = int(value) if name in ("patience", "absolute", "cooldown") else float(value)
    losses = [float32(x) for x in losses]
    out.append({"schedule": text, "losses": losses, "rates": rates(losses, **numbers)})
print("[" + ",\n ".join(json.dumps(run) for run in out) + "]")
