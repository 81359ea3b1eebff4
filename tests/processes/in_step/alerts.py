"""Fires alerts on live swarms: each by a planted fault, with Debian's Prometheus and all windows divided by 60."""
import concurrent.futures
import contextlib
import itertools
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from typing import Callable, NamedTuple

import watch
from lab import Lab
from peers import ROOT, Failed, Run, eventually

FASTER = 60
SCRAPES = 0.5  # seconds between two
CALM = 3  # seconds without an alert before a fault is planted
SLACK = 5  # seconds until a fault shows in a metric, beside the windows of the rule
# Half a second for an epoch of three peers, which leaves most of the processor to others.
SWARM = {"step-interval": "50ms", "target-batch-size": 256}
SECONDS = {"s": 1, "m": 60, "h": 3600}


def rules():
    """(the rules with all times divided, {alert: seconds after its cause by which it has to fire})"""
    def divided(found):
        return f"{found[1]}{int(found[2]) * SECONDS[found[3]] * 1000 // FASTER}ms{found[4]}"
    text = (ROOT / "dashboards" / "alerts.yml").read_text()
    text = re.sub(r"(\[|for: |offset )(\d+)([smh])(\]|\b)", divided, text)
    text, ages = re.subn(r"> 1800\b", f"> {1800 // FASTER}", text)
    if ages != 1:
        raise Failed("alerts.yml has another age of a checkpoint; change it here, too")
    limits = {}
    for rule in text.split("- alert: ")[1:]:
        longest = [max((int(ms) / 1000 for ms in re.findall(rf"{what}(\d+)ms", rule)), default=0) for what in (r"\[", "for: ")]
        old = 1800 / FASTER if "last_success_timestamp" in rule else 0
        limits[rule.split()[0]] = sum(longest) + old + SLACK
    return text, limits


class Prometheus:
    """Scrapes the given peers, or those that the first one lists; in a lab from the router."""

    def __init__(self, run, targets, discovery=None):
        self.folder = run.folder / "prometheus"
        self.folder.mkdir()
        space = run.lab.router if run.lab else None
        self.asking = concurrent.futures.ThreadPoolExecutor(1, initializer=watch.enter_namespace if space else None,
                                                            initargs=(space,) if space else ())
        (self.folder / "alerts.yml").write_text(rules()[0])
        found = {"http_sd_configs": [{"url": f"http://{discovery}/sd", "refresh_interval": "1s"}]} if discovery else \
            {"static_configs": [{"targets": targets}]}
        config = self.folder / "prometheus.yml"
        config.write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": f"{SCRAPES * 1000:g}ms", "scrape_timeout": f"{SCRAPES * 1000:g}ms",
                       "evaluation_interval": "250ms"},
            "rule_files": [str(self.folder / "alerts.yml")],
            "scrape_configs": [{"job_name": "waggle", "honor_labels": True, **found}]}))
        self.log = self.folder / "log"
        words = ["setpriv", "--pdeathsig", "KILL", "--", *(["ip", "netns", "exec", space] if space else []),
                 run.settings.prometheus, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'tsdb'}",
                 "--web.listen-address=127.0.0.1:0"]
        with open(self.log, "w") as log:
            self.child = subprocess.Popen(words, stdout=log, stderr=log)
        eventually("Prometheus listens", self.listens, 20)
        eventually("Prometheus has scraped every peer twice",
                   lambda: self.count('count(count_over_time((up == 1)[5s:500ms]) >= 2)') == len(targets), 20)

    def listens(self):
        found = re.search(r'msg="Listening on" address=(\S+)', self.log.read_text())
        self.base = found and f"http://{found[1]}"
        return found

    def ask(self, path):
        def get():
            with urllib.request.urlopen(f"{self.base}/api/v1/{path}", timeout=10) as answer:
                return json.loads(answer.read())["data"]
        return self.asking.submit(get).result()

    def count(self, query):
        try:
            found = self.ask("query?" + urllib.parse.urlencode({"query": query}))["result"]
        except OSError:  # it reads its log yet
            return 0
        return int(float(found[0]["value"][1])) if found else 0

    def firing(self):
        return {alert["labels"]["alertname"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"}

    def close(self):
        self.child.kill()
        self.child.wait()
        self.asking.shutdown()


class Scene:
    """A swarm, Prometheus, and what fired before and after the fault."""

    def __init__(self, settings, options=None, lab=None):
        self.run = Run(settings, {**SWARM, **(options or {})}, lab)
        self.prometheus, self.planted_at, self.early = None, None, set()
        self.over, self.helper = threading.Event(), None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        if self.helper:
            self.helper.join()
        if self.prometheus:
            self.prometheus.close()
        self.run.close()

    def swarm(self, count, each=()):
        self.run.begin(count, each)
        self.run.await_step(self.run.peers, 60)
        return self.run.peers

    def watch(self, peers=None, discovery=None):
        """Starts Prometheus. If the fault is not there yet, nothing may fire for a while. `peers`: what it scrapes, or all."""
        targets = [peer.address() for peer in peers or self.run.peers]
        self.prometheus = Prometheus(self.run, targets, discovery)
        if self.planted_at:
            return self.planted()  # it begins to see it
        until = time.monotonic() + CALM
        while time.monotonic() < until:
            self.early |= self.prometheus.firing()
            time.sleep(0.2)

    def planted(self):
        self.planted_at = time.monotonic()

    def again_and_again(self, act):
        """Calls `act` until the scene is over. It waits by `self.over.wait`."""
        def loop():
            while not self.over.is_set():
                act()
        self.helper = threading.Thread(target=loop, daemon=True)
        self.planted()
        self.helper.start()


# -- faults: each starts its swarm, and plants one ----------------------------------------------------------


def killed(scene):
    peers = scene.swarm(3)
    scene.watch(discovery=peers[0].address())
    peers[2].send(signal.SIGKILL)
    scene.planted()


def finds_nobody(scene):
    scene.swarm(4)
    lost = scene.run.add(initial_peers="127.0.0.1:9", join_timeout="1h").start()
    lost.address()
    scene.planted()
    scene.watch()


def restarts(scene):
    peers = scene.swarm(3)
    scene.watch()

    def again():
        peers[2].end()
        peers[2].start()
        eventually("it answers", lambda: peers[2].status is not None, 20)
        scene.over.wait(2 * SCRAPES)
    scene.again_and_again(again)


def wrong_address(scene):
    peers = scene.swarm(2)
    with socket.socket() as held:  # so that nothing listens at its port
        held.bind(("127.0.0.1", 0))
        closed = scene.run.add(via=peers[0], announce=f"127.0.0.1:{held.getsockname()[1]}").start()
        closed.address()
        scene.planted()
        scene.watch()


def other_options(scene):
    peers = scene.swarm(3)
    scene.watch()
    scene.run.add(via=peers[0], width=48).start()
    scene.planted()


def no_epoch(scene):
    scene.run.begin(2)
    eventually("both train", lambda: all((p.status or {}).get("phase") == "training" for p in scene.run.peers), 30)
    scene.planted()
    scene.watch()


def frozen_in_turn(scene, count):
    """Freezes another peer at the end of each epoch until the others have ended it, or for a second."""
    peers = scene.swarm(count)
    scene.watch()
    turns = itertools.cycle(peers[1:])
    ended = [time.monotonic()]
    length = 3.0

    def one_epoch():
        nonlocal length
        epoch = peers[0].status["epoch"]
        victim = None
        while peers[0].status["epoch"] == epoch and not scene.over.wait(0.02):
            now = time.monotonic()
            if victim is None and len(ended) > 1 and now > ended[-1] + length - 0.5:
                victim, since = next(turns), now
                victim.freeze()
            elif victim and now > since + 1:
                break
        if victim:
            victim.thaw()
        if peers[0].status["epoch"] != epoch:
            ended.append(time.monotonic())
            length = min(5, ended[-1] - ended[-2])
    scene.again_and_again(one_epoch)


def halves(scene):
    scene.swarm(4)
    scene.watch()
    scene.run.lab.cut([0, 1], [2, 3])
    scene.planted()


def one_is_cut_off(scene):
    scene.swarm(5)
    scene.watch()
    scene.run.lab.cut([4], range(4))
    scene.planted()


def a_changed_parameter(scene):
    peers = scene.swarm(3)
    victim = peers[2]
    folder = victim.folder / "checkpoints"
    eventually("there is a checkpoint", lambda: list(folder.glob("*")), 20)
    scene.watch()
    image = max(folder.glob("*"), key=lambda f: f.stat().st_size).read_bytes()
    scene.planted()
    change_in_memory(victim.child.pid, image)


def change_in_memory(pid, image):
    """Flips a sign wherever the process holds 1 KiB of the parameters, which --lr 0 keeps as they are."""
    piece = image[40_000:41_024]
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            begin, end = (int(x, 16) for x in span.split("-"))
            if not rights.startswith("rw") or end - begin > 1 << 28:
                continue
            try:
                memory.seek(begin)
                content = memory.read(end - begin)
            except OSError:
                continue
            at = content.find(piece)
            while at >= 0:
                memory.seek(begin + at + 3)  # the sign of a float is in its last byte
                memory.write(bytes([content[at + 3] ^ 0x80]))
                found += 1
                at = content.find(piece, at + 1)
    if not found:
        raise Failed("the parameters are not in the memory of the process")


def forged_signatures(scene):
    peers = scene.swarm(3)
    scene.watch()
    program = scene.run.binary.parent / "waggle-attack"
    if not program.exists():
        raise Failed(f"there is no program {program}")
    scene.planted()
    subprocess.run([str(program), "forged-records", peers[0].address(), scene.run.name, "2", "1", "20000"],
                   capture_output=True)


def diverges(scene):
    scene.run.begin(2)
    scene.planted()
    scene.watch()


def another_configuration(scene):
    scene.swarm(4)
    odd = scene.run.add(width=48, min_peers=1).start()
    odd.address()
    scene.planted()
    scene.watch()


def clock_ahead(scene):
    peers = scene.swarm(2)
    library = scene.run.folder / "clock_ahead.so"
    source = ROOT / "tests" / "processes" / "clock_ahead.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    ahead = scene.run.add(via=peers[0])
    ahead.before = ["env", f"LD_PRELOAD={library}", "CLOCK_AHEAD=2"]
    ahead.start().address()
    scene.planted()
    scene.watch()


def idles(scene):
    scene.swarm(2)
    scene.planted()
    scene.watch()


def folder_becomes_a_file(scene):
    peers = scene.swarm(1)
    folder = peers[0].folder / "checkpoints"
    eventually("there is a checkpoint", lambda: list(folder.glob("*")), 20)
    scene.watch()
    shutil.rmtree(folder)
    folder.write_text("in the way")
    scene.planted()


def never_a_checkpoint(scene):
    peer = scene.run.add()
    peer.folder.mkdir(mode=0o700)
    (peer.folder / "checkpoints").write_text("in the way")
    peer.start().address()
    scene.planted()
    scene.watch()


def small_batches(scene):
    scene.swarm(3)
    scene.planted()
    scene.watch()


class Fault(NamedTuple):
    alert: str
    what: str  # is planted
    plant: Callable
    options: dict = {}
    hosts: int = 0  # in namespaces of their own; 0: all on this one
    also: dict = {}  # alerts that rightly fire, too: why
    takes: float = 0  # seconds from the fault to its effect


ROUNDS_OF_3_S = {"stall-timeout": "200ms", "step-interval": "100ms"}
BUSY = {"step-interval": "1ms", "target-batch-size": 256}
FAULTS = [
    Fault("WagglePeerDown", "`kill -9` of one of three, found by `/sd`", killed),
    Fault("WaggleNotReady", "a fifth peer knows only an address where nobody is", finds_nobody),
    Fault("WaggleRestarting", "one of three is killed and started again and again", restarts,
          also={"WagglePeerDown": "it is down for a second at a time"}),
    Fault("WaggleUnreachable", "`--announce` with a closed port", wrong_address),
    Fault("WaggleJoinsRefused", "a peer with another `--width` joins", other_options),
    Fault("WaggleStalled", "a `--target-batch-size` of 10^8", no_epoch, {"target-batch-size": 10 ** 8}),
    Fault("WaggleAveragingFailing", "of five, another one freezes at the end of each epoch", lambda scene: frozen_in_turn(scene, 5),
          ROUNDS_OF_3_S | {"target-batch-size": 1200}, takes=5,
          also={"WaggleNotReady": "whoever stalls twice is kept out for 5 s",
                "WaggleHistoriesApart": "whoever is frozen for too long goes on alone for a while"}),
    Fault("WaggleShrunkRounds", "the same of six, for longer", lambda scene: frozen_in_turn(scene, 6),
          ROUNDS_OF_3_S | {"target-batch-size": 1440}, takes=5,
          also={"WaggleAveragingFailing": "the round fails for the one that is frozen",
                "WaggleNotReady": "whoever stalls twice is kept out for 5 s",
                "WaggleUnsuitableSettings": "`small_rounds`, the same thing",
                "WaggleLowUtilisation": "the small model leaves the processor idle"}),
    Fault("WaggleSplitBrain", "two of four are cut off", halves, hosts=4,
          also={"WaggleHistoriesApart": "both halves go on"}),
    Fault("WaggleHistoriesApart", "one of five is cut off", one_is_cut_off, hosts=5),
    Fault("WaggleStateMismatch", "the sign of a parameter is changed in the memory of one of three", a_changed_parameter,
          {"lr": 0, "weight-decay": 0}),
    Fault("WaggleMaliciousInput", "`waggle-attack forged-records` for 2 s", forged_signatures),
    Fault("WaggleNotFinite", "`--optimizer sgd --lr 1e6`", diverges, {"optimizer": "sgd", "lr": "1e6"}),
    Fault("WaggleMixedConfig", "a fifth peer with another `--width`, which knows nobody", another_configuration),
    Fault("WaggleClockSkew", "the clock of one of three is 2 s ahead", clock_ahead),
    Fault("WaggleLowUtilisation", "`--step-interval 50ms`, ten times a pass", idles),
    Fault("WaggleCheckpointOld", "a file takes the place of the folder `checkpoints`", folder_becomes_a_file, BUSY),
    Fault("WaggleCheckpointsFail", "the same before the first checkpoint", never_a_checkpoint),
    Fault("WaggleUnsuitableSettings", "a `--target-batch-size` of two passes", small_batches, {"target-batch-size": 16}),
]


def play(fault, settings, limit):
    """(seconds from the fault to the alert or None, alerts before the fault, others after it)"""
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(settings, fault.hosts)) if fault.hosts else None
        scene = stack.enter_context(Scene(settings, fault.options, lab))
        fault.plant(scene)
        took, others = None, set()
        end = scene.planted_at + limit
        while time.monotonic() < end:
            firing = scene.prometheus.firing()
            others |= firing - {fault.alert}
            if fault.alert in firing and took is None:
                took = time.monotonic() - scene.planted_at
                end = time.monotonic() + 2  # for others that follow from it
            time.sleep(0.1)
        return took, scene.early - {fault.alert}, others


def alerts(settings, report):
    """Plants a fault in a live swarm for each alert, with all windows divided by 60: whether it fires, and what else."""
    limits = rules()[1]
    wanted = set(settings.only.split(",")) if settings.only else set(limits)
    if unknown := wanted - set(limits):
        raise Failed(f"there is no alert {', '.join(sorted(unknown))}")
    rows = []
    for fault in [f for f in FAULTS if f.alert in wanted] * settings.times:
        limit = report.limit = limits[fault.alert] + fault.takes
        try:
            took, early, others = play(fault, settings, limit)
        except Failed as why:
            report.trial(fault.alert, None, detail=str(why))
            continue
        wrong = (others | early) - set(fault.also)
        report.trial(fault.alert, took, stays=not wrong, detail=f"also {', '.join(sorted(wrong))}" if wrong else "did not fire")
        also = "; ".join(f"{name}: {why}" for name, why in fault.also.items() if name in others | early)
        rows.append(f"| {fault.alert} | {fault.what} | {'–' if took is None else f'{took:.1f} s'} | {limit:g} s | {also} |")
    print("\n| alert | planted | fired after | limit | also fired |\n|---|---|---|---|---|\n" + "\n".join(rows))
    missing = sorted(set(limits) - {f.alert for f in FAULTS})
    report.note(f"only by promtool: {', '.join(missing)}")
