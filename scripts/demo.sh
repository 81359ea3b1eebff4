#!/usr/bin/env bash
# Sets everything up, then lets four peers on this machine train one small model together on the
# licence texts of Debian. One peer is killed on the way, another joins. Ctrl-C ends it at any time.
#
#   scripts/demo.sh                           2½ minutes, a kill after 40 s, a newcomer after 60 s
#   scripts/demo.sh --peers 6 --epochs 40     arguments go to `waggle swarm` and win over the demo's own
#   scripts/demo.sh --duration 30s --kill-after 10s --join-after 15s
set -euo pipefail
cd "$(dirname "$0")/.."

arguments=("$@")
for given in ${arguments[@]+"${arguments[@]}"}; do
  case "$given" in -h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    [ ! -x build/bin/waggle ] || { echo; build/bin/waggle swarm --help; }
    exit 0 ;;
  esac
done
scripts/setup.sh --program

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
