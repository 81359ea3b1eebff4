"""Nodes that start before their hosts have addresses: once they have, all are linked, also without the one through which
they joined."""
import re
import signal

from lab import wait_until


def linked_with(peer):
    """The peers of its links, by its log: nodes are not on the page of the peers that train."""
    last = {who: what for what, who in re.findall(r"(connected to|lost) peer (\w+)", peer.text())}
    return [who for who, what in last.items() if what == "connected to"]


def run(new_lab):
    for first_is_late in (False, True):
        with new_lab(4, attached=False) as lab:
            if not first_is_late:
                lab.hosts[0].attach()
            first = lab.node(lab.hosts[0])
            others = [lab.node(host, "--initial-peers", f"10.77.0.1:{lab.PORT}") for host in lab.hosts[1:]]
            wait_until("all answer", lambda: all(p.ready() for p in [first, *others]), 10)
            for host in lab.hosts:
                if host is not lab.hosts[0] or first_is_late:
                    host.attach()
            wait_until("each is linked with all", lambda: all(len(linked_with(p)) == 3 for p in [first, *others]), 30)
            wait_until("the log has today's join line",
                       lambda: f"--initial-peers 10.77.0.2:{lab.PORT}" in others[0].text(), 5)
            first.end(signal.SIGKILL)
            wait_until("the others are linked with each other", lambda: all(len(linked_with(p)) == 2 for p in others), 15)
