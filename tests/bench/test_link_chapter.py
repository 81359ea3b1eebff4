#!/usr/bin/env python3
"""Runs the commands of docs/links.md: each block of sh that calls `waggle plan` prints what the block behind it shows."""

import argparse
import os
import pathlib
import re
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--binary", required=True, help="the program waggle")
arguments = parser.parse_args()

chapter = pathlib.Path(__file__).parents[2] / "docs" / "links.md"
blocks = re.findall(r"```sh\n(.*?)```\n\n```\n(.*?)```", chapter.read_text(), re.DOTALL)
if not blocks:
    sys.exit(f"{chapter} has no commands")
folder = os.path.dirname(os.path.abspath(arguments.binary))
environment = {**os.environ, "PATH": folder + os.pathsep + os.environ["PATH"]}
for commands, shown in blocks:
    ran = subprocess.run(["bash", "-ec", commands], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0 or ran.stdout != shown:
        sys.exit(f"{chapter.name}: this command\n{commands}prints\n{ran.stdout}{ran.stderr}and the chapter shows\n{shown}")
print(f"{len(blocks)} blocks of commands print what {chapter.name} shows")
