"""A client plays all attacks of tests/processes/attacks one after another against four trainers."""
import json
import subprocess
import time

import peers as processes
from joining import await_one_history

PAUSE = "40ms"  # between two passes: the attacker needs a part of the machine, too


def list_attacks(program):
    names = subprocess.run([program], capture_output=True, text=True).stdout.split()
    return [name for name in names if name != "pings"]


def observe(peers, seconds, sizes):
    """Epochs a minute over this time. Adds the largest resident sizes that were seen to `sizes`, by name."""
    began, first = time.monotonic(), max(p.status["epoch"] for p in peers)
    while time.monotonic() < began + seconds:
        time.sleep(0.2)
        for peer in peers:
            resident = peer.resident()
            if resident:
                sizes[peer.name] = max(sizes.get(peer.name, 0), resident[0])
    last = max(p.status["epoch"] for p in peers)
    return 60 * (last - first) / (time.monotonic() - began)


def attacks(settings, report):
    """Plays all attacks against four trainers: epochs a minute and resident sizes relative to the time before."""
    with processes.begun(settings, report, 4, {"step-interval": PAUSE}) as run:
        program = str(run.binary.parent / "waggle-attack")
        names = list_attacks(program)
        each = settings.duration / len(names)
        time.sleep(5)
        quiet_sizes, sizes, paces = {}, {}, {}
        quiet = observe(run.peers, settings.duration / 4, quiet_sizes)
        report.fact("quiet", epochs_a_minute=quiet, **quiet_sizes)
        for turn, name in enumerate(names):
            victim = run.peers[turn % len(run.peers)]
            attack = subprocess.Popen([program, name, victim.address(), run.name, str(max(1, int(each)))],
                                      stdout=subprocess.PIPE, text=True)
            paces[name] = observe(run.peers, each, sizes)
            out, _ = attack.communicate(timeout=60)
            report.fact(name, of_quiet=paces[name] / quiet, **json.loads(out))
        mean = sum(paces.values()) / len(paces)
        after = observe(run.peers, settings.duration / 8, {})
        grown = {name: sizes[name] - quiet_sizes[name] for name in sizes}
        report.fact("all attacks", epochs_a_minute=mean, of_quiet=mean / quiet, afterwards=after / quiet,
                    worst=min(paces.values()) / quiet, grown_by=max(grown.values()))
        report.require(mean >= 0.9 * quiet, f"{mean / quiet:.0%} of the epochs of the quiet run")
        report.require(max(grown.values()) <= 64, f"resident sizes grew by {grown} MiB")
        await_one_history(settings, report, run, "after the attacks", run.peers, time.monotonic(), settings.patience)
        failed = [p.status["rounds"] for p in run.peers]
        report.fact("rounds", of_the_first=str(failed[0]))
