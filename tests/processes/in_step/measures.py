"""The memory of trainers, beside that of a plain loop."""
import os
import pathlib
import signal
import subprocess
import time

import peers as processes
from peers import LARGE, Run


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
