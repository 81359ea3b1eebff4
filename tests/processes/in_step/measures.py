"""Numbers beside a baseline: batch-bound, uneven, memory."""
import contextlib
import os
import pathlib
import signal
import subprocess
import time

import peers as processes
from peers import MODELS, Run


def used_by(peers):
    return sum(p.status["samples"]["used"] for p in peers)


def accounts(peers):
    """(samples used, epoch) of each, both from one document."""
    return [(p.status["samples"]["used"], p.status["epoch"]) for p in peers]


def samples_an_epoch(before, after):
    """Each peer's own samples over its own epochs, so that old documents do no harm."""
    return sum((b[0] - a[0]) / max(1, b[1] - a[1]) for a, b in zip(before, after))


def batch_bound(settings, report):
    """Samples of an epoch, for epochs of 20, 80, 400 ms and 2, 4, 8 peers."""
    target, micro = 128, 8
    for _ in range(settings.times):
        for count in (int(n) for n in settings.peers.split(",")):
            for milliseconds in (float(m) for m in settings.epochs_ms.split(",")):
                # All passes together come to the target in that time, if the machine is fast enough.
                pause = milliseconds * count * micro / target
                # A smaller model than elsewhere, for short epochs.
                options = {"width": 16, "context": 16, "target-batch-size": target, "micro-batch": micro,
                           "step-interval": f"{max(1, round(pause))}ms"}
                with processes.begun(settings, report, count, options) as run:
                    peers = run.peers
                    time.sleep(2)
                    before, began = accounts(peers), time.monotonic()
                    seen = []
                    while time.monotonic() < began + settings.duration:
                        time.sleep(0.05)
                        seen += [p.status["effective_batch"] for p in peers if p.status.get("effective_batch")]
                    after, ended = accounts(peers), time.monotonic()
                epochs = max(1, max(epoch for _, epoch in after) - max(epoch for _, epoch in before))
                batch = samples_an_epoch(before, after)
                name = f"{count} peers, epochs of {milliseconds:g} ms"
                least, most = min(seen, default=batch), max(seen, default=batch)
                report.fact(name, epoch_ms=(ended - began) * 1000 / epochs, samples_an_epoch=batch, least=least, most=most,
                            epochs=epochs, source="effective_batch" if seen else "samples used")
                report.require(least >= target, f"{name}: {least:.0f} samples in an epoch, less than {target}")
                report.require(most <= target + count * micro,
                               f"{name}: {most:.0f} samples in an epoch, at most {target + count * micro} are wanted")


def pin(peer, core):
    """All of its threads, also those to come."""
    for task in pathlib.Path(f"/proc/{peer.child.pid}/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), {core})
        except ProcessLookupError:
            pass


def speed_of(peers, seconds):
    before, began = used_by(peers), time.monotonic()
    time.sleep(seconds)
    return (used_by(peers) - before) / (time.monotonic() - began)


def uneven(settings, report):
    """Two fast trainers on one core, without and with a slow one on another core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise processes.Failed("this needs two cores: one for the fast, one for the slow")
    options = {"target-batch-size": settings.target}
    for _ in range(settings.times):
        for seconds in (float(s) for s in settings.passes.split(",")):
            with Run(settings, options) as run:
                fast = [run.add().start()]
                fast.append(run.add(via=fast[0]).start())
                run.await_step(fast)
                for peer in fast:
                    pin(peer, cores[0])
                time.sleep(3)
                own = speed_of(fast, settings.duration)
                # A pass may have half a target; what it is still too short by, others on its core make up for.
                micro = max(8, min(settings.target // 2, int(2.5 * seconds * one_core_speed(fast))))
                slow = run.add(via=fast[0], micro_batch=micro).start()
                pin(slow, cores[1])
                name = f"one with passes of {seconds:g} s"
                try:
                    processes.eventually("the slow one makes a pass", lambda: (slow.status or {}).get("steps"),
                                         settings.patience + 5 * seconds)
                except processes.Failed as why:
                    report.require(False, f"{name}: {why}; {slow.where()}; {fast[0].where()}")
                    continue
                time.sleep(3)
                with busy(cores[1], round(seconds / seconds_a_pass(slow, 3)) - 1):
                    time.sleep(3 * seconds)
                    used, steps, began = slow.status["samples"]["used"], slow.status["steps"], time.monotonic()
                    beside = speed_of(fast, max(settings.duration, 6 * seconds))
                    took = time.monotonic() - began
                passes = slow.status["steps"] - steps
                report.fact(name, fast_alone=own, fast_beside=beside, ratio=beside / own, micro_batch=micro,
                            seconds_a_pass=took / max(1, passes), slow_used=slow.status["samples"]["used"] - used,
                            slow_dropped=slow.status["samples"]["dropped"], slow_phase=slow.status["phase"])
                report.require(beside >= 0.95 * own, f"{name}: the fast ones make {beside / own:.0%} of their own speed")
                report.require(slow.status["samples"]["used"] > used, f"{name}: no sample of the slow one is used")


def seconds_a_pass(peer, seconds):
    before, began = peer.status["steps"], time.monotonic()
    time.sleep(seconds)
    return (time.monotonic() - began) / max(1, peer.status["steps"] - before)


@contextlib.contextmanager
def busy(core, others):
    """So many others compute on that core. Each in a session of its own, as the scheduler shares a core by sessions."""
    loops = [subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(core), "sh", "-c", "while :; do :; done"],
                              start_new_session=True) for _ in range(others)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def one_core_speed(fast):
    """Samples that one core computes a second."""
    return sum(p.status["samples_per_second"] for p in fast) / len(fast)


def memory(settings, report):
    """Resident sizes of two trainers of 25 M parameters, of a third that takes their state, and of a plain loop.

    What is compared is VmRSS, or its peak, which counts pages that two peers on this machine share in each of them;
    `proportional_of_three` (Pss) is what one of the three costs the machine.
    """
    model = MODELS["100MB"] | {"target-batch-size": 16}
    parameters = processes.parameters_of(model)
    plain = plain_loop_size(settings, model)
    with Run(settings, {**model, "checkpoint-interval": "10s"}) as run:
        first = run.add().start()
        two = [first, run.add(via=first).start()]
        run.await_step(two, 180)
        began, sizes = time.monotonic(), []
        while time.monotonic() < began + settings.duration:
            time.sleep(0.5)
            sizes.append([p.resident() for p in two])
        # A snapshot under way is part of it.
        late = run.add(via=first).start()
        try:
            processes.eventually("a third takes the state", lambda: (late.status or {}).get("state_downloads"), 180)
        except processes.Failed as why:
            report.note(str(why))
        time.sleep(3)  # it catches up
        peak = max(p.resident()[1] for p in two)
        taker = late.resident()[1]
        proportional = max(p.proportional() for p in two)
        steady = max(size[0] for size in sizes[-1])
        moved = first.status["bytes"]
        rounds = first.status["rounds"]["complete"]
    report.fact("resident, MiB", plain_loop=plain, steady=steady, peak=peak, peak_of_the_third=taker,
                ratio_steady=steady / plain, ratio_peak=peak / plain, ratio_third=taker / plain,
                model_and_optimizer=parameters * 16 / 2 ** 20, proportional_of_three=proportional)
    report.fact("moved by the first", bytes_in=moved["in"], bytes_out=moved["out"], rounds=rounds,
                bytes_of_the_vector=parameters * 4)
    worst = max(peak, taker)
    report.require(worst <= 1.5 * plain, f"{worst / plain:.2f} of the plain loop's resident size")


def plain_loop_size(settings, model):
    """MiB that `waggle bench train` holds while its plain loop runs, which comes first."""
    line = [str(pathlib.Path(settings.binary).resolve()), "bench", "train", "--steps", "1000", "--data", settings.data]
    for name, value in model.items():
        line += [f"--{name}", str(value)]
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *line], stdout=subprocess.DEVNULL,
                             start_new_session=True)
    try:
        # Until it has made optimizer steps, which no output tells, and so has all that it will ever need.
        sizes = []
        while len(sizes) < 20 or sizes[-1] != sizes[-20]:
            if len(sizes) > 180:
                raise processes.Failed(f"the plain loop still grows after {len(sizes)} s")
            time.sleep(1)
            text = pathlib.Path(f"/proc/{child.pid}/status").read_text()
            sizes.append(int(text.split("VmHWM:")[1].split()[0]) / 1024)
        return sizes[-1]
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
