#!/usr/bin/env python3
"""Each strategy in turn: `waggle swarm` beside as many plain loops, in one table.

  python3 tests/bench/strategies.py -- --width 32 --context 32 --layers 1 --heads 2 --device cpu

All rows average after --batch samples. A row runs --epochs epochs and then twice as many, and again until that takes --least
seconds longer; the differences between the last two count, so that starts do not. Share: samples per second of a peer, relative to a plain loop (`waggle bench loop`) of which
as many run at once and step as often. Extra MB: peak resident memory of the largest peer above the largest plain loop's.
MB: sent over TCP, for 1,000 samples of all. Loss: on --eval-data if it is among the
options after `--`, which peers and loops get, else of the last samples. A row of daso ends after --epochs rounds, which is
before its cool-down.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows(o):
    """(what `waggle swarm` gets, samples of one peer between two steps), for each strategy and variant."""
    each, passes = o.micro_batch, o.batch // o.micro_batch // o.peers
    batch, period = f"--target-batch-size {o.batch}", f"--averaging-steps-period {passes}"
    for more in ("", "--delay-grad-averaging true", "--delay-optimizer-step true",
                 "--delay-grad-averaging true --delay-optimizer-step true", "--offload-optimizer true",
                 "--reuse-grad-buffers true", "--low-rank 4"):
        yield f"collaborative {batch} {more}", each * passes
    for more in ("", "--delay-state-averaging false", "--average-gradients true", "--groups moshpit"):
        yield f"local-updates {batch} {more}", each
    for name in ("decentralized", "decentralized-sgd", "decentralized-adam"):
        yield f"{name} {period}", each
    yield f"diloco:steps={passes}", each
    yield "data-parallel", each
    yield "data-parallel --delay-grad-averaging true", each
    yield f"daso:epochs={{epochs}},batches={passes},warmup=1,cooldown=1", each


def run(commands):
    """Runs them at once; the largest resident memory, in bytes, of any of their processes."""
    with tempfile.TemporaryFile() as said:
        running = [subprocess.Popen(["timeout", "600", *map(str, each)], stdout=subprocess.DEVNULL, stderr=said)
                   for each in commands]
        ends = [os.wait4(each.pid, 0) for each in running]
        said.seek(0)
        if any(status for _, status, _ in ends):
            raise RuntimeError(f"{' '.join(map(str, commands[0]))}: {said.read()[-1500:].decode()}")
    return max(usage.ru_maxrss for *_, usage in ends) * 1024


def loops(o, folder, samples, optimizer):
    """(samples per second, peak bytes) of a plain loop, next to as many as the swarm has peers."""
    files = [folder / f"loop-{i}.json" for i in range(o.peers)]
    command = [o.binary, "bench", "loop", "--steps", o.epochs * o.batch // o.micro_batch, "--target-batch-size", samples,
               "--micro-batch", o.micro_batch, *optimizer, *o.options, "--json"]
    peak = run([[*command, file] for file in files])
    return sum(json.loads(file.read_text())["samples_per_second"] for file in files) / o.peers, peak


def swarm(o, folder, what, epochs):
    strategy, *more = what.replace("{epochs}", str(epochs)).split()
    if strategy == "data-parallel":
        epochs *= o.batch // o.micro_batch // o.peers  # each pass ends one
    more += ["--epochs", str(epochs)]
    peak = run([[o.binary, "swarm", "--peers", o.peers, "--strategy", strategy, *more, "--micro-batch", o.micro_batch,
                 "--shared-memory", "false", "--min-peers", o.peers, *o.options, "--json", folder / "swarm.json"]])
    return json.loads((folder / "swarm.json").read_text()), peak


def measure(o, folder, what, samples):
    optimizer = ["--optimizer", "sgd" if "sgd" in what else "adam"] if "decentralized-" in what else []
    before, loop_peak = loops(o, folder, samples, optimizer)
    long, _ = swarm(o, folder, what, o.epochs)
    for epochs in (o.epochs << doubled for doubled in range(1, 6)):
        short, (long, peak) = long, swarm(o, folder, what, epochs)
        seconds = long["seconds"] - short["seconds"]
        if seconds >= o.least:  # `waggle swarm` looks at its peers about once a second
            break
    else:
        raise RuntimeError(f"{epochs} epochs took only {seconds:.1f} s longer than half as many: raise --epochs")
    plain = (before + loops(o, folder, samples, optimizer)[0]) / 2  # the speed of a machine drifts
    used = long["samples"]["used"] - short["samples"]["used"]
    sent = [sum(p["bytes"]["sent"] for p in each["peers"]) for each in (short, long)]
    name = "eval_loss" if "--eval-data" in o.options else "last_loss"
    losses = [p[name] for p in long["peers"] if p[name] is not None]  # null: it ended before its first one
    return {"strategy": what, "share": used / seconds / o.peers / plain, "extra_bytes": peak - loop_peak,
            "bytes_sent_per_thousand_samples": (sent[1] - sent[0]) / used * 1000,
            "samples": long["samples"]["used"], "loss": sum(losses) / len(losses) if losses else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build" / "bin" / "waggle", help="the waggle program")
    parser.add_argument("--peers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128, help="samples of all between two rounds (default: 128)")
    parser.add_argument("--micro-batch", type=int, default=8, help="samples of a pass (default: 8)")
    parser.add_argument("--epochs", type=int, default=256, help="rounds of the shortest run (default: 256)")
    parser.add_argument("--least", type=float, default=5, help="seconds by which a run must outlast one of half its epochs (default: 5)")
    parser.add_argument("--only", nargs="+", help="rows whose strategy is one of these")
    parser.add_argument("--json", metavar="FILE", help="write the rows")
    parser.add_argument("options", nargs="*", help="after --: of the model, the data, the rate")
    o = parser.parse_args()
    if o.batch % (o.micro_batch * o.peers) or o.epochs < 3:
        parser.error("--batch must be a multiple of --micro-batch times --peers, and --epochs at least 3")
    found, failed = [], 0
    print(f"{'strategy':75} {'share':>6} {'extra MB':>8} {'MB/1000':>8} {'loss':>8}")
    for what, samples in rows(o):
        if o.only and what.split()[0].partition(":")[0] not in o.only:
            continue
        with tempfile.TemporaryDirectory(prefix="waggle-strategies-") as folder:
            try:
                row = measure(o, pathlib.Path(folder), what, samples)
            except RuntimeError as why:
                print(f"strategies.py: {what}: {why}", file=sys.stderr)
                failed = 1
                continue
        found.append(row)
        print(f"{what:75} {row['share']:6.2f} {row['extra_bytes'] / 1e6:8.0f} {row['bytes_sent_per_thousand_samples'] / 1e6:8.2f} "
              + ("       -" if row["loss"] is None else f"{row['loss']:8.4f}"), flush=True)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(found, indent=1))
    return failed


if __name__ == "__main__":
    sys.exit(main())
