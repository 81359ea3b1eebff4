"""Loops for the tests: in this process, and in processes of their own."""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch

import waggle

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(os.environ.get("WAGGLE_BIN", ROOT / "build/bin")) / "waggle"
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))
# Of tests that do not depend on the version of torch, in files with others that do: see tests.cmake.in.
once = pytest.mark.skipif("WAGGLE_TODAY_TOO" in os.environ, reason="it runs with today's torch")
DEVICE = "cpu"  # of net and batch


@pytest.fixture(params=["cpu", GPU])
def each_device(request, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "DEVICE", request.param)
    return request.param


def join(folder, **more):
    """A peer that nobody else can find."""
    more = {"listen": "127.0.0.1:0", "log_level": "warn", "data_dir": folder / "peer", **more}
    return waggle.join("tests", **more)


def net(seed=1, norm=False):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)]
    if norm:
        layers.insert(1, torch.nn.BatchNorm1d(5))
    return torch.nn.Sequential(*layers).to(DEVICE)


def batch(i, size=4):
    random = torch.Generator().manual_seed(1000 + i)
    return torch.randn(size, 6, generator=random).to(DEVICE), torch.randn(size, 2, generator=random).to(DEVICE)


def loss_of(model, i):
    x, y = batch(i)
    return torch.nn.functional.mse_loss(model(x), y)


def equal(a, b):
    theirs = b.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in a.state_dict().items())


def eventually(what, seconds=60):
    """Polls a condition that other processes change without a notification."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.01)
    return what()


@functools.lru_cache(None)
def forker():
    made = subprocess.Popen([sys.executable, ROOT / "tests/python/forker.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(lambda: (made.stdin.close(), made.wait()))
    return made


def ask_forker(what):
    forker().stdin.write(json.dumps(what) + "\n")
    forker().stdin.flush()
    answer = forker().stdout.readline()
    assert answer, "the process that forks those of tests has ended"
    return int(answer)


class Forked:
    """As a subprocess.Popen, of one that has torch already."""

    def __init__(self, command, log, environment):
        path = [each for each in environment.get("PYTHONPATH", "").split(":") if each]
        self.pid = ask_forker([command, str(log), os.getcwd(), {**os.environ, **environment}, path])
        self.lives, self.code = os.pidfd_open(self.pid), None

    def wait(self, timeout=None):
        if self.code is None:
            if not select.select([self.lives], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            os.close(self.lives)
            self.code = ask_forker({"wait": self.pid})
        return self.code

    def poll(self):
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Process:
    def __init__(self, folder, name, command, **environment):
        self.log_file = folder / f"{name}.log"
        words = [str(word) for word in command]
        with open(self.log_file, "wb") as log:
            # Torch reads some variables when it is imported, and -c is of tests that measure memory.
            if words[0] == sys.executable and words[1:3] != ["-m", "torch.distributed.run"] and words[1] != "-c" \
                    and not any(name.startswith(("ATEN_", "OMP_", "TORCH_")) for name in environment):
                self.process = Forked(words[1:], self.log_file, environment)
            else:
                self.process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **environment})

    @property
    def log(self):
        return self.log_file.read_text()

    def line(self, beginning, seconds=120):
        """The rest of the first line that has the text, as soon as there is one."""
        def found():
            for line in self.log.splitlines(keepends=True):
                if beginning in line and line.endswith("\n"):
                    return line[line.index(beginning) + len(beginning):].strip() or " "

        def found_or_ended():
            ended = self.process.poll() is not None  # first: its last lines are there when it has ended
            return found() or ended
        rest = eventually(found_or_ended, seconds)
        assert isinstance(rest, str), self.log
        return rest.strip()

    def ended(self, seconds=240):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log) from None

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)


@contextlib.contextmanager
def reserved_port():
    """Nothing else is given it meanwhile; who asks for it may listen there."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextlib.contextmanager
def processes(folder):
    """start(name, command…) starts processes; all are killed at the end."""
    started = []

    def start(name, *command, **environment):
        started.append(Process(folder, name, command, **environment))
        return started[-1]

    def python(name, script, *arguments, **environment):
        return start(name, sys.executable, script, *arguments, **environment)

    start.python = python
    try:
        yield start
    finally:
        for each in started:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()


def one_joins_later_and_one_is_killed(slow, loop):
    """`loop(i, where, min_peers, slow)` starts peer i, which is slow while that file exists. Returns the three that stay."""
    slow.touch()  # until all have started
    first = loop(0, "", 3, slow)
    where = first.line("address ")
    second, doomed = loop(1, where, 3, slow), loop(2, where, 3, slow)
    for each in (second, doomed):
        each.line("in step at epoch")
    doomed.kill()
    third = loop(3, where, 1, slow)
    third.line("in step at epoch")
    slow.unlink()
    return first, second, third
