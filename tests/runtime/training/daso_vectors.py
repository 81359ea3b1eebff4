#!/usr/bin/env python3
"""Writes daso_vectors.json: what HeAT's DASO does after each batch and each epoch, as its optimizer is described: one
state machine that looks at one batch at a time. Usage: daso_vectors.py > daso_vectors.json
"""
import json
import sys


def skips_by_epoch(losses, epochs=40, warmup=4, cooldown=4, stability=0.05, most=8, divisor=2, factor=4):
    """(global, local, wait) after each epoch."""
    now, best, stale, out = (0, 0, 0), float("inf"), 0, []
    for epoch, loss in enumerate(losses, start=1):
        if epoch < warmup or epoch >= epochs - cooldown:
            now = (0, 0, 0)
        else:
            if epoch == warmup:
                now = (4, 1, 1)
            if loss < best * (1 - stability):
                best, stale = loss, 0
            else:
                stale += 1
            if stale > 2:
                stale = 0
                if now[0] > 1:
                    now = (max(now[0] // divisor, 1), max(now[1] // divisor, 1), max(now[2] - 1, 1))
                else:
                    now = (most, most // factor, most // factor)
        out.append(now)
    return out


def events(last, skips, members=4):
    """Of one epoch: batch, what happens, whose parameters, and how many batches late."""
    out, active, sent = [], 0, None
    between, _, wait = skips
    for batch in range(last + 1):
        late = min(wait, last - batch)
        place = batch % between if between else 0
        if batch == last or place == 0:
            if sent:
                out.append([batch, "merge", *sent])
                sent = None
            if batch == last or wait == 0:
                out.append([batch, "mean", active, 0])
            else:
                sent = (active, late)
                out.append([batch, "send", active, late])
            active = (active + 1) % members
        elif (batch + 1) % between != 0 and place == late and sent:
            out.append([batch, "merge", *sent])
            sent = None
    return out


def falling(epochs):
    """A loss that falls, stays, and falls again."""
    return [round(4 * 0.8 ** (epoch if epoch < 12 else 12 if epoch < 30 else epoch - 18), 6) for epoch in range(epochs)]


runs = {
    "epochs": [
        {"losses": [1.0] * 40, "skips": skips_by_epoch([1.0] * 40)},
        {"losses": falling(40), "skips": skips_by_epoch(falling(40))},
        {
            "losses": [1.0] * 30,
            "rule": {"epochs": 30, "warmup": 2, "cooldown": 1, "max_skips": 24, "skip_reduction": 3},
            "skips": skips_by_epoch([1.0] * 30, epochs=30, warmup=2, cooldown=1, most=24, divisor=3),
        },
    ],
    "batches": [
        {"last": last, "skips": skips, "events": events(last, skips)}
        for last, skips in [
            (12, (4, 1, 1)),
            (9, (2, 1, 1)),
            (6, (1, 1, 1)),
            (5, (0, 0, 0)),
            (20, (8, 2, 2)),
            (10, (8, 2, 2)),
            (9, (8, 2, 2)),
            (49, (24, 6, 6)),
        ]
    ],
}

# What was measured on HeAT itself.
assert [s[0] for s in runs["epochs"][0]["skips"]] == (
    [0] * 3 + [4] * 3 + [2] * 3 + [1] * 3 + [8] * 3 + [4] * 3 + [2] * 3 + [1] * 3 + [8] * 3 + [4] * 3 + [2] * 3 + [1] * 2 + [0] * 5
)
assert [e[:3] for e in runs["batches"][0]["events"]] == [
    [0, "send", 0], [1, "merge", 0], [4, "send", 1], [5, "merge", 1], [8, "send", 2], [9, "merge", 2], [12, "mean", 3],
]
print("{" + ",\n".join(f'"{kind}": [' + ",\n".join(map(json.dumps, rows)) + "]" for kind, rows in runs.items()) + "}")
