"""Runs peers as child processes: starts, kills, freezes, restarts and observes them.

All children end with this program: those of a run when it is closed, and all if this program is killed.
"""
import atexit
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time

import watch

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "processes"))
from process import Failed, Process, eventually  # noqa: E402

# Gives epochs of about a tenth of a second on one core.
SMALL = {"width": 32, "context": 32, "layers": 1, "heads": 2, "micro-batch": 8, "target-batch-size": 128}
LARGE = SMALL | {"width": 512, "context": 64, "layers": 8, "heads": 8}  # 100 MB of parameters


def parameters_of(model):
    """The number of parameters of char-gpt with these options."""
    width, layers = model["width"], model["layers"]
    return layers * (12 * width * width + 13 * width) + (2 * 256 + model["context"] + 2) * width


class Peer:
    """One peer. It keeps its data folder and its port when it is restarted; each of its processes is a life."""

    def __init__(self, run, name, command, options, initial, namespace, host):
        self.run, self.name, self.command, self.options, self.initial = run, name, command, options, initial
        self.namespace, self.host = namespace, host
        self.port = 0
        self.folder = pathlib.Path(options.pop("data-dir", run.folder / name))
        self.lives = []  # one watch.History per life
        self.process = self.child = self.observer = None  # the process of the last life
        self.frozen = False
        self.before = []  # words in front of the program

    # -- life ----------------------------------------------------------------------------------------

    def start(self):
        line = [*self.before, self.run.binary, self.command, "--data-dir", self.folder]
        options = dict(self.options)
        if "client-mode" in options:
            self.host = "127.0.0.1"
        options["listen"] = f"{self.host}:{self.port}"
        if self.initial:
            options["initial-peers"] = ",".join(peer.address() for peer in self.initial)
        for name, value in options.items():
            line += [f"--{name}"] + ([] if value is None else [value])
        self.process = Process(line, self.run.folder / f"{self.name}.{len(self.lives)}.log", self.namespace)
        self.child, self.began = self.process.child, self.process.began
        self.frozen = False
        self.lives.append(watch.History())
        self.observer = watch.Observer(self)
        self.observer.start()
        return self

    def send(self, number):
        if self.process:
            self.process.send(number)

    def end(self, number=signal.SIGKILL, limit=15):
        """Ends the peer by a signal. Returns its exit code."""
        if self.observer:
            self.observer.stop()
        return self.process.end(number, limit)

    def freeze(self):
        self.frozen = True
        self.send(signal.SIGSTOP)

    def thaw(self):
        self.send(signal.SIGCONT)
        self.frozen = False

    def lives_now(self):
        return self.process is not None and self.process.running() and not self.frozen

    # -- log, address and status ---------------------------------------------------------------------

    def text(self):
        return self.process.text() if self.process else ""

    def look_for_address(self):
        found = self.process and self.process.listens_at()
        if found:
            self.port = found[1]
        return bool(found)

    def address(self):
        if not self.port:
            def listens():
                if not self.process or not self.process.running():
                    raise Failed(f"{self.name} ended during its start:\n{self.text()}")
                return self.look_for_address()
            eventually(f"{self.name} listens", listens, 30)
        return f"{self.host}:{self.port}"

    @property
    def history(self):
        return self.lives[-1]

    @property
    def status(self):
        return self.history.status

    def resident(self):
        """(VmRSS, VmHWM) in MiB."""
        try:
            lines = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        except OSError:
            return None
        sizes = [re.search(rf"{name}:\s+(\d+) kB", lines) for name in ("VmRSS", "VmHWM")]
        return tuple(int(size.group(1)) / 1024 for size in sizes) if all(sizes) else None

    def proportional(self):
        """Pss in MiB: pages that several processes map are divided among them."""
        rollup = pathlib.Path(f"/proc/{self.child.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE).group(1)) / 1024

    def last_lines(self, count=3):
        return self.text().strip().splitlines()[-count:]

    def where(self):
        status = self.status or {}
        return f"{self.name}: {status.get('phase', 'no status')} at epoch {status.get('epoch')}"


class Run:
    """The peers of one run, in a temporary folder. `close` ends the processes and deletes the folder."""

    open_runs = set()

    def __init__(self, settings, options=None, lab=None):
        self.settings, self.lab = settings, lab
        self.binary = pathlib.Path(settings.binary).resolve()
        if not os.access(self.binary, os.X_OK):
            raise Failed(f"there is no program {self.binary}: build it, or select another one with --binary")
        given = {**SMALL, "data": settings.data, "log-level": settings.log_level, **(options or {})}
        if getattr(settings, "strategy", ""):  # with passes that leave the processor to the other peers
            given |= {"strategy": settings.strategy, "target-batch-size": None, "step-interval": "20ms"}
        self.options = {name: value for name, value in given.items() if value is not None}
        self.name = f"in-step-{random.getrandbits(32):08x}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="waggle-in-step-"))
        self.peers = []
        Run.open_runs.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add(self, via=(), command="train", **options):
        """Adds a peer without starting it. `via`: the peers through which it joins; empty: it starts the run."""
        number = len(self.peers)
        host, namespace = (self.lab.host(number), self.lab.namespace(number)) if self.lab else ("127.0.0.1", None)
        given = {name.replace("_", "-"): value for name, value in options.items()}
        base = self.options if command == "train" else {"log-level": self.options["log-level"]}
        peer = Peer(self, f"peer{number}", command, {"run-id": self.name, **base, **given},
                    [via] if isinstance(via, Peer) else list(via), namespace, host)
        self.peers.append(peer)
        return peer

    def begin(self, count, each=()):
        """Starts `count` peers. `each`: additional options of the first, the second, …"""
        each = [*each, *[{}] * (count - len(each))]
        first = self.add(**each[0]).start()
        first.address()
        for options in each[1:]:
            self.add(via=first, **options).start()

    def await_step(self, peers, limit=30):
        """Waits until all `peers` have been in step for a second."""
        def together():
            now = time.monotonic()
            verdicts = (watch.verdict(p.history, watch.others(p, peers), p.began, now, 1) for p in peers)
            return all(v.settled is not None for v in verdicts)
        if len(peers) > 1:
            eventually("the peers train together", together, limit, 0.2)
        else:
            eventually("the first peer trains", lambda: (peers[0].status or {}).get("epoch"), limit)

    def living(self):
        return [peer for peer in self.peers if peer.lives_now()]

    def close(self):
        if self not in Run.open_runs:
            return
        Run.open_runs.discard(self)
        for peer in self.peers:
            if peer.observer:
                peer.observer.stop()
            peer.send(signal.SIGKILL)
        for peer in self.peers:
            if peer.child:
                peer.child.wait()
        if self.settings.keep:
            target = pathlib.Path(self.settings.keep) / self.name
            target.mkdir(parents=True, exist_ok=True)
            for log in self.folder.glob("*.log"):
                shutil.copy(log, target)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def begun(settings, report, count, options=None, lab=None):
    """A run of `count` peers that train together. If a run hangs at its start, the report contains a complaint, but
    the scenario goes on: the run gets more time, and then another run is started."""
    for _ in range(3):
        with Run(settings, options, lab) as run:
            run.begin(count)
            for limit in (30, 60):
                try:
                    run.await_step(run.peers, limit)
                except Failed as why:
                    report.require(False, f"start of {count} peers: {why}; " + "; ".join(p.where() for p in run.peers))
                    continue
                yield run
                return
    raise Failed("three runs in a row did not start")


def close_all():
    for run in list(Run.open_runs):
        run.close()


atexit.register(close_all)
