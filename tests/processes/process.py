"""Programs as child processes: what the scenarios, the labs and the benchmarks start."""
import os
import re
import signal
import subprocess
import time


class Failed(Exception):
    """What was wanted did not happen; contains the reason."""


def eventually(what, condition, limit, step=0.05):
    """Waits until `condition()` is true and returns its value; raises Failed after `limit` seconds."""
    until = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > until:
            raise Failed(f"{what}: not within {limit:g} s")
        time.sleep(step)
    return value


class Process:
    """A child whose output is in the file `log`. Start it from the main thread: the kernel kills it when the thread that
    started it ends."""

    LISTENING = re.compile(r"(?:listening|status and metrics) on (\S+):(\d+)\n")  # the second form: a client

    def __init__(self, words, log, namespace=None):
        self.log = log
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("WAGGLE_", "PL_", "INITIAL_PEERS"))}
        with open(log, "wb") as out:
            self.child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *inside, *map(str, words)],
                                          stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=environment)
        self.began = time.monotonic()

    def text(self):
        return self.log.read_text(errors="replace")

    def listens_at(self):
        """(host, port), by its log; None: it does not listen yet."""
        found = self.LISTENING.search(self.text())
        return found and (found[1], int(found[2]))

    def running(self):
        return self.child.poll() is None

    def send(self, number):
        if self.running():
            os.killpg(self.child.pid, number)

    def end(self, number=signal.SIGTERM, limit=15):
        """Ends it by a signal, also if it is frozen; returns its exit code, or None if it had to be killed."""
        self.send(number)
        self.send(signal.SIGCONT)
        return self.wait(limit)

    def wait(self, limit):
        try:
            return self.child.wait(limit)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.child.wait()
            return None
