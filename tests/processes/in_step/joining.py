"""The scenario returns, and what chaos judges by, too."""
import random
import signal
import time

import watch
from peers import begun


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
