#!/usr/bin/env bash
# Sets everything up, then lets four peers on this machine train one small model together on the
# licence texts of Debian. One peer is killed on the way, another joins. Ctrl-C ends it at any time.
#
# Arguments go to `waggle swarm` and win over the ones below, e.g. scripts/demo.sh --peers 6 --epochs 40
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --program

arguments=("$@")
default() { # NAME VALUE: unless given
  local given
  for given in ${arguments[@]+"${arguments[@]}"}; do
    case "$given" in "--$1" | "--$1="*) return ;; esac
  done
  chosen+=("--$1" "$2")
}
chosen=()
default peers 4
default kill-after 40s
default join-after 60s
default duration 150s
default data /usr/share/common-licenses
default model char-gpt
default target-batch-size 256
default device cpu
exec build/bin/waggle swarm "${chosen[@]}" ${arguments[@]+"${arguments[@]}"}
