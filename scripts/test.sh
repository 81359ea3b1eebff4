#!/usr/bin/env bash
# Installs missing packages, builds everything and runs the tests. Arguments go to ctest: -LE live.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2s/^# //p' "$0"; exit 0 ;; esac
scripts/setup.sh
printf '\n== testing\n' >&2
# In thirds of a processor: see waggle_test.
exec ctest --test-dir build --parallel $((3 * $(nproc))) --output-on-failure --no-tests=error "$@"
