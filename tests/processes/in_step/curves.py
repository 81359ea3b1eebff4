#!/usr/bin/env python3
"""Draws the loss over samples of one process and of four peers in several strategies, with equal target batches.

    curves.py --binary build/bin/waggle --svg trainer/curves.svg

Each curve is the mean over the seeds, and its band their spread. Prints for each strategy how far its loss at the
end is from that of one process, and how many samples a peer computed.
"""
import argparse
import math
import pathlib
import signal
import sys
import time

import peers
from peers import Failed, Run

MODEL = {"width": 32, "context": 32, "layers": 1, "heads": 2, "micro-batch": 8, "target-batch-size": 128, "lr": 0.003}
# (name, number of peers, options)
KINDS = [
    ("one process", 1, {}),
    ("four peers, collaborative", 4, {}),
    ("four, gradients delayed", 4, {"delay-grad-averaging": "true"}),
    ("four, local-updates", 4, {"strategy": "local-updates", "optimizer": "adam"}),
    ("four, decentralized-adam", 4, {"strategy": "decentralized-adam", "averaging-steps-period": 4}),
]
COLORS = ["#222222", "#1f77b4", "#2ca02c", "#d62728", "#9467bd"]


def one_run(settings, count, options, seed):
    """[(samples of the swarm, mean loss)] until the swarm has used `settings.samples`."""
    with Run(settings, {**MODEL, **options}) as run:
        if "averaging-steps-period" in options:
            del run.options["target-batch-size"]
        run.name = f"curves-{seed}"  # initial parameters depend on the run's name, and samples on the seed
        first = run.add(run_id=run.name, seed=seed * 10 + 1, min_peers=count).start()
        for i in range(1, count):
            run.add(via=first, run_id=run.name, seed=seed * 10 + 1 + i, min_peers=count).start()
        found, until = [(0, None)], time.monotonic() + settings.patience
        while found[-1][0] < settings.samples:
            if time.monotonic() > until:
                raise Failed(f"only {found[-1][0]} samples: " + "; ".join(p.where() for p in run.peers))
            time.sleep(0.1)
            seen = [p.status for p in run.peers]
            if all(s and s.get("loss") and math.isfinite(s["loss"]) for s in seen):
                found.append((sum(s["samples"]["used"] for s in seen), sum(s["loss"] for s in seen) / count))
        return found[1:], max(s["samples"]["used"] for s in seen)


def at(curve, x):
    before = [point for point in curve if point[0] <= x] or curve[:1]
    after = [point for point in curve if point[0] > x] or curve[-1:]
    (x0, y0), (x1, y1) = before[-1], after[0]
    return y0 if x1 == x0 else y0 + (y1 - y0) * min(1, max(0, (x - x0) / (x1 - x0)))


def draw(curves, samples, file):
    width, height, left, bottom = 760, 420, 60, 40
    values = [y for _, points in curves for _, low, _, high in points for y in (low, high)]
    low, high = min(values), max(values)

    def place(x, y):
        return (left + (width - left - 20) * x / samples, 20 + (height - 20 - bottom) * (high - y) / (high - low))

    def path(points):
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for i in range(5):
        y = low + (high - low) * i / 4
        x = samples * i / 4
        _, py = place(0, y)
        px, _ = place(x, low)
        out.append(f'<line x1="{left}" y1="{py:.1f}" x2="{width - 20}" y2="{py:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{py + 4:.1f}" text-anchor="end">{y:.2f}</text>')
        out.append(f'<text x="{px:.1f}" y="{height - 20}" text-anchor="middle">{x:,.0f}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 4}" text-anchor="middle">samples of the swarm</text>')
    out.append('<text x="8" y="14">loss</text>')
    for i, ((name, points), color) in enumerate(zip(curves, COLORS)):
        band = [place(x, b) for x, _, _, b in points] + [place(x, a) for x, a, _, _ in reversed(points)]
        out.append(f'<polygon points="{path(band)}" fill="{color}" opacity="0.15"/>')
        out.append(f'<polyline points="{path([place(x, m) for x, _, m, _ in points])}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        out.append(f'<text x="{width - 220}" y="{40 + 16 * i}" fill="{color}">{name}</text>')
    pathlib.Path(file).write_text("\n".join([*out, "</svg>", ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(peers.ROOT / "build" / "bin" / "waggle"))
    parser.add_argument("--svg", default="curves.svg")
    parser.add_argument("--samples", type=int, default=30000, help="samples of the swarm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--keep", default=None)
    parser.add_argument("--patience", type=float, default=120, help="seconds for one run")
    settings = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    grid = [settings.samples * (i + 1) / 60 for i in range(60)]
    curves, last = [], {}
    for name, count, options in KINDS:
        runs, each = [], []
        for seed in range(1, settings.seeds + 1):
            curve, own = one_run(settings, count, options, seed)
            runs.append([at(curve, x) for x in grid])
            each.append(own)
        points = [(x, min(ys), sum(ys) / len(ys), max(ys)) for x, ys in zip(grid, zip(*runs))]
        curves.append((name, points))
        last[name] = (points[-1][2], points[-1][3] - points[-1][1])
        gap = last[name][0] / last[KINDS[0][0]][0] - 1
        print(f"{name:<28} loss {last[name][0]:.4f}, spread of the seeds {last[name][1]:.4f}, {gap:+.2%} of one process, "
              f"at most {max(each)} samples of one peer", flush=True)
    draw(curves, settings.samples, settings.svg)
    print(f"wrote {settings.svg}")


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"curves.py: {why}")
