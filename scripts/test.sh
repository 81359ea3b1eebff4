#!/usr/bin/env bash
# Sets everything up and runs the tests. Arguments go to ctest, e.g. -R Averag or -LE live.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
printf '\n== testing\n' >&2
exec ctest --test-dir build --parallel 2 --output-on-failure --no-tests=error "$@"
