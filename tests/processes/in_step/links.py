"""Scenarios that depend on links: cut, slow-join, clients."""
import random
import time

import watch
from joining import await_one_history, judge
from lab import Lab
from peers import MODELS, Run, begun, parameters_of


def cut(settings, report):
    """Disconnects one of three peers, and two of four, during training: time from the reconnection to one history."""
    for _ in range(settings.times):
        for seconds in (float(s) for s in settings.seconds.split(",")):
            for count, away in ((3, 1), (4, 2)):
                with Lab(settings, count) as lab, begun(settings, report, count, lab=lab) as run:
                    peers = run.peers
                    time.sleep(2 + random.random())
                    side = random.sample(range(count), away)
                    rest = [i for i in range(count) if i not in side]
                    lab.cut(side, rest)
                    time.sleep(seconds)
                    report.note("at the end of the cut: " + "; ".join(p.where() for p in peers))
                    healed = lab.heal()
                    await_one_history(settings, report, run, f"cut of {seconds:g} s, {away} of {count}", peers,
                                      healed, settings.patience)
                    pause = max(p.history.longest_pause(healed, time.monotonic()) for p in peers)
                    report.fact("since the cut", longest_pause=pause, histories=watch.histories_at_most(
                        [p.history for p in peers], healed - seconds))


def slow_join(settings, report):
    """A peer joins two others; all have slow links."""
    for rate in (float(r) for r in settings.rates.split(",")):
        for name in settings.model.split(","):
            model = MODELS[name]
            state = parameters_of(model) * 12  # the parameters and two statistics of AdamW
            download = state * 8 / (rate * 1e6)
            options = {**model, "averaging-timeout": "10m"}
            kind = f"{name} at {rate:g} Mbit/s"
            with Lab(settings, 3, f"{rate:g}mbit", settings.delay) as lab, Run(settings, options, lab) as run:
                first = run.add().start()
                second = run.add(via=first).start()
                run.await_step([first, second], 120 + 10 * download)
                time.sleep(5)
                epoch = first.history.epoch_seconds(time.monotonic())
                newcomer = run.add(via=first).start()
                limit = 1.5 * download + max(settings.limit, 3 * epoch)
                patience, settings.patience = settings.patience, limit + settings.patience
                report.limit, usual = limit, report.limit
                try:
                    judge(settings, report, run, kind, {newcomer: newcomer.began})
                finally:
                    settings.patience, report.limit = patience, usual
                status = newcomer.status or {}
                report.fact(kind, state_bytes=state, download_seconds=download, epoch_seconds=epoch,
                            epoch_seconds_after=first.history.epoch_seconds(time.monotonic()),
                            downloads=status.get("state_downloads"), bytes_in=status.get("bytes", {}).get("in"),
                            rounds=status.get("rounds", {}).get("complete"))


def rates_of(peers, seconds):
    """Epochs per second of each peer, measured for `seconds`."""
    def epochs():
        return [(p.status or {}).get("epoch") for p in peers]
    before = epochs()
    time.sleep(seconds)
    return [((b or 0) - (a or 0)) / seconds for a, b in zip(before, epochs())]


def check_rates(report, kind, peers, seconds=12):
    rates = rates_of(peers, seconds)
    report.fact(kind, epochs_a_second=" ".join(f"{r:.2f}" for r in rates),
                epochs=" ".join(str((p.status or {}).get("epoch")) for p in peers))
    report.require(min(rates) > 0.9 * max(rates) > 0, f"{kind}: the peers do not all train together")
    return min(rates)


def clients(settings, report):
    """A node and two clients; a public trainer joins and is killed; the node is killed and returns."""
    slower = {"target-batch-size": 512}  # long epochs, so that all peers are seen at the same epoch
    for _ in range(settings.times):
        with begun(settings, report, 2, slower) as run:
            public_rate = check_rates(report, "two that reach each other", run.peers)
        with Run(settings, slower) as run:
            node = run.add(command="node").start()
            node.address()
            two = [run.add(via=node, client_mode=None).start() for _ in range(2)]
            await_one_history(settings, report, run, "two clients at a node", two, max(p.began for p in two),
                              settings.patience)
            rate = check_rates(report, "two clients at a node", two)
            report.require(rate > 0.5 * public_rate,
                           f"{rate:.2f} epochs per second through the node, {public_rate:.2f} without")
            helped = watch.ask(node.host, node.port).get("reduces_for_clients")
            report.require(helped == 2, f"the node reports that it reduces for {helped} clients instead of 2")
            public = run.add(via=node).start()
            await_one_history(settings, report, run, "a public trainer joins", [*two, public], public.began,
                              settings.patience)
            check_rates(report, "two clients and a public trainer", [*two, public])
            public.end()
            await_one_history(settings, report, run, "the public trainer is killed", two, time.monotonic(),
                              settings.patience)
            node.end()
            time.sleep(8)
            rates = rates_of(two, 8)
            report.fact("without the node", epochs_a_second=" ".join(f"{r:.2f}" for r in rates),
                        provisional=[(p.status or {}).get("provisional") for p in two])
            report.require(min(rates) > 0, "a client stopped training without the node")
            node.start()
            await_one_history(settings, report, run, "the node is back", two, node.began, settings.patience)
            for peer in two:
                report.note(f"  {peer.name}: {peer.last_lines(1)}")
