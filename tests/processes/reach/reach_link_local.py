"""Hosts that have only addresses of their link (fe80::): each is told so, and they meet once %INTERFACE is added."""
import re

from lab import Failed, wait_until


def of_link(host):
    return wait_until("an address of the link", lambda: re.search(
        r"inet6 (fe80:\S+)/64 scope link *$", host.ip("-6", "address", "show", "dev", "eth0", "-tentative"), re.M), 10)[1]


def says(peer, text):
    wait_until(f"{peer.name} says: {text}", lambda: text in peer.text(), 10)


def run(new_lab):
    with new_lab(2, ipv4=False) as lab:
        here, there = lab.hosts
        at, other = of_link(here), of_link(there)
        alone = lab.node(here, "--listen", "[::]:0")
        says(alone, f"announce that one, '[{at}%eth0]:PORT'")
        for option in ("--listen", "--announce"):
            refused = lab.node(here, option, f"[{at}]:7700", *([] if option == "--listen" else ["--listen", "[::]:0"]))
            says(refused, "add %INTERFACE")
            if refused.child.wait(10) != 2:
                raise Failed(f"{option} without an interface is no wrong option")
        first = lab.node(here, "--listen", "[::]:7700", "--announce", f"[{at}%eth0]:7700")
        late = lab.node(there, "--listen", "[::]:0", "--initial-peers", f"[{at}]:7700")
        says(late, "add %INTERFACE")
        second = lab.node(there, "--listen", "[::]:7701", "--announce", f"[{other}%eth0]:7701",
                          "--initial-peers", f"[{at}%eth0]:7700")
        wait_until("they are linked", lambda: first.links() and second.links(), 10)
