#!/usr/bin/env python3
"""Writes strategy_vectors.json: trajectories of training strategies, each computed as directly as possible.

Unless a run names several gradients, all its peers compute the same, so the mean equals what each of them sent. `theta`
is a peer's parameters at the start and after every micro-step. Usage: strategy_vectors.py > strategy_vectors.json
"""
import json
import sys


def synchronous():
    """x -= 0.1 · x: the gradient is the parameters."""
    theta = [1.0]
    for _ in range(6):
        theta.append(theta[-1] - 0.1 * theta[-1])
    return [[x] for x in theta]


def delayed_gradients():
    """The gradient of one step is applied at the end of the next."""
    theta, gradient = [1.0], None
    for _ in range(6):
        x, older, gradient = theta[-1], gradient, theta[-1]
        theta.append(x if older is None else x - 0.1 * older)
    return [[x] for x in theta]


def add_change(latency, gradients=(1.0,), peer=0):
    """Parameters are sent after step 1; their change, mean - snapshot, arrives `latency` steps later. `gradients`:
    one per peer."""
    x, theta = [0.0] * len(gradients), [0.0]
    for step in range(1, 9):
        x = [own - gradient for own, gradient in zip(x, gradients)]
        if step == 1 + latency:
            x = [own + mean - sent for own, sent in zip(x, snapshot)]
        if step == 1:
            snapshot, mean = x, sum(x) / len(x)
        theta.append(x[peer])
    return [[x] for x in theta]


runs = [
    {"name": "delayed_gradients sgd(0.1) gradient=theta", "theta": delayed_gradients()},
    {"name": "synchronous sgd(0.1) gradient=theta", "theta": synchronous()},
]
runs += [{"name": f"add_change latency={n} sgd(1.0) gradient=1", "theta": add_change(n)} for n in (1, 2, 5)]
runs += [
    {
        "name": f"add_change latency={n} sgd(1.0) gradients=1,3 peer={peer}",
        "theta": add_change(n, (1.0, 3.0), peer),
    }
    for n in (1, 2, 5)
    for peer in (0, 1)
]
print("[" + ",\n".join(map(json.dumps, runs)) + "]")
