"""`waggle doctor HOST:PORT` names a split of the run, and peers with another time, a narrow link or a full disk."""
import contextlib
import os
import pathlib
import subprocess

from lab import PORT, TRAINING, Failed, Peer, wait_until
from reach_doctor import SEED, made_clock


def run(new_lab):
    a_split(new_lab)
    three_at_once(new_lab)


def a_split(new_lab):
    with new_lab(5) as lab:
        hosts, watcher = lab.hosts[:4], lab.hosts[4]
        first = lab.train(hosts[0])
        peers = [first] + [lab.train(host, "--initial-peers", SEED) for host in hosts[1:]]
        wait_until("all are in step", lambda: all(p.epoch() > 5 and p.linked() == 3 for p in peers), 40)
        lab.cut(hosts[:2], hosts[2:])
        wait_until("there are two runs", lambda: len({p.status().get("history") for p in peers}) > 1, 30)
        done = subprocess.run(["ip", "netns", "exec", watcher.namespace, lab.binary, "doctor", SEED],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 1 or "the run has split" not in done.stdout:
            raise Failed(f"a split: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def three_at_once(new_lab):
    """Of four peers one has another time, one a narrow link, and one a full disk."""
    with new_lab(4) as lab:
        seed, ahead, narrow, full = lab.hosts
        listen = ["--listen", f"0.0.0.0:{PORT}"]
        peers = [lab.train(seed), lab.train(narrow, "--initial-peers", SEED)]
        words = [lab.binary, "train", *TRAINING, *listen, "--initial-peers", SEED, "--data-dir"]
        peers.append(lab.start(ahead, ["env", f"LD_PRELOAD={made_clock(lab.folder)}", "CLOCK_AHEAD=2", *words,
                                       lab.folder / "ahead"], "ahead", Peer))
        disk = lab.folder / "full"
        disk.mkdir(mode=0o700)
        script = f'mount -t tmpfs -o size=8m,mode=700 none {disk} && exec "$@"'
        peers.append(lab.start(full, ["unshare", "-m", "sh", "-c", script, "full", *words, disk], "full", Peer))
        wait_until("they train", lambda: all(p.epoch() > 3 and p.linked() == 3 for p in peers), 60)
        names = [p.status()["peer"][:8] for p in peers]

        inside = pathlib.Path(f"/proc/{peers[3].child.pid}/root{disk}")

        def fill():
            """Leaves 100 kB, or less: the peer writes a checkpoint meanwhile."""
            free = os.statvfs(inside).f_bavail * os.statvfs(inside).f_frsize - 100_000
            with contextlib.suppress(OSError), open(inside / "filler", "ab") as filler:
                filler.write(bytes(max(0, free)))

        def finds(who, what):
            fill()
            done = subprocess.run(["ip", "netns", "exec", seed.namespace, lab.binary, "doctor", SEED],
                                  capture_output=True, text=True, timeout=60)
            finds.text = done.stdout
            return any(f"peer {who}" in line and what in line for line in done.stdout.splitlines())

        narrow.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "4mbit", "burst", "16k", "latency", "50ms")
        for who, what in ((names[2], "s ahead of those of the others"), (names[3], "disk is in use up to"), (names[1], "is slow: its contribution")):
            try:
                wait_until(what, lambda: finds(who, what), 120)
            except Failed as error:
                raise Failed(f"{error}\n{names}\n{finds.text}") from None
