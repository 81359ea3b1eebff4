#!/usr/bin/env bash
# Checks the model of the averaging round (tests/model/averaging_round.pml) with Spin: searches for a
# schedule in which two members commit different results, or a member waits forever, also if a reducer
# sends different results to different members. The same for leaders that lie
# (tests/model/lying_leader.pml), without waiting. Then omits
# one rule of the protocol at a time: each omission must be found.
#
#   scripts/model.sh            up to five members, all omissions: up to 6 GB of memory and, on an
#                               otherwise idle core, about half an hour
#   scripts/model.sh --short    three members, all schedules with one crash or one wrong suspicion, with
#                               both for safety, and all omissions; a lie together with a wrong
#                               suspicion only without --short: 300 MB and less than a minute
#
# Prints a line for each search: the result, the number of states, the seconds and MB it took.
set -euo pipefail
cd "$(dirname "$0")/.."

short=no
case "${1:-}" in
  "") ;;
  --short) short=yes ;;
  -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "model.sh: there is no option $1 (see --help)" >&2; exit 2 ;;
esac
for tool in spin gcc; do
  command -v "$tool" >/dev/null || { echo "model.sh: needs $tool: run scripts/setup.sh" >&2; exit 1; }
done

model=$PWD/tests/model/averaging_round.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# search EXPECTED HOW SECONDS DEFINITIONS…
#   EXPECTED  holds: no error exists; found: the search finds an error
#   HOW       every: visits all states; most: visits as many as SECONDS and the memory allow, and
#             reports whether those were all; sample: uses one bit per state, for SECONDS
# -DREVERSE looks at the last choice first, which only changes how soon an error is found.
search() {
  local expected=$1 how=$2 seconds=$3
  shift 3
  local arguments=(-m200000) gcc_flags=(-O1 -DSAFETY -DNOREDUCE -DMEMLIM=6000 -DVECTORSZ=8192)
  [[ " $* " == *" -DSAFETY_ONLY "* ]] && arguments+=(-E)
  [[ " $* " == *" -DREVERSE "* ]] && gcc_flags+=(-DREVERSE)
  # Most searches for an error end before the compiler would have optimized them; one has 600 seconds.
  [ "$expected" = found ] && [ "$seconds" -le 300 ] && gcc_flags+=(-O0)
  if [ "$how" = sample ]; then
    gcc_flags+=(-DBITSTATE)
    arguments+=("-w$([ "$short" = yes ] && echo 28 || echo 30)")
  else
    gcc_flags+=(-DCOLLAPSE)
  fi
  rm -rf "$work/run" && mkdir "$work/run"
  (
    cd "$work/run"
    spin "$@" -a "$model" >spin.log 2>&1 || { cat spin.log >&2; exit 1; }
    gcc -w "${gcc_flags[@]}" -o pan pan.c
    # pan writes its summary when it is interrupted, too.
    timeout --signal=INT "$seconds" ./pan "${arguments[@]}" >pan.log 2>&1 || true
  )
  local log=$work/run/pan.log errors states depth took memory whole=all verdict=holds
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$log" | tail -1)
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$log" | tail -1)
  depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$log" | tail -1)
  took=$(sed -n 's/.*elapsed time \([0-9.e+]*\) sec.*/\1/p' "$log" | tail -1)
  memory=$(sed -n 's/^ *\([0-9.]*\)\ttotal actual memory usage.*/\1/p' "$log" | tail -1)
  # Any other reason for the search to stop is not a finding.
  if [ -z "$errors" ] || { [ "$errors" != 0 ] && ! grep -q "assertion violated\|invalid end state" "$log"; } || grep -q "max search depth too small\|memory limit\|block in d_step" "$log"; then
    # "block in d_step": a queue was full, so there is no result. -DQUEUE=… makes the queues longer.
    cat "$log" >&2
    bad=1
    return
  fi
  grep -q "Search not completed" "$log" && whole="not all"
  [ "$how" = sample ] && whole="sampled"
  [ "$errors" = 0 ] || verdict=found
  printf '%-6s %12s states (%s), depth %s, %s s, %s MB: %s\n' \
    "$verdict" "$states" "$whole" "$depth" "${took:-0}" "${memory:-?}" "$*"
  if [ "$verdict" != "$expected" ] || { [ "$how" = every ] && [ "$expected" = holds ] \
    && [ "$whole" != all ]; }; then
    echo "model.sh: expected: ${expected/found/an error is found}" >&2
    grep -m3 "^pan:" "$log" >&2 || true
    bad=1
  fi
}

# An idle machine needs far less time than the limits. A search ends as soon as it finds an error.
echo "== the protocol"
search holds every 1800 -DN=3 -DSAFETY_ONLY -DCRASHES=1 -DWRONG=1
search holds every 1800 -DN=3 -DLIAR -DCRASHES=0 -DWRONG=0
if [ "$short" = yes ]; then
  search holds every 1800 -DN=3 -DCRASHES=1 -DWRONG=0
  search holds every 1800 -DN=3 -DCRASHES=0 -DWRONG=1
  search holds every 1800 -DN=3 -DLIAR -DFORGES=1 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=0
else
  search holds every 1800 -DN=3 -DCRASHES=1 -DWRONG=1
  search holds every 1800 -DN=3 -DLIAR -DSAFETY_ONLY -DCRASHES=0 -DWRONG=1
  search holds every 1800 -DN=3 -DLIAR -DFORGES=2 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=0
  search holds every 1800 -DN=3 -DCRASHES=1 -DWRONG=0 -DGIVE_UPS=1
  search holds every 1800 -DN=3 -DCRASHES=0 -DWRONG=1 -DGIVE_UPS=1
  search holds most 600 -DN=4 -DCRASHES=1 -DWRONG=0
  search holds most 600 -DN=5 -DSAFETY_ONLY -DLATE -DCRASHES=2 -DWRONG=0
  search holds sample 40 -DN=3 -DSAFETY_ONLY -DCRASHES=1 -DWRONG=3
  search holds sample 40 -DN=3 -DCRASHES=1 -DWRONG=2
  search holds sample 40 -DN=4 -DSAFETY_ONLY -DCRASHES=2 -DWRONG=2
  search holds sample 40 -DN=4 -DCRASHES=1 -DWRONG=1
  search holds sample 40 -DN=4 -DLIAR -DCRASHES=0 -DWRONG=1
  search holds sample 40 -DN=5 -DLIAR -DSAFETY_ONLY -DCRASHES=1 -DWRONG=1
fi

model=$PWD/tests/model/lying_leader.pml
echo "== leaders that lie"
search holds every 1800 -DN=4 -DTERMS=1 -DSAFETY_ONLY
search holds sample "$([ "$short" = yes ] && echo 4 || echo 30)" -DN=4 -DTERMS=2 -DSAFETY_ONLY
if [ "$short" = no ]; then
  search holds sample 60 -DN=5 -DTERMS=2 -DSAFETY_ONLY
  search holds sample 60 -DN=4 -DTERMS=3 -DSAFETY_ONLY
fi

echo "== leaders that lie, with an omission"
search found sample 300 -DPLANT_MAJORITY -DN=4 -DSAFETY_ONLY
search found sample 300 -DPLANT_ONE_DENIES -DN=4 -DSAFETY_ONLY
search found sample 300 -DPLANT_SHOW_AGAIN -DN=4 -DSAFETY_ONLY

model=$PWD/tests/model/averaging_round.pml
echo "== the protocol with an omission"
search found sample 300 -DPLANT_NO_QUORUM -DN=3 -DSAFETY_ONLY -DCRASHES=1 -DWRONG=2
search found sample 300 -DPLANT_PREPARE_BELOW_PROMISE -DN=3 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=1
search found sample 300 -DPLANT_ACCEPT_BELOW_PROMISE -DN=3 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=2
search found sample 300 -DPLANT_ADOPT_NOTHING -DN=3 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=1
search found sample 300 -DPLANT_SHRINK_WITHOUT_PROMISES -DN=3 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=1
search found sample 300 -DPLANT_PASS_TERMS -DN=3 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=2
search found sample 300 -DPLANT_NEVER_YIELD -DN=3 -DCRASHES=0 -DWRONG=2
search found sample 600 -DPLANT_FORGET_KEPT -DN=3 -DSAFETY_ONLY -DCRASHES=1 -DWRONG=2
search found sample 300 -DREVERSE -DPLANT_WAIT_FOR_SUCCESSOR -DN=3 -DCRASHES=1 -DWRONG=1
search found sample 300 -DPLANT_COMPARE_NOTHING -DN=3 -DLIAR -DSAFETY_ONLY -DCRASHES=0 -DWRONG=0
search found sample 300 -DPLANT_BELIEVE_ANYBODY -DQUEUE=12 -DN=3 -DLIAR -DFORGES=2 -DSAFETY_ONLY -DCRASHES=0 -DWRONG=0
exit $bad
