#!/usr/bin/env bash
# Makes a wheel from the source archive, and uses it as its users do: what it contains and exports, two peers of it, the
# command `waggle`, an editable installation. Needs PyPI; without a network it is skipped.
#
#   tests/install/wheel.sh SOURCE PYTHON
set -euo pipefail
source=$1 python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
quietly() { # LOG COMMAND…
  local log=$1
  shift
  "$@" >"$log" 2>&1 && return
  cat "$log" >&2
  if grep -q -e 'Failed to establish a new connection' -e 'name resolution' "$log"; then
    echo "SKIPPED: there is no network to PyPI" >&2
    exit 77
  fi
  fail "$*"
}
refused() { # TEXT COMMAND…: exits with 2 and one line that has the text
  local text=$1 code=0
  shift
  "$@" >refused.log 2>&1 || code=$?
  [ "$code" = 2 ] && [ "$(wc -l <refused.log)" = 1 ] && grep -qF -- "$text" refused.log \
    || { cat refused.log >&2; fail "$* exits with $code and does not say: $text"; }
}

# The source archive has all that the build needs.
"$python" -m venv backend
quietly backend.log backend/bin/pip install "$(sed -n 's/^requires = \["\([^"]*\)".*/\1/p' "$source/pyproject.toml")"
(cd "$source" && "$work/backend/bin/python" -c "from scikit_build_core.build import build_sdist; build_sdist('$work')") >sdist.log
tar xf waggle-*.tar.gz
rm waggle-*.tar.gz
cd waggle-*
[ ! -e docker ] && [ ! -e tests/install ] || fail "the source archive has more than the build needs"
quietly ../wheel.log scripts/wheel.sh "$python"
tools=$PWD/build-wheel/tools/$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
wheel=$(echo "$PWD"/dist/waggle-*-manylinux_2_35_*.whl)
[ "$(stat -c %s "$wheel")" -le 15000000 ] || fail "the wheel has more than 15 MB"
"$python" -m zipfile -e "$wheel" ../unpacked
exported=$(nm -D --defined-only ../unpacked/waggle/_waggle.*.so | sed 's/^[0-9a-f]* //')
[ "$exported" = "T PyInit__waggle" ] || fail "the extension exports: $exported"
grep -qx "License: None is stated.*" ../unpacked/waggle-*.dist-info/METADATA || fail "the metadata say nothing of a licence"
refused "the interpreter 3.8 " scripts/wheel.sh 3.8
refused "name a Python from 3.9 to 3.13" scripts/wheel.sh /nowhere/python3
refused "the interpreter /bin/false does not run" scripts/wheel.sh /bin/false

# Two peers of it, with the torch of the interpreter.
cd "$work"
"$python" -m venv --system-site-packages user
quietly install.log user/bin/pip install --no-index --no-deps "$wheel"
export OMP_NUM_THREADS=1
unset PYTHONPATH
waggle=$work/user/bin/waggle
launch() { # NAME [OPTION…]
  local name=$1
  shift
  touch "$name.log"
  user/bin/python -m waggle --run-id wheel --listen 127.0.0.1:0 --data-dir "$work/$name" --target-batch-size 64 --epochs 20 \
    --min-peers 2 "$@" "$source/examples/plain.py" --steps 1000 >"$name.log" 2>&1 &
}
launch first
first=$!
address=$(sed -n "/.*is a peer of 'wheel' at /{s///;s/;.*//p;q}" < <(tail -n +1 -f --pid $first first.log))
[ -n "$address" ] || { cat first.log >&2; fail "the first peer did not start"; }
"$waggle" status "$address" >status.log || fail "waggle status $address"
grep -q "$address" status.log || { cat status.log >&2; fail "the status does not show $address"; }
launch second --initial-peers "$address"
wait $first && wait $! || { cat first.log second.log >&2; fail "a peer failed"; }
digests=$(sed -n 's/.*parameters \([0-9a-f]\{64\}\).*/\1/p' first.log second.log | uniq -c)
[[ "$digests" =~ ^\ *2\ [0-9a-f]*$ ]] || { cat first.log second.log >&2; fail "two peers end with: $digests"; }
refused "\`waggle train\` needs LibTorch" "$waggle" train

# The installation of somebody who changes the module: its files are those of the sources.
quietly editable.log env PATH="$tools/bin:$PATH" "$tools/bin/python" -m pip install --no-deps --no-build-isolation -e waggle-*/
[ "$("$tools/bin/python" -c 'import waggle; print(waggle.__file__)')" = "$(echo "$work"/waggle-*/trainer/python/waggle/__init__.py)" ] \
  || fail "an editable installation has files of its own"
"$tools/bin/waggle" --version
