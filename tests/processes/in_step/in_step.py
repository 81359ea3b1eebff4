#!/usr/bin/env python3
"""Starts real peers, injects faults, and prints how long it takes until the peers are in step again.

Each scenario is a subcommand; `in_step.py SCENARIO --help` lists its options. The README in this folder explains
the numbers. The exit code is 1 if a requirement failed, and 2 if the scenario could not run.
"""
import argparse
import inspect
import random
import signal
import sys

import alerts
import endurance
import joining
import measures
import peers
import report as reports
import slow
import strategies

SCENARIOS = {
    "returns": (joining.returns, ["faults", "freeze", "strategy"]),
    "chaos": (endurance.chaos, ["duration", "every", "faults", "strategy"]),
    "memory": (measures.memory, ["duration"]),
    "strategies": (strategies.strategies, ["duration", "delay"]),
    "outer-rounds": (strategies.outer_rounds, ["peers", "rate", "delay", "only", "width", "step-interval"]),
    "buckets": (strategies.buckets, []),
    "islands": (strategies.islands, ["epochs"]),
    "slow": (slow.slow, ["only"]),
    "alerts": (alerts.alerts, ["only", "prometheus"]),
}
SPECIAL = {
    "faults": dict(default="kill,freeze,stop", help="kinds of faults, separated by commas"),
    "freeze": dict(type=float, default=6, help="seconds that a peer is frozen"),
    "delay": dict(type=float, default=20, help="delay of each link in milliseconds, each way"),
    "epochs": dict(type=int, default=60, help="epochs of the run"),
    "duration": dict(type=float, help="seconds of the measurement"),
    "every": dict(type=float, help="seconds between two faults"),
    "only": dict(help="what to plant, separated by commas; all by default"),
    "prometheus": dict(default="prometheus", help="the program"),
    "peers": dict(type=int, default=2, help="that train together"),
    "rate": dict(default="50mbit", help="of each link, in the notation of tc"),
    "width": dict(type=int, default=512, help="of the model: 512 are 0.79 M values, 2048 are 9.4 M"),
    "step-interval": dict(default="20ms", help="shortest time of a pass"),
    "strategy": dict(default="", help="of the peers, instead of collaborative; its rounds count passes"),
}
DEFAULTS = {
    "chaos": {"duration": 120, "every": 6},
    "memory": {"duration": 20},
    "strategies": {"duration": 10},
    "islands": {"epochs": 400},
}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="scenario", required=True, metavar="SCENARIO")
    for name, (run, options) in SCENARIOS.items():
        command = commands.add_parser(name, help=inspect.getdoc(run),
                                      formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        command.add_argument("--times", type=int, default=1, help="repetitions")
        command.add_argument("--seed", type=int, default=None, help="seed of the faults; random by default")
        command.add_argument("--binary", default=str(peers.ROOT / "build" / "bin" / "waggle"), help="the waggle program")
        command.add_argument("--json", metavar="FILE", help="write all trials to this file")
        command.add_argument("--limit", type=float, default=5, help="seconds in which a peer must be in step")
        command.add_argument("--hold", type=float, default=4, help="seconds for which it must stay in step")
        command.add_argument("--patience", type=float, default=20, help="seconds until a trial is given up")
        command.add_argument("--data", default="synthetic", help="training data")
        command.add_argument("--log-level", default="info", help="log level of the peers")
        command.add_argument("--keep", metavar="FOLDER", help="copy the logs to this folder")
        for option in options:
            given = dict(SPECIAL[option])
            if option in DEFAULTS.get(name, {}):
                given["default"] = DEFAULTS[name][option]
            command.add_argument(f"--{option}", **given)
    return parser.parse_args(arguments)


def main():
    settings = parse(sys.argv[1:])
    if settings.seed is None:
        settings.seed = random.SystemRandom().getrandbits(32)
    random.seed(settings.seed)
    # Exit by an exception, so that all children are stopped, too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in background jobs, where the shell ignores it
    report = reports.Report(settings.limit)
    report.note(f"{settings.scenario}, seed {settings.seed}")
    code = 0
    try:
        SCENARIOS[settings.scenario][0](settings, report)
    except peers.Failed as why:
        print(f"in_step.py: {why}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    report.print()
    if settings.json:
        report.write(settings.json, settings.scenario, vars(settings))
    return code or (1 if report.failed() else 0)


if __name__ == "__main__":
    sys.exit(main())
