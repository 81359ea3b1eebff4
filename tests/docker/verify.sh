#!/usr/bin/env bash
# Tries on one machine what docker/ and examples/slurm/ say, and prints a table of what it saw. Needs no Docker, no
# registry and no cluster; see docker/README.md for what that leaves unproved. As root, on Debian 12:
#   tests/docker/verify.sh --packages      installs what the tries need
#   tests/docker/verify.sh [NAME...]       images compose machines kubernetes slurm systemd (without names: all of these)
# slurm and systemd use the program build/bin/waggle, the others the images. Everything lies in one folder, by default a
# temporary one; --work DIR uses and keeps DIR, and images that are in it are not built again.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

program=$root/build/bin/waggle
trainers=${TRAINERS:-4}
work=
tries=()
while [ $# -gt 0 ]; do
  case "$1" in
    --packages)
      exec apt-get install -y --no-install-recommends buildah podman podman-compose runc netavark aardvark-dns iptables catatonit debootstrap \
        prometheus jq curl slurmctld slurmd slurm-client munge systemd python3-yaml ;;
    --work) work=$(mkdir -p "${2:?--work needs a folder}" && cd "$2" && pwd); shift ;;
    images | compose | machines | kubernetes | slurm | systemd) tries+=("$1") ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "verify.sh: there is no option or try called $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
cd "$root"
[ ${#tries[@]} -gt 0 ] || tries=(images compose machines kubernetes slurm systemd)

keep=yes
[ -n "$work" ] || { work=$(mktemp -d /var/tmp/waggle-verify.XXXXXX); keep=no; }
cleanups=() # of the try that runs
at_last=()  # of what the tries share
clean_up() {
  local i
  for ((i = ${#cleanups[@]} - 1; i >= 0; i--)); do ${cleanups[i]} >> "$work/cleanup.log" 2>&1 || true; done
  cleanups=()
}
finish() {
  clean_up
  cleanups=(${at_last[@]+"${at_last[@]}"})
  clean_up
  [ "$keep" = yes ] || rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# -- the table --------------------------------------------------------------------------------------

failed=0
row() { # GOOD WHAT SEEN: GOOD is a command's exit code
  local mark=ok
  [ "$1" = 0 ] || { mark=BAD; failed=1; }
  printf '%-4s %-76s %s\n' "$mark" "$2" "$3"
}
holds() { "$@" > /dev/null 2>&1 && echo 0 || echo 1; }
at_most() { [ "$1" -le "$2" ]; }

within() { # SECONDS COMMAND...: prints after how many seconds the command succeeded
  local tenths=$(($1 * 10)) begin took=0
  shift
  begin=$(date +%s%N)
  until "$@" > /dev/null 2>&1; do
    took=$((($(date +%s%N) - begin) / 100000000))
    [ $took -lt $tenths ] || { echo "not within $((took / 10))"; return 1; }
    sleep 0.1
  done
  took=$((($(date +%s%N) - begin) / 100000000))
  echo "$((took / 10)).$((took % 10))"
  [ $took -le $tenths ]
}
timed_row() { # SECONDS WHAT COMMAND...
  local limit=$1 what=$2 took
  shift 2
  if took=$(within "$limit" "$@"); then row 0 "$what (at most $limit s)" "$took s"; else row 1 "$what (at most $limit s)" "$took s"; fi
}

# -- peers --------------------------------------------------------------------------------------------

asked() { curl -sf --max-time 3 "http://$1/api/v1/$2"; }
status_of() { asked "$1" status | jq -r ".$2"; }
reached() { # EPOCH ADDRESS...: whether all of them have
  local epoch=$1 address
  shift
  for address in "$@"; do [ "$(status_of "$address" epoch)" -ge "$epoch" ] || return 1; done
}
grouped() { # SIZE ADDRESS...
  local size=$1 address
  shift
  for address in "$@"; do [ "$(status_of "$address" group_size)" = "$size" ] || return 1; done
}
addresses_in() { # FOLDER...: where the peers of these data folders answer
  local folder
  for folder in "$@"; do head -n 1 "$folder/address"; done
}
alive_as_seen_by() { asked "$1" peers | jq '[.peers[] | select(.self | not) | select(.connected)] | length'; }
sees() { [ "$(alive_as_seen_by "$2")" = "$1" ]; }

# -- images -----------------------------------------------------------------------------------------------

# A store of its own, runc (crun does not like hybrid cgroups), and limits that an unprivileged parent may set.
store_up() {
  [ -z "${CONTAINERS_CONF:-}" ] || return 0
  export CONTAINERS_STORAGE_CONF=$work/storage.conf CONTAINERS_CONF=$work/containers.conf BUILDAH_FORMAT=docker
  cat > "$CONTAINERS_CONF" <<END
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=15000:15000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "$work/run/libpod"
volume_path = "$work/volumes"
[network]
network_config_dir = "$work/networks"
END
  local driver
  for driver in overlay vfs; do
    printf '[storage]\ndriver = "%s"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' $driver "$work" "$work" > "$CONTAINERS_STORAGE_CONF"
    podman info > /dev/null 2>&1 && break
  done
  at_last+=("umount -R -l $work/storage/overlay")
  [ "$keep" = yes ] || at_last+=("podman system prune --all --force --volumes")
  at_last+=("podman rm --all --force --time 1")
}

base=docker.io/library/debian:bookworm-slim
# The images, and under the names of two that come from a registry what Debian's packages make of them.
images_up() {
  store_up
  local container
  if ! podman image exists $base; then
    debootstrap --variant=minbase bookworm "$work/base" http://deb.debian.org/debian > "$work/debootstrap.log"
    printf 'deb http://deb.debian.org/%s main\n' 'debian bookworm' 'debian bookworm-updates' \
      'debian-security bookworm-security' > "$work/base/etc/apt/sources.list"
    echo force-unsafe-io > "$work/base/etc/dpkg/dpkg.cfg.d/docker"
    tar -C "$work/base" -c . | podman import - $base > "$work/import.log" 2>&1
    rm -rf "$work/base"
  fi
  for target in waggle-node waggle; do
    podman image exists localhost/$target || nice buildah bud --layers --isolation chroot --pull-never \
      -f docker/Dockerfile --target $target -t $target . > "$work/build-$target.log" 2>&1
  done
  if ! podman image exists docker.io/prom/prometheus:v2.53.4; then
    container=$(buildah from --pull-never $base)
    buildah copy "$container" "$(command -v prometheus)" /bin/prometheus > /dev/null
    buildah run --isolation chroot "$container" install -d -o nobody /prometheus
    buildah config --entrypoint '["/bin/prometheus"]' --user nobody "$container"
    buildah commit --rm "$container" docker.io/prom/prometheus:v2.53.4 > "$work/prometheus.log" 2>&1
  fi
}
megabytes() { echo $(($(podman image inspect --format '{{.Size}}' "$1") / 1000000)); }

try_images() {
  images_up
  local name above peer d=$work/images
  for name in "waggle 280" "waggle-node 30"; do
    above=$(($(megabytes "localhost/${name% *}") - $(megabytes $base)))
    row "$(holds at_most $above "${name#* }")" "image ${name% *}: above Debian's $(megabytes $base) MB (at most ${name#* } MB)" "$above MB"
  done
  rm -rf "$d" && mkdir -p "$d/outside" "$d/inside"

  # The same seed and key, one peer: the checkpoint differs in names that are drawn anew (its first 256 bytes) only.
  local options=(train --run-id same --seed 7 --listen 127.0.0.1:0 --data /usr/share/common-licenses --model char-gpt
    --target-batch-size 64 --epochs 5 --linger 0s)
  "$program" "${options[@]}" --data-dir "$d/outside" > "$d/outside.log" 2>&1
  install -m 600 "$d/outside/identity.pem" "$d/inside/" && chown -R 7700:7700 "$d/inside"
  # The base image has the licence texts of its own version of Debian; both read the same.
  podman run --rm -v "$d/inside:/data" -v /usr/share/common-licenses:/usr/share/common-licenses:ro localhost/waggle \
    "${options[@]}" --data-dir /data > "$d/inside.log" 2>&1
  row "$(holds cmp -i 256 "$d"/{outside,inside}/checkpoints/checkpoint-*-5-*.wgl)" "image waggle: parameters after 5 epochs as outside" \
    "$(stat -c '%s bytes' "$d"/inside/checkpoints/checkpoint-*-5-*.wgl), $(cmp -l "$d"/{outside,inside}/checkpoints/checkpoint-*-5-*.wgl | wc -l) of names differ"

  # On another port than usual, so that the check has to find it.
  for peer in "waggle-node node" "waggle train --run-id one --data /usr/share/common-licenses"; do
    name=${peer%% *}
    podman run -d --name "verify-$name" "localhost/$name" ${peer#* } --listen '[::]:7711' > /dev/null
    timed_row 20 "image $name: health check succeeds" podman healthcheck run "verify-$name"
    podman kill --signal STOP "verify-$name" > /dev/null
    row "$(($(holds podman healthcheck run "verify-$name") == 0))" "image $name: and fails while the peer is stopped" ""
    podman kill --signal CONT "verify-$name" > /dev/null
    if [ $name = waggle-node ]; then
      row 0 "image $name: resident memory of an idle node" "$(awk '/VmRSS/ {print int($2 / 1024)}' "/proc/$(podman inspect --format '{{.State.Pid}}' verify-$name)/status") MiB"
    fi
    podman stop --time 20 "verify-$name" > /dev/null
    row "$(podman inspect --format '{{.State.ExitCode}}' "verify-$name")" "image $name: ends in order when it is stopped" "exit code $(podman inspect --format '{{.State.ExitCode}}' "verify-$name")"
    podman rm "verify-$name" > /dev/null
  done
}

# -- the compose file ---------------------------------------------------------------------------------------

compose() { TRAINERS=$trainers podman-compose -p waggle-verify -f docker/compose.yaml "$@" >> "$work/compose.log" 2>&1; }
address_of() { # CONTAINER: its address and the port of peers
  echo "$(podman inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$1"):7700"
}
trainer_addresses() { for i in $(seq "$trainers"); do address_of "waggle-verify_trainer_$i"; done; }
trainers_reached() { # EPOCH: one group of all of them
  local peers
  mapfile -t peers < <(trainer_addresses)
  grouped "$trainers" "${peers[@]}" && reached "$1" "${peers[@]}"
}
targets_up() { [ "$(curl -sf "http://127.0.0.1:9090/api/v1/query?query=up==1" | jq '.data.result | length')" = "$1" ]; }
not_connected() { # PEER: as the bootstrap node shows it
  asked 127.0.0.1:7700 peers | jq -e --arg id "$1" '[.peers[] | select(.id == $id and .connected)] == []'
}
connected() { asked 127.0.0.1:7700 peers | jq -e --arg id "$1" '.peers[] | select(.id == $id and .connected)'; }

try_compose() {
  images_up
  local id epoch began took first i name
  cleanups+=("compose down --volumes")
  # Grafana's image is in a registry only.
  began=$(date +%s)
  compose up -d bootstrap trainer prometheus
  within 120 trainers_reached 20 > /dev/null || true
  took=$(($(date +%s) - began))
  row "$(holds at_most $took 60)" "compose: $trainers trainers are one group at epoch 20 (at most 60 s after up)" "$took s"
  timed_row 20 "compose: the bootstrap node is connected to all of them" sees "$trainers" 127.0.0.1:7700
  timed_row 30 "compose: Prometheus scrapes $((trainers + 1)) targets" targets_up $((trainers + 1))
  for name in bootstrap_1 trainer_1; do
    row "$(holds podman healthcheck run "waggle-verify_$name")" "compose: health check of $name" \
      "$(podman inspect --format '{{.HostConfig.Memory}}' "waggle-verify_$name" | awk '{print "at most", $1 / 1048576, "MiB"}')"
  done

  id=$(status_of "$(address_of waggle-verify_trainer_1)" peer)
  kill -9 "$(podman inspect --format '{{.State.Pid}}' waggle-verify_trainer_1)"
  timed_row 2 "compose: the bootstrap node shows a killed container as gone" not_connected "$id"
  timed_row 60 "compose: it is restarted and connected again, as the same peer" connected "$id"
  timed_row 60 "compose: and all trainers are one group again" trainers_reached 20

  epoch=$(status_of 127.0.0.1:7700 global_epoch 2> /dev/null || echo 0)
  for i in $(trainer_addresses); do epoch=$(status_of "$i" epoch); done
  began=$(date +%s)
  compose down
  row "$(holds at_most $(($(date +%s) - began)) 60)" "compose: down" "$(($(date +%s) - began)) s, at epoch $epoch"
  compose up -d bootstrap trainer prometheus
  timed_row 60 "compose: up again: one group above that epoch" trainers_reached $((epoch + 1))
  first=$(for i in $(seq "$trainers"); do podman logs "waggle-verify_trainer_$i" 2>&1 | sed -n 's/.*trainer is joining at epoch //p' | head -n 1; done | paste -sd' ')
  row "$(holds at_most "$epoch" $(($(echo "$first" | tr ' ' '\n' | sort -n | tail -n 1) + 1)))" "compose: they began at the epochs of their checkpoints" "$first"
  compose down --volumes
}

# -- three machines -----------------------------------------------------------------------------------------

# Three network namespaces on one bridge stand for machines whose containers use the host's network.
try_machines() {
  images_up
  local i ids join
  ip link add wv-bridge type bridge && ip link set wv-bridge up
  cleanups+=("ip link del wv-bridge")
  for i in 1 2 3; do
    ip netns add wv-$i
    cleanups+=("ip netns del wv-$i")
    ip link add wv-port$i master wv-bridge type veth peer name eth0 netns wv-$i
    ip link set wv-port$i up
    ip -n wv-$i link set lo up
    ip -n wv-$i addr add 10.77.0.$i/24 dev eth0
    ip -n wv-$i link set eth0 up
  done
  start() { podman run -d --network "ns:/run/netns/wv-$1" -v "machine$1:/data" localhost/waggle "${@:2}" 2>> "$work/machines.log"; }
  machine_ready() { [ "$(ip netns exec "wv-$1" curl -sf http://127.0.0.1:7700/readyz)" ]; }
  machines_train() {
    for i in "${ids[@]}"; do podman exec "$i" waggle status --json | jq -e '.group_size == 3 and .epoch >= 10' || return 1; done
  }
  ids=$(start 1 train --run-id first --data /usr/share/common-licenses)
  cleanups+=("podman volume rm --force machine1 machine2 machine3")
  cleanups+=("podman rm --all --force --time 20")
  timed_row 20 "machines: the first peer is ready" machine_ready 1
  join=$(podman logs "${ids[0]}" 2>&1 | sed -n '/^join with:/{n;s/^waggle //p}')
  for i in 2 3; do ids+=("$(eval "start $i $join")"); done
  timed_row 60 "machines: two that got its join line are in its group at epoch 10" machines_train
  echo "     waggle $join"
}

# -- Kubernetes ---------------------------------------------------------------------------------------------

# The alias stands for the headless service: a name that resolves to the addresses of all pods.
play() { podman kube play --network waggle-verify-pods:alias=waggle "$1" >> "$work/play.log" 2>&1; }
pod_address() { podman inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$(podman pod inspect --format '{{.InfraContainerID}}' "waggle-$1")"; }
pods_train() { # EPOCH
  local peers=() i
  for i in 0 1 2; do peers+=("$(pod_address $i):7700"); done
  grouped 3 "${peers[@]}" && reached "$1" "${peers[@]}"
}

try_kubernetes() {
  images_up
  local d=$work/kubernetes id i
  rm -rf "$d" && mkdir -p "$d"
  /usr/bin/python3 tests/docker/pods_of_stateful_set.py docker/kubernetes.yaml "$d"
  podman network exists waggle-verify-pods || podman network create waggle-verify-pods > /dev/null
  cleanups+=("podman network rm --force waggle-verify-pods")
  cleanups+=("podman volume rm --force data-waggle-0 data-waggle-1 data-waggle-2")
  play "$d/claims.yaml"
  for i in 0 1 2; do
    cleanups+=("podman pod rm --force --time 30 waggle-$i")
    play "$d/waggle-$i.yaml"
  done
  timed_row 60 "kubernetes: three pods are one group at epoch 10" pods_train 10
  row "$(holds test "$(podman exec waggle-0-peer getent ahostsv4 waggle | awk '{print $1}' | sort -u | wc -l)" = 3)" \
    "kubernetes: the service's name stands for all pods, also for oneself" "$(podman exec waggle-0-peer getent ahostsv4 waggle | awk '{print $1}' | sort -u | paste -sd' ')"
  row "$(holds podman healthcheck run waggle-0-peer)" "kubernetes: the liveness probe of waggle-0" ""
  row "$(holds curl -sf "http://$(pod_address 0):7700/readyz")" "kubernetes: what its readiness probe asks for" "$(curl -s "http://$(pod_address 0):7700/readyz")"
  id=$(status_of "$(pod_address 2):7700" peer)
  podman pod stop --time 30 waggle-2 > /dev/null 2>&1
  row "$(podman inspect --format '{{.State.ExitCode}}' waggle-2-peer)" "kubernetes: a pod that is evicted ends in order" ""
  podman pod rm waggle-2 > /dev/null
  play "$d/waggle-2.yaml"
  timed_row 60 "kubernetes: a new one takes its place, and all are one group" pods_train 11
  row "$(holds test "$id" = "$(status_of "$(pod_address 2):7700" peer)")" "kubernetes: as the same peer" "$(echo "$id" | cut -c1-8)"
}

# -- Slurm ----------------------------------------------------------------------------------------------

# A cluster of this machine, with its own munged, slurmctld and slurmd. It has more processors in its configuration
# than the machine may have, so that three tasks fit.
slurm_up() {
  local d=$work/slurm host
  host=$(hostname -s)
  rm -rf "$d" && mkdir -p "$d/state" "$d/spool" "$d/home"
  head -c 1024 /dev/urandom > "$d/munge.key" && chmod 600 "$d/munge.key"
  cat > "$d/slurm.conf" <<END
ClusterName=verify
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$d/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool
SlurmctldPidFile=$d/slurmctld.pid
SlurmdPidFile=$d/slurmd.pid
SlurmctldLogFile=$d/slurmctld.log
SlurmdLogFile=$d/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=4
PartitionName=verify Nodes=$host Default=YES State=UP
END
  munged --socket="$d/munge.socket" --key-file="$d/munge.key" --pid-file="$d/munge.pid" --log-file="$d/munge.log" \
    --seed-file="$d/munge.seed" --force
  cleanups+=("stop_pid $d/munge.pid")
  slurmctld -f "$d/slurm.conf"
  cleanups+=("stop_pid $d/slurmctld.pid")
  export SLURM_CONF=$d/slurm.conf
  within 30 scontrol ping > /dev/null # slurmd would wait for long before it asked again
  slurmd -f "$d/slurm.conf"
  cleanups+=("stop_pid $d/slurmd.pid")
  within 30 node_idle > /dev/null
}
stop_pid() { # FILE: ends the process whose number is in it, and waits for that
  [ -s "$1" ] || return 0
  local pid
  pid=$(cat "$1")
  kill "$pid" && within 10 process_gone "$pid"
}
process_gone() { ! kill -0 "$1"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
node_idle() { sinfo -h -o %T | grep -qx idle; }
job_gone() { [ -z "$(squeue -h -j "$1" 2> /dev/null)" ]; }
job_trains() { # EPOCH FOLDER: three tasks are one group and have reached the epoch
  local peers
  mapfile -t peers < <(addresses_in "$2"/{0,1,2})
  [ ${#peers[@]} = 3 ] && grouped 3 "${peers[@]}" && reached "$1" "${peers[@]}"
}

try_slurm() {
  local d=$work/slurm job began
  slurm_up
  submit() {
    (cd "$d/home" && WAGGLE_PROGRAM=$program sbatch --parsable --ntasks-per-node 3 --job-name first "$@" \
      --output "$d/home/job-%j.log" "$root/examples/slurm/train.sbatch" --data /usr/share/common-licenses \
      --model char-gpt --target-batch-size 256)
  }
  job=$(submit --nodes 1)
  timed_row 60 "slurm: three tasks of a job are one group" job_trains 0 "$d/home/first"
  timed_row 60 "slurm: all of them reach epoch 10" job_trains 10 "$d/home/first"
  scancel "$job"
  timed_row 30 "slurm: the job is gone after scancel" job_gone "$job"
  row "$(holds orderly "$d/home/job-$job.log" SIGTERM)" "slurm: each peer ended in order" "$(grep -c 'the same command resumes' "$d/home/job-$job.log") of 3"
  job=$(submit --nodes 1)
  timed_row 60 "slurm: another job of that name is one group" job_trains 12 "$d/home/first"
  began=$(sed -n 's/.*trainer is joining at epoch //p' "$d/home/job-$job.log" | sort -n | paste -sd' ')
  row "$(holds at_most 10 "${began%% *}")" "slurm: it went on at the epochs of the checkpoints" "$began"
  scancel --signal USR1 "$job"
  timed_row 30 "slurm: the job is gone after USR1 (--signal)" job_gone "$job"
  row "$(holds orderly "$d/home/job-$job.log" SIGUSR1)" "slurm: each peer ended in order" "$(grep -c 'the same command resumes' "$d/home/job-$job.log") of 3"
}
orderly() { # LOG SIGNAL
  [ "$(grep -c "this peer is stopping: received $2" "$1")" = 3 ] && [ "$(grep -c 'the same command resumes' "$1")" = 3 ]
}

# -- systemd ----------------------------------------------------------------------------------------------

# The command of the unit, as systemd would start it for an instance, but as root and with folders of this try.
unit_command() { # INSTANCE FOLDER
  sed -n 's/^ExecStart=//p' "docker/waggle@.service" | sed "s|/usr/local/bin/waggle|$program|; s|%S|$2|g; s|%i|$1|g; s|/etc/waggle/|$2/|"
}

try_systemd() {
  local d=$work/systemd peer first=127.0.0.1:$(free_port) code
  rm -rf "$d" && mkdir -p "$d/root/etc/systemd/system" "$d/root/usr/local/bin" "$d/waggle"
  # Debian's units, for those that ours names, and a program where it is expected.
  mkdir -p "$d/root/lib" && cp -r /lib/systemd "$d/root/lib/"
  cp "docker/waggle@.service" "$d/root/etc/systemd/system/waggle@first.service"
  install -m 755 /dev/null "$d/root/usr/local/bin/waggle"
  row "$(holds quiet systemd-analyze verify --man=no --root="$d/root" waggle@first.service)" \
    "systemd: systemd-analyze verify says nothing" ""
  for peer in a b c; do
    mkdir -m 700 "$d/waggle/$peer"
    printf '%s\n' 'run-id = "systemd"' 'data = "/usr/share/common-licenses"' 'model = "char-gpt"' \
      'target-batch-size = 256' > "$d/$peer.toml"
    if [ $peer = a ]; then echo "listen = \"$first\""; else printf '%s\n' 'listen = "127.0.0.1:0"' "initial-peers = \"$first\""; fi >> "$d/$peer.toml"
    $(unit_command $peer "$d") > "$d/$peer.log" 2>&1 &
    echo $! > "$d/$peer.pid"
    cleanups+=("stop_pid $d/$peer.pid")
  done
  timed_row 60 "systemd: three peers of ExecStart are one group at epoch 10" units_train 10 "$d"
  for peer in a b c; do # as systemd stops a service
    kill "$(cat "$d/$peer.pid")"
    wait "$(cat "$d/$peer.pid")" && code=0 || code=$?
    row $code "systemd: TERM ends peer $peer in order" "$(tail -n 1 "$d/$peer.log" | cut -d, -f1)"
  done
}
quiet() { [ -z "$("$@" 2>&1)" ]; }
units_train() { # EPOCH FOLDER
  local peers
  mapfile -t peers < <(addresses_in "$2/waggle"/{a,b,c})
  [ ${#peers[@]} = 3 ] && grouped 3 "${peers[@]}" && reached "$1" "${peers[@]}"
}

for try in "${tries[@]}"; do
  "try_$try"
  clean_up
done
exit $failed
