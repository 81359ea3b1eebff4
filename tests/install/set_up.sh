#!/usr/bin/env bash
# Which packages scripts/setup.sh wants, what it configures and what it builds. dpkg-query, cmake and ninja are programs
# that only write down how they were called.
#
#   tests/install/set_up.sh SOURCE
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=$work/bin:$PATH WORK=$work
mkdir "$work/bin" "$work/build"
cat >"$work/bin/dpkg-query" <<'END'
#!/bin/sh
echo "${*##* }" >>"$WORK/calls"
echo installed
END
cat >"$work/bin/cmake" <<'END'
#!/bin/sh
echo "cmake $*" >>"$WORK/calls"
for each; do echo "$each" | sed -n 's/^-D\([A-Z_]*\)=/\1:BOOL=/p'; done >"$WORK/build/CMakeCache.txt"
touch "$WORK/build/build.ninja"
END
cat >"$work/bin/ninja" <<'END'
#!/bin/sh
echo "ninja $*" >>"$WORK/calls"
END
chmod +x "$work"/bin/*

fail() { cat "$work/calls" >&2; echo "FAILED: $*" >&2; exit 1; }
set_up() { : >"$work/calls"; "$source/scripts/setup.sh" --build "$work/build" "$@" 2>"$work/log" || fail "$(cat "$work/log")"; }
does() { grep -qE -- "$1" "$work/calls" || fail "it does not: $1"; }
does_not() { ! grep -qE -- "$1" "$work/calls" || fail "it does: $1"; }

# The module alone: no LibTorch, no tests, no program.
set_up --python
does 'pybind11-dev$'
does 'python3-torch$'
does 'libcaf-dev$'
does_not 'libtorch-dev$|libgtest-dev$|chromium$'
does 'cmake .*-DWAGGLE_TRAINER=OFF -DWAGGLE_TESTS=OFF -DWAGGLE_PYTHON=ON'
does 'ninja .* waggle_python$'

# Then the program: the module stays configured, and is not built.
set_up --program
does 'libtorch-dev$'
does_not 'pybind11-dev$|libgtest-dev$'
does 'cmake .*-DWAGGLE_TRAINER=ON -DWAGGLE_TESTS=OFF -DWAGGLE_PYTHON=ON'
does 'ninja .* waggle$'

# The module again: nothing is configured anew.
set_up --python
does_not "^cmake -S"
does 'ninja .* waggle_python$'

# What scripts/wheel.sh needs: pip brings pybind11.
set_up --no-trainer --program --deps-only
does 'libcaf-dev$'
does_not 'libtorch-dev$|pybind11-dev$|libgtest-dev$|^cmake -S'

# Everything, and then one of them in the same folder.
set_up
does 'libgtest-dev$'
does 'cmake .*-DWAGGLE_TRAINER=ON -DWAGGLE_TESTS=ON -DWAGGLE_PYTHON=ON'
does 'ninja .* all$'
set_up --program
does_not "^cmake -S"
set_up --python
does_not "^cmake -S"
set_up --no-trainer
does 'cmake .*-DWAGGLE_TRAINER=OFF -DWAGGLE_TESTS=ON -DWAGGLE_PYTHON=OFF'

# Another LibTorch than Debian's, for the program, and for what tests it.
mkdir -p "$work/torch/share/cmake/Torch"
touch "$work/torch/share/cmake/Torch/TorchConfig.cmake"
set_up --program --libtorch "$work/torch"
does_not 'libtorch-dev$'
does "cmake .*-DWAGGLE_TRAINER=ON .*-DTorch_DIR=$work/torch/share/cmake/Torch"
does 'ninja .* waggle$'
set_up --libtorch "$work/torch"
does 'cmake .*-DWAGGLE_TESTS=ON'
does 'ninja .* trainer_test processes_loops_test'
! "$source/scripts/setup.sh" --libtorch "$work" 2>"$work/log" || fail "it takes a folder without LibTorch"
grep -q "there is no LibTorch in $work" "$work/log"
