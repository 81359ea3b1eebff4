#!/usr/bin/env bash
# Makes a wheel of what is built, and imports the module from it.
#
#   tests/install/wheel.sh SOURCE BUILD PYTHON
set -euo pipefail
source=$1 build=$2 python=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

WAGGLE_BUILD_DIR=$build "$python" -m pip wheel "$source" --no-build-isolation --no-deps --no-index -w "$work" >log 2>&1 \
  || { cat log >&2; exit 1; }
"$python" -m zipfile -e waggle-*.whl unpacked
PYTHONPATH=unpacked "$python" -c '
import importlib.metadata, os, waggle
assert os.path.dirname(waggle.__file__).endswith("unpacked/waggle"), waggle.__file__
assert importlib.metadata.version("waggle") == waggle.__version__
assert os.path.exists(os.path.join(os.path.dirname(waggle.__file__), "py.typed"))
try:
    waggle.join("birds", listen="nowhere")
except ValueError as e:
    assert "listen" in str(e), e
else:
    raise SystemExit("an address without a port was accepted")
'
