"""Scenarios that compare measurements with a baseline: memory, scrapes."""
import http.client
import os
import pathlib
import signal
import subprocess
import time

import peers as processes
import watch
from peers import LARGE, Run
from report import quantile


def memory(settings, report):
    """Resident sizes of two trainers with 25 M parameters, of a third one that downloads their state, and of a plain loop.

    Compares VmRSS and its peak, which count pages that several peers share fully in each of them.
    `proportional_of_three` (Pss) divides such pages among the peers: the memory that one of the three really needs.
    """
    model = LARGE | {"target-batch-size": 16}
    parameters = processes.parameters_of(model)
    plain = plain_loop_size(settings, model)
    with Run(settings, {**model, "checkpoint-interval": "10s"}) as run:
        first = run.add().start()
        two = [first, run.add(via=first).start()]
        run.await_step(two, 180)
        began, sizes = time.monotonic(), []
        while time.monotonic() < began + settings.duration:
            time.sleep(0.5)
            sizes.append([p.resident() for p in two])
        # The peak includes the snapshot for a third peer.
        late = run.add(via=first).start()
        try:
            processes.eventually("a third trainer downloads the state",
                                 lambda: (late.status or {}).get("state_downloads"), 180)
        except processes.Failed as why:
            report.note(str(why))
        time.sleep(3)  # until it has caught up
        peak = max(p.resident()[1] for p in two)
        taker = late.resident()[1]
        proportional = max(p.proportional() for p in two)
        steady = max(size[0] for size in sizes[-1])
        moved = first.status["bytes"]
        rounds = first.status["rounds"]["complete"]
    report.fact("resident, MiB", plain_loop=plain, steady=steady, peak=peak, peak_of_the_third=taker,
                ratio_steady=steady / plain, ratio_peak=peak / plain, ratio_third=taker / plain,
                model_and_optimizer=parameters * 16 / 2 ** 20, proportional_of_three=proportional)
    report.fact("moved by the first", bytes_in=moved["in"], bytes_out=moved["out"], rounds=rounds,
                bytes_of_the_vector=parameters * 4)
    worst = max(peak, taker)
    report.require(worst <= 1.5 * plain, f"{worst / plain:.2f} of the plain loop's resident size")


def scrapes(settings, report):
    """Two peers average 64 MiB, one round after the other, without and with 50 scrapes a second, in ten pairs."""
    elements, a_second = 1 << 24, 50
    with Run(settings) as run:
        first = run.add(command="average", elements=elements).start()
        first.address()
        two = [first, run.add(via=first, command="average", elements=elements).start()]
        processes.eventually("they average", lambda: all(p.status and p.status["rounds"]["complete"] >= 5 for p in two), 60)
        for peer in two:
            peer.observer.stop()
        complete = lambda: watch.ask(first.host, first.port, "/api/v1/status")["rounds"]["complete"]
        ratios, took, rounds = [], [], []
        for pair in range(10):
            seconds = {}
            for scraped in (pair % 2 == 0, pair % 2 == 1):
                before, began = complete(), time.monotonic()
                if scraped:
                    took += scraping(two, a_second, settings.duration)
                else:
                    time.sleep(settings.duration)
                rounds.append(complete() - before)
                seconds[scraped] = (time.monotonic() - began) / max(1, rounds[-1])
            ratios.append(seconds[True] / seconds[False])
    report.fact(f"{a_second} scrapes a second", scrapes=len(took), median_ms=1000 * quantile(took, 0.5), p99_ms=1000 * quantile(took, 0.99),
                worst_ms=1000 * max(took), round_ms=1000 * seconds[False], ratio=quantile(ratios, 0.5), least=min(ratios), most=max(ratios),
                load=os.getloadavg()[0])
    report.require(quantile(took, 0.99) <= 0.05, "a scrape in a hundred takes longer than 50 ms")
    report.require(quantile(ratios, 0.5) <= 1.03, "rounds take more than 3 % longer")


def scraping(peers, a_second, seconds):
    """Reads /metrics of the peers in turn at this rate; the seconds that each time took."""
    links = [http.client.HTTPConnection(p.host, p.port, timeout=10) for p in peers]
    began = time.monotonic()
    for n in range(int(a_second * seconds)):
        time.sleep(max(0.0, began + n / a_second - time.monotonic()))
        link, asked = links[n % len(links)], time.monotonic()
        link.request("GET", "/metrics")
        assert link.getresponse().read()
        yield time.monotonic() - asked


def plain_loop_size(settings, model):
    """Peak resident size in MiB of `waggle bench train` while it runs the plain loop, which it does first."""
    line = [str(pathlib.Path(settings.binary).resolve()), "bench", "train", "--steps", "1000", "--data", settings.data]
    for name, value in model.items():
        line += [f"--{name}", str(value)]
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *line], stdout=subprocess.DEVNULL,
                             start_new_session=True)
    try:
        # Wait until the size is constant: the loop has then made optimizer steps, of which it prints nothing.
        sizes = []
        while len(sizes) < 20 or sizes[-1] != sizes[-20]:
            if len(sizes) > 180:
                raise processes.Failed(f"the size of the plain loop still grows after {len(sizes)} s")
            time.sleep(1)
            text = pathlib.Path(f"/proc/{child.pid}/status").read_text()
            sizes.append(int(text.split("VmHWM:")[1].split()[0]) / 1024)
        return sizes[-1]
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
