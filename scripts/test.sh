#!/usr/bin/env bash
# Installs missing packages, builds everything and runs the tests. Arguments go to ctest: -LE live.
# tests/python runs with today's PyTorch and frameworks (tests/python/frameworks.txt, installed in build/frameworks), and what depends
# on the version with Debian's, too; all of it with Debian's if the first argument is --no-frameworks or there is no network. If it is
# --libtorch2, only the tests that use LibTorch run, with today's instead of Debian's, in build-libtorch2.
set -euo pipefail
cd "$(dirname "$0")/.."
libtorch2=no
say() { printf '\n== %s\n' "$*" >&2; }

frameworks() {
  local wanted=tests/python/frameworks.txt venv=build/frameworks
  cmp -s "$wanted" "$venv/installed" && return
  say "installing $wanted in $venv"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  if ! "$venv/bin/pip" install -q --retries 1 "$(grep pytest "$wanted")"; then
    say "no network: tests/python runs with Debian's PyTorch only"
    return
  fi
  "$venv/bin/pip" install -q -r "$wanted"
  cp "$wanted" "$venv/installed"
}

case "${1:-}" in
  -h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
  --no-frameworks) shift; export WAGGLE_FRAMEWORKS=no ;;
  --libtorch2) shift; libtorch2=yes ;;
esac
scripts/setup.sh --deps-only
if [ "$libtorch2" = yes ]; then
  frameworks
  [ -e build/frameworks/installed ] || { echo "test.sh: LibTorch 2 was not tested" >&2; exit 1; }
  scripts/setup.sh --build build-libtorch2 --libtorch build/frameworks/lib/python3.*/site-packages/torch
  [ $# -gt 0 ] || set -- --no-tests=error
  failed=0
  for folder in trainer processes/loops processes/modes processes/slices; do
    say "testing $folder"
    ctest --test-dir build-libtorch2/tests/$folder --parallel $((3 * $(nproc))) --output-on-failure "$@" || failed=$?
  done
  exit "$failed"
fi
installing=
if [ "${WAGGLE_FRAMEWORKS:-}" != no ]; then
  frameworks & # while the rest builds
  installing=$!
  trap 'kill "$installing" 2>/dev/null || true' EXIT
fi
scripts/setup.sh
[ -z "$installing" ] || wait "$installing"
say testing
failed=0
# In thirds of a processor: see waggle_test.
ctest --test-dir build --parallel $((3 * $(nproc))) --output-on-failure --no-tests=error "$@" || failed=$?
costs=build/Testing/Temporary/CTestCostData.txt
if [ -f "$costs" ]; then
  say "the slowest tests, in seconds (means of the runs in this tree)"
  sed '/^---/,$d' "$costs" | awk '{printf "%8.1f %s\n", $3, $1}' | sort -rn | sed -n 1,10p >&2
fi
# Last, because whoever reads a log of hours begins at its end.
log=build/Testing/Temporary/LastTest.log
[ "$failed" = 0 ] || cut -d: -f2- build/Testing/Temporary/LastTestsFailed.log | head -5 | while read -r name; do
  say "how $name ended"
  text=$(awk -v name="$name" '/ Testing: / {ours = $NF == name} ours' "$log" | grep -v '^$')
  { grep -A 16 -m 3 -E ': Failure$|^E  |^==+ .*FAIL' <<< "$text" || true; echo ...; tail -16 <<< "$text"; } >&2
done
exit "$failed"
