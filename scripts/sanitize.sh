#!/usr/bin/env bash
# Builds everything but trainer/ with sanitizers and runs the tests that stay in one process.
#
#   scripts/sanitize.sh              address,undefined in build-asan/, then thread in build-tsan/
#   scripts/sanitize.sh asan [-R …]  one of the two; further arguments go to ctest
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
scripts/setup.sh --no-trainer --deps-only

one() { # NAME SANITIZERS [ctest arguments]
  local folder=build-$1 sanitizers=$2
  shift 2
  printf '\n== %s: %s\n' "$folder" "$sanitizers" >&2
  [ -f "$folder/build.ninja" ] \
    || cmake -S . -B "$folder" -G Ninja -DWAGGLE_TRAINER=OFF -DWAGGLE_SANITIZE="$sanitizers"
  ninja -C "$folder"
  # Live tests need the program with LibTorch, which is not instrumented.
  ctest --test-dir "$folder" --parallel 2 --output-on-failure --label-exclude 'live|bench' "$@"
}

export UBSAN_OPTIONS=print_stacktrace=1
which=${1:-both}
[ $# -gt 0 ] && shift
case "$which" in
  asan) one asan address,undefined "$@" ;;
  tsan) one tsan thread "$@" ;;
  both) one asan address,undefined "$@"; one tsan thread "$@" ;;
  *) echo "sanitize.sh: asan or tsan, not $which" >&2; exit 2 ;;
esac
