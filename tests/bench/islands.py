#!/usr/bin/env python3
"""Counts the bytes an update that leave a machine whose ranks are one peer (`group=`), beside those of a machine of which each
process is a peer: two machines, which are network namespaces on one cable. Needs root, iproute2 and torch 2.1 or later.

    PYTHONPATH=build/python OMP_NUM_THREADS=1 build/frameworks/bin/python tests/bench/islands.py [--processes 4] [--values 1000000]

With --taken-back: eight machines with a `waggle train` each, of which one is taken back every few seconds, with a notice, and replaced
at once, and beside it the same machines with plain checkpoints: at a notice all save one, end, and are started again. Goodput: the samples in
updates, of those that machines compute undisturbed in the time of all that are there, including that of starts and goodbyes.

    python3 tests/bench/islands.py --taken-back [--every 8] [--seconds 16]

With --memory: what a peer of two ranks of FSDP2 adds to its rank 0 and to a step, beside the same ranks without Waggle, on
this machine; of times only the ratio within one run says something."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import statistics
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))

HERE = pathlib.Path(__file__).resolve()
SAMPLES = 8


def layers_of(values):
    """A model of about so many values, and its width."""
    import torch

    width = max(int((values / 4) ** 0.5), 8)
    return torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(4)]), width


def rank(args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    model, width = layers_of(args.values)
    if args.kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for part in (*model, model):
            fully_shard(part)
    elif ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    inner = torch.optim.AdamW(model.parameters(), 1e-4)
    swarm = opt = None
    if args.folder:
        import waggle

        group = {"group": dist.group.WORLD} if ranks > 1 else {}
        swarm = waggle.join("islands", initial_peers=[args.peer] if args.peer else [], listen=f"{args.listen}:0",
                            data_dir=args.folder, encrypt="never", log_level="warn", **group)
        opt = waggle.Optimizer(inner, swarm, model, target_batch_size=args.target, epochs=args.updates, min_peers=args.peers)
        if swarm.address:
            print("address", swarm.address, flush=True)
    steps, between = [], []
    x = torch.randn(SAMPLES, width)
    done = 0
    while (not swarm.finished) if swarm else done < 2 * args.updates:
        began = time.monotonic()
        (opt or inner).zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        computed = time.monotonic()
        if opt:
            opt.step(samples=SAMPLES, loss=loss)
            if opt.last == "stepped":
                print("stepped", swarm.status().epoch, flush=True)
            else:
                between.append(time.monotonic() - computed)
        elif done % 2:
            inner.step()
        steps.append(computed - began)
        done += 1
    report = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "step": statistics.median(steps),
              "between": statistics.median(between or [0]), "values": sum(p.numel() for p in model.parameters())}
    if opt:
        opt.leave()
    os.write(1, f"\nREPORT {json.dumps(report)}\n".encode())
    if ranks > 1:
        dist.destroy_process_group()


def words(args, folder="", **more):
    given = {"values": args.values, "updates": args.updates, "folder": folder, **more}
    return [sys.executable, HERE, "--rank", *(f"--{name}={value}" for name, value in given.items())]


def start(folder, name, command, namespace=None, **environment):
    from process import Process

    os.environ.update(environment)  # which the child gets
    process = Process(command, pathlib.Path(folder) / f"{name}.log", namespace)
    for each in environment:
        del os.environ[each]
    return process


def said(process, beginning, limit=300):
    """The rest of the last line that begins so, as soon as there is one."""
    from process import Failed, eventually

    def found():
        lines = [line for line in process.text().splitlines() if line.startswith(beginning)]
        if not lines and not process.running():
            raise Failed(process.text())
        return lines and lines[-1][len(beginning):]

    return eventually(beginning, found, limit).strip()


def of_ranks(count, number):
    return {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}


def uplink(namespace):
    from namespaces import command

    return int(command("ip", "netns", "exec", namespace, "cat", "/sys/class/net/cable/statistics/tx_bytes"))


def bytes_of(args, islands):
    """What leaves the first machine in an update, in a run of islands or of single processes."""
    from namespaces import Namespaces, command

    with Namespaces() as lab:
        machines = [f"{lab.prefix}{i}" for i in range(2)]
        for each in machines:
            lab.make_namespace(each)
        command("ip", "-n", machines[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", machines[1])
        for i, each in enumerate(machines):
            command("ip", "-n", each, "address", "add", f"10.9.0.{i + 1}/24", "dev", "cable")
            command("ip", "-n", each, "link", "set", "cable", "up")
        more = {"target": 2 * args.processes * SAMPLES, "peers": 2 if islands else 2 * args.processes}
        started, peer = [], ""
        try:
            for i, machine in enumerate(machines):
                for number in range(args.processes):
                    name = f"{i}" if islands else f"{i}.{number}"
                    command_line = words(args, lab.folder / name, peer=peer, listen=f"10.9.0.{i + 1}", **more)
                    environment = of_ranks(args.processes, number) if islands and args.processes > 1 else {}
                    started.append(start(lab.folder, f"log{i}.{number}", command_line, machine, **environment))
                    if not islands:
                        peer = peer or said(started[0], "address ").split(",")[0]
                peer = peer or said(started[0], "address ").split(",")[0]
            first, counts = args.updates // 4, []
            while len(counts) < 2:
                epoch = int(said(started[0], "stepped "))
                if epoch >= (first, args.updates - 2)[len(counts)]:
                    counts.append((epoch, uplink(machines[0])))
                time.sleep(0.02)
            values = json.loads(said(started[0], "REPORT "))["values"]
            for each in started:
                each.wait(60)
        finally:
            for each in started:
                each.end()
    updates = counts[1][0] - counts[0][0]
    return (counts[1][1] - counts[0][1]) / updates, values, updates


def count_bytes(args):
    found = {}
    for islands in (True, False):
        found[islands], values, updates = bytes_of(args, islands)
        what = f"{args.processes} ranks are one peer" if islands else f"{args.processes} peers"
        print(f"two machines, on each {what}: {found[islands]:,.0f} bytes an update leave the first, over {updates} updates of {values:,} "
              f"values ({found[islands] / values:.2f} a value)", flush=True)
    print(f"ratio {found[True] / found[False]:.3f}")


def of_two_ranks(args, folder, values):
    """The reports of both ranks. No folder: without Waggle."""
    with tempfile.TemporaryDirectory() as logs:
        command = words(args, folder, values=values, kind="fsdp", target=16 * 2 * SAMPLES, peers=1, listen="127.0.0.1")
        # Each large block has pages of its own, which go with it: glibc's heap has other peaks in each run.
        both = [start(logs, f"rank{i}", command, MALLOC_MMAP_THRESHOLD_="262144", **of_ranks(2, i)) for i in range(2)]
        try:
            return [json.loads(said(each, "REPORT ")) for each in both]
        finally:
            for each in both:
                each.end()


def measure(args):
    with tempfile.TemporaryDirectory() as folder:
        grown = {}
        for name, where in (("without Waggle", ""), ("with", pathlib.Path(folder, "peer"))):
            small, large = (of_two_ranks(args, f"{where}{values}" if where else "", values) for values in (args.values // 4, args.values))
            mib = 4 * (large[0]["values"] - small[0]["values"]) / 2**20
            grown[name] = [(after["peak"] - before["peak"]) / mib for before, after in zip(small, large)]
            print(f"{name}: from {small[0]['values']:,} to {large[0]['values']:,} values the peaks of ranks 0 and 1 grow by "
                  f"{grown[name][0]:.2f} and {grown[name][1]:.2f} times the bytes of these; a pass {large[0]['step']:.2f} s, "
                  f"between updates opt.step takes {large[0]['between'] / large[0]['step']:.3f} of that", flush=True)


MACHINES = 8


class Machine:
    """A peer of `waggle train` that sleeps between its passes, so that eight need little of this machine's processors."""

    def __init__(self, args, run, folder, port, peers, *more):
        self.port, self.folder, self.left = port, folder, None
        folder.mkdir(exist_ok=True)
        self.began = time.monotonic()
        self.process = start(folder, f"log{time.monotonic_ns()}", [
            args.binary, "train", "--run-id", run, "--listen", f"127.0.0.1:{port}", "--initial-peers",
            ",".join(f"127.0.0.1:{peer}" for peer in peers), "--data-dir", folder, "--model", "mlp", "--width", 16, "--layers", 1,
            "--device", "cpu", "--micro-batch", 4, "--step-interval", "100ms", "--target-batch-size", 64, "--epochs", 0, *more])

    def used(self):
        """Samples that are in updates."""
        if self.left is None:
            with contextlib.suppress(OSError, ValueError):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/status", timeout=5) as page:
                    return json.load(page)["samples"]["used"] or 0
            return 0
        return self.summary()[0]

    def summary(self):
        """Samples used, dropped and kept, of one that has ended."""
        found = re.search(r"(\d+) samples used, (\d+) dropped and (\d+) kept here", self.process.text())
        return [int(each) for each in found.groups()] if found else [0, 0, 0]

    def seconds(self, since):
        return (self.left or time.monotonic()) - max(self.began, since)

    def look(self):
        """Whether it has ended."""
        if self.left is None and not self.process.running():
            self.left = time.monotonic()
        return self.left is not None


def free_ports(count):
    with contextlib.ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


def take_back(args, folder, with_notice):
    from process import eventually

    run = "notice" if with_notice else "plain"
    ports = free_ports(MACHINES)
    everybody = []

    def launch(name, port, peers, *more):
        everybody.append(Machine(args, run, folder / f"{run}{name}", port, peers, *more, *(["--leave-within", "25s"] if with_notice else [])))
        return everybody[-1]

    def launch_all():
        return [launch(i, port, ports[:i], "--min-peers", MACHINES) for i, port in enumerate(ports)]

    def used():
        return sum(each.used() for each in everybody)

    def let_pass(until):
        while time.monotonic() < until:
            for each in everybody:
                each.look()
            time.sleep(0.02)

    try:
        here = launch_all()
        eventually("all train", lambda: all(each.used() > 0 for each in here), 120)
        began, before = time.monotonic(), used()
        let_pass(began + args.seconds / 2)
        rate = (used() - before) / (time.monotonic() - began) / MACHINES
        began, before, taken = time.monotonic(), used(), 0
        while time.monotonic() < began + args.seconds:
            taken += 1
            if with_notice:
                here[0].process.send(signal.SIGTERM)
                here = [*here[1:], launch(f"again{taken}", free_ports(1)[0], [each.port for each in here[-3:]])]
            else:
                for each in here:
                    each.process.send(signal.SIGTERM)
                eventually("all end", lambda: all([each.look() for each in here]), 60)
                here = launch_all()
            let_pass(began + taken * args.every)
        now = time.monotonic()
        done = used() - before
        machines = sum(each.seconds(began) for each in everybody if each.left is None or each.left > began) \
            if with_notice else MACHINES * (now - began)
        lost = sum(sum(each.summary()[1:] if with_notice else each.summary()[1:2]) for each in everybody if each.left)
        return done / (machines * rate), taken, rate, lost
    finally:
        for each in everybody:
            each.process.end(signal.SIGKILL)


def measure_goodput(args):
    with tempfile.TemporaryDirectory() as folder:
        for with_notice, what in ((True, "each with a notice"), (False, "plain checkpoints, from which all start again")):
            goodput, taken, rate, lost = take_back(args, pathlib.Path(folder), with_notice)
            print(f"{what}: {taken} of {MACHINES} machines taken back in {args.seconds:g} s, one every {args.every:g} s: goodput {goodput:.3f} of "
                  f"the machines alive ({rate:.1f} samples/s each when undisturbed); {lost} samples of theirs are in no update", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4, help="on each machine")
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--taken-back", action="store_true")
    parser.add_argument("--every", type=float, default=8)
    parser.add_argument("--seconds", type=float, default=16)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[2] / "build/bin/waggle")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    for name, kind, default in (("folder", str, ""), ("peer", str, ""), ("listen", str, ""), ("kind", str, "ddp"), ("target", int, 0),
                                ("peers", int, 1)):
        parser.add_argument(f"--{name}", type=kind, default=default, help=argparse.SUPPRESS)
    args = parser.parse_args()
    rank(args) if args.rank else measure(args) if args.memory else measure_goodput(args) if args.taken_back else count_bytes(args)


if __name__ == "__main__":
    main()
