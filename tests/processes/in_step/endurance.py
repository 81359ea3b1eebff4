"""Long runs: chaos, turns, ends."""
import hashlib
import random
import signal
import time

import watch
from joining import await_one_history
from peers import Failed, Run, begun


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


def turns(settings, report):
    """Kills three of four peers in turn: longest pause of a survivor, growth of the fourth peer's resident size."""
    for _ in range(settings.times):
        with begun(settings, report, 4, {"checkpoint-interval": "1s"}) as run:
            *victims, witness = run.peers
            victims[0].initial = [*victims[1:], witness]
            sizes = []  # [(when, MiB)] of the witness
            end, turn, pauses = time.monotonic() + settings.duration, 0, []
            while time.monotonic() < end:
                victim = victims[turn % 3]
                turn += 1
                faulted = time.monotonic()
                victim.end()
                time.sleep(1)
                victim.start()
                while time.monotonic() < faulted + settings.every:
                    sizes.append((time.monotonic(), witness.resident()[0]))
                    time.sleep(0.5)
                survivors = [p for p in run.peers if p is not victim]
                pauses.append(max(p.history.longest_pause(faulted, time.monotonic()) for p in survivors))
                report.note(f"{victim.name} was killed; longest pause of a survivor {pauses[-1]:.2f} s; "
                            + "; ".join(p.where() for p in run.peers))
            # In its first minute a process fills its pools and caches.
            a, b = next((s for s in sizes if s[0] >= sizes[0][0] + min(60, settings.duration / 2))), sizes[-1]
            growth = 20 * (b[1] - a[1]) / (b[0] - a[0])
            report.fact("killed in turn", kills=turn, longest_pause=max(pauses), growth_in_20_s_mib=growth)
            report.trial("longest pause of survivors", max(pauses))
            report.require(growth < 1, f"the fourth peer's resident size grew by {growth:.1f} MiB in 20 s")


def newest_checkpoint(peer):
    # checkpoint-<serial>-<epoch>-<history>.wgl: the newest has the highest serial, which each peer counts itself.
    files = sorted((peer.folder / "checkpoints").glob("checkpoint-*"), key=lambda f: int(f.name.split("-")[1]))
    if not files:
        return "none"
    return hashlib.sha256(files[-1].read_bytes()).hexdigest()[:12] + " " + files[-1].name.split("-", 2)[2]


def ends(settings, report):
    """Runs three peers up to a given epoch: exit codes, equal parameters, last lines of the logs."""
    for number in range(settings.times):
        with Run(settings, {"epochs": settings.epochs, "linger": "5s", "step-interval": "20ms"}) as run:
            first = run.add().start()
            first.address()
            two = [run.add(via=first).start() for _ in range(2)]
            # In every second trial, freeze one of them during the run.
            if number % 2 == 1:
                while (two[1].status or {}).get("epoch") in (None, *range(settings.epochs // 3)):
                    time.sleep(0.05)
                    if two[1].child.poll() is not None:
                        raise Failed("the peer ended before it could be frozen")
                two[1].freeze()
                time.sleep(settings.freeze)
                two[1].thaw()
            kind = "ends" if number % 2 == 0 else "ends, one frozen during the run"
            began = time.monotonic()
            while time.monotonic() < began + 90 and any(p.child.poll() is None for p in run.peers):
                time.sleep(0.1)
            seconds = time.monotonic() - began
            codes = [p.child.poll() for p in run.peers]
            last = [p.status or {} for p in run.peers]
            parameters = {s.get("parameters") for s in last}
            checkpoints = {newest_checkpoint(p) for p in run.peers}
            report.fact(kind, seconds=seconds, exit_codes=codes, epochs=[s.get("epoch") for s in last],
                        parameters=[(s.get("parameters") or "")[:8] for s in last], checkpoints=sorted(checkpoints))
            for peer in run.peers:
                for line in peer.last_lines(3):
                    report.note(f"  {peer.name}: {line}")
            equal = len(parameters) == 1 and len(checkpoints) == 1
            report.require(None not in codes, "a peer did not end")
            report.require(equal or any(codes), "the peers ended with different parameters, and all with exit code 0")
            report.require(equal or number % 2 == 1, "the peers ended with different parameters, without a fault")
            endings = [" ".join(p.last_lines(6)) for p in run.peers]
            report.require(all("loss" in text and "samples" in text and "checkpoint" in text for text in endings),
                           "the last log lines do not contain all of loss, samples and checkpoint")
