#!/usr/bin/env python3
"""Runs rows: real peers in network namespaces that have to find each other.

A row is a file reach_*.py beside this one, with `run(new_lab)`: new_lab(count, ...) makes a lab.Lab; lab.Failed is
raised with the reason. Programs that it NEEDS besides iproute2 are a list beside `run`. Each row prints one line. Exits
with 0; 1 if a row failed; 77 where no namespace can be made, or all rows need what is not there.
"""
import argparse
import importlib.util
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import lab  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def load(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_row(file, binary, verbose):
    """Runs one row and prints its line. Returns whether it passed; None: skipped."""
    row = load(file)
    if missing := [program for program in getattr(row, "NEEDS", []) if not shutil.which(program)]:
        print(f"{file.stem.removeprefix('reach_'):<32} skipped: there is no {', no '.join(missing)}", flush=True)
        return None
    logs = []

    class RowLab(lab.Lab):
        def close(self):
            if self in lab.Lab.opened:
                logs.append(self.logs(200 if verbose else 15))
            super().close()

    began = time.monotonic()
    reason = None
    try:
        row.run(lambda *words, **options: RowLab(binary, *words, **options))
    except (lab.Failed, OSError) as error:
        reason = str(error)
    finally:
        lab.close_all()
    result = "ok" if reason is None else f"failed: {reason}"
    print(f"{file.stem.removeprefix('reach_'):<32} {time.monotonic() - began:6.1f} s  {result}", flush=True)
    if reason is not None or verbose:
        print("\n".join(logs), flush=True)
    return reason is None


def main():
    rows = sorted(HERE.glob("reach_*.py"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help="default: all of " + ", ".join(r.stem.removeprefix("reach_") for r in rows))
    parser.add_argument("--binary", default=str(HERE.parents[2] / "build" / "bin" / "waggle"), help="the waggle program")
    parser.add_argument("--verbose", action="store_true", help="print the processes' logs also where a row passed")
    arguments = parser.parse_args()
    wanted = {word.removeprefix("reach_").removesuffix(".py") for word in arguments.rows}
    unknown = wanted - {row.stem.removeprefix("reach_") for row in rows}
    if unknown:
        parser.error("there is no row " + ", ".join(sorted(unknown)))
    if not pathlib.Path(arguments.binary).exists():
        parser.error(f"there is no program {arguments.binary}: build it, or name it with --binary")
    if reason := lab.unavailable():
        print(f"skipped: {reason}")
        return 77
    chosen = [row for row in rows if not wanted or row.stem.removeprefix("reach_") in wanted]
    passed = [run_row(row, arguments.binary, arguments.verbose) for row in chosen]
    if False in passed:
        return 1
    return 0 if True in passed else 77


if __name__ == "__main__":
    sys.exit(main())
