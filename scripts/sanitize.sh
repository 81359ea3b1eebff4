#!/usr/bin/env bash
# Builds everything except trainer/ with sanitizers and runs the tests that use one process.
#
#   scripts/sanitize.sh              address,undefined in build-asan/, then thread in build-tsan/
#   scripts/sanitize.sh asan [-R …]  only one of the two; further arguments go to ctest
#   WAGGLE_TEST_SEEDS=10 scripts/…   all ten seeds of the swarm simulations (default: three)
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
scripts/setup.sh --no-trainer --deps-only

one() { # NAME SANITIZERS LEFT_OUT [ctest arguments]
  local folder=build-$1 sanitizers=$2 left_out=$3
  shift 3
  printf '\n== %s: %s\n' "$folder" "$sanitizers" >&2
  [ -f "$folder/build.ninja" ] \
    || cmake -S . -B "$folder" -G Ninja -DWAGGLE_TRAINER=OFF -DWAGGLE_PYTHON=OFF \
      -DWAGGLE_SANITIZE="$sanitizers"
  ninja -C "$folder"
  ctest --test-dir "$folder" --parallel 2 --output-on-failure --label-exclude "$left_out" "$@"
}

# Live tests need the program with LibTorch, which is not instrumented.
asan() { one asan address,undefined 'live|bench' "$@"; }
# Debian's libcaf is not instrumented either. Actors on several threads exchange messages through its
# mailboxes, whose atomics the thread sanitizer does not see, so each message looks like a race. The
# remaining tests do not use CAF or run all actors on one thread; tests/runtime/{net,allreduce} cover
# the threads that a peer has besides its actors.
tsan() { one tsan thread 'live|bench|program|install' "$@"; }

export UBSAN_OPTIONS=print_stacktrace=1
# Each shard of the swarm simulations has ten seeds; with sanitizers, one takes some ten seconds.
export WAGGLE_TEST_SEEDS=${WAGGLE_TEST_SEEDS:-3}
which=${1:-both}
[ $# -gt 0 ] && shift
case "$which" in
  asan) asan "$@" ;;
  tsan) tsan "$@" ;;
  both) asan "$@"; tsan "$@" ;;
  *) echo "sanitize.sh: expected asan or tsan, not $which" >&2; exit 2 ;;
esac
