"""Links between machines are encrypted. A capture of a whole run holds no byte of what is exchanged, which one of a run with
`--encrypt never` does; that has to be said at both ends; and a relay that ends TLS on both sides is refused by both."""
import json
import re
import socket
import ssl
import struct
import subprocess
import threading

from lab import Failed, wait_until

LABEL = "label-of-the-run"
ELEMENTS = 4096
ETH_P_ALL = 3


def run(new_lab):
    for options, readable in ((["--encrypt", "never"], True), ([], False)):
        with new_lab(2) as lab:
            check_capture(lab, options, readable)
    with new_lab(2) as lab:
        one_end_only(lab)
    for options, link in (([], "tls"), (["--encrypt", "never"], "plain tcp")):
        with new_lab(2) as lab:
            what_is_shown(lab, options, link)
    with new_lab(3) as lab:
        a_relay(lab)


class Capture:
    """All packets of a host's eth0."""

    def __init__(self, host):
        self.bytes = bytearray()
        self.socket = host.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        with host.entered():
            self.socket.bind(("eth0", ETH_P_ALL))
        self.ends = False
        self.socket.settimeout(0.2)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while not self.ends:
            try:
                self.bytes += self.socket.recv(1 << 17)[54:]  # behind Ethernet, IPv4 and most of TCP
            except TimeoutError:
                pass

    def end(self):
        self.ends = True
        self.thread.join()
        self.socket.close()
        return bytes(self.bytes)


def vector_of(peer):
    """What a peer of `waggle average` contributes (runtime/cli/average_vector.hpp)."""
    seed, mask, values = int(peer[:16], 16), (1 << 64) - 1, []
    for i in range(ELEMENTS):
        x = (seed + i * 0x9e3779b97f4a7c15) & mask
        x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & mask
        x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & mask
        values.append(((x ^ (x >> 31)) >> 40) / 8388608.0 - 1.0)
    return struct.pack(f"<{ELEMENTS}f", *values)


def check_capture(lab, options, readable):
    key = lab.folder / "birds.key"
    capture = Capture(lab.hosts[1])
    peers = []
    for host in lab.hosts:
        lab.waggle(host, ["id", "--swarm-key", key]).child.wait()
        join = ["--initial-peers", f"{lab.hosts[0].address}:21000"] if peers else []
        peers.append(lab.waggle(host, ["average", "--run-id", LABEL, "--swarm-key", key, "--listen", "0.0.0.0:21000",
                                       "--elements", ELEMENTS, "--codec", "none", "--rounds", "5", "--expected-peers", "2",
                                       *join, *options]))
    wait_until("they average", lambda: all(p.child.poll() is not None for p in peers), 60)
    seen = capture.end()
    if len(seen) < ELEMENTS * 4:
        raise Failed(f"the capture has {len(seen)} bytes only")
    ids = [re.search(r"peer ([0-9a-f]{64}) of run", p.text()).group(1) for p in peers]
    planted = {}
    for number, peer in enumerate(ids):
        vector = vector_of(peer)
        planted |= {f"element {at} of peer {number}": vector[4 * at:4 * at + 16] for at in range(0, ELEMENTS, 256)}
        planted[f"the id of peer {number}"] = bytes.fromhex(peer)
    found = [name for name, pattern in planted.items() if pattern in seen]
    secret = {"label": LABEL.encode(), "key": key.read_bytes(), "digits of the key": key.read_bytes().hex().encode(),
              "an option": b"expected-peers", "the agreement": b"elements"}
    leaked = [name for name, pattern in secret.items() if pattern in seen]
    if leaked or bool(found) != readable:
        raise Failed(f"{options or 'encrypted'}: in {len(seen)} bytes of the capture are {leaked + found[:4]}")


def one_end_only(lab):
    """Nothing falls back, and both ends say why."""
    plain, other = lab.hosts
    for first, second in ((["--encrypt", "never"], []), ([], ["--encrypt", "never"])):
        node = lab.node(plain, *first)
        wait_until("the node listens", node.listens_at, 20)
        refused = lab.node(other, "--initial-peers", f"{plain.address}:21000", *second)
        wait_until("the second one ends", lambda: refused.child.poll() == 2, 30)
        if "--encrypt never" not in refused.text() or "at both ends or at none" not in refused.text():
            raise Failed(f"the log of the second does not name the reason: {refused.text()[-400:]}")
        if node.links() or not node.metric("waggle_network_refused_total"):
            raise Failed("the first has a link, or counts no refusal")
        node.child.kill()
        node.child.wait()


def what_is_shown(lab, options, link):
    first = lab.train(lab.hosts[0], *options)
    lab.train(lab.hosts[1], "--initial-peers", f"{lab.hosts[0].address}:21000", *options)
    wait_until(f"the link is shown as {link}",
               lambda: link in {p.get("link") for p in first.peers().get("peers", [])}, 30)
    plain = link == "plain tcp"
    wait_until("the notice is right", lambda: plain == ("not encrypted" in json.dumps(first.status().get("notices"))), 20)
    if (first.metric("waggle_network_plain_connections") > 0) != plain:
        raise Failed(f"{link}, and waggle_network_plain_connections disagrees")


class Relay:
    """Ends TLS on both sides, with a certificate of its own, and passes all bytes on."""

    def __init__(self, host, towards, folder):
        pem = folder / "relay.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=relay", "-days", "9",
                        "-keyout", pem, "-out", folder / "relay.crt"], check=True, capture_output=True)
        self.inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.inside.load_cert_chain(folder / "relay.crt", pem)
        self.outside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.outside.check_hostname, self.outside.verify_mode = False, ssl.CERT_NONE
        for context in (self.inside, self.outside):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.set_alpn_protocols(["waggle/1"])
        self.host, self.towards, self.passed = host, towards, 0
        self.listener = host.socket()
        self.listener.bind(("0.0.0.0", 21000))
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            server = self.host.socket()
            server.connect((self.towards, 21000))
            far = self.outside.wrap_socket(server)
            near = self.inside.wrap_socket(client, server_side=True)
            other = threading.Thread(target=self.pump, args=(far, near), daemon=True)
            other.start()
            self.pump(near, far)
            other.join()
        except OSError:
            pass

    def pump(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                self.passed += len(data)
                sink.sendall(data)
        except OSError:
            pass


def a_relay(lab):
    acceptor, between, dialler = lab.hosts
    first = lab.node(acceptor)
    wait_until("the acceptor listens", first.listens_at, 20)
    relay = Relay(between, acceptor.address, lab.folder)
    second = lab.node(dialler, "--initial-peers", f"{between.address}:21000")
    for who in (second, first):
        wait_until("the reason is in the log", lambda: "somebody stands between the two peers" in who.text(), 30)
    for who, name in ((second, "waggle_network_dial_errors_total"), (first, "waggle_network_refused_total")):
        wait_until(f"it is in {name}", lambda: who.metric(name) > 0, 10)
    if not relay.passed or first.links() or second.links():
        raise Failed(f"through the relay went {relay.passed} bytes; links: {first.links()}, {second.links()}")
