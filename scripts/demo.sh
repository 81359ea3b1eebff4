#!/usr/bin/env bash
# Installs missing packages, builds the program, and lets four peers on this machine train a small
# model on the licence texts of Debian. One peer is killed and another one joins. Ctrl-C stops it.
#
#   scripts/demo.sh                           2½ minutes, a kill after 40 s, a new peer after 60 s
#   scripts/demo.sh --peers 6 --epochs 40     arguments go to `waggle swarm` and override the demo's
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

default() { # NAME VALUE: adds the option unless it was given
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
