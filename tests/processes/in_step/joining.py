"""Scenarios of joining and returning: joins, returns, restart-all, lost-first, stale-folder."""
import random
import re
import signal
import socket
import time

import watch
from peers import Failed, Run, begun


def judge(settings, report, run, kind, since):
    """Observes the peers in `since` (peer: its start time) until each has stayed in step, or the patience is over."""
    verdicts = {}
    last = max(since.values())
    while time.monotonic() < last + settings.patience + settings.hold:
        time.sleep(0.3)
        now = time.monotonic()
        living = run.living()
        verdicts = {p: watch.verdict(p.history, watch.others(p, living), at, now, settings.hold)
                    for p, at in since.items()}
        late = now > last + settings.patience
        if all(v.settled is not None or (late and not v.pending) for v in verdicts.values()):
            break
    for peer, found in verdicts.items():
        seconds = None if found.settled is None else found.settled - since[peer]
        detail = "" if seconds is not None and found.stays else "; ".join(p.where() for p in run.living())
        report.trial(kind, seconds, found.stays, detail, log=[] if seconds is not None else peer.last_lines())
    return all(v.settled is not None for v in verdicts.values())


def joins(settings, report):
    """Lets three trainers join a run of one, two seconds after its start."""
    for _ in range(settings.times):
        with Run(settings) as run:
            first = run.add().start()
            run.await_step([first])
            time.sleep(2)
            newcomers = [run.add(via=first).start() for _ in range(3)]
            judge(settings, report, run, "join", {p: p.began for p in newcomers})


def together(settings, report):
    """Starts four trainers at the same moment, as a compose file does; all others know the address of the first."""
    for _ in range(settings.times):
        with Run(settings) as run:
            first = run.add()
            first.port = free_port()
            for _ in range(3):
                run.add(via=first)
            for peer in run.peers:
                peer.start()
            judge(settings, report, run, "start together", {p: p.began for p in run.peers})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


FAULTS = ("kill", "freeze", "stop")


def inject(settings, victim, fault):
    """Injects a fault and lets the peer return. Returns the time when it started to return."""
    if fault == "freeze":
        victim.freeze()
        time.sleep(settings.freeze)
        back = time.monotonic()
        victim.thaw()
        return back
    victim.end(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
    time.sleep(random.uniform(0, 2))
    return victim.start().began


def returns(settings, report):
    """Kills, freezes or stops one of four peers, which then returns."""
    faults = [fault for _ in range(settings.times) for fault in settings.faults.split(",")]
    random.shuffle(faults)
    while faults:
        with begun(settings, report, 4) as run:
            going = True
            while going and faults:
                fault = faults.pop()
                # The first peer can be the victim, too, so it needs initial peers for its return.
                victim = random.choice(run.peers)
                if not victim.initial:
                    victim.initial = [p for p in run.peers if p is not victim]
                time.sleep(random.uniform(0, 0.5))
                faulted = time.monotonic()
                back = inject(settings, victim, fault)
                going = judge(settings, report, run, fault, {victim: back})
                pause = max(h.longest_pause(faulted, time.monotonic()) for h in watch.others(victim, run.peers))
                report.trial(f"{fault}: longest pause of the others", pause)
                going = going and pause < settings.limit  # else this fault would affect the result of the next one


def restart_all(settings, report):
    """Kills three peers and restarts them within a second, from different checkpoints."""
    for _ in range(settings.times):
        each = [{"checkpoint-interval": interval} for interval in ("200ms", "1s", "2s")]
        with begun(settings, report, 3, each=each) as run:
            peers = run.peers
            time.sleep(random.uniform(3, 6))
            for peer in random.sample(peers, 3):
                peer.end()
                time.sleep(random.uniform(0.1, 0.7))
            for peer in random.sample(peers, 3):
                peer.start()
                time.sleep(random.uniform(0, 0.4))
            last = max(p.began for p in peers)
            judge(settings, report, run, "restart of all", {p: last for p in peers})
            resumed = re.findall("resumed from the checkpoint of epoch ([0-9]+)", "".join(p.text() for p in peers))
            report.fact("resumed at epochs", epochs="/".join(resumed))


def await_one_history(settings, report, run, kind, peers, since, patience):
    """Waits until all `peers` have had the same parameters at the same epoch for `hold`, and are in step."""
    found = first = None
    while (now := time.monotonic()) < since + patience + settings.hold:
        time.sleep(0.3)
        histories = [p.history for p in peers]
        found = watch.one_history(histories, since)
        first = first or found
        verdicts = [watch.verdict(p.history, watch.others(p, peers), since, now, settings.hold) for p in peers]
        if found is not None and now - found >= settings.hold and all(v.settled for v in verdicts):
            break
    detail = "; ".join(f"{p.where()} {((p.status or {}).get('parameters') or '')[:8]}" for p in peers)
    late = found is not None and found > since + patience
    report.trial(f"{kind}: one history", None if found is None or late else found - since,
                 found is not None and found == first, detail)
    settled = [v.settled for v in verdicts]
    report.trial(f"{kind}: all in step", None if None in settled else max(settled) - since,
                 all(v.stays for v in verdicts), detail)


def lost_first(settings, report):
    """Kills three peers and restarts two of them, without the first one; restarts the first one later."""
    for _ in range(settings.times):
        with begun(settings, report, 3, {"checkpoint-interval": "500ms"}) as run:
            first, *two = run.peers
            time.sleep(3)
            for peer in run.peers:
                peer.end()
            for peer in two:
                peer.start()
                time.sleep(random.uniform(0, 0.5))
            last = max(p.began for p in two)
            await_one_history(settings, report, run, "without the first", two, last, settings.patience)
            back = first.start().began
            await_one_history(settings, report, run, "the first returns", run.peers, back, settings.patience + 10)


def stale_folder(settings, report):
    """A peer with the data folder of another run of the same name, at a higher epoch, joins two peers."""
    for _ in range(settings.times):
        with Run(settings, {"checkpoint-interval": "500ms"}) as run:
            old = run.add().start()
            run.await_step([old])
            while (old.status or {}).get("epoch") < settings.stale_epochs:
                time.sleep(0.1)
            old.end(signal.SIGTERM)
            stale = old.status["epoch"]
            two = [run.add().start()]
            two.append(run.add(via=two[0]).start())
            run.await_step(two)
            if two[0].status["epoch"] >= stale:
                raise Failed(f"the two peers are already at epoch {two[0].status['epoch']}: raise --stale-epochs")
            old.initial = [two[0]]
            before = {p: (p.status["epoch"], p.status["samples"]["used"], len(p.text())) for p in two}
            old.start()
            await_one_history(settings, report, run, "stale folder", run.peers, old.began,
                              settings.patience)
            for peer, (epoch, used, log_length) in before.items():
                lines = [line for line in peer.text()[log_length:].splitlines() if "discard" in line or "dropped" in line]
                samples = peer.history.between(old.began, time.monotonic())
                replaced = any(b.epoch - a.epoch > 20 for a, b in zip(samples, samples[1:]))
                report.fact(f"{peer.name} with the stale folder", epoch_before=epoch, stale_epoch=stale,
                            replaced=replaced, dropped=peer.status["samples"]["dropped"], used_before=used)
                for line in lines[:3]:
                    report.note(f"  {line}")
                report.require(not replaced or any("discard" in line for line in lines),
                               f"{epoch} epochs of {peer.name} were replaced, but its log reports none as discarded")
