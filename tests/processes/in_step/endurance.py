"""A long run: chaos."""
import random
import signal
import time

import watch
from joining import await_one_history
from peers import begun


class Accounts:
    """Sums of samples over all processes (lives) of all peers."""

    def __init__(self, run):
        self.run = run
        self.away = {peer: [] for peer in run.peers}  # [(life, begin, end)] of freezes

    def used(self):
        return sum(life.status["samples"]["used"] for p in self.run.peers for life in p.lives if life.status)

    def rounds(self):
        return sum(life.samples[-1].rounds for p in self.run.peers for life in p.lives if life.samples)

    def missing(self):
        """Samples that were computed but are not used, dropped or pending, by peer and life."""
        found = {}
        for peer in self.run.peers:
            for number, life in enumerate(peer.lives):
                status = life.status
                if not status:
                    continue
                samples = status["samples"]
                gone = status["steps"] * peer.options["micro-batch"] - samples["used"] - samples["dropped"] \
                    - (status["samples_toward_epoch"] or 0)
                if gone != 0:
                    found[f"{peer.name}.{number}"] = gone
        return found


def living_share(run, spans):
    """Share of the peers' running time in which they were in step; frozen peers do not count as running."""
    inside = whole = 0.0
    for peer, life, begin, end in spans:
        rest = [h for p in run.peers if p is not peer for h in p.lives]
        a, b = watch.share_in_step(life, rest, begin, end)
        inside, whole = inside + a, whole + b
    return inside / whole if whole else 0.0


def taking_part(spans):
    """The time in which peers answered, and in which they trained, over all of `spans`."""
    answered = trained = 0.0
    for _peer, life, begin, end in spans:
        samples = life.between(begin, end)
        answered += end - samples[0].at if samples else 0
        trained += sum(b.at - a.at for a, b in zip(samples, samples[1:]) if a.phase in watch.WORKING and b.at - a.at < watch.FRESH)
    return answered, trained


def quiet_speed(settings, report):
    """Samples per second in the updates of a run of five peers without faults."""
    with begun(settings, report, 5) as run:
        before, began = Accounts(run).used(), time.monotonic()
        time.sleep(settings.duration)
        return (Accounts(run).used() - before) / (time.monotonic() - began)


def chaos(settings, report):
    """Kills, freezes or stops one of five peers every six seconds on average; compares with a run without faults.

    The means over time of the peers whose process runs, that have loaded LibTorch and answer, that train, and that a
    committed round has."""
    for _ in range(settings.times):
        quiet = quiet_speed(settings, report)
        with begun(settings, report, 5, {"checkpoint-interval": "1s"}) as run:
            peers = run.peers
            peers[0].initial = peers[1:]
            spans, alive_since = [], {p: (p.history, time.monotonic()) for p in peers}
            pending = []  # [(when, peer, action)]
            before, began = Accounts(run).used(), time.monotonic()
            rounds, epoch = Accounts(run).rounds(), max(p.status["epoch"] for p in peers)
            end, next_fault = began + settings.duration, began + random.expovariate(1 / settings.every)

            def leave(peer):
                life, since = alive_since.pop(peer)
                spans.append((peer, life, since, time.monotonic()))

            def come_back(peer, action):
                action()
                alive_since[peer] = (peer.history, time.monotonic())

            while time.monotonic() < end:
                time.sleep(0.02)
                now = time.monotonic()
                for item in [item for item in pending if item[0] <= now]:
                    pending.remove(item)
                    come_back(*item[1:])
                if now < next_fault:
                    continue
                next_fault = now + random.expovariate(1 / settings.every)
                standing = [p for p in peers if p in alive_since]
                if len(standing) < 2:
                    continue
                victim, fault = random.choice(standing), random.choice(settings.faults.split(","))
                leave(victim)
                if fault == "freeze":
                    victim.freeze()
                    pending.append((now + random.uniform(3, 12), victim, victim.thaw))
                else:
                    victim.end(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
                    pending.append((time.monotonic() + 1, victim, victim.start))
                report.note(f"{fault} of {victim.name}; " + ", ".join(p.where() for p in standing if p is not victim))
            for _when, peer, action in pending:
                come_back(peer, action)
            seconds = time.monotonic() - began
            speed = (Accounts(run).used() - before) / seconds
            committed = (Accounts(run).rounds() - rounds) / max(1, max(p.status["epoch"] for p in peers if p.status) - epoch)
            for peer in list(alive_since):
                leave(peer)
            share = living_share(run, spans)
            await_one_history(settings, report, run, "after the chaos", peers, time.monotonic(),
                              settings.patience)
            alive, (answered, trained) = sum(end - begin for *_, begin, end in spans), taking_part(spans)
            report.fact("peers", alive=alive / seconds, answering=answered / seconds, taking_part=trained / seconds,
                        committed=committed, speed_of_the_living=speed / quiet * 5 * seconds / alive)
            report.fact("chaos", share_in_step=share, samples_a_second=speed, when_quiet=quiet, ratio=speed / quiet)
            missing = Accounts(run).missing()
            report.require(share >= 0.95, f"{share:.0%} of the running time was in step")
            report.require(speed >= 0.9 * quiet, f"{speed / quiet:.0%} of the speed without faults")
            report.require(not missing, f"samples that were computed but are not accounted for: {missing}")
