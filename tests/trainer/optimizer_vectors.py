#!/usr/bin/env python3
"""Writes optimizer_vectors.json: parameters after 1 and 12 steps of each optimizer, from torch.optim where it has the
optimizer, else from the few lines below, which follow the papers. A model of three tensors: 5 x 7, 6 x 4 and 6 values, and for
optimizers that treat a tensor as a matrix two more, of three and four dimensions.

In float64, except that the parameters and gradients are float32 numbers; so the vectors say what our float32 steps should
be close to. Muon is in float32, as ours (its authors compute the Newton-Schulz steps in bfloat16).
Needs PyTorch. Usage: optimizer_vectors.py > optimizer_vectors.json
"""
import json
import math

import torch

SHAPES = [(5, 7), (6, 4), (6,), (2, 3, 4), (9, 2, 2, 2)]
TENSORS = 3  # the first ones, except for optimizers that reshape
RESHAPING = {"adafactor", "muon"}
STEPS = 12
LR = 0.01


def noise(seed, shape):
    """The same on every version of PyTorch."""
    n = math.prod(shape)
    waves = [10000 * math.sin(12.9898 * (seed * 1000 + i) + 78.233) for i in range(n)]
    return torch.tensor([2 * (w - math.floor(w)) - 1 for w in waves]).float().reshape(shape)


def begin():
    return [noise(k, s) for k, s in enumerate(SHAPES)]


def gradients(step):
    return [noise(100 + 10 * step + k, s) * (0.1 if step % 3 else 1) for k, s in enumerate(SHAPES)]


def values_of(tensors):
    """Nine digits are enough for a float32."""
    return [float(f"{v:.9g}") for v in torch.cat([x.detach().reshape(-1) for x in tensors]).tolist()]


# -- references ---------------------------------------------------------------------------------------------------------
# Each returns a function of (parameter, gradient, step from 1 on) that changes the parameter.


def sgdw(n, wd):
    m = n.get("momentum", 0)
    buffer = None

    def step(p, g, t):
        nonlocal buffer
        p.mul_(1 - LR * wd)
        buffer = g.clone() if buffer is None else m * buffer + (1 - n.get("dampening", 0)) * g
        p.sub_(LR * (g + m * buffer if n.get("nesterov") else buffer))

    return step


def adam_moments(n):
    m = v = 0.0

    def moments(g):
        nonlocal m, v
        m = n.get("beta1", 0.9) * m + (1 - n.get("beta1", 0.9)) * g
        v = n.get("beta2", 0.999) * v + (1 - n.get("beta2", 0.999)) * g * g
        return m, v

    return moments


def adamw(n, wd):
    moments = adam_moments(n)

    def step(p, g, t):
        m, v = moments(g)
        p.mul_(1 - LR * wd)
        m_hat, v_hat = m / (1 - n.get("beta1", 0.9) ** t), v / (1 - n.get("beta2", 0.999) ** t)
        p.sub_(LR * m_hat / (v_hat.sqrt() + n.get("epsilon", 1e-8)))

    return step


def lamb(n, wd):
    moments = adam_moments(n)

    def step(p, g, t):
        m, v = moments(g)
        rate = LR * math.sqrt(1 - n.get("beta2", 0.999) ** t) / (1 - n.get("beta1", 0.9) ** t)
        u = m / (v.sqrt() + n.get("epsilon", 1e-6)) + wd * p
        length, size = min(p.norm().item(), 10000), u.norm().item()
        p.sub_(rate * (length / size if length > 0 and size > 0 else 1) * u)

    return step


def lars(n, wd):
    buffer = 0.0

    def step(p, g, t):
        nonlocal buffer
        length, slope = p.norm().item(), g.norm().item()
        trust = n.get("trust", 1e-3) * length / (slope + wd * length + n.get("epsilon", 1e-8)) if length and slope else 1
        buffer = n.get("momentum", 0.9) * buffer + trust * (g + wd * p)
        p.sub_(LR * buffer)

    return step


def lion(n, wd):
    m = 0.0

    def step(p, g, t):
        nonlocal m
        beta1, beta2 = n.get("beta1", 0.9), n.get("beta2", 0.99)
        p.mul_(1 - LR * wd)
        p.sub_(LR * torch.sign(beta1 * m + (1 - beta1) * g))
        m = beta2 * m + (1 - beta2) * g

    return step


def adafactor(n, wd):
    row = col = v = 0.0

    def step(p, g, t):
        nonlocal row, col, v
        beta = 1 - t**-0.8
        squares = g * g + n.get("epsilon", 1e-30)
        if p.dim() < 2:
            v = beta * v + (1 - beta) * squares
            estimate = v
        else:
            # The last dimension has the columns; all others together have the rows.
            row = beta * row + (1 - beta) * squares.mean(-1)
            col = beta * col + (1 - beta) * squares.mean(tuple(range(p.dim() - 1)))
            estimate = row.unsqueeze(-1) * col / row.mean()
        u = g / estimate.sqrt()
        u = u / max(1.0, u.square().mean().sqrt().item())
        size = max(1e-3, p.square().mean().sqrt().item())
        p.mul_(1 - LR * wd)
        p.sub_(LR * size * u)

    return step


def muon(n, wd):
    vectors = adamw(n, wd)
    buffer = 0.0

    def orthogonalize(x):
        tall = x.size(0) > x.size(1)
        x = x.T if tall else x
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x.T if tall else x

    def step(p, g, t):
        nonlocal buffer
        if p.dim() < 2:
            return vectors(p, g, t)
        m = n.get("momentum", 0.95)
        buffer = m * buffer + (1 - m) * g
        u = (1 - m) * g + m * buffer if n.get("nesterov", True) else buffer
        # The first dimension has the rows; all others together have the columns.
        matrix = orthogonalize(u.flatten(1))
        p.mul_(1 - LR * wd)
        p.sub_(LR * 0.2 * math.sqrt(max(matrix.shape)) * matrix.reshape(p.shape))

    return step


# -- runs ---------------------------------------------------------------------------------------------------------------

own = {"sgdw": sgdw, "lamb": lamb, "lars": lars, "lion": lion, "adafactor": adafactor, "muon": muon}
of_torch = {
    "sgd": lambda ps, n, wd: torch.optim.SGD(
        ps, LR, n.get("momentum", 0), n.get("dampening", 0), wd, bool(n.get("nesterov", 0))),
    "adagrad": lambda ps, n, wd: torch.optim.Adagrad(ps, LR, weight_decay=wd, eps=n.get("epsilon", 1e-10)),
    "rmsprop": lambda ps, n, wd: torch.optim.RMSprop(
        ps, LR, n.get("smoothing", 0.99), n.get("epsilon", 1e-8), wd, n.get("momentum", 0), bool(n.get("centered", 0))),
}
for name, cls in ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW):
    of_torch[name] = lambda ps, n, wd, cls=cls: cls(
        ps, LR, (n.get("beta1", 0.9), n.get("beta2", 0.999)), n.get("epsilon", 1e-8), wd, bool(n.get("amsgrad", 0)))


def run(name, numbers, decay, vectors_decay):
    kind = torch.float32 if name == "muon" else torch.float64
    tensors = len(SHAPES) if name in RESHAPING else TENSORS
    parameters = [p.to(kind) for p in begin()[:tensors]]
    decays = [decay if vectors_decay or p.dim() >= 2 else 0 for p in parameters]
    if name in own:
        rules = [own[name](numbers, wd) for wd in decays]
    else:
        rules = [of_torch[name]([p.requires_grad_()], numbers, wd) for p, wd in zip(parameters, decays)]
    seen = []
    for t in range(1, STEPS + 1):
        for p, g, rule in zip(parameters, gradients(t), rules):
            if name in own:
                rule(p, g.to(kind), t)
            else:
                p.grad = g.to(kind)
                rule.step()
        if t in (1, STEPS):
            seen.append(values_of(parameters))
    return {"optimizer": name, "numbers": numbers, "weight_decay": decay, "vectors_decay": vectors_decay,
            "tensors": tensors, "after": seen}


# Every option of every optimizer differs from its default in one of them. Epsilons are large enough to change the steps.
momentum = {"momentum": 0.9}
runs = [
    ("sgd", {}), ("sgd", momentum), ("sgd", {"momentum": 0.9, "nesterov": 1}), ("sgd", {"momentum": 0.9, "dampening": 0.3}),
    ("sgdw", momentum), ("sgdw", {"momentum": 0.9, "nesterov": 1}), ("sgdw", {"momentum": 0.8, "dampening": 0.2}),
    ("adam", {}), ("adam", {"amsgrad": 1, "beta2": 0.9}), ("adam", {"beta1": 0.8, "beta2": 0.95, "epsilon": 0.01}),
    ("adamw", {}), ("adamw", {"amsgrad": 1, "beta2": 0.9}),
    ("adamw", {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}), ("adagrad", {}), ("adagrad", {"epsilon": 0.01}),
    ("rmsprop", {}), ("rmsprop", momentum), ("rmsprop", {"centered": 1, "smoothing": 0.9}),
    ("rmsprop", {"centered": 1, "momentum": 0.5, "smoothing": 0.9}), ("rmsprop", {"epsilon": 0.01}),
    ("rmsprop", {"centered": 1, "momentum": 0.5, "epsilon": 0.05}),
    ("lamb", {}), ("lamb", {"beta1": 0.8, "beta2": 0.95}), ("lamb", {"epsilon": 0.05}),
    ("lars", {}), ("lars", {"momentum": 0, "trust": 0.5}), ("lars", {"trust": 0.5}), ("lars", {"trust": 0.5, "epsilon": 0.5}),
    ("lion", {}), ("lion", {"beta1": 0.95, "beta2": 0.98}),
    ("adafactor", {}), ("adafactor", {"epsilon": 0.01}), ("muon", {}), ("muon", {"nesterov": 0, "momentum": 0.9}),
    ("muon", {"beta1": 0.8, "beta2": 0.95, "epsilon": 0.01}),
]
out = {
    "shapes": SHAPES,
    "lr": LR,
    "begin": values_of(begin()),
    "gradients": [values_of(gradients(t)) for t in range(1, STEPS + 1)],
    "seen_after": [1, STEPS],
}
text = json.dumps(out)[:-1] + ', "runs": [\n'
text += ",\n".join(json.dumps(run(name, n, *how)) for name, n in runs for how in ((0, True), (0.1, True), (0.1, False)))
print(text + "\n]}")
