#!/usr/bin/env bash
# Builds everything but trainer/ with sanitizers and runs the tests that stay in one process.
#
#   scripts/sanitize.sh              address,undefined in build-asan/, then thread in build-tsan/
#   scripts/sanitize.sh asan [-R …]  one of the two; further arguments go to ctest
#   WAGGLE_TEST_SEEDS=10 scripts/…   every seed of the swarm simulations (three of ten otherwise)
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
scripts/setup.sh --no-trainer --deps-only

one() { # NAME SANITIZERS LEFT_OUT [ctest arguments]
  local folder=build-$1 sanitizers=$2 left_out=$3
  shift 3
  printf '\n== %s: %s\n' "$folder" "$sanitizers" >&2
  [ -f "$folder/build.ninja" ] \
    || cmake -S . -B "$folder" -G Ninja -DWAGGLE_TRAINER=OFF -DWAGGLE_SANITIZE="$sanitizers"
  ninja -C "$folder"
  ctest --test-dir "$folder" --parallel 2 --output-on-failure --label-exclude "$left_out" "$@"
}

# Live tests need the program with LibTorch, which is not instrumented.
asan() { one asan address,undefined 'live|bench' "$@"; }
# Neither is Debian's libcaf. Actors on several threads hand messages over through its mailboxes,
# whose atomics the thread sanitizer does not see, and each message looks like a race. What is left
# has no CAF inside, or runs all actors on one thread; tests/runtime/{net,allreduce} have the
# threads that a peer has beside its actors.
tsan() { one tsan thread 'live|bench|program' "$@"; }

export UBSAN_OPTIONS=print_stacktrace=1
# Of the ten seeds that each shard of the swarm simulations has: one takes some ten seconds here.
export WAGGLE_TEST_SEEDS=${WAGGLE_TEST_SEEDS:-3}
which=${1:-both}
[ $# -gt 0 ] && shift
case "$which" in
  asan) asan "$@" ;;
  tsan) tsan "$@" ;;
  both) asan "$@"; tsan "$@" ;;
  *) echo "sanitize.sh: asan or tsan, not $which" >&2; exit 2 ;;
esac
