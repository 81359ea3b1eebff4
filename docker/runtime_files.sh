#!/bin/sh
# Puts programs, and the libraries that they need and that the base image lacks, below ROOT:
#   runtime_files.sh ROOT PACKAGES_OF_THE_BASE_IMAGE PROGRAM...
#
# LibTorch names 46 libraries and uses no symbol of about half of them (OpenCV with its video codecs and desktop
# toolkits among them). These entries are removed from its copy; without that the image would be three times as large.
# For each package that a library comes from its licence and its package record (/var/lib/dpkg/status.d, which
# scanners of images read) go with it.
set -eu
root=$1 base=$2
shift 2

mkdir -p "$root/usr/local/bin" "$root/var/lib/dpkg/status.d"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ldconfig -p | awk '/x86-64|AArch64/ && !seen[$1]++ {print $1, $NF}' > "$work/known"

needed() { objdump -p "$1" | awk '/NEEDED/ {print $2}'; }

# The file to read for a library: its copy without unused entries if it is LibTorch.
copy_of() {
  case $(basename "$1") in
    libtorch_cpu.so*)
      copy="$work/$(basename "$1")"
      if [ ! -e "$copy" ]; then
        cp "$1" "$copy"
        ldd -u "$1" | awk '/^\t/ {print $1}' > "$work/unused" || true # its exit code says whether there are any
        while read -r unused; do
          patchelf --remove-needed "$(basename "$unused")" "$copy"
        done < "$work/unused"
        echo "$(basename "$1"): $(wc -l < "$work/unused") of $(needed "$1" | wc -l) entries are unused and removed" >&2
      fi
      echo "$copy" ;;
    *) echo "$1" ;;
  esac
}

owner_of() {
  for path in "$1" "/usr$1" "${1#/usr}"; do
    dpkg-query -S "$path" 2>/dev/null && return
  done | head -n 1 | cut -d: -f1
}

: > "$work/done"
: > "$work/packages"
for program in "$@"; do
  install -s -t "$root/usr/local/bin" "$program"
  needed "$program"
done | sort -u > "$work/next"

while [ -s "$work/next" ]; do
  sort -u "$work/next" > "$work/names"
  : > "$work/next"
  while read -r name; do
    grep -qxF "$name" "$work/done" && continue
    echo "$name" >> "$work/done"
    found=$(awk -v name="$name" '$1 == name {print $2}' "$work/known")
    case $name in ld-linux*) continue ;; esac
    [ -n "$found" ] || { echo "runtime_files.sh: there is no $name on this machine" >&2; exit 1; }
    real=$(readlink -f "$found")
    package=$(owner_of "$real")
    [ -n "$package" ] || { echo "runtime_files.sh: no package owns $real" >&2; exit 1; }
    if ! grep -qxF "$package" "$base"; then
      copy=$(copy_of "$real")
      # Under the name by which it is looked for: Debian's alternatives (BLAS) are links in /etc.
      folder=$(dirname "$found")
      install -D -m 644 "$copy" "$root/usr/${folder#/usr}/$name"
      echo "$package" >> "$work/packages"
      needed "$copy" >> "$work/next"
    fi
  done < "$work/names"
done

sort -u "$work/packages" | while read -r package; do
  install -D -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
  dpkg-query -s "$package" > "$root/var/lib/dpkg/status.d/$package"
done
echo "$(find "$root/usr/lib" -type f 2>/dev/null | wc -l) libraries of $(sort -u "$work/packages" | wc -l) packages, $(du -sm "$root" | cut -f1) MB" >&2
