#!/usr/bin/env bash
# tests/systems.sh [--units] [bookworm|trixie|testing]...: for each of these Debians, all three if none
# is named: a bare system made by debootstrap, a clone of this repository's HEAD in it, and the two
# commands of the README as they stand there. With --units, as continuous integration calls it, the
# second one is `tests/run.sh --units --strict`, and both take what they can from this machine's
# compiler cache. Prints the times, and leaves nothing behind, however it ends. Exits with 77 where it
# cannot work: it needs root and debootstrap.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

cannot() {
  echo "tests/systems.sh: $*" >&2
  exit 77
}

is_units=false
suites=()
for argument in "$@"; do
  case "$argument" in
    --units) is_units=true ;;
    bookworm | trixie | testing) suites+=("$argument") ;;
    *) braid_fail "unknown argument '$argument';" \
      "usage: tests/systems.sh [--units] [bookworm|trixie|testing]..." ;;
  esac
done
[[ ${#suites[@]} -gt 0 ]] || suites=(bookworm trixie testing)
[[ $(id -u) -eq 0 ]] || cannot "needs root, to make a system of its own"
command -v debootstrap >/dev/null || cannot "needs debootstrap (apt-get install debootstrap)"
unshare --mount --pid --fork true 2>/dev/null || cannot "namespaces are not allowed here"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/braid-systems.XXXXXX")
# What was mounted is gone with its namespace, so nothing outside can be removed through it.
inside=
leave() {
  [[ -z $inside ]] || kill -KILL "$inside" 2>/dev/null || true
  wait
  rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# in_root ROOT COMMAND: with mounts and processes of its own, which end with it.
in_root() {
  local root=$1 command=$2 cache
  cache=$(ccache --get-config cache_dir 2>/dev/null || true)
  $is_units || cache=
  # shellcheck disable=SC2016  # they expand in the inner shell
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1 command=$2 cache=$3
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    if [[ -n $cache ]]; then
      mkdir -p "$cache" "$root/ccache"
      mount --bind "$cache" "$root/ccache"
      export CCACHE_DIR=/ccache
    fi
    exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      ${CCACHE_DIR:+CCACHE_DIR=$CCACHE_DIR} chroot "$root" bash -euc "cd /braid; $command"
  ' in_root "$root" "$command" "$cache" </dev/null &
  inside=$!
  wait "$inside"  # a signal is answered at once, as it would not be behind a command
  inside=
}

# timed NAME COMMAND...: adds "NAME seconds" to $times.
timed() {
  local name=$1 begin=$SECONDS
  shift
  "$@"
  times+=", $name $((SECONDS - begin)) s"
}

prepare() {
  local suite=$1 root=$2
  debootstrap --variant=minbase "$suite" "$root" ${BRAID_DEBIAN_MIRROR:+"$BRAID_DEBIAN_MIRROR"} \
    >"$work/$suite.log" 2>&1 || { tail -n 20 "$work/$suite.log" >&2; braid_fail "debootstrap $suite failed"; }
  # How this machine reaches its packages: proxies, and how old their lists may be.
  apt-config dump Acquire | grep -E '^Acquire::(http|https|ftp|Retries|Check-)' \
    >"$root/etc/apt/apt.conf.d/50machine" || true
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # The installer of a real machine writes it; debootstrap leaves it to packages that may be missing.
  [[ -e $root/etc/hosts ]] || printf '%s localhost\n' 127.0.0.1 ::1 >"$root/etc/hosts"
  git clone -q --no-hardlinks "$braid_root" "$root/braid"
}

results=()
for suite in "${suites[@]}"; do
  root=$work/$suite
  times=
  echo "==== $suite"
  timed "bare system" prepare "$suite" "$root"
  if $is_units; then
    timed packages in_root "$root" 'source cmake/setup.sh; braid_install ccache'
    # Both with the same flags, so that what the first command builds is not built again.
    timed examples/run.sh in_root "$root" "BRAID_WARNINGS_AS_ERRORS=ON examples/run.sh --epochs=1"
    timed 'tests/run.sh --units' in_root "$root" 'tests/run.sh --units --strict'
  else
    timed examples/run.sh in_root "$root" examples/run.sh
    timed tests/run.sh in_root "$root" tests/run.sh
  fi
  results+=("$suite${times/,/:}")
  rm -rf --one-file-system "$root"
done
printf '%s\n' "${results[@]}"
