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


def streaming_diloco(overlap, alpha, period=6, rate=2.0, gradient=2.0):
    """Two fragments of one element. A fragment is merged at every multiple of the gap in turn, and sent
    `overlap` steps before. Outer optimizer: SGD on the anchor; `alpha` of the local element survives."""
    x, anchor, flights = [1.0, 1.0], [1.0, 1.0], {}
    gap, theta = period // 2, [[1.0, 1.0]]
    for step in range(1, 16):
        x = [element - gradient for element in x]

        def merge():
            for fragment, (ripe, progress) in list(flights.items()):
                if step >= ripe:
                    del flights[fragment]
                    anchor[fragment] -= rate * progress
                    x[fragment] = alpha * x[fragment] + (1 - alpha) * anchor[fragment]

        merge()
        if (step + overlap) % gap == 0:
            fragment = ((step + overlap) // gap - 1) % 2
            flights[fragment] = (step + overlap, anchor[fragment] - x[fragment])
        merge()
        theta.append(list(x))
    return theta


runs = [
    {
        "name": f"streaming_diloco fragments=2 H=6 overlap={overlap} alpha={alpha} outer=sgd(2.0) inner=sgd(1.0) gradient=2",
        "theta": streaming_diloco(overlap, alpha),
    }
    for overlap in (0, 1)
    for alpha in (0.0, 0.5, 1.0)
]
runs.append({"name": "delayed_gradients sgd(0.1) gradient=theta", "theta": delayed_gradients()})
runs.append({"name": "synchronous sgd(0.1) gradient=theta", "theta": synchronous()})
runs += [{"name": f"add_change latency={n} sgd(1.0) gradient=1", "theta": add_change(n)} for n in (1, 2, 5)]
runs += [
    {
        "name": f"add_change latency={n} sgd(1.0) gradients=1,3 peer={peer}",
        "theta": add_change(n, (1.0, 3.0), peer),
    }
    for n in (1, 2, 5)
    for peer in (0, 1)
]
json.dump(runs, sys.stdout, indent=1)
