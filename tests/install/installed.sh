#!/usr/bin/env bash
# Installs the build folder to a temporary prefix and uses it as others do: each public header alone, with both
# compilers, beside folders runtime/, actors/ and trainer/ of the user; examples/service by find_package; the sources by add_subdirectory and FetchContent (configured only); and
# what is missing. Prints what failed.
#
#   tests/install/installed.sh SOURCE BUILD CMAKE COMPILER SANITIZERS
set -euo pipefail
source=$1 build=$2 cmake=$3 compiler=$4 sanitize=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() { echo "FAILED: $*" >&2; exit 1; }
expect() { # FILE TEXT: the text, in which any blanks stand for blanks
  tr -s ' \n' '  ' <"$1" | grep -qF -- "$2" || { cat "$1" >&2; fail "$1 does not say: $2"; }
}

"$cmake" --install "$build" --prefix "$prefix" --component dev >"$work/install.log"

# Folders of a user that are named like ours, with headers that are named like ours.
theirs=$work/theirs
(cd "$prefix/include/waggle/internal" && find . -name '*.hpp') | while read -r header; do
  mkdir -p "$theirs/$(dirname "$header")"
  echo '#error taken for a header of waggle' >"$theirs/$header"
done
[ -e "$theirs/runtime/core/result.hpp" ] && [ -e "$theirs/actors/loop/swarm.hpp" ] || fail "internal/ has other headers"

# Warnings of our headers count: they are no system headers here.
for compiler_of in g++ clang++-14; do
  command -v "$compiler_of" >/dev/null || continue
  for header in "$prefix"/include/waggle/*.hpp; do
    system=()
    if [ "$(basename "$header")" = optimizer.hpp ]; then # LibTorch: one compiler is enough
      [ "$compiler_of" = g++ ] && [ -e "$prefix/lib/libwaggle_trainer.a" ] || continue
      system=(-isystem /usr/include/torch/csrc/api/include)
    fi
    echo "#include <waggle/$(basename "$header")>" >"$work/alone.cpp"
    "$compiler_of" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror \
      -I"$theirs" -I"$prefix/include" "${system[@]}" "$work/alone.cpp" \
      || fail "$header does not compile alone with $compiler_of"
  done
done

# Nothing of ours but what the service asks for.
flags=()
[ -n "$sanitize" ] && flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize -fno-sanitize=null")
"$cmake" -S "$source/examples/service" -B "$work/service" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${flags[@]}" >"$work/configure.log"
expect "$work/service/compile_commands.json" -DCAF_ENABLE_TYPE_ID_CHECKS
grep -q -e ' -Werror' -e ' -O2' -e ' -DBOOST_' -e ffp-contract "$work/service/compile_commands.json" && fail "our flags reach users"
"$cmake" --build "$work/service" >"$work/build.log"
"$work/service/service" >"$work/service.log" 2>&1 || { cat "$work/service.log" >&2; fail "the service failed"; }
expect "$work/service.log" "cat: mean 20.0 of 2 peers"
expect "$work/service.log" "dan: mean 20.0 of 2 peers"
expect "$work/service.log" "dan: its peer has ended, after"
one=$(grep -o 'ann: x is .* at epoch 50' "$work/service.log") || fail "ann did not train"
[ "${one#ann}" = "$(grep -o 'bob: x is .* at epoch 50' "$work/service.log" | cut -c4-)" ] || fail "two loops have two models"
[ "$(grep -c '^waggle_start_timestamp_seconds{' "$work/service.log")" = 4 ] || fail "one scrape shows 4 peers"
expect "$work/service.log" "after leaving: 0 bytes of metrics"

# In the trees of others, which have folders of our names.
mkdir "$work/tree"
cp -r "$theirs"/* "$work/tree"
cat >"$work/tree/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(inside C CXX)
if(WAGGLE)
  add_subdirectory(${WAGGLE} waggle)
else()
  include(FetchContent)
  FetchContent_Declare(waggle URL https://example.invalid/waggle.tar.gz)
  FetchContent_MakeAvailable(waggle)
endif()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/main.cpp "#include <waggle/node.hpp>\nint main() {}\n")
add_executable(inside ${CMAKE_CURRENT_BINARY_DIR}/main.cpp)
target_include_directories(inside PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(inside PRIVATE waggle::actors)
get_target_property(options waggle::actors INTERFACE_COMPILE_OPTIONS)
if(options)
  message(FATAL_ERROR "targets of users get our options: ${options}")
endif()
END
"$cmake" -S "$work/tree" -B "$work/inside" -DWAGGLE="$source" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$work/configure.log" 2>&1 \
  || { cat "$work/configure.log" >&2; fail "add_subdirectory does not configure"; }
grep -E -A 3 '^CMake .*Warning \((dev|author|policy)\)' "$work/configure.log" && fail "configuring warns"
compile=$(sed -n 's|.*"command": "\(.*/inside/main.cpp\)",*$|\1|p' "$work/inside/compile_commands.json")
(cd "$work/inside" && $compile -fsyntax-only) || fail "a folder of the user is taken for ours"
"$cmake" -S "$work/tree" -B "$work/fetched" -DFETCHCONTENT_SOURCE_DIR_WAGGLE="$source" \
  -DWAGGLE_TRAINER=OFF >"$work/configure.log" 2>&1 || { cat "$work/configure.log" >&2; fail "FetchContent does not configure"; }

# What is missing stops the configuration with what to do.
refused() { # TEXT ARGUMENT…
  local text=$1
  shift
  if "$cmake" -S "$source/examples/service" -B "$work/refused" --fresh -DCMAKE_PREFIX_PATH="$prefix" "$@" >"$work/refused.log" 2>&1; then
    fail "configured without: $text"
  fi
  expect "$work/refused.log" "$text"
}
refused "install libcaf-dev" -DCMAKE_DISABLE_FIND_PACKAGE_CAF=ON
refused "the component cinema was not built" -DWAGGLE_COMPONENTS=cinema

# Another LibTorch than that of the build, whole and with other headers.
if [ -e "$prefix/lib/libwaggle_trainer.a" ]; then
  other=$work/libtorch
  mkdir -p "$other/share/cmake/Torch" "$other/include/torch" "$other/lib"
  touch "$other/lib/libc10.so"
  cat >"$other/share/cmake/Torch/TorchConfig.cmake" <<'LIST'
set(TORCH_INCLUDE_DIRS ${CMAKE_CURRENT_LIST_DIR}/../../../include)
add_library(torch_cpu SHARED IMPORTED)
cmake_path(GET c10_LIBRARY PARENT_PATH folder)
set_target_properties(torch_cpu PROPERTIES IMPORTED_LOCATION ${folder}/libtorch_cpu.so)
LIST
  echo 'set(PACKAGE_VERSION 9.1.0)' >"$other/share/cmake/Torch/TorchConfigVersion.cmake"
  version_h() { for part in "MAJOR $1" "MINOR $2" "PATCH 0"; do echo "#define TORCH_VERSION_$part"; done >"$other/include/torch/version.h"; }
  version_h 9 1
  refused "and $other/share/cmake/Torch is of 9.1.0" -DWAGGLE_COMPONENTS=trainer -DTorch_DIR="$other/share/cmake/Torch"
  version_h 9 0
  refused "LibTorch is a mixture" -DWAGGLE_COMPONENTS=trainer -DTorch_DIR="$other/share/cmake/Torch"
  refused "where there is no TorchConfig.cmake" -DTorch_DIR="$other"
fi
