"""Two peers whose only initial peer is an address that deals its connections to them in turn, as a service does."""
import collections
import itertools
import socket
import threading

from lab import Failed, wait_until


class Dealer:
    """Accepts connections at `host`, port 7000, and forwards those of each peer to the `targets` in turn, to itself first."""

    def __init__(self, host, targets):
        self.host, self.targets = host, targets
        self.dealt = collections.defaultdict(itertools.count)
        self.listener = host.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host.address, 7000))
        self.listener.listen()
        self.address = f"{host.address}:7000"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, (source, _) = self.listener.accept()
            except OSError:  # closed: the end
                return
            far = self.host.socket()
            try:
                far.connect(self.target(source))
            except OSError:
                near.close()
                far.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(source, sink), daemon=True).start()

    def target(self, source):
        own = [host for host, _ in self.targets].index(source)
        return self.targets[(own + next(self.dealt[source])) % len(self.targets)]

    @staticmethod
    def forward(source, sink):
        try:
            while part := source.recv(65536):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for each in (source, sink):
                each.close()


def run(new_lab):
    with new_lab(3) as lab:
        dealer = Dealer(lab.hosts[2], [(host.address, lab.PORT) for host in lab.hosts[:2]])
        try:
            peers = [lab.train(host, "--initial-peers", dealer.address) for host in lab.hosts[:2]]
            wait_until("both know each other", lambda: all(p.links() >= 1 for p in peers), 10)
            wait_until("both average", lambda: all(p.status().get("group_size") == 2 for p in peers), 10)
            sentence = f"{dealer.address} leads to this peer and to others"
            seen = [p for p in peers if sentence in (p.status().get("notice") or "")]
            for peer in seen:
                if sentence not in peer.text() or sentence not in peer.ready()[1]:
                    raise Failed(f"the notice of {peer.name} is missing in its log or in /readyz: {peer.ready()}")
            if not seen:
                raise Failed("neither of the two says that the address leads to itself and to others")
        finally:
            dealer.listener.close()
