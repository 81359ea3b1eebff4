"""Compares the strategies: speed next to training without rounds, bytes, memory."""
import time

from lab import Lab
from measures import speed_of
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
    period = {"averaging-steps-period": PASSES} if by_steps else {"target-batch-size": MODEL["micro-batch"] * PASSES * peers}
    return {**MODEL, **period, **mode}


def two_peers(settings, mode, delay, rounds=5):
    """The speed of one of two peers, and what the two move and keep."""
    with Lab(settings, 2, delay_ms=delay) as lab, Run(settings, options_of(mode, 2), lab) as run:
        if "averaging-steps-period" in run.options:
            del run.options["target-batch-size"]
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
