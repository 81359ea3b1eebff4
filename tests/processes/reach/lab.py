"""Hosts in network namespaces on one bridge, and peers on them. Needs root and iproute2; no other package.

    def run(new_lab):
        with new_lab(3) as lab:
            for host in lab.hosts:
                host.set_names({"trainer": [h.address for h in lab.hosts]})
            peers = [lab.train(host, "--initial-peers", "trainer:21000") for host in lab.hosts]
            wait_until("all are ready", lambda: all((p.ready() or [0])[0] == 200 for p in peers), 10)

Nothing leaves the lab: each host is a namespace, and the bridge is in a namespace of its own, so that labs can run at
the same time with the same addresses. All children and namespaces end with this process, also on an error and on SIGINT
or SIGTERM.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import process  # noqa: E402
from namespaces import Namespaces, close_all, command  # noqa: E402, F401
from process import Failed, eventually as wait_until  # noqa: E402

PORT = 21000
CLONE_NEWNET = 0x40000000
# Epochs of about a fifth of a second.
TRAINING = ["--data", "/usr/share/common-licenses", "--width", "32", "--context", "32", "--micro-batch", "8",
            "--target-batch-size", "128", "--run-id", "t", "--step-interval", "30ms"]
libc = ctypes.CDLL(None, use_errno=True)


# How many times slower a run may be with a fault than without it. Beside other tests the speeds vary too much for the bar
# of a quiet machine: WAGGLE_REACH_SLOWER=1.2.
SLOWER_MAX = float(os.environ.get("WAGGLE_REACH_SLOWER", "3"))


def rate(peers, seconds=8):
    """Epochs a second of the slowest of them."""
    before, at = [p.epoch() for p in peers], time.monotonic()
    time.sleep(seconds)
    return min(p.epoch() - b for p, b in zip(peers, before)) / (time.monotonic() - at)


# What a router does: its rules for new connections. The first two let nothing in that its hosts have not dialled.
KINDS = {
    "keeps ports": ["masquerade", "drop"],
    "refuses": ["masquerade", "reject with tcp reset"],  # what comes from outside is answered
    "other ports": ["masquerade fully-random", "drop"],  # one for each connection
    "closed": ["masquerade", "drop"],  # and connections go out to port 21000 only
    "maps ports": ["masquerade", "drop"],  # if asked (miniupnpd)
}
# Of the "internet" of a lab with routers. Private and documentation addresses are none that miniupnpd maps.
OUTSIDE = "11.77.0"
MAPPING = """table inet filter {
  chain miniupnpd {}
  chain prerouting_miniupnpd {}
  chain postrouting_miniupnpd {}
  chain forward { type filter hook forward priority 0; jump miniupnpd; }
  chain prerouting { type nat hook prerouting priority -100; jump prerouting_miniupnpd; }
  chain postrouting { type nat hook postrouting priority 99; jump postrouting_miniupnpd; }
}
"""


def unavailable():
    """Why no lab can be made here; None if one can."""
    try:
        with Lab("", 1):
            return None
    except (Failed, OSError) as error:
        return f"no lab can be made here: {error}"


class Host:
    """A namespace with `lo` and `eth0`. `address` is 10.77.0.N, `address6` is fd77::N; None if it has none."""

    def __init__(self, lab, number, ipv4, ipv6, attached):
        self.lab, self.number = lab, number
        self.namespace = f"{lab.prefix}h{number}"
        self.port = f"port{number}"  # its end at the bridge
        self.address = f"10.77.0.{number}" if ipv4 else None
        self.address6 = f"fd77::{number:x}" if ipv6 else None
        lab.make_namespace(self.namespace)
        self.names_file = pathlib.Path("/etc/netns") / self.namespace / "hosts"
        self.names_file.parent.mkdir(parents=True, exist_ok=True)
        (self.names_file.parent / "resolv.conf").write_text("# No name server.\n")
        self.set_names({})
        if attached:
            self.attach()

    def run(self, *words):
        """Runs a command in the namespace, to its end. Returns its output."""
        return command("ip", "netns", "exec", self.namespace, *words)

    def ip(self, *words):
        return command("ip", "-n", self.namespace, *words)

    def attach(self):
        """Connects eth0 to the bridge, with its addresses and default routes. A host made with attached=False has
        only lo before."""
        self.ip("link", "add", "eth0", "type", "veth", "peer", "name", self.port, "netns", self.lab.bridge)
        self.lab.on_bridge("link", "set", self.port, "master", "bridge", "up")
        if self.address:
            self.ip("address", "add", f"{self.address}/24", "dev", "eth0")
        if self.address6:
            self.ip("address", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        self.set_link("eth0", True)

    def set_link(self, device, up):
        """Brings a device up or down; eth0 gets its routes back."""
        self.ip("link", "set", device, "up" if up else "down")
        if up and device == "eth0":
            if self.address:
                self.ip("route", "replace", "default", "via", "10.77.0.254")
            if self.address6:
                self.ip("-6", "address", "replace", f"{self.address6}/64", "dev", "eth0", "nodad")
                self.ip("-6", "route", "replace", "default", "via", "fd77::fe")

    def cut_segments(self):
        """Large segments leave in packets of the interface's size. Otherwise the device cuts them, here never, and they
        pass a bridge whole, whatever its mtu."""
        self.ip("link", "set", "eth0", "gso_max_segs", 1)

    def set_port_mtu(self, mtu):
        """Larger packets to and from this host are dropped on the way, without a message to the sender.
        The hosts must have called cut_segments()."""
        self.lab.on_bridge("link", "set", self.port, "mtu", mtu)

    def set_names(self, names):
        """The hosts file of processes in this namespace: {name: [addresses]}. May change while they run."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        lines += [f"{address} {name}" for name, addresses in names.items() for address in addresses]
        # Written in place: running processes have this file mounted.
        with open(self.names_file, "r+" if self.names_file.exists() else "w") as file:
            file.truncate(0)
            file.write("\n".join(lines) + "\n")

    @contextlib.contextmanager
    def entered(self):
        """Sockets that this thread makes inside `with` belong to the namespace, also later."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.namespace}") as there:
            enter(there)
            try:
                yield
            finally:
                enter(home)

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM):
        with self.entered():
            return socket.socket(family, kind)


def enter(namespace_file):
    if libc.setns(namespace_file.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


class Router:
    """A namespace between the bridge, where its address is OUTSIDE.(100 + N), and a network of its own, 192.168.N.0/24,
    whose hosts share that address."""

    def __init__(self, lab, number, kind):
        self.lab, self.number, self.hosts = lab, number, 0
        self.namespace = f"{lab.prefix}r{number}"
        self.address = f"{OUTSIDE}.{100 + number}"
        lab.make_namespace(self.namespace)
        self.ip("link", "add", "outside", "type", "veth", "peer", "name", f"router{number}", "netns", lab.bridge)
        lab.on_bridge("link", "set", f"router{number}", "master", "bridge", "up")
        self.ip("link", "add", "inside", "type", "bridge")
        self.ip("address", "add", f"192.168.{number}.1/24", "dev", "inside")
        self.ip("address", "add", f"{self.address}/24", "dev", "outside")
        for device in ("outside", "inside"):
            self.ip("link", "set", device, "up")
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        mapped, refused = KINDS[kind]
        self.nft("add table ip waggle")
        self.nft("add chain ip waggle out { type nat hook postrouting priority 100; }")
        self.nft(f'add rule ip waggle out oifname "outside" {mapped}')
        for chain in ("input", "forward"):
            self.nft(f"add chain ip waggle {chain} {{ type filter hook {chain} priority 0; }}")
            self.nft(f"add rule ip waggle {chain} ct state established,related accept")
            self.nft(f'add rule ip waggle {chain} iifname "outside" {refused}')
        if kind == "closed":
            self.nft('add rule ip waggle forward iifname "inside" tcp dport != 21000 drop')
        if kind == "maps ports":
            self.map_ports()

    def run(self, *words):
        return command("ip", "netns", "exec", self.namespace, *words)

    def ip(self, *words):
        return command("ip", "-n", self.namespace, *words)

    def nft(self, rule):
        self.run("nft", rule)

    def map_ports(self):
        self.nft("insert rule ip waggle forward ct status dnat accept")
        rules = self.lab.folder / f"router{self.number}.nft"
        rules.write_text(MAPPING)
        self.run("nft", "-f", rules)
        settings = self.lab.folder / f"router{self.number}.conf"
        settings.write_text(f"""ext_ifname=outside
listening_ip=inside
enable_natpmp=yes
enable_upnp=yes
uuid=00000000-0000-0000-0000-00000000000{self.number}
clean_ruleset_interval=2
allow 1024-65535 192.168.0.0/16 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
""")
        self.lab.start(self, ["miniupnpd", "-d", "-f", settings, "-P", self.lab.folder / f"router{self.number}.pid"],
                       f"miniupnpd{self.number}")

    def mapped(self):
        """The ports that it passes on, as nftables has them."""
        return re.findall(r"dport (\d+) dnat", self.run("nft", "list", "chain", "inet", "filter", "prerouting_miniupnpd"))

    def host(self, number):
        """A host behind it: number N of the lab."""
        host = Host(self.lab, number, True, False, attached=False)
        self.hosts += 1
        host.address = f"192.168.{self.number}.{10 + self.hosts}"
        host.ip("link", "add", "eth0", "type", "veth", "peer", "name", host.port, "netns", self.namespace)
        self.ip("link", "set", host.port, "master", "inside", "up")
        host.ip("address", "add", f"{host.address}/24", "dev", "eth0")
        host.ip("link", "set", "eth0", "up")
        host.ip("route", "add", "default", "via", f"192.168.{self.number}.1")
        self.lab.hosts.append(host)
        return host


class Process(process.Process):
    """A child in a namespace."""

    def __init__(self, host, name, words):
        self.host, self.name = host, name
        super().__init__(words, host.lab.folder / f"{name}.log", host.namespace)


class Peer(Process):
    """A process of the waggle program. Its port is read from its log."""

    def get(self, page):
        """(code, body) of a page, requested over the host's loopback; None: no answer (yet)."""
        found = self.listens_at()
        if not found:
            return None
        try:
            for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
                with self.host.socket(family) as connection:
                    connection.settimeout(2)
                    try:
                        connection.connect((host, found[1]))
                    except OSError:
                        continue
                    connection.sendall(f"GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    answer = b""
                    while part := connection.recv(65536):
                        answer += part
                    head, _, body = answer.partition(b"\r\n\r\n")
                    return int(head.split()[1]), body.decode()
        except (OSError, ValueError, IndexError):
            pass
        return None

    def status(self, page="/api/v1/status"):
        """The page as a dict or list; empty while the peer does not answer."""
        answer = self.get(page)
        try:
            return json.loads(answer[1]) if answer else {}
        except ValueError:
            return {}

    def peers(self):
        """The content of /api/v1/peers."""
        return self.status("/api/v1/peers")

    def metric(self, name):
        """The sum of a metric's series; 0 while the peer does not answer or has no such metric."""
        text = (self.get("/metrics") or (0, ""))[1]
        found = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for value in found)

    def links(self):
        """How many links it has; there may be two with one peer for a moment."""
        return self.metric("waggle_network_connections")

    def linked(self):
        """How many other peers that train it is linked with."""
        return sum(p["connected"] and not p["self"] for p in self.peers().get("peers", []))

    def addresses(self):
        """Those that it announces."""
        return next((p["addresses"] for p in self.peers().get("peers", []) if p["self"]), [])

    def epoch(self):
        return self.status().get("epoch") or 0

    def ready(self):
        """(code, text) of /readyz; None: no answer."""
        return self.get("/readyz")


class Lab(Namespaces):
    """Hosts 1 to `count` on one bridge."""

    PORT = PORT

    def __init__(self, binary, count, ipv4=True, ipv6=False, attached=True):
        """`attached=False`: the hosts have only lo until Host.attach()."""
        super().__init__()
        self.binary = binary
        self.bridge = f"{self.prefix}b"
        self.processes, self.hosts = [], []
        try:
            self.make_namespace(self.bridge)
            self.on_bridge("link", "add", "bridge", "type", "bridge")
            self.on_bridge("link", "set", "bridge", "up")
            # The hosts' default routes lead here and end here: packets to addresses outside are lost.
            self.on_bridge("address", "add", "10.77.0.254/24", "dev", "bridge")
            self.on_bridge("route", "add", "blackhole", "default")  # not refused, where machines forward
            if ipv6:
                self.on_bridge("address", "add", "fd77::fe/64", "dev", "bridge", "nodad")
                self.on_bridge("-6", "route", "add", "blackhole", "default")
            for number in range(1, count + 1):
                self.hosts.append(Host(self, number, ipv4, ipv6, attached))
        except BaseException:
            self.close()
            raise

    def on_bridge(self, *words):
        """`ip` in the namespace of the bridge."""
        return command("ip", "-n", self.bridge, *words)

    def behind_routers(self, kinds, shared=False):
        """The lab's first host, and two more: behind a router of each of these KINDS, or both behind the only one."""
        public = self.hosts[0]
        public.address = f"{OUTSIDE}.1"
        public.ip("address", "add", f"{public.address}/24", "dev", "eth0")
        routers = [Router(self, number, kind) for number, kind in enumerate(kinds, 1)]
        self.routers = routers
        return [public] + [router.host(2 + number) for number, router in
                                  enumerate(routers * 2 if shared else routers)]

    @staticmethod
    def cut(here, there):
        """Drops all packets between the hosts in `here` and those in `there`, silently."""
        for one, other in [(a, b) for a in here for b in there] + [(b, a) for a in here for b in there]:
            one.ip("route", "add", "blackhole", f"{other.address}/32")

    # -- processes -----------------------------------------------------------------------------------

    def start(self, host, words, name=None, kind=Process):
        process = kind(host, name or f"process{len(self.processes)}", words)
        self.processes.append(process)
        return process

    def waggle(self, host, words, name=None):
        """The waggle program on `host`; without --data-dir it gets a folder of its own."""
        name = name or f"{words[0]}{len(self.processes)}"
        words = list(words)
        if "--data-dir" not in words:
            words += ["--data-dir", self.folder / name]
        return self.start(host, [self.binary, *words], name, Peer)

    def train(self, host, *options, name=None):
        """`waggle train` with small epochs, on port 21000 unless `options` has --listen."""
        return self.waggle(host, ["train", *TRAINING, *self.listen(options), *options], name)

    def node(self, host, *options, name=None):
        return self.waggle(host, ["node", "--run-id", "t", *self.listen(options), *options], name)

    @staticmethod
    def listen(options):
        return [] if "--listen" in options or "--client-mode" in options else ["--listen", f"0.0.0.0:{PORT}"]

    def logs(self, lines=15):
        """The last lines of each process's output."""
        return "\n".join(f"-- {p.name} on {p.host.namespace}\n" + "\n".join(p.text().splitlines()[-lines:])
                         for p in self.processes)

    def end_processes(self):
        for process in self.processes:
            process.send(signal.SIGKILL)
        for process in self.processes:
            process.child.wait()


def on_signal(number, _):
    raise SystemExit(128 + number)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, on_signal)
