"""Starts processes for support.py by forks, because importing torch takes longer than most of what they do. Each line of standard
input asks for something, as JSON: a process with a command, a log, a folder and an environment, whose id is the answer, or to
wait for one, which answers with its exit code."""

import json
import os
import runpy
import signal
import sys
import types

import torch  # noqa: F401
import waggle

waggle.Optimizer  # which imports what it needs


def served():
    """What a child is asked for; in this process, until the tests have ended, nothing."""
    children = set()
    while line := sys.stdin.readline():
        asked = json.loads(line)
        if isinstance(asked, dict):
            children.remove(asked["wait"])
            print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
        elif child := os.fork():
            children.add(child)
            print(child, flush=True)
        else:
            return asked
    for child in children:
        os.kill(child, signal.SIGKILL)
    sys.exit()


def enter(log, folder, environment, path):
    with open(os.devnull) as nothing, open(log, "ab") as out:
        os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in tests that a shell runs in the background
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[1:1] = path


def run(script, *arguments):
    """As python3 SCRIPT … or python3 -m MODULE … does."""
    if script == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = list(arguments)
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    sys.path[0], sys.argv = os.path.dirname(script), [script, *arguments]
    with open(script, encoding="utf-8") as text:
        code = compile(text.read(), script, "exec")
    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = script, __builtins__
    sys.modules["__main__"] = main
    exec(code, vars(main))


if __name__ == "__main__":
    wanted = served()
    enter(*wanted[1:])
    run(*wanted[0])
