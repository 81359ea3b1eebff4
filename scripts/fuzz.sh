#!/usr/bin/env bash
# Fuzzes all code that parses untrusted bytes, with clang, ASan and UBSan.
#
#   scripts/fuzz.sh            each target for 60 seconds
#   scripts/fuzz.sh 600        each target for 600 seconds
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
seconds=${1:-60}
scripts/setup.sh --deps-only
cmake -S . -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DWAGGLE_FUZZ=ON -DWAGGLE_TRAINER=OFF -DWAGGLE_PYTHON=OFF -DWAGGLE_SANITIZE=address,undefined
targets=(fuzz_wire fuzz_handshake fuzz_framing fuzz_upgrade fuzz_record fuzz_codec fuzz_progress
  fuzz_state fuzz_images fuzz_events fuzz_members fuzz_tls fuzz_run_file)
ninja -C build-fuzz "${targets[@]}" fuzz_corpus
build-fuzz/bin/fuzz_corpus build-fuzz/corpus
for target in "${targets[@]}"; do
  printf '\n== %s for %s s\n' "$target" "$seconds" >&2
  build-fuzz/bin/"$target" -max_total_time="$seconds" -print_final_stats=1 "build-fuzz/corpus/${target#fuzz_}"
done
