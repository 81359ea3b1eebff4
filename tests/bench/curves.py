#!/usr/bin/env python3
"""Loss over samples: one process with batch B, next to four peers with target batch B in several strategies.

  python3 tests/bench/curves.py --svg trainer/curves.svg --json curves.json
  python3 tests/bench/curves.py --outer

Trains on nine tenths of each text of --data. The first peer keeps checkpoints, and `checkpoint_loss` computes the
loss of each on the other tenth, always on the same windows: the losses that peers report while they train are smoothed
and belong to other samples, so they cannot be compared. Every mode uses the same number of samples, the same optimizer
and the same learning rate, with several seeds (of the initial model and of the samples). A mode whose peers step after
each pass makes more steps of the optimizer than one that steps once per epoch; so it has a baseline of its own, one
process that steps after each pass, too. Four such peers that never averaged would each be where that process is after a
quarter of the samples; peers that average must be lower.

--outer compares outer steps with `data-parallel` instead: equal samples, passes and rates. A peer alone makes a quarter
of the samples, which is where peers would be that never averaged.

The exit status is 1 if a curve is not where it should be: see `violations`. --short is a small run, which the tests
make; with --alpha 0.000001, or with --outer-rate 0.000001, it must fail.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import typing
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "processes"))
from process import Failed, Process, eventually  # noqa: E402

MODEL = {"model": "char-gpt", "layers": "1", "width": "32", "heads": "2", "context": "32"}
TRAINING = {"optimizer": "adam", "device": "cpu", "threads": "1"}


class Mode(typing.NamedTuple):
    peers: int
    color: str
    each_pass: bool  # is a step of the optimizer
    baseline: str
    options: dict = {}
    max_gap: float = math.inf  # by which its loss may be above that of the baseline, as a share of it
    alone: str = ""  # must be better than this mode after the samples of one of its peers
    above: str = ""  # this mode must be worse after equal samples
    share: float = 1  # of the samples, that it uses


def outer(steps, **numbers):
    numbers = {"steps": steps, **{name.replace("_", "-"): value for name, value in numbers.items()}}
    return {"strategy": "diloco:" + ",".join(f"{name}={value}" for name, value in numbers.items())}


EACH_PASS, ALONE = "one process, steps after each pass", "one peer alone"
MODES = {
    "one process": Mode(1, "#444444", False, "one process"),
    "collaborative": Mode(4, "#0072b2", False, "one process"),
    EACH_PASS: Mode(1, "#aaaaaa", True, EACH_PASS),
    "local-updates": Mode(4, "#d55e00", True, EACH_PASS, {"strategy": "local-updates"}, alone=EACH_PASS),
    "decentralized-adam": Mode(4, "#009e73", True, EACH_PASS, {"strategy": "decentralized-adam"}, alone=EACH_PASS),
}
OUTER_MODES = {
    "data-parallel": Mode(4, "#444444", True, "data-parallel", {"strategy": "data-parallel"}),
    ALONE: Mode(1, "#aaaaaa", True, ALONE, {"strategy": "data-parallel"}, share=1 / 4),
    f"{ALONE}, outer steps of 50": Mode(1, "#cccccc", True, ALONE, outer(50), share=1 / 4),
    "mean of the peers every 50": Mode(4, "#f0e442", True, "data-parallel", outer(50, outer_rate=1, outer_momentum=0)),
    **{f"diloco, {steps} steps": Mode(4, color, True, "data-parallel", outer(steps), max_gap, ALONE,
                                      "mean of the peers every 50" if steps == 50 else "")
       for steps, color, max_gap in ((25, "#0072b2", 0.03), (50, "#d55e00", 0.05), (100, "#009e73", 0.07))},
    **{f"diloco, {name}{', muon' * muon}": Mode(4, color, True, "data-parallel", {**options, **({"optimizer": "muon"} if muon else {})})
       for name, color, options in (
           ("25 steps, float32", "#0072b2", outer(25, outer_momentum=0.5)),
           ("25 steps, e3m0", "#e69f00", {**outer(25, outer_momentum=0.5), "codec": "e3m0"}),
           ("30 steps, sparse2", "#56b4e9", {**outer(30, outer_rate=1, outer_momentum=0), "codec": "sparse2"}),
           ("100 steps, overlap", "#999999", outer(100, outer_momentum=0.5, overlap=50)),
           ("100 steps, 4 fragments", "#000000", outer(100, outer_momentum=0.5, overlap=12, fragments=4)))
       for muon in (False, True)},
    "diloco, 50 steps, muon": Mode(4, "#cc79a7", True, "data-parallel", {**outer(50), "optimizer": "muon"}),
}
ALL_MODES = {**MODES, **OUTER_MODES}
# Over fewer epochs, peers that average are hardly below one that does not: noise of single passes, which averages reduce,
# matters later. With a higher rate it matters earlier, but seeds differ more.
SHORT = {"epochs": 60, "seeds": 2, "points": 2, "windows": 512}
# Of ten runs that step once per epoch, one or two stay on a plateau for some updates and end 0.1 to 0.2 higher: they have
# more seeds, and their medians are compared.
MORE_SEEDS = 3
LONG = {"epochs": 200, "seeds": 3, "points": 12, "windows": 2048}
OUTER_SHORT = {"epochs": 250, "seeds": 1, "points": 2, "windows": 512}
OUTER_LONG = {"epochs": 2000, "seeds": 3, "points": 12, "windows": 2048}
# Rounds of decentralized-* and diloco begin with the fastest peer, so an epoch has fewer samples than it might.
MORE_EPOCHS = {"decentralized": 1.6, "diloco": 1.1}
CHECKPOINT = re.compile(r"checkpoint-\d+-(\d+)-.*\.wgl")


def words(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def split_text(data, folder):
    """Writes nine tenths of each file to folder/train, the rest to folder/held-out."""
    files = sorted(f for f in (data.iterdir() if data.is_dir() else [data]) if f.is_file() and not f.is_symlink())
    for name in ("train", "held-out"):
        (folder / name).mkdir()
    for file in files:
        text = file.read_bytes()
        cut = len(text) * 9 // 10
        (folder / "train" / file.name).write_bytes(text[:cut])
        (folder / "held-out" / file.name).write_bytes(text[cut:])
    if not files:
        raise Failed(f"{data} has no files")


def epochs_of(settings, mode):
    """The options that define an epoch, and the number of epochs."""
    how = ALL_MODES[mode]
    passes, epochs = settings.batch // settings.micro_batch, settings.epochs * how.share
    strategy, _, numbers = how.options.get("strategy", "collaborative").partition(":")
    more = MORE_EPOCHS.get(strategy.split("-")[0], 1) if how.peers > 1 else 1
    if strategy == "data-parallel":
        return {}, round(epochs * passes / how.peers)
    if strategy == "diloco":
        numbers = dict(number.split("=") for number in numbers.split(","))
        steps = int(numbers["steps"]) // int(numbers.get("fragments", 1))
        return {}, math.ceil(epochs * passes / how.peers / steps * more)
    if strategy.startswith("decentralized"):
        return {"averaging-steps-period": passes // how.peers}, round(epochs * more)
    if how.peers == 1 and how.each_pass:
        return {"target-batch-size": settings.micro_batch}, round(epochs * passes)
    return {"target-batch-size": settings.batch}, round(epochs)


class Peers:
    """The processes of one run. Use it as a context."""

    def __init__(self, settings, folder, mode, seed, data):
        how = ALL_MODES[mode]
        period, epochs = epochs_of(settings, mode)
        self.options = {**MODEL, **TRAINING, **how.options, **period, "micro-batch": settings.micro_batch, "lr": settings.lr,
                        "schedule": settings.schedule, "epochs": epochs, "data": data, "run-id": f"curves-{seed}"}
        if how.alone == EACH_PASS:
            self.options["alpha"] = settings.alpha
        elif how.max_gap < math.inf:
            self.options["strategy"] += "".join(f",{name}={value}" for name, value in (
                ("outer-rate", settings.outer_rate), ("outer-momentum", settings.outer_momentum)) if value is not None)
        self.binary, self.folder, self.seed, self.children, self.addresses = settings.binary, folder, seed, [], []
        self.count, self.checkpoints = how.peers, settings.checkpoints

    def __enter__(self):
        for i in range(self.count):
            own = {"listen": "127.0.0.1:0", "data-dir": self.folder / f"peer{i}", "min-peers": self.count,
                   "linger": "1h", "seed": 100 * self.seed + i + 1}
            # The first one keeps the checkpoints.
            own.update({"checkpoint-interval": self.checkpoints} if i == 0 else {"resume": "false"})
            if self.addresses:
                own["initial-peers"] = self.addresses[0]
            self.children.append(Process([self.binary, "train", *words(self.options), *words(own)], self.folder / f"peer{i}.log"))
            if i == 0:
                self.await_address(self.children[0])
        for peer in self.children[1:]:
            self.await_address(peer)
        return self

    def await_address(self, peer):
        host, port = eventually("a peer listens or ends", lambda: peer.listens_at() or not peer.running() and (None, 0), 60, 0.1)
        if not port:
            raise Failed(f"a peer ended: {peer.text()[-2000:]}")
        self.addresses.append(f"{host}:{port}")

    def statuses(self):
        found = []
        for address in self.addresses:
            try:
                with urllib.request.urlopen(f"http://{address}/api/v1/status", timeout=2) as answer:
                    found.append(json.load(answer))
            except OSError:  # a busy machine; asked again
                return None
        return found

    def __exit__(self, *_):
        for child in self.children:
            child.send(signal.SIGTERM)
        for child in self.children:
            child.wait(10)


def train(settings, folder, mode, seed, data):
    """Returns the checkpoints by epoch, and the samples of an epoch."""
    folder.mkdir()
    kept = {}
    epochs = epochs_of(settings, mode)[1]
    shares = {k / settings.points for k in range(1, settings.points + 1)}
    for other in settings.modes.values():
        if other.alone == mode and ALL_MODES[mode].share == 1:  # on both sides of where one of its peers would be
            shares |= {1 / other.peers, 1.25 / other.peers}
    wanted = sorted({max(1, round(epochs * share)) for share in shares})
    written = folder / "peer0" / "checkpoints"

    def keep():
        """Keeps the next checkpoints that are wanted."""
        for file in written.iterdir() if written.exists() else []:
            match = CHECKPOINT.fullmatch(file.name)
            if not match or not wanted or int(match.group(1)) < wanted[0]:
                continue
            epoch = int(match.group(1))
            try:
                os.link(file, folder / f"epoch-{epoch}.wgl")  # stays when the peer deletes its own
            except FileNotFoundError:
                continue
            kept[epoch] = folder / f"epoch-{epoch}.wgl"
            wanted[:] = [w for w in wanted if w > epoch]

    with Peers(settings, folder, mode, seed, data) as peers:
        asked, until, statuses = 0, time.monotonic() + settings.limit, None
        while True:
            keep()
            if time.monotonic() - asked > 0.5:
                asked, statuses = time.monotonic(), peers.statuses()
                if statuses and all(s["phase"] == "finished" for s in statuses):
                    break
            if not all(child.running() for child in peers.children):
                raise Failed(f"a peer of {mode} ended; see {folder}")
            if time.monotonic() > until:
                raise Failed(f"{mode} was not done after {settings.limit:.0f} s: {statuses}")
            time.sleep(0.003)
    keep()  # a peer writes the last one when it stops
    if wanted:
        raise Failed(f"{mode} left no checkpoint of its last epoch")
    used = sum(s["samples"]["used"] for s in statuses)
    return kept, used / max(s["epoch"] for s in statuses)


def loss_of(settings, options, checkpoint, data):
    result = checkpoint.with_suffix(".json")
    options = {name: value for name, value in options.items() if name != "codec"}  # no round is made here
    done = subprocess.run([pathlib.Path(settings.binary).with_name("checkpoint_loss"), "loss", str(checkpoint),
                           *words({**MODEL, **TRAINING, **options}), "--data", str(data), "--micro-batch", "32", "--steps", str(settings.windows // 32),
                           "--json", str(result)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    return json.loads(result.read_text())["loss"]


def measure(settings, folder):
    split_text(pathlib.Path(settings.data), folder)
    curves = {}
    for seed in range(1, settings.seeds + MORE_SEEDS + 1):
        for mode, how in settings.modes.items():
            if how.each_pass and seed > settings.seeds:
                continue
            name = f"{mode}-{seed}".replace(" ", "-")
            done = pathlib.Path(settings.runs) / f"{name}.json" if settings.runs else folder / f"{name}.json"
            if done.exists():
                curves.setdefault(mode, []).append(json.loads(done.read_text()))
                continue
            began, home = time.monotonic(), folder / name
            kept, samples = train(settings, home, mode, seed, folder / "train")
            trained = time.monotonic() - began
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                losses = pool.map(lambda file: loss_of(settings, how.options, file, folder / "held-out"),
                                  [file for _, file in sorted(kept.items())])
                points = [(epoch * samples, loss) for epoch, loss in zip(sorted(kept), losses)]
            curves.setdefault(mode, []).append(points)
            done.write_text(json.dumps(points))
            print(f"{mode}, seed {seed}: loss {points[-1][1]:.4f} after {points[-1][0]:.0f} samples ({trained:.0f} s)",
                  file=sys.stderr)
            shutil.rmtree(home)
    return curves


def at(points, x):
    """The loss at x samples, by linear interpolation."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1] if x > points[-1][0] else points[0][1]


def summary(curves):
    """Each mode's loss at the last number of samples that all have reached: mean and range of the seeds, and the gap to
    its baseline. `end`: the last checkpoints, which have equal updates if the baseline steps as often: range of the seeds, and
    the gap between the medians.
    `gain`, of modes with `alone`: by how much the loss of the last checkpoints is below that of one peer alone after its
    part of the samples, with the same seed, i.e. from the same initial model."""
    x = min(points[-1][0] for mode, runs in curves.items() if ALL_MODES[mode].share == 1 for points in runs)
    rows = {}
    for mode, runs in curves.items():
        how = ALL_MODES[mode]
        row = rows[mode] = {"mode": mode, "samples": x * how.share,
                            **mean_and_range([at(points, x * how.share) for points in runs]),
                            "end": mean_and_range([points[-1][1] for points in runs])}
        baseline = rows[how.baseline]
        row["gap"] = row["loss"] - baseline["loss"]
        row["end"]["gap"] = row["end"]["median"] - baseline["end"]["median"]
        if how.alone:
            row["gain"] = sum(at(alone, points[-1][0] / how.peers) - points[-1][1]
                              for alone, points in zip(curves[how.alone], runs)) / len(runs)
    return list(rows.values())


def mean_and_range(losses):
    return {"loss": sum(losses) / len(losses), "median": statistics.median(losses), "low": min(losses), "high": max(losses)}


def violations(rows, settings):
    """Sentences about what is not as it should be; none if all is well."""
    found = []
    by_mode = {row["mode"]: row for row in rows}
    for row in rows:
        name, how = row["mode"], ALL_MODES[row["mode"]]
        each_pass, baseline, above = how.each_pass, by_mode[how.baseline], by_mode.get(how.above)
        max_gap = min(settings.max_gap, how.max_gap * baseline["loss"])
        if not math.isfinite(row["loss"]) or row["loss"] > settings.untrained:
            found.append(f"{name} has learned nothing: its loss is {row['loss']:.3f}, and {settings.untrained:.3f} is that of "
                         "a guess")
        elif row is baseline:
            continue
        elif each_pass and row["gap"] > max_gap:
            found.append(f"{name} is {row['gap']:.3f} above {baseline['mode']}; at most {max_gap:.3f} is expected "
                         "(--max-gap): its peers drift apart")
        elif above and row["loss"] >= above["loss"]:
            found.append(f"{name} is {row['loss'] - above['loss']:.3f} above {above['mode']}: its outer steps are no gain")
        elif how.alone and not row["gain"] >= settings.min_gain:
            found.append(f"{name} is {row['gain']:+.3f} below what one of its peers would reach by itself; at least "
                         f"{settings.min_gain:.3f} is expected (--min-gain): its means are lost")
        elif not each_pass:
            # After equal updates instead of samples: how many samples beyond the target an update has depends on how busy
            # the machine is. Seeds alone move one process by its range, which may be small by chance if they are few.
            gap, spread = row["end"]["gap"], max(baseline["end"]["high"] - baseline["end"]["low"], settings.min_spread)
            if abs(gap) > spread:
                found.append(f"after equal updates {name} is {gap:+.3f} from {baseline['mode']}, and other seeds move that by "
                             f"{spread:.3f} only: it does not follow the trajectory of one process with its batch")
    return found


def draw(curves, settings):
    width, height, left, bottom, right, top = 760, 430, 60, 50, 20, 20
    first = max(points[0][0] for runs in curves.values() for points in runs)
    last = min(points[-1][0] for runs in curves.values() for points in runs)
    grid = [first + (last - first) * k / settings.points for k in range(settings.points + 1)]
    ys = [at(points, x) for runs in curves.values() for points in runs for x in grid]
    low, high = min(ys), max(ys)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)

    def place(x, y):
        return (left + (width - left - right) * x / last, height - bottom - (height - bottom - top) * (y - low) / (high - low))

    def path(points):
        return " ".join(f"{'M' if i == 0 else 'L'}{x:.1f},{y:.1f}" for i, (x, y) in enumerate(place(*p) for p in points))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for k in range(6):
        y = low + (high - low) * k / 5
        px, py = place(0, y)
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{py:.1f}" y2="{py:.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{py + 4:.1f}" text-anchor="end">{y:.2f}</text>')
        px, _ = place(last * k / 5, low)
        out.append(f'<text x="{px:.1f}" y="{height - bottom + 18}" text-anchor="middle">{last * k / 5:,.0f}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 10}" text-anchor="middle">samples of all peers</text>'
               f'<text x="16" y="{height / 2 - 15}" text-anchor="middle" transform="rotate(-90 16 {height / 2 - 15})">'
               'held-out loss (nats per byte)</text>')
    for k, (mode, runs) in enumerate(curves.items()):
        color = ALL_MODES[mode].color
        values = [[at(points, x) for points in runs] for x in grid]
        band = [(x, max(v)) for x, v in zip(grid, values)] + [(x, min(v)) for x, v in reversed(list(zip(grid, values)))]
        out.append(f'<path d="{path(band)} Z" fill="{color}" fill-opacity="0.15"/>')
        out.append(f'<path d="{path([(x, sum(v) / len(v)) for x, v in zip(grid, values)])}" fill="none" stroke="{color}" '
                   'stroke-width="2"/>')
        label = mode if ALL_MODES[mode].peers == 1 else f"{ALL_MODES[mode].peers} peers, {mode}"
        out.append(f'<line x1="{width - 290}" x2="{width - 265}" y1="{top + 14 + 20 * k}" y2="{top + 14 + 20 * k}" '
                   f'stroke="{color}" stroke-width="2"/><text x="{width - 258}" y="{top + 18 + 20 * k}">{label}</text>')
    out.append(f'<text x="{width - 290}" y="{top + 18 + 20 * len(curves)}" fill="#666">mean and range of {settings.seeds} seeds</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build" / "bin" / "waggle"), help="the waggle program, beside checkpoint_loss")
    parser.add_argument("--data", default="/usr/share/common-licenses", help="a text, or a folder of texts")
    parser.add_argument("--batch", type=int, default=128, help="B: samples of an epoch (default: 128)")
    parser.add_argument("--micro-batch", type=int, default=8, help="samples of a pass (default: 8)")
    parser.add_argument("--outer", action="store_true", help="compare outer steps with data-parallel instead; other defaults: "
                        + ", ".join(f"{name} {value}" for name, value in OUTER_LONG.items()))
    parser.add_argument("--outer-rate", type=float, help="of diloco; almost 0 shows that its check can fail (default: its own)")
    parser.add_argument("--outer-momentum", type=float, help="of diloco (default: its own)")
    parser.add_argument("--epochs", type=int, help="of --batch samples, of each run (default: 200)")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate of every mode (default: 0.003)")
    parser.add_argument("--alpha", type=float, default=1, help="how far peers that average parameters move to each mean; almost 0 "
                        "shows that the check of such peers can fail (default: 1)")
    parser.add_argument("--seeds", type=int, help="runs of each mode; those that step once per epoch have "
                        f"{MORE_SEEDS} more (default: 3)")
    parser.add_argument("--points", type=int, help="points of a curve (default: 12)")
    parser.add_argument("--windows", type=int, help="held-out windows (default: 2048)")
    parser.add_argument("--short", action="store_true", help="other defaults: "
                        + ", ".join(f"{name} {value}" for name, value in SHORT.items()) + "; with --outer: "
                        + ", ".join(f"{name} {value}" for name, value in OUTER_SHORT.items()))
    parser.add_argument("--max-gap", type=float, default=0.5, help="how far the loss of a mode whose peers average parameters may be "
                        "above its baseline (default: 0.5)")
    parser.add_argument("--min-gain", type=float, default=0.05, help="how far it must be below that of the baseline after the samples "
                        "of one peer, i.e. a quarter (default: 0.05)")
    parser.add_argument("--min-spread", type=float, default=0.1, help="how far collaborative may be from its baseline, if the seeds "
                        "of that one are closer to each other (default: 0.1)")
    parser.add_argument("--limit", type=float, default=180, help="seconds after which a run is given up (default: 180)")
    parser.add_argument("--schedule", default="constant", help="of the rate, in every mode: as for waggle train (default: constant)")
    parser.add_argument("--runs", metavar="FOLDER", help="keep what each finished run measured, and make only those that are missing")
    parser.add_argument("--only", action="append", metavar="MODE", help="these and their baselines alone")
    parser.add_argument("--svg", metavar="FILE", help="draw the curves")
    parser.add_argument("--json", metavar="FILE", help="write the points and the summary")
    settings = parser.parse_args()
    settings.modes = OUTER_MODES if settings.outer else MODES
    if settings.only:
        if unknown := set(settings.only) - settings.modes.keys():
            parser.error(f"--only: there is no mode {', '.join(unknown)}; there are: " + "; ".join(settings.modes))
        wanted = {part for name in settings.only for part in (name, settings.modes[name].baseline, settings.modes[name].alone)}
        settings.modes = {name: how for name, how in settings.modes.items() if name in wanted}
    settings.checkpoints = "100ms" if settings.outer else "0ms"  # of an epoch of one pass, not each one
    for name, value in {(False, False): LONG, (True, False): SHORT, (False, True): OUTER_LONG,
                        (True, True): OUTER_SHORT}[settings.short, settings.outer].items():
        if getattr(settings, name) is None:
            setattr(settings, name, value)
    for name in ("batch", "micro_batch", "epochs", "seeds", "windows"):
        if getattr(settings, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if not 2 <= settings.points <= settings.epochs:
        parser.error("--points must be at least 2, between which the loss is interpolated, and at most --epochs")
    if shutil.which(settings.binary) is None:
        parser.error(f"--binary {settings.binary} is no program: build it, or name another one")
    if not pathlib.Path(settings.data).exists():
        parser.error(f"--data {settings.data} does not exist")
    settings.untrained = math.log(256)  # all bytes are equally likely
    if settings.runs:
        pathlib.Path(settings.runs).mkdir(parents=True, exist_ok=True)
    if settings.batch % (4 * settings.micro_batch) != 0:
        parser.error("--batch must be a multiple of four times --micro-batch")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # as an exception, so that the peers are stopped, too
    folder = pathlib.Path(tempfile.mkdtemp(prefix="waggle-curves-"))
    try:
        curves = measure(settings, folder)
    except Failed as why:
        print(f"curves.py: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = summary(curves)
    for row in rows:
        print(f"{row['mode']:35} loss {row['loss']:.4f} ({row['low']:.4f} to {row['high']:.4f}), gap {row['gap']:+.4f}, "
              f"at {row['samples']:.0f} samples" + (f"; gain {row['gain']:+.4f}" if "gain" in row else ""))
    if settings.json:
        pathlib.Path(settings.json).write_text(json.dumps({"settings": vars(settings), "curves": curves, "summary": rows}, indent=1))
    if settings.svg:
        pathlib.Path(settings.svg).write_text(draw(curves, settings))
    found = violations(rows, settings)
    for sentence in found:
        print(f"curves.py: {sentence}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
