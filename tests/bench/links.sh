#!/bin/bash
# All-reduce over emulated links: each peer has its own network namespace and its own shaped link.
#
#   tests/bench/links.sh [grid]        rates x round trips x losses x sizes; prints optimum / median
#   tests/bench/links.sh slow-peer     the last of the peers has a quarter of the bandwidth
#   tests/bench/links.sh control       round trip of a control frame while bulk data fills the link
#   tests/bench/links.sh tls           encrypted links beside plain ones, in pairs; needs socat for one row
#   tests/bench/links.sh shell         only sets up the namespaces and opens a shell in which to use them
#
# Needs root, iproute2, and a build with the benchmarks in BUILD (default: build).
# Environment variables select what is measured; lists are separated by blanks:
#   RATES="100mbit 1gbit"  RTTS="0 20" (ms)  LOSSES="0 0.005"  SIZES="65536 4194304 67108864"
#   CONGESTION="auto" (also: cubic, bbr, reno)  PEERS=4  ROUNDS=5  WARMUP=5  QUEUE_MS=50
#   PAIRS=5  ROWS="100mbit:20:65536 …" (of tls; also: control throughput dial memory)
# and all variables that allreduce_driver reads (BENCH_CODEC, ...).
#
# The optimum of a butterfly all-reduce is the time in which the link carries (V + (n-2) s) bytes each
# way, for a peer that reduces s bytes of the vector of V bytes, in packets of 1514 bytes with 1448
# bytes of payload, plus one delay each way. "share" is optimum / median.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${BUILD:-build}
peers=${PEERS:-4}
declare -a spaces=()
folder=$(mktemp -d)

say() { echo "links.sh: $*" >&2; }

lower() { # kills all processes in the namespaces and deletes the namespaces
  local space
  for space in "${spaces[@]}"; do
    ip netns pids "$space" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "$space" 2>/dev/null || true
  done
  spaces=()
  wait
}
trap 'lower; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP

router=wgl$$r
space() { echo "wgl$$p$1"; }
in_space() { local i=$1; shift; ip netns exec "$(space "$i")" "$@"; }

shape() { # NAMESPACE DEVICE RATE
  [ "$3" != none ] || return 0
  # At high rates the kernel sends large segmentation-offload packets, which must fit into the burst.
  local burst=16k
  case $3 in *gbit) burst=128k ;; esac
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$3" burst $burst latency "${QUEUE_MS:-50}ms"
}

raise() { # RATE RTT_MS LOSS [RATE_OF_THE_LAST]
  local i rate
  lower
  spaces+=("$router")
  ip netns add "$router"
  # What packet_delay hands back comes from another device than its sender's.
  ip netns exec "$router" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
  ip netns exec "$router" ip link set lo up
  for ((i = 0; i < peers; i++)); do
    rate=$1
    [ "$i" -lt $((peers - 1)) ] || rate=${4:-$1}
    spaces+=("$(space "$i")")
    ip netns add "$(space "$i")"
    ip link add "v$i" netns "$router" type veth peer name eth0 netns "$(space "$i")"
    ip netns exec "$router" ip addr add "10.77.$i.1/24" dev "v$i"
    ip netns exec "$router" ip link set "v$i" up
    in_space "$i" ip link set lo up
    in_space "$i" ip addr add "10.77.$i.2/24" dev eth0
    in_space "$i" ip link set eth0 up
    in_space "$i" ip route add default via "10.77.$i.1"
    shape "$(space "$i")" eth0 "$rate"
    shape "$router" "v$i" "$rate"
  done
  if [ "$2" != 0 ] || [ "$3" != 0 ]; then
    ip netns exec "$router" "$build/bin/packet_delay" delay "$(awk "BEGIN {print int($2 * 500)}")" "$3" &
    disown
    for ((i = 0; i < 100; i++)); do
      ip netns exec "$router" ip route add default dev delay table 71 2>/dev/null && break
      sleep 0.05
    done
    [ "$i" -lt 100 ] || { say "packet_delay did not start"; exit 1; }
    for ((i = 0; i < peers; i++)); do ip netns exec "$router" ip rule add iif "v$i" lookup 71; done
  fi
}

bits() { # 100mbit -> 100000000
  case $1 in
    *gbit) echo "${1%gbit}000000000" ;;
    *mbit) echo "${1%mbit}000000" ;;
    *kbit) echo "${1%kbit}000" ;;
    *) say "a rate must have the form 100mbit"; exit 2 ;;
  esac
}

# Starts a rank in each namespace and prints the seconds of each timed iteration of the slowest rank.
rounds() { # BYTES WARMUP ROUNDS
  local i dir running=() failed=0
  dir=$(mktemp -d -p "$folder")
  for ((i = 0; i < peers; i++)); do
    BENCH_ADDR=10.77.$i.2 in_space "$i" timeout "${LIMIT:-120}" "$build/bin/allreduce_driver" \
      "$i" "$peers" "$1" "$2" "$3" "$dir" 2>"$dir/log$i" &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || failed=1; done
  if [ $failed = 1 ]; then
    cat "$dir"/log* >&2
    return 1
  fi
  for ((i = 0; i < peers; i++)); do grep '^t ' "$dir/$i" | awk '{printf "%d %.9f\n", NR, $3 - $2}'; done |
    awk '{if ($2 > t[$1]) t[$1] = $2; if ($1 > n) n = $1} END {for (i = 1; i <= n; i++) print t[i]}'
}

quantile() { # Q, numbers on standard input
  sort -g | awk -v q="$1" '{x[NR] = $1} END {i = int(q * (NR - 1) + 1.5); print x[i]}'
}

optimum() { # BYTES RATE RTT_MS SHARE_REDUCED
  awk -v v="$1" -v r="$(bits "$2")" -v ms="$3" -v s="$4" -v n="$peers" \
    'BEGIN {print (v + (n - 2) * s * v) * 8 / (r * 1448 / 1514) + ms / 1000}'
}

grid() {
  printf '%-10s %-8s %6s %6s %10s %10s %10s %10s %6s\n' congestion rate rtt loss bytes optimum_ms median_ms p75_ms share
  local rate rtt loss cc size times best median
  for rate in ${RATES:-100mbit 1gbit}; do
    for rtt in ${RTTS:-0 20}; do
      for loss in ${LOSSES:-0 0.005}; do
        raise "$rate" "$rtt" "$loss"
        for cc in ${CONGESTION:-auto}; do
          for size in ${SIZES:-65536 4194304 67108864}; do
            best=$(optimum "$size" "$rate" "$rtt" "$(awk "BEGIN {print 1 / $peers}")")
            if ! times=$(BENCH_CONGESTION=$cc rounds "$size" "${WARMUP:-5}" "${ROUNDS:-5}"); then
              printf '%-10s %-8s %6s %6s %10s %10.1f failed\n' "$cc" "$rate" "$rtt" "$loss" "$size" "${best}e3"
              continue
            fi
            median=$(quantile 0.5 <<<"$times")
            printf '%-10s %-8s %6s %6s %10s %10.1f %10.1f %10.1f %6.3f\n' "$cc" "$rate" "$rtt" "$loss" "$size" \
              "${best}e3" "${median}e3" "$(quantile 0.75 <<<"$times")e3" "$(awk "BEGIN {print $best / $median}")"
          done
        done
      done
    done
  done
}

slow_peer() {
  local rate slow rtt size times best late
  rate=${RATES:-100mbit}
  rtt=${RTTS:-20}
  size=${SIZES:-4194304}
  slow=$(($(bits "$rate") / 4000))kbit
  raise "$rate" "$rtt" "${LOSSES:-0}" "$slow"
  # In the optimum the slow peer reduces nothing, so its link carries only its own vector.
  best=$(optimum "$size" "$slow" "$rtt" 0)
  times=$(rounds "$size" 0 "${ROUNDS:-12}")
  echo "optimum $best s; rounds:" $times
  late=$(tail -n +6 <<<"$times" | quantile 0.5)
  [ -n "$late" ] || return 0 # ROUNDS was smaller than 6
  echo "after 5 rounds: median $late s, $(awk "BEGIN {printf \"%.3f\", $late / $best}") of the optimum"
}

control() {
  local cc
  for cc in ${CONGESTION:-auto}; do
    raise "${RATES:-100mbit}" "${RTTS:-20}" "${LOSSES:-0}"
    ip netns exec "$(space 1)" "$build/bin/link_probe" listen 10.77.1.2:7711 &
    disown
    echo "congestion $cc:" "$(in_space 0 timeout 60 "$build/bin/link_probe" dial 10.77.1.2:7711 "${SECONDS_EACH:-8}" "$cc")"
  done
}

# Commands for both kinds of link, in alternation; the lines that they print begin with the kind.
in_pairs() { # COMMAND…
  local pair
  for ((pair = 0; pair < ${PAIRS:-5}; pair++)); do
    BENCH_ENCRYPT=never "$@" | sed 's/^/plain /'
    BENCH_ENCRYPT=default "$@" | sed 's/^/tls /'
  done
}

# Lines "plain NUMBER" and "tls NUMBER": their medians, and the first by the second.
beside() { # NAME
  local all plain tls
  all=$(cat)
  plain=$(awk '$1 == "plain" {print $2}' <<<"$all" | quantile 0.5)
  tls=$(awk '$1 == "tls" {print $2}' <<<"$all" | quantile 0.5)
  printf '%-34s plain %10.4g  tls %10.4g  plain/tls %.3f  (%d pairs)\n' "$1" "$plain" "$tls" \
    "$(awk "BEGIN {print $plain / $tls}")" "${PAIRS:-5}"
}

probe() { # WORDS… : link_probe between the first two namespaces
  local listener
  ip netns exec "$(space 1)" "$build/bin/link_probe" listen 10.77.1.2:7711 &
  listener=$!
  in_space 0 timeout 60 "$build/bin/link_probe" "$1" 10.77.1.2:7711 "${@:2}"
  kill "$listener"
  wait "$listener" 2>/dev/null || true
}
probe_control() { probe dial "${SECONDS_EACH:-8}" | sed -n 's/^full: median \([0-9.]*\) ms, 90% \([0-9.]*\),.*, \([0-9.e+]*\) Mbit.*/\1 \2 \3/p'; }
probe_dial() { probe dial 1 | sed -n 's/.*sent after \([0-9.]*\) ms.*back after \([0-9.]*\) ms/\1 \2/p'; }
probe_memory() { probe idle 64 | sed -n 's/.*heap \([0-9]*\) bytes, resident \([0-9]*\)/\1 \2/p'; }
column() { awk -v n="$1" '{print $1, $(n + 1)}'; } # N of in_pairs

socat_mbit() { # throughput of 2 GiB through socat with OpenSSL
  local pem=$folder/socat.pem began i
  if [ ! -e "$pem" ]; then
    openssl req -x509 -newkey ed25519 -nodes -subj /CN=x -days 9 -keyout "$pem" -out "$pem.crt" 2>/dev/null
    cat "$pem.crt" >>"$pem"
  fi
  in_space 1 socat -u -b 262144 "OPENSSL-LISTEN:7712,cert=$pem,verify=0,openssl-min-proto-version=TLS1.3" OPEN:/dev/null &
  for ((i = 0; i < 100; i++)); do in_space 1 ss -Htln sport = 7712 | grep -q . && break; sleep 0.05; done
  began=$(date +%s.%N)
  head -c 2G /dev/zero | in_space 0 socat -u -b 262144 - OPENSSL:10.77.1.2:7712,verify=0
  wait $!
  awk "BEGIN {print 2 * 8 * 1073.741824 / ($(date +%s.%N) - $began)}"
}

two_of() { # PROBE LABEL LABEL: the two first numbers that it prints
  local all
  all=$(in_pairs "$1")
  column 1 <<<"$all" | beside "$2"
  column 2 <<<"$all" | beside "$3"
}

tls() {
  local row rate rtt size
  for row in ${ROWS:-100mbit:20:65536 100mbit:20:4194304 1gbit:2:67108864 control throughput dial memory}; do
    case $row in
      control)
        raise 100mbit 20 0
        two_of probe_control "control, 100mbit 20 ms: median ms" "  90 %, ms"
        ;;
      throughput)
        raise none 0 0
        in_pairs probe_control | column 3 | beside "unshaped link, Mbit/s"
        for ((i = 0; i < ${PAIRS:-5}; i++)); do socat_mbit; done | quantile 0.5 | sed 's/^/  socat with OpenSSL, Mbit\/s: /'
        ;;
      dial)
        raise none 100 0
        two_of probe_dial "dial at 100 ms, until sent, ms" "  until the first one is back, ms"
        ;;
      memory)
        raise none 0 0
        two_of probe_memory "64 idle links, heap bytes" "  resident bytes"
        ;;
      *)
        IFS=: read -r rate rtt size <<<"$row"
        raise "$rate" "$rtt" 0
        in_pairs rounds "$size" "${WARMUP:-5}" "${ROUNDS:-5}" | beside "$rate, $rtt ms, $size: s"
        ;;
    esac
  done
}

case ${1:-grid} in
  grid) grid ;;
  slow-peer) slow_peer ;;
  control) control ;;
  tls) tls ;;
  shell) raise "${RATES:-100mbit}" "${RTTS:-20}" "${LOSSES:-0}"; say "namespaces: ${spaces[*]}"; bash -i ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
