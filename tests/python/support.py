"""Loops for the tests: in this process, and in processes of their own."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import torch

import waggle

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(os.environ.get("WAGGLE_BIN", ROOT / "build/bin")) / "waggle"
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))
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


class Process:
    def __init__(self, folder, name, command, **environment):
        self.log_file = folder / f"{name}.log"
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log,
                                            env={**os.environ, **environment})

    @property
    def log(self):
        return self.log_file.read_text()

    def line(self, beginning, seconds=60):
        """The rest of the first line that has the text, as soon as there is one."""
        def found():
            for line in self.log.splitlines(keepends=True):
                if beginning in line and line.endswith("\n"):
                    return line[line.index(beginning) + len(beginning):].strip() or " "
        rest = eventually(lambda: found() or self.process.poll() is not None, seconds)
        assert isinstance(rest, str), self.log
        return rest.strip()

    def ended(self, seconds=120):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log) from None

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)


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
