# shellcheck shell=bash disable=SC2034
# Sourced by slurm.sh, mpi.sh, ssh.sh and machines.sh, which try one launcher each. Brings the script into
# namespaces of its own, with all the machines that it needs; whatever it starts, mounts or
# connects there is gone when it ends, however it ends. Then: how it starts machines and programs,
# and what a training must give under every launcher.

lab_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../../cmake/setup.sh
source "$lab_folder/../../../cmake/setup.sh"

lab_network=10.99.0  # machines have 1 to 253; whoever starts them, "desk", has 254

lab_skip() {
  echo "SKIPPED: $*"
  exit 77
}

# As braid_install, but Debian does not start the services of the packages: tests start their own.
lab_install() (
  # Nothing is touched if nothing is missing.
  [[ $(dpkg-query -W -f '${db:Status-Status} ' "$@" 2>/dev/null) != \
    "$(printf 'installed %.0s' "$@")" ]] || exit 0
  exec {lock}<"$lab_folder" && flock "$lock"
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
  fi
  braid_install "$@"
)

# lab_enter BIN_DIR PACKAGE...: comes back inside, as root, with the built programs in $bin and an
# empty folder in $work.
lab_enter() {
  bin=$(realpath "$1")
  [[ -x $bin/mnist && -x $bin/braid ]] || braid_fail "no mnist and braid in $bin; build them first"
  shift
  # In f64, so that what layouts may differ by, the order of sums, does not show in the accuracy.
  train=("$bin/mnist" --dtype=f64 --steps=180)
  train_on=("$bin/mnist" --steps=100000000)  # until something ends it
  train_ranks=("$bin/ddp_mnist" --epochs=1)   # of a process group
  if [[ -n ${LAB_WORK-} ]]; then
    work=$LAB_WORK
    lab_furnish
    return
  fi
  if [[ $(id -u) -ne 0 ]]; then
    sudo -n true 2>/dev/null || lab_skip "neither root nor sudo without a password"
    exec sudo -n "$0" "$bin"
  fi
  lab_install "$@" procps iproute2 || lab_skip "cannot install: $*"
  local own=(unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc)
  "${own[@]}" true || lab_skip "no namespaces here, as in a container without privileges"
  work=$(mktemp -d)
  local lab='' code=0
  # The first process in there dies with this one, and with it all others; the wait is for that.
  trap 'kill -KILL $lab 2>/dev/null || true; wait; rm -rf "$work"' EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # Nothing of a job or launch that this may run in.
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 LAB_WORK="$work" \
    setpriv --pdeathsig KILL "${own[@]}" "$0" "$bin" &
  lab=$!
  wait "$lab" || code=$?
  exit "$code"
}

lab_furnish() {
  trap lab_leave EXIT
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /dev/shm
  mkdir -p "$work/tmp" /run/netns
  export TMPDIR=$work/tmp HOME=$work
  hostname desk
  printf '127.0.0.1 localhost\n%s.254 desk\n' "$lab_network" >"$work/hosts"
  mount --bind "$work/hosts" /etc/hosts
  ip link set lo up
  ip link add switch type bridge
  ip addr add "$lab_network.254/24" dev switch
  ip link set switch up
}

# If anything went wrong: what was printed last.
lab_leave() {
  local code=$?
  [[ $code -eq 0 ]] || tail -n 20 "$work/${name-none}".{out,err} "$work"/*.log 2>/dev/null || true
  exit "$code"
}

lab_fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# lab_machine NAME NUMBER: a machine with a network of its own, joined to all others.
lab_machine() {
  ip netns add "$1"
  ip link add "$1" type veth peer name eth0 netns "$1"
  ip link set "$1" master switch up
  ip -n "$1" addr add "$lab_network.$2/24" dev eth0
  ip -n "$1" link set eth0 up
  ip -n "$1" link set lo up
  echo "$lab_network.$2 $1" >>"$work/hosts"
}

# on MACHINE COMMAND...: its own name is a loopback address there, as Debian installs machines. And
# what shells start in the background ignores SIGINT; this does not.
on() {
  sed "s/^.* $1\$/127.0.1.1 $1/" "$work/hosts" >"$work/hosts.$1"
  # shellcheck disable=SC2016
  ip netns exec "$1" env --default-signal unshare --uts --mount sh -c \
    'hostname "$1"; mount --bind "$0" /etc/hosts; shift; exec "$@"' "$work/hosts.$1" "$@"
}

# processes NAME [MACHINE]: their ids.
processes() {
  local pid
  for pid in $(pgrep -x "$1"); do
    [[ $# -eq 1 || $(ip netns identify "$pid") == "$2" ]] && echo "$pid"
  done
}

# await SECONDS COMMAND...: until it succeeds.
await() {
  local limit=$1 begin=$SECONDS
  shift
  until "$@"; do
    ((SECONDS - begin <= limit)) || lab_fail "not so within $limit s: $*"
    sleep 0.05
  done
}

nothing_runs() { [[ -z $(processes mnist)$(processes ddp_mnist)$(processes braid) ]]; }
has_ended() { ! kill -0 "$started" 2>/dev/null; }
trains() { [[ -s $work/$name.json ]]; }
trains_or_has_ended() { trains || has_ended; }

# start NAME COMMAND...: in the background; $work/NAME.out and NAME.err take what it prints.
start() {
  name=$1
  shift
  rm -f "$work/$name.json"
  echo "---- $name"
  "$@" >"$work/$name.out" 2>"$work/$name.err" &
  started=$!
}

# finish SECONDS: waits for it; $code is its exit code.
finish() {
  code=0
  await "$1" has_ended
  wait "$started" || code=$?
}

# run NAME COMMAND...
run() {
  start "$@"
  finish 120
}

# expect_code N; "!0": any but 0.
expect_code() {
  [[ $code == "$1" || ($1 == '!0' && $code != 0) ]] ||
    lab_fail "$name: exit code $code; $1 was expected"
}

# expect_error TEXT: a basic regular expression, in one line.
expect_error() {
  grep -q -- "$1" "$work/$name.err" || lab_fail "$name does not say '$1'"
}

lab_make_secret() {
  BRAID_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  export BRAID_AUTH_TOKEN
}

# losses NAME: a flag.
losses() { echo "--metrics_json=$work/$1.json"; }

# untimed FILE: its losses without what the clock says.
untimed() { sed 's/, "time": .*//' "$1"; }

# expect_training LAYOUT [FLAG...]: what ran last gave what the same layout gives inside one
# process, bit for bit, and the accuracy of one device.
expect_training() {
  local same="$work/same$*" one=$work/one_device accuracy
  expect_code 0
  [[ -e $one.out ]] || "${train[@]}" --devices=cpu:1 >"$one.out"
  [[ -e $same.out ]] ||
    "${train[@]}" "--simulate_nodes=$1" "${@:2}" "--metrics_json=$same.json" >"$same.out"
  diff "$same.out" "$work/$name.out" || lab_fail "$name prints something else"
  cmp <(untimed "$same.json") <(untimed "$work/$name.json") || lab_fail "$name has other losses"
  accuracy=$(grep '^accuracy' "$work/$name.out")
  [[ $accuracy == "$(grep '^accuracy' "$one.out")" ]] ||
    lab_fail "$name: $accuracy; one device gives another"
  echo "$accuracy"
  await 10 nothing_runs
}

# expect_ranks N: what ran last, as N ranks, gave what they give under `braid launch`.
expect_ranks() {
  local same="$work/ranks$1.out"
  expect_code 0
  [[ -e $same ]] ||
    "$bin/braid" launch --standalone "--nproc_per_node=$1" -- "${train_ranks[@]}" >"$same"
  diff "$same" "$work/$name.out" || lab_fail "$name prints something else"
  grep '^epoch' "$same"
  await 10 nothing_runs
}

# start_training NAME COMMAND...: and waits until it trains.
start_training() {
  start "$@" "$(losses "$1")"
  await 60 trains_or_has_ended
  trains || lab_fail "$name has not trained"
}
