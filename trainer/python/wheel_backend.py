"""Builds the wheel of the module `waggle` by CMake (PEP 517), for the interpreter that runs pip.

WAGGLE_BUILD_DIR: a build folder in which it is built already; otherwise it is built in build/wheel."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(waggle VERSION ([0-9.]+)", text)[1]


def _run(*command):
    # pip reads standard output.
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


def _built(folder):
    """Builds the extension, and returns the files of the package by their names in the wheel."""
    build = os.environ.get("WAGGLE_BUILD_DIR")
    if build is None:
        build = ROOT / "build" / "wheel"
        _run("cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DWAGGLE_TESTS=OFF",
             "-DWAGGLE_TRAINER=OFF", "-DWAGGLE_PYTHON=ON", f"-DWAGGLE_PYTHON_EXECUTABLE={sys.executable}")
        _run("cmake", "--build", build, "--target", "waggle_python", "--parallel", os.cpu_count() or 1)
    _run("cmake", "--install", build, "--component", "python", "--strip", "--prefix", folder)
    package = next(Path(folder).rglob("_waggle.pyi")).parent
    return {f"waggle/{file.relative_to(package)}": file.read_bytes() for file in package.rglob("*") if file.is_file()}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    name, tag = f"waggle-{_version()}", f"{python}-{python}-{platform}"
    with tempfile.TemporaryDirectory() as folder:
        files = _built(folder)
    if not any(file.endswith(sysconfig.get_config_var("EXT_SUFFIX")) for file in files):
        raise SystemExit(f"{os.environ.get('WAGGLE_BUILD_DIR')} is configured for another interpreter than {sys.executable}")
    info = f"{name}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: waggle\nVersion: {_version()}\nSummary: Decentralized training with actors\n"
        f"Requires-Python: ==3.{sys.version_info.minor}.*\n").encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: waggle\nRoot-Is-Purelib: false\nTag: {tag}\n").encode()
    record = "".join(
        f"{file},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for file, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(Path(wheel_directory) / f"{name}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, data in files.items():
            wheel.writestr(file, data)
    return f"{name}-{tag}.whl"
