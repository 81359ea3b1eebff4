"""Compares the strategies: speed next to training without rounds, bytes, memory."""
import re
import statistics
import subprocess
import threading
import time

from lab import Lab
from peers import Run, eventually

MODES = {
    "collaborative": {},
    "collaborative, gradients delayed": {"delay-grad-averaging": "true"},
    "local-updates": {"strategy": "local-updates"},
    "local-updates that block": {"strategy": "local-updates", "delay-state-averaging": "false"},
    "decentralized-sgd": {"strategy": "decentralized-sgd", "lr": 0.05},
    "decentralized-adam": {"strategy": "decentralized-adam"},
}
# The passes take some milliseconds; the rest of the interval stands for the computation of a device that leaves the
# processor free, so that two cores suffice for two peers, the delayed links and this program.
MODEL = {"width": 32, "context": 32, "layers": 1, "heads": 2, "micro-batch": 8, "step-interval": "20ms"}
PASSES = 8  # of each peer in an epoch, or between two rounds


def options_of(mode, peers):
    by_steps = mode.get("strategy", "").startswith("decentralized")
    period = {"averaging-steps-period": PASSES, "target-batch-size": None} if by_steps else {"target-batch-size": MODEL["micro-batch"] * PASSES * peers}
    return {**MODEL, **period, **mode}


def speed_of(peers, seconds):
    """Samples a second in updates."""
    def used():
        return sum(p.status["samples"]["used"] for p in peers)
    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def two_peers(settings, mode, delay, rounds=5):
    """The speed of one of two peers, and what the two move and keep."""
    with Lab(settings, 2, delay_ms=delay) as lab, Run(settings, options_of(mode, 2), lab) as run:
        first = run.add().start()
        two = [first, run.add(via=first).start()]
        eventually("the two train together",
                   lambda: all((p.status or {}).get("group_size") == 2 and p.status["rounds"]["complete"] >= rounds for p in two),
                   120)
        epoch, moved, used = first.status["epoch"], moved_by(two), [p.status["samples"]["used"] for p in two]
        began = time.monotonic()
        speed = speed_of(two, settings.duration) / 2
        seconds = time.monotonic() - began
        samples = sum(p.status["samples"]["used"] for p in two) - sum(used)
        return {"samples_a_second": speed, "epochs_a_second": (first.status["epoch"] - epoch) / seconds,
                "bytes_a_sample": (moved_by(two) - moved) / max(1, samples),
                "resident": max(p.resident()[0] for p in two)}


def moved_by(two):
    return sum(p.status["bytes"]["in"] for p in two)


def strategies(settings, report):
    """Speed of two peers in every strategy, relative to two that do not average, with links on which a round takes
    about half as long as the computation between two rounds."""
    never = {"strategy": "local-updates", "target-batch-size": 10 ** 9}
    own = two_peers(settings, never, settings.delay, rounds=0)["samples_a_second"]
    compute = MODEL["micro-batch"] * PASSES / own
    report.fact("without rounds", samples_a_second=own, seconds_between_rounds=compute)
    delay = settings.delay
    for _ in range(4):  # find the delay of the links
        seen = two_peers(settings, {}, delay)
        round_seconds = 1 / seen["epochs_a_second"] - compute
        report.fact("collaborative", delay_ms=delay, round_share=round_seconds / compute, **seen)
        if 0.45 < round_seconds / compute < 0.65:  # below 0.43 even the synchronous mode has a share of 0.7
            break
        delay = max(1, delay * 0.5 * compute / max(round_seconds, compute / 50))
    for name, mode in MODES.items():
        seen = two_peers(settings, mode, delay)
        report.fact(name, delay_ms=delay, share=seen["samples_a_second"] / own, **seen)
        share = seen["samples_a_second"] / own
        if name == "collaborative":
            report.require(share <= 0.7, f"{name} reaches {share:.0%} of the speed without rounds: they are too short")
        elif "block" not in name:
            report.require(share >= 0.95, f"{name} reaches {share:.0%} of the speed without rounds")


# -- rounds that are rare, on links that are slow -----------------------------------------------------

SLOW = {"model": "mlp", "layers": 3, "width": 512, "context": 32, "micro-batch": 8, "step-interval": "20ms",
        "shared-memory": "false", "target-batch-size": None}
RATE, DELAY_MS = "50mbit", 20  # of each link; each way
STEPS = 100
OUTER_MODES = {  # options, rounds to measure, least share of the speed of one of two peers alone at RATE
    "diloco": ({"strategy": f"diloco:steps={STEPS}"}, 5, 0.74),
    "diloco-overlap": ({"strategy": f"diloco:steps={STEPS},overlap={STEPS // 2}"}, 5, 0.95),
    "diloco-fragments": ({"strategy": f"diloco:steps={STEPS},overlap={STEPS // 8},fragments=4"}, 20, 0.95),
    "diloco-e3m0": ({"strategy": f"diloco:steps={STEPS}", "codec": "e3m0"}, 5, 0.9),
    "diloco-sparse2": ({"strategy": f"diloco:steps={STEPS},outer-rate=1,outer-momentum=0", "codec": "sparse2"}, 5, 0.9),
    "data-parallel": ({"strategy": "data-parallel"}, 20, 0),
}


def planned(settings, options, passes):
    """The bytes that a peer sends in a round and the share of the time that it computes, as `waggle plan` foretells."""
    model = [word for name in ("model", "layers", "context") for word in (f"--{name}", str(SLOW[name]))]
    plan = subprocess.run([settings.binary, "plan", "--peers", str(settings.peers), "--link", f"{settings.rate},{settings.delay:.0f}ms",
                           *model, "--width", str(settings.width), "--step-time", f"{1000 / passes:.0f}ms"],
                          capture_output=True, text=True, check=True).stdout

    def numbers(words):  # that tell the rows apart
        return [re.findall(rf"{name}[= ](\w+)", words) for name in ("--codec", "steps", "overlap", "fragments")]
    wanted = numbers(options["strategy"] + (f" --codec {options['codec']}" if "codec" in options else ""))
    row = next(line for line in plan.splitlines() if line.startswith("--strategy") and numbers(line) == wanted)
    megabytes, _, share = (float(word) for word in re.split(r"  +", row)[1:4])
    return 1e6 * megabytes, share


class Link:
    """What the interface of a peer has sent, headers included, and its passes, since it was made."""

    def __init__(self, peer):
        self.peer = peer
        self.samples = [self.sent()]  # one every quarter of a second
        self.ends = threading.Event()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()
        self.began = self.now()

    def sent(self):
        file = "/sys/class/net/eth0/statistics/tx_bytes"
        sent = subprocess.run(["ip", "netns", "exec", self.peer.namespace, "cat", file], capture_output=True, text=True, check=True)
        return int(sent.stdout)

    def sample(self):
        while not self.ends.wait(0.25):
            self.samples.append(self.sent())

    def now(self):
        return self.sent(), self.peer.status["steps"], self.peer.status["epoch"], time.monotonic()

    def since(self):
        """Passes a second, bytes in an epoch, and bytes in the second in which they were most."""
        sent, steps, epochs, seconds = (b - a for a, b in zip(self.began, self.now()))
        self.ends.set()
        self.sampler.join()
        return steps / seconds, sent / max(1, epochs), max(b - a for a, b in zip(self.samples, self.samples[4:]))


def passes_and_bytes(settings, options, count, rounds, model=SLOW, rate=RATE, delay_ms=DELAY_MS):
    """Link.since of the first of `count` peers, over `rounds` rounds."""
    with Lab(settings, count, rate, delay_ms=delay_ms) as lab, Run(settings, {**model, **options}, lab) as run:
        run.begin(count, [{"min-peers": count}] * count)
        first = run.peers[0]

        def statuses(name):
            return [(peer.status or {}).get(name) or 0 for peer in run.peers]

        def round_ends(number):  # at all peers: a newcomer downloads the state first
            while min(statuses("epoch")) < number:  # late only if no pass is made, which takes long on a busy machine
                made = statuses("steps")
                eventually(f"a pass, or round {number}", lambda: min(statuses("epoch")) >= number or statuses("steps") > made, 60, 0.01)
        round_ends(2)
        link = Link(first)
        round_ends(first.status["epoch"] + rounds)
        return link.since()


def outer_rounds(settings, report):
    """Speed of peers with few rounds, relative to one alone in turn with them, and bytes at the interface."""
    names = settings.only.split(",") if settings.only else list(OUTER_MODES)
    shares = {name: [] for name in names}
    link = {"rate": settings.rate, "delay_ms": settings.delay,
            "model": SLOW | {"width": settings.width, "step-interval": settings.step_interval}}
    for _ in range(settings.times):
        alone, *_ = passes_and_bytes(settings, OUTER_MODES["diloco"][0], 1, 5, **link)
        for name in names:
            options, rounds, _ = OUTER_MODES[name]
            speed, sent, most = passes_and_bytes(settings, options, settings.peers, rounds, **link)
            shares[name].append(speed / alone)
            foretold, share = planned(settings, options, alone)
            report.fact(name, alone=alone, passes_a_second=speed, share=speed / alone, planned_share=share, bytes_a_round=sent,
                        of_the_plan=sent / foretold, bytes_in_a_second=most)
            # With a codec, the reports of progress are more than a round of a model this small, unless passes are slow.
            if "codec" not in options and name not in ("diloco-overlap", "diloco-fragments"):
                report.require(abs(sent / foretold - 1) <= 0.08, f"{name} sends {sent:.0f} bytes in a round")
    for name in names:
        share = statistics.median(shares[name])
        report.fact(f"{name}, median", share=share)
        if (settings.peers, settings.rate, settings.delay) == (2, RATE, DELAY_MS):
            report.require(share >= OUTER_MODES[name][2], f"{name} reaches {share:.2f} of the speed of one peer alone")


def buckets(settings, report):
    """Updates a second of two peers with buckets, relative to without, in turn; rounds take about as long as passes."""
    model = {"model": "char-gpt", "layers": 4, "width": 128, "context": 64, "heads": 4, "micro-batch": 16, "threads": 1,
             "shared-memory": "false", "target-batch-size": None}
    for rate in ("100mbit", "400mbit"):
        shares = []
        for _ in range(settings.times):
            plain, with_buckets = (passes_and_bytes(settings, {"strategy": f"data-parallel:buckets={n}"}, 2, 40, model, rate, 1)[0] for n in (0, 1))
            shares.append(with_buckets / plain)
            report.fact(f"buckets, {rate}", without=plain, with_buckets=with_buckets, ratio=shares[-1])
        report.fact(f"buckets, {rate}, median", ratio=statistics.median(shares))


def seconds_to(loss, settings, options, updates):
    """The seconds from the first update of two islands until their loss on fixed windows is at most `loss`; None: until
    `updates` are made. Returns them and that loss."""
    evaluated = {"replicas": 2, "eval-data": "/usr/share/common-licenses/Artistic", "eval-every": "500ms"}
    with Lab(settings, 2, RATE, delay_ms=DELAY_MS) as lab, \
            Run(settings, {**SLOW, "data": "/usr/share/common-licenses", **options}, lab) as run:
        run.begin(2, [{"min-peers": 2, **evaluated}, {"min-peers": 2, "replicas": 2}])
        first = run.peers[0]
        eventually("the first update", lambda: (first.status or {}).get("epoch"), 60, 0.01)
        began = time.monotonic()

        def reached():
            status = first.status
            return status["epoch"] >= updates if loss is None else (status.get("eval_loss") or 99) <= loss
        eventually("this loss", reached, 1200, 0.01)
        return time.monotonic() - began, first.status["eval_loss"]


def islands(settings, report):
    """Time in which two islands of two replicas reach a loss with daso, relative to data-parallel."""
    for _ in range(settings.times):
        plain, loss = seconds_to(None, settings, {"strategy": "data-parallel"}, settings.epochs)
        epochs = settings.epochs // 20
        quicker, reached = seconds_to(loss, settings, {"strategy": f"daso:epochs={epochs},batches=20,warmup=2,cooldown=2,endless=1"}, 0)
        report.fact("daso", data_parallel_seconds=plain, loss=loss, seconds=quicker, its_loss=reached, ratio=quicker / plain)
        report.require(quicker <= 0.66 * plain, f"daso needs {quicker / plain:.2f} of the time of data-parallel")
