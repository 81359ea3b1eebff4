"""The command `waggle` of a wheel: the program that lies beside the extension."""

import os
import pathlib
import sys
from typing import NoReturn

from . import _waggle


def main() -> NoReturn:
    program = pathlib.Path(_waggle.__file__).with_name("waggle")
    os.execv(program, ["waggle", *sys.argv[1:]])
