"""Collects trials, prints their distribution, and writes them as JSON."""
import json
import time

FORMAT = "{:<34} {:>4} {:>8} {:>6} {:>7} {:>8} {:>8} {:>8}"


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * (len(ordered) - 1) + 0.5))]


class Report:
    """`limit`: seconds; a trial that takes longer has failed."""

    def __init__(self, limit):
        self.limit = limit
        self.trials, self.facts, self.complaints = [], [], []
        self.began = time.monotonic()

    def note(self, text):
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def trial(self, kind, seconds, stays=True, detail="", **more):
        """`seconds`: the time until the trial succeeded; None: it never did."""
        good = seconds is not None and seconds <= self.limit and stays
        self.trials.append({"kind": kind, "seconds": seconds, "stays": stays, "good": good, "detail": detail, **more})
        took = "never" if seconds is None else f"{seconds:.2f} s"
        self.note(f"{kind}: {took}{'' if stays else ', did not stay'}{'' if good else '  <-- ' + (detail or 'too late')}")

    def fact(self, name, **values):
        """Records numbers that are not times of a trial."""
        self.facts.append({"name": name, **values})
        shown = ", ".join(f"{k.replace('_', ' ')} {v:.4g}" if isinstance(v, float) else f"{k.replace('_', ' ')} {v}"
                          for k, v in values.items())
        self.note(f"{name}: {shown}")

    def require(self, holds, complaint):
        if not holds:
            self.complaints.append(complaint)
            self.note(f"<-- {complaint}")

    def failed(self):
        return bool(self.complaints) or not all(trial["good"] for trial in self.trials)

    def print(self):
        if self.trials:
            print("\n" + FORMAT.format("", "n", "in time", "stays", "never", "median", "p90", "worst"))
            for kind in dict.fromkeys(trial["kind"] for trial in self.trials):
                mine = [trial for trial in self.trials if trial["kind"] == kind]
                times = [trial["seconds"] for trial in mine if trial["seconds"] is not None]
                shown = [f"{quantile(times, q):.2f} s" for q in (0.5, 0.9, 1)] if times else ["-"] * 3
                print(FORMAT.format(kind, len(mine), sum(t is not None and t <= self.limit for t in times),
                                    sum(trial["stays"] for trial in mine), len(mine) - len(times), *shown))
            good = sum(trial["good"] for trial in self.trials)
            print(f"{good} of {len(self.trials)} within {self.limit:g} s, and stayed")
        for complaint in self.complaints:
            print(f"requirement failed: {complaint}")
        print(f"took {time.monotonic() - self.began:.0f} s", flush=True)

    def write(self, file, scenario, settings):
        with open(file, "w") as out:
            json.dump({"scenario": scenario, "settings": settings, "limit": self.limit, "trials": self.trials,
                       "facts": self.facts, "complaints": self.complaints}, out, indent=1)
