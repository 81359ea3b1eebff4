"""Scenarios that compare measurements with a baseline: batch-bound, uneven, memory, scrapes."""
import contextlib
import http.client
import os
import pathlib
import signal
import subprocess
import time

import peers as processes
import watch
from peers import MODELS, Run
from report import quantile


def used_by(peers):
    return sum(p.status["samples"]["used"] for p in peers)


def accounts(peers):
    """(samples used, epoch) of each peer, both from the same status document."""
    return [(p.status["samples"]["used"], p.status["epoch"]) for p in peers]


def samples_an_epoch(before, after):
    """Mean samples per epoch. Divides the samples of each peer by its own epochs, in case a status document is old."""
    return sum((b[0] - a[0]) / max(1, b[1] - a[1]) for a, b in zip(before, after))


def batch_bound(settings, report):
    """Samples per epoch, for epochs of 20, 80, 400 ms and 2, 4, 8 peers."""
    target, micro = 128, 8
    for _ in range(settings.times):
        for count in (int(n) for n in settings.peers.split(",")):
            for milliseconds in (float(m) for m in settings.epochs_ms.split(",")):
                # With this pause, the passes of all peers reach the target in that time if the machine is fast enough.
                pause = milliseconds * count * micro / target
                # A smaller model than in the other scenarios, for short epochs.
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
                               f"{name}: {most:.0f} samples in an epoch, more than {target + count * micro}")


def pin(peer, core):
    """Pins all threads of the peer, and those it starts later, to a core."""
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
    """Two fast trainers on one core, without and with a slow trainer on another core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise processes.Failed("this needs two cores: one for the fast trainers, one for the slow trainer")
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
                # A micro-batch of at most half a target; for longer passes, other processes use the same core.
                micro = max(8, min(settings.target // 2, int(2.5 * seconds * one_core_speed(fast))))
                slow = run.add(via=fast[0], micro_batch=micro).start()
                pin(slow, cores[1])
                name = f"slow trainer with passes of {seconds:g} s"
                try:
                    processes.eventually("the slow trainer completes a pass", lambda: (slow.status or {}).get("steps"),
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
                report.require(beside >= 0.95 * own,
                               f"{name}: the fast trainers reach {beside / own:.0%} of their speed without the slow one")
                report.require(slow.status["samples"]["used"] > used, f"{name}: no sample of the slow trainer was used")


def seconds_a_pass(peer, seconds):
    before, began = peer.status["steps"], time.monotonic()
    time.sleep(seconds)
    return (time.monotonic() - began) / max(1, peer.status["steps"] - before)


@contextlib.contextmanager
def busy(core, others):
    """Runs `others` busy loops on `core`, each in its own session, because the scheduler shares a core by sessions."""
    loops = [subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(core), "sh", "-c", "while :; do :; done"],
                              start_new_session=True) for _ in range(others)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def one_core_speed(fast):
    """Samples per second of one core."""
    return sum(p.status["samples_per_second"] for p in fast) / len(fast)


def memory(settings, report):
    """Resident sizes of two trainers with 25 M parameters, of a third one that downloads their state, and of a plain loop.

    Compares VmRSS and its peak, which count pages that several peers share fully in each of them.
    `proportional_of_three` (Pss) divides such pages among the peers: the memory that one of the three really needs.
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
        # The peak includes the snapshot for a third peer.
        late = run.add(via=first).start()
        try:
            processes.eventually("a third trainer downloads the state",
                                 lambda: (late.status or {}).get("state_downloads"), 180)
        except processes.Failed as why:
            report.note(str(why))
        time.sleep(3)  # until it has caught up
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


def scrapes(settings, report):
    """Two peers average 64 MiB, one round after the other, without and with 50 scrapes a second, in ten pairs."""
    elements, a_second = 1 << 24, 50
    with Run(settings) as run:
        first = run.add(command="average", elements=elements).start()
        first.address()
        two = [first, run.add(via=first, command="average", elements=elements).start()]
        processes.eventually("they average", lambda: all(p.status and p.status["rounds"]["complete"] >= 5 for p in two), 60)
        for peer in two:
            peer.observer.stop()
        complete = lambda: watch.ask(first.host, first.port, "/api/v1/status")["rounds"]["complete"]
        ratios, took, rounds = [], [], []
        for pair in range(10):
            seconds = {}
            for scraped in (pair % 2 == 0, pair % 2 == 1):
                before, began = complete(), time.monotonic()
                if scraped:
                    took += scraping(two, a_second, settings.duration)
                else:
                    time.sleep(settings.duration)
                rounds.append(complete() - before)
                seconds[scraped] = (time.monotonic() - began) / max(1, rounds[-1])
            ratios.append(seconds[True] / seconds[False])
    report.fact(f"{a_second} scrapes a second", scrapes=len(took), median_ms=1000 * quantile(took, 0.5), p99_ms=1000 * quantile(took, 0.99),
                worst_ms=1000 * max(took), round_ms=1000 * seconds[False], ratio=quantile(ratios, 0.5), least=min(ratios), most=max(ratios),
                load=os.getloadavg()[0])
    report.require(quantile(took, 0.99) <= 0.05, "a scrape in a hundred takes longer than 50 ms")
    report.require(quantile(ratios, 0.5) <= 1.03, "rounds take more than 3 % longer")


def scraping(peers, a_second, seconds):
    """Reads /metrics of the peers in turn at this rate; the seconds that each time took."""
    links = [http.client.HTTPConnection(p.host, p.port, timeout=10) for p in peers]
    began = time.monotonic()
    for n in range(int(a_second * seconds)):
        time.sleep(max(0.0, began + n / a_second - time.monotonic()))
        link, asked = links[n % len(links)], time.monotonic()
        link.request("GET", "/metrics")
        assert link.getresponse().read()
        yield time.monotonic() - asked


def plain_loop_size(settings, model):
    """Peak resident size in MiB of `waggle bench train` while it runs the plain loop, which it does first."""
    line = [str(pathlib.Path(settings.binary).resolve()), "bench", "train", "--steps", "1000", "--data", settings.data]
    for name, value in model.items():
        line += [f"--{name}", str(value)]
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *line], stdout=subprocess.DEVNULL,
                             start_new_session=True)
    try:
        # Wait until the size is constant: the loop has then made optimizer steps, of which it prints nothing.
        sizes = []
        while len(sizes) < 20 or sizes[-1] != sizes[-20]:
            if len(sizes) > 180:
                raise processes.Failed(f"the size of the plain loop still grows after {len(sizes)} s")
            time.sleep(1)
            text = pathlib.Path(f"/proc/{child.pid}/status").read_text()
            sizes.append(int(text.split("VmHWM:")[1].split()[0]) / 1024)
        return sizes[-1]
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
