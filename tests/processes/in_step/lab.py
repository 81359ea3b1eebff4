"""Network namespaces for peers, each with its own link to a router; needs root and iproute2.

Links have a rate (tc tbf, a queue of 50 ms) and a delay (tests/bench/packet_delay.cpp; not every kernel has netem). A cut drops packets silently, like a broken link.
"""
import pathlib
import subprocess

from peers import ROOT, eventually  # first: it adds the folder of namespaces to the path
from namespaces import Namespaces, command  # noqa: E402


class Lab(Namespaces):
    def __init__(self, settings, count, rate=None, delay_ms=0):
        """`rate`: of each link, in the notation of tc. `delay_ms`: each way between any two peers."""
        super().__init__()
        self.router = f"{self.prefix}r"
        self.delayer = None
        self.make_namespace(self.router)
        self.count = count
        # What packet_delay hands back comes from another device than its sender's.
        self.inside(self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0",
                    "net.ipv4.conf.default.rp_filter=0")
        for i in range(count):
            self.attach(i, rate)
        if delay_ms:
            self.delay(settings, delay_ms)

    def namespace(self, i):
        return f"{self.prefix}p{i}"

    @staticmethod
    def host(i):
        return f"10.77.{i}.2"

    @staticmethod
    def inside(space, *words):
        command("ip", "netns", "exec", space, *words)

    def attach(self, i, rate):
        space = self.namespace(i)
        self.make_namespace(space)
        command("ip", "link", "add", f"v{i}", "netns", self.router, "type", "veth", "peer", "name", "eth0", "netns", space)
        for where, device, address in ((self.router, f"v{i}", f"10.77.{i}.1/24"), (space, "eth0", f"10.77.{i}.2/24")):
            self.inside(where, "ip", "address", "add", address, "dev", device)
            self.inside(where, "ip", "link", "set", device, "up")
        if rate:
            self.limit(i, rate)
        self.inside(space, "ip", "route", "add", "default", "via", f"10.77.{i}.1")

    def limit(self, i, rate, queue="50ms"):
        """Bounds what this peer sends and receives."""
        for where, device in ((self.router, f"v{i}"), (self.namespace(i), "eth0")):
            self.inside(where, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "16k",
                        "latency", queue)

    def delay(self, settings, delay_ms, host=None):
        """`host`: only what this one sends and receives."""
        program = pathlib.Path(settings.binary).resolve().parent / "packet_delay"
        if not program.exists():
            program = self.folder / "packet_delay"
            command("g++", "-O2", "-std=c++20", "-o", str(program), str(ROOT / "tests" / "bench" / "packet_delay.cpp"))
        self.delayer = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "ip", "netns", "exec", self.router, str(program), "delay",
             str(int(delay_ms * 1000))], start_new_session=True)
        through = ["ip", "netns", "exec", self.router, "ip", "route", "add", "default", "dev", "delay", "table", "71"]
        eventually("packet_delay starts", lambda: subprocess.run(through, stderr=subprocess.DEVNULL).returncode == 0, 10)
        for i in range(self.count):
            for way in [["from", self.host(host)], ["to", self.host(host)]] if host is not None else [[]]:
                self.inside(self.router, "ip", "rule", "add", "iif", f"v{i}", *way, "pref", "20", "lookup", "71")

    # -- cuts ----------------------------------------------------------------------------------------

    def cut(self, here, there):
        """Drops all packets between the peers in `here` and those in `there`."""
        for a, b in [(a, b) for a in here for b in there] + [(b, a) for a in here for b in there]:
            rule = ("from", self.host(a), "to", self.host(b), "blackhole", "pref", "10")
            self.inside(self.router, "ip", "rule", "add", *rule)

    def end_processes(self):
        if self.delayer:
            self.delayer.kill()
            self.delayer.wait()
