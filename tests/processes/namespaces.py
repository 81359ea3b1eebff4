"""The network namespaces of a lab. They end when it is closed, at the latest with this process; the next lab removes what a
killed process leaves behind."""
import atexit
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from process import Failed

PREFIX = "wglab"
numbers = itertools.count()


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(str(word) for word in words)}: {done.stderr.strip()}")
    return done.stdout


class Namespaces:
    """Their names begin with `prefix`, which contains the process id. `folder`: for files of the lab."""

    opened = []

    def __init__(self):
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("setpriv"):
            raise Failed("network namespaces need root, iproute2 and setpriv")
        if not Namespaces.opened:
            remove_leftovers()
        self.prefix = f"{PREFIX}{os.getpid()}n{next(numbers)}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=self.prefix))
        self.namespaces = []
        Namespaces.opened.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def make_namespace(self, name):
        command("ip", "netns", "add", name)
        self.namespaces.append(name)
        command("ip", "-n", name, "link", "set", "lo", "up")

    def end_processes(self):
        """Of the lab, before its namespaces go."""

    def close(self):
        if self not in Namespaces.opened:
            return
        Namespaces.opened.remove(self)
        self.end_processes()
        for name in self.namespaces:
            remove(name)
        shutil.rmtree(self.folder, ignore_errors=True)


def remove(name):
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    shutil.rmtree(pathlib.Path("/etc/netns") / name, ignore_errors=True)


def remove_leftovers():
    """Removes namespaces whose process is gone. Its children are gone, too (Process)."""
    for file in pathlib.Path("/run/netns").glob(f"{PREFIX}*"):
        owner = re.match(rf"{PREFIX}(\d+)n", file.name)
        if owner and not pathlib.Path(f"/proc/{owner.group(1)}").exists():
            remove(file.name)
            for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}{owner.group(1)}n*"):
                shutil.rmtree(folder, ignore_errors=True)


def close_all():
    for lab in list(Namespaces.opened):
        lab.close()


atexit.register(close_all)
