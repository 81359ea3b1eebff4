#!/usr/bin/env bash
# Builds Waggle on a fresh Debian 12: installs the missing packages, configures and builds.
# It is safe to run it again: it skips steps that are already done.
#
#   scripts/setup.sh                 everything, with the tests
#   scripts/setup.sh --program       only build/bin/waggle and its dependencies
#   scripts/setup.sh --python        only build/python, the module for Python, and its dependencies
#   scripts/setup.sh --no-trainer    without LibTorch and Python: all commands except `train` and `swarm`
#   scripts/setup.sh --deps-only     install packages, build nothing
#   scripts/setup.sh --build DIR     build in DIR instead of build/
#   scripts/setup.sh --libtorch DIR  with the LibTorch of DIR, such as the folder `torch` of PyTorch 2.13, instead of
#                                    Debian's: the program, and without --program also the tests that use LibTorch
set -euo pipefail
cd "$(dirname "$0")/.."

targets=()
trainer=ON
deps_only=no
build=build
libtorch=
while [ $# -gt 0 ]; do
  case "$1" in
    --program) targets+=(waggle) ;;
    --python) targets+=(waggle_python) ;;
    --no-trainer) trainer=OFF ;;
    --deps-only) deps_only=yes ;;
    --build) build=${2:?--build needs a folder}; shift ;;
    --libtorch) libtorch=$(realpath -m "${2:?--libtorch needs a folder}")/share/cmake/Torch; shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "setup.sh: there is no option $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

if [ -n "$libtorch" ] && [ ! -e "$libtorch/TorchConfig.cmake" ]; then
  echo "setup.sh: there is no LibTorch in ${libtorch%/share/cmake/Torch}: it has no share/cmake/Torch/TorchConfig.cmake" >&2
  exit 2
fi

# TRAINER, TESTS and PYTHON of the build.
case "${targets[*]-}" in
  '') tests=ON python=$trainer targets=(all)
    [ -z "$libtorch" ] || python=OFF targets=(trainer_test processes_{loops,modes,slices}_test) ;;
  waggle) tests=OFF python=OFF ;;
  waggle_python) tests=OFF python=ON trainer=OFF ;;
  *) tests=OFF python=ON ;;
esac

say() { printf '\n== %s\n' "$*" >&2; }

# -- packages ---------------------------------------------------------------------------------------

program_packages=(
  build-essential cmake ninja-build ccache pkg-config git ca-certificates
  libcaf-dev libboost-dev libprotobuf-dev protobuf-compiler prometheus-cpp-dev libcurl4-openssl-dev
  zlib1g-dev libssl-dev libcli11-dev libtoml11-dev nlohmann-json3-dev libspdlog-dev
  libminiupnpc-dev libnatpmp-dev)
trainer_packages=(libtorch-dev libopenblas0-pthread)
python_packages=(python3-dev pybind11-dev python3-torch)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev prometheus
  clang clang-14 clang-format-14 clang-tidy libclang-rt-14-dev iproute2 nftables miniupnpd-nftables jq python3 spin
  python3-pytest python3-venv mypy dataset-fashion-mnist chromium chromium-driver python3-selenium
  node-typescript)

wanted=("${program_packages[@]}")
[ "$trainer" = ON ] && [ -z "$libtorch" ] && wanted+=("${trainer_packages[@]}")
[ "$python" = ON ] && wanted+=("${python_packages[@]}")
[ "$tests" = ON ] && wanted+=("${test_packages[@]}")

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then
    as_root=()
  elif command -v sudo >/dev/null; then
    as_root=(sudo)
  else
    echo "setup.sh: run it as root, or install sudo, to install the missing packages: ${missing[*]}" >&2
    exit 1
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  # By default, Debian starts the services of packages it installs. The tests start their own
  # Prometheus, so this policy prevents it.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
  fi
  "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
    install -y --no-install-recommends "${missing[@]}"
else
  say "all packages are installed"
fi
[ "$deps_only" = yes ] && exit 0

# -- configure ------------------------------------------------------------------------------------------

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null; }

# A folder that is configured for more stays so, because each change would cost a configuration.
kept() { [ "${targets[*]}" != all ] && [ "$(cached "WAGGLE_$1")" = ON ] && echo ON || echo "$2"; }
tests=$(kept TESTS "$tests")
python=$(kept PYTHON "$python")
[ "${targets[*]}" = waggle_python ] && trainer=$(kept TRAINER OFF)

if [ -f "$build/build.ninja" ] && [ "$(cached WAGGLE_TESTS)" = "$tests" ] \
  && [ "$(cached WAGGLE_TRAINER)" = "$trainer" ] && [ "$(cached WAGGLE_PYTHON)" = "$python" ] \
  && { [ -z "$libtorch" ] || [ "$(cached Torch_DIR)" = "$libtorch" ]; }; then
  say "$build is already configured"
else
  say "configuring $build (trainer $trainer, tests $tests)"
  cmake -S . -B "$build" -G Ninja -DWAGGLE_TRAINER="$trainer" -DWAGGLE_TESTS="$tests" \
    -DWAGGLE_PYTHON="$python" ${libtorch:+-DTorch_DIR="$libtorch"}
fi

# -- build ----------------------------------------------------------------------------------------------

# A compiler process that includes LibTorch's headers needs up to 2 GiB.
memory_gib=$(awk '/MemTotal/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
[ "$jobs" -gt $((memory_gib / 2)) ] && jobs=$((memory_gib / 2))
[ "$jobs" -lt 1 ] && jobs=1
say "building with $jobs jobs"
NINJA_STATUS='[%f/%t %es] ' ninja -C "$build" -j "$jobs" "${targets[@]}"
