"""Makes one of four peers slow, and looks whom the others name, why, and after how long."""
import concurrent.futures
import contextlib
import os
import pathlib
import threading
import time

import watch
from lab import Lab
from peers import Failed, Run, eventually

# Passes of about ten milliseconds, epochs of about half a second, and rounds of 0.6 MB.
MODEL = {"width": 64, "context": 32, "layers": 2, "heads": 2, "micro-batch": 8, "target-batch-size": 128,
         "step-interval": "100ms"}
HEALTHY = 15  # seconds in which nobody may be named
CGROUPS = pathlib.Path("/sys/fs/cgroup/cpu")


class Naming:
    """Asks the first three peers whom they name."""

    def __init__(self, run):
        self.asking = [(peer, concurrent.futures.ThreadPoolExecutor(1, initializer=watch.enter_namespace,
                                                                    initargs=(peer.namespace,))) for peer in run.peers[:3]]

    def now(self):
        """[{peer: (cause, text)}] of each that answers."""
        seen = []
        for peer, thread in self.asking:
            try:
                answer = thread.submit(watch.ask, peer.host, peer.port, "/api/v1/peers").result()
            except (OSError, ValueError):
                continue
            seen.append({p["id"]: (p["slow"]["cause"], p["slow"]["text"]) for p in answer["peers"] if p.get("slow")})
        return seen

    def close(self):
        for _, thread in self.asking:
            thread.shutdown()


def join(run, **options):
    late = run.add(via=run.peers[0], **options).start()
    eventually("it trains", lambda: late.status and late.status["rounds"]["complete"] > 0, 30)


def slow_passes(stack, settings, run):
    join(run, micro_batch=10 * WAIT_FOR_ALL["micro-batch"])


def slow_link(stack, settings, run):
    run.lab.limit(3, "16mbit")


def far_away(stack, settings, run):
    run.lab.delay(settings, 40, host=3)
    join(run)  # the kernel keeps the shortest round trip of a connection for five minutes


def tenth_of_a_core(stack, settings, run):
    group = CGROUPS / f"waggle-slow-{os.getpid()}"
    group.mkdir()
    (group / "cpu.cfs_quota_us").write_text("10000")
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cgroup.procs").write_text(str(run.peers[3].child.pid))

    def remove():
        run.close()
        group.rmdir()
    stack.callback(remove)


def pauses(stack, settings, run):
    over, peer = threading.Event(), run.peers[3]

    def loop():
        while not over.wait(1.7):
            peer.freeze()
            over.wait(0.3)
            peer.thaw()
    thread = threading.Thread(target=loop)
    thread.start()

    def end():
        over.set()
        thread.join()
    stack.callback(end)


PLANTED = {  # name: (what, the causes that are right, how)
    "passes": ("passes of ten times as many samples", {"passes"}, slow_passes),
    "link": ("2 MB/s", {"sends_slowly"}, slow_link),
    "far": ("a round trip of 80 ms", {"far"}, far_away),
    "core": ("a tenth of a core", {"passes"}, tenth_of_a_core),
    "volunteer": ("a tenth of a core, and no round waits for passes", {"passes"}, tenth_of_a_core),
    "pauses": ("stopped for 300 ms of every 2 s", {"pauses"}, pauses),
    "healthy": ("nothing", set(), None),
}

LONGER_PASSES = {"step-interval": "30ms", "target-batch-size": 256, "micro-batch": 16}
# Otherwise rounds do not wait for passes.
WAIT_FOR_PASSES = LONGER_PASSES | {"strategy": "local-updates", "delay-state-averaging": "false"}
WAIT_FOR_ALL = LONGER_PASSES | {"strategy": "data-parallel", "target-batch-size": None}
PAUSES = {"strategy": "data-parallel", "target-batch-size": None}
OPTIONS = {"passes": WAIT_FOR_ALL, "core": WAIT_FOR_PASSES, "volunteer": LONGER_PASSES, "pauses": PAUSES}
JOINS = {"passes", "far"}  # the slow peer joins when the others train


def slow(settings, report):
    """Makes one of four peers slow in each of five ways: whom the others name, why, and when."""
    report.limit = 20
    wanted = settings.only.split(",") if settings.only else list(PLANTED)
    for name in wanted:
        if name not in PLANTED:
            raise Failed(f"nothing is named {name}: use {', '.join(PLANTED)}")
        for _ in range(settings.times):
            with contextlib.ExitStack() as stack:
                lab = stack.enter_context(Lab(settings, 4))
                run = stack.enter_context(Run(settings, MODEL | OPTIONS.get(name, {}), lab))
                trial(stack, settings, report, run, name)


def trial(stack, settings, report, run, name):
    what, causes, plant = PLANTED[name]
    run.begin(3 if name in JOINS else 4)
    run.await_step(run.peers, 60)
    naming = Naming(run)
    stack.callback(naming.close)
    time.sleep(3)
    early = [found for seen in naming.now() for found in seen.values()]
    if plant:
        plant(stack, settings, run)
    slow_one = run.peers[3].status["peer"] if plant else None
    began = time.monotonic()
    reasons, wrong, first = [], [], None
    while time.monotonic() < began + (report.limit + 5 if plant else HEALTHY):
        time.sleep(0.2)
        for seen in naming.now():
            for peer, (cause, text) in seen.items():
                line = f"{'it' if peer == slow_one else 'another'} {cause}: {text}"
                if line not in reasons:
                    reasons.append(line)
                if peer != slow_one:
                    wrong.append(line)
                elif cause in causes and first is None:
                    first = time.monotonic() - began
        if first is not None and time.monotonic() > began + first + 2:
            break
    detail = " / ".join(dict.fromkeys(wrong or reasons)) or "nobody was named"
    if early:
        report.note(f"named before: {early}")
    if plant:
        report.trial(f"{name}: {what}", first, not wrong, detail, reasons=reasons)
    else:
        report.trial(f"{name}: {what}", 0.0 if not reasons else None, detail=detail, reasons=reasons)
    if first is not None:
        report.note("  " + reasons[-1])
