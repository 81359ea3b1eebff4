"""Attacks on trainers: by the client of tests/processes/attacks, and by a member that is always just in time."""
import contextlib
import json
import subprocess
import threading
import time

import peers as processes
from joining import await_one_history

PAUSE = "40ms"  # between two passes: the attacker needs a part of the machine, too


def list_attacks(program):
    names = subprocess.run([program], capture_output=True, text=True).stdout.split()
    return [name for name in names if name != "pings"]


def observe(peers, seconds):
    """(epochs a minute, {name: largest resident size that was seen}) over this time."""
    began, first, sizes = time.monotonic(), max(p.status["epoch"] for p in peers), {}
    while time.monotonic() < began + seconds:
        time.sleep(0.2)
        for peer in peers:
            resident = peer.resident()
            if resident:
                sizes[peer.name] = max(sizes.get(peer.name, 0), resident[0])
    last = max(p.status["epoch"] for p in peers)
    return 60 * (last - first) / (time.monotonic() - began), sizes


def attacks(settings, report):
    """Plays all attacks against four trainers: epochs a minute and resident sizes relative to the time before."""
    with processes.begun(settings, report, 4, {"step-interval": PAUSE}) as run:
        program = str(run.binary.parent / "waggle-attack")
        names = settings.only.split(",") if settings.only else list_attacks(program)
        each = settings.duration / len(names)
        time.sleep(5)
        quiet, quiet_sizes = observe(run.peers, settings.duration / 4)
        report.fact("quiet", epochs_a_minute=quiet, **quiet_sizes)
        paces, largest, played = {}, {}, []
        for turn, name in enumerate(names):
            victim = run.peers[turn % len(run.peers)]
            before = {peer.name: peer.resident()[0] for peer in run.peers}
            attack = subprocess.Popen([program, name, victim.address(), run.name, str(max(1, int(each)))],
                                      stdout=subprocess.PIPE, text=True)
            paces[name], sizes = observe(run.peers, each)
            largest = {peer: max(size, largest.get(peer, 0)) for peer, size in sizes.items()}
            out, _ = attack.communicate(timeout=60)
            grown = {peer: sizes[peer] - before[peer] for peer in sizes}
            played.append((name, victim, before[victim.name], grown, json.loads(out)))
            report_growth(report, played, turn - 1, paces, quiet)
        after, _ = observe(run.peers, settings.duration / 8)
        report_growth(report, played, len(played) - 1, paces, quiet)
        mean = sum(paces.values()) / len(paces)
        grown = {name: largest[name] - quiet_sizes[name] for name in largest}
        report.fact("all attacks", epochs_a_minute=mean, of_quiet=mean / quiet, afterwards=after / quiet,
                    worst=min(paces.values()) / quiet, grown_by=max(grown.values()))
        report.require(mean >= 0.9 * quiet, f"{mean / quiet:.0%} of the epochs of the quiet run")
        report.require(max(grown.values()) <= 64, f"resident sizes grew by {grown} MiB")
        await_one_history(settings, report, run, "after the attacks", run.peers, time.monotonic(), settings.patience)
        failed = [p.status["rounds"] for p in run.peers]
        report.fact("rounds", of_the_first=str(failed[0]))


@contextlib.contextmanager
def held_back(peer):
    """Meanwhile the peer runs for 0.1 s of each second: whatever the others wait for comes just within a second."""
    over = threading.Event()

    def hold():
        while not over.is_set():
            peer.freeze()
            over.wait(0.85)
            peer.thaw()
            over.wait(0.1)
    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def just_in_time(settings, report):
    """A fourth member is late by just less than the stall timeout: epochs a second without it, in its first 20 s, and
    after them."""
    with processes.begun(settings, report, 3, {"step-interval": PAUSE, "stall-timeout": "1s"}) as run:
        honest = list(run.peers)
        time.sleep(5)
        quiet = observe(honest, settings.duration / 2)[0] / 60
        late = run.add(via=honest[0]).start()
        processes.eventually("the fourth is a member", lambda: (late.status or {}).get("group_size") == 4, 60)
        with held_back(late):
            first = observe(honest, 20)[0] / 60
            then = observe(honest, settings.duration)[0] / 60
        late.end()
        time.sleep(5)
        quiet = (quiet + observe(honest, settings.duration / 2)[0] / 60) / 2  # the machine may have other work
        report.fact("just in time", epochs_a_second=quiet, of_it_first_20_s=first / quiet, of_it_after=then / quiet,
                    kept_out=sum(peer.text().count("kept most rounds waiting") for peer in honest),
                    failed_rounds=str(honest[0].status["rounds"]))
        report.require(then >= 0.6 * quiet, f"{then / quiet:.0%} of the epochs without it")


def report_growth(report, played, turn, paces, quiet):
    """Of the attack before the last one: by then, what its victim kept for it only for a time is gone."""
    if turn < 0:
        return
    name, victim, before, grown, outcome = played[turn]
    others = max(size for peer, size in grown.items() if peer != victim.name)
    report.fact(name, victim=victim.name, of_quiet=paces[name] / quiet, grown_by=grown[victim.name],
                left_of_it=victim.resident()[0] - before, others_grown_by=others, **outcome)
