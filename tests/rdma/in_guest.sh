#!/usr/bin/env bash
# tests/rdma/in_guest.sh BIN: what run.sh runs where there is an RDMA port, rxe0 on dummy0 with the
# address 10.77.0.1: the suites of comm over rdma, several processes, a whole training, and faults.
set -euo pipefail
bin=${1:?usage: in_guest.sh BIN}
address=10.77.0.1
work=$(mktemp -d)
export BRAID_AUTH_TOKEN=of-this-guest GLOG_logtostderr=1
ranks=("$bin/braid" launch --nnodes=1 --node_rank=0 --master_addr="$address" --master_port=29500)
# Emulated, a step takes seconds.
train=("$bin/mnist" --steps=1000 --batch=4)

step() { echo "==== ${SECONDS} s: $*"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# expect NAME PATTERN: what NAME has said.
expect() { grep -qE "$2" "$work/$1" || { cat "$work/$1" >&2; fail "$1 does not say '$2'"; }; }
# fails NAME COMMAND...: it ends by itself, with an error.
fails() {
  local name=$1 code=0
  shift
  "$@" >"$work/$name" 2>&1 || code=$?
  [[ $code -ne 0 && $code -ne 124 ]] || { cat "$work/$name" >&2; fail "$name ended with $code"; }
}
# nodes N PROGRAM ARGUMENT...: as processes of this machine.
nodes() { timeout 150 "$bin/braid" launch --local="$1" --host=$address --tag_output -- "${@:2}"; }

step "transport and collectives"
"$bin/comm_tests" --gtest_filter='*rdma*:Rdma*' --gtest_brief=1 >"$work/suites" 2>&1 ||
  { cat "$work/suites" >&2; fail "comm_tests"; }
tail -n 3 "$work/suites"
expect suites 'PASSED  . [0-9]{2,} tests'
! grep "needs an RDMA port" "$work/suites" || fail "a test has not seen the port"

# check RANKS COLLECTIVE: as processes, with every result checked.
check() {
  step "$1 processes: $2"
  timeout 100 "${ranks[@]}" --nproc_per_node="$1" -- "$bin/braid_bench" --transport=rdma \
    --collective="$2" --sizes=12KiB,192KiB --seconds=0.2 >"$work/bench" 2>&1 ||
    { cat "$work/bench" >&2; fail "$2 with $1 ranks"; }
  expect bench '^ +196608 '
}
check 2 all_reduce
check 3 all_to_all
check 4 all_reduce

# begin NAME PATTERN COMMAND...: until NAME.json has three losses or NAME has said the pattern; then
# $running is the command.
begin() {
  local name=$1 pattern=$2
  shift 2
  "$@" >"$work/$name" 2>&1 &
  running=$!
  for _ in $(seq 500); do
    [[ $(grep -c '"loss"' "$work/$name.json" 2>/dev/null) -ge 3 ]] && return 0
    [[ -n $pattern ]] && grep -qE "$pattern" "$work/$name" && return 0
    kill -0 "$running" 2>/dev/null || break
    sleep 0.2
  done
  cat "$work/$name" >&2
  fail "$name has not begun"
}
# ends NAME: what was begun ends in 60 s, with an error.
ends() {
  local code=0
  for _ in $(seq 300); do
    kill -0 "$running" 2>/dev/null || break
    sleep 0.2
  done
  ! kill -0 "$running" 2>/dev/null || { cat "$work/$1" >&2; fail "$1 goes on"; }
  wait "$running" || code=$?
  [[ $code -ne 0 ]] || fail "$1 ended with 0"
}
# train_over TRANSPORT
train_over() {
  step "a training over $1"
  GLOG_v=1 begin "$1" "" "$bin/braid" launch --local=2 --host=$address --tag_output -- \
    "${train[@]}" --transport="$1" --metrics_json="$work/$1.json"
}
# Without what the clock says.
losses() { head -n 3 "$work/$1.json" | sed -E 's/, "(time|samples_per_second)": [^,}]*//g'; }

train_over tcp
kill -TERM "$running"
ends tcp
train_over rdma
expect rdma 'node 0 <-> node 1: rdma rxe0:1 gid [0-9]+ \(10.77.0.1, RoCE v2\), path MTU 4096'
cmp <(losses tcp) <(losses rdma) || fail "the losses over tcp and over rdma differ"

step "a process is killed"
kill -KILL "$(pgrep -n -P "$running")"
ends rdma
expect rdma 'killed by signal 9|ended by signal 9|node [01] .*lost'

step "the port goes down"
GLOG_v=1 begin down 'rdma rxe0:1 .*path MTU' "${ranks[@]}" --nproc_per_node=2 -- \
  "$bin/braid_bench" --transport=rdma --sizes=64KiB --seconds=100
ip link set dummy0 down
ends down
expect down 'RDMA port rxe0:1: .*; the port is down: look at its interface'
ip link set dummy0 up
ip address replace $address/24 dev dummy0

step "what is not there is said"
fails device nodes 2 "${train[@]}" --transport=rdma --rdma_device=mlx5_0:1
expect device 'rdma does not work here: --rdma_device=mlx5_0:1 was looked for, and here are rxe0'
fails gid nodes 2 "${train[@]}" --transport=rdma --rdma_gid=200
expect gid 'with --rdma_gid=200 was looked for, and here are rxe0:1 gid 0'
fails loopback timeout 60 "$bin/braid" launch --local=2 -- "${train[@]}" --transport=rdma
expect loopback 'no RDMA port has an address of 127.0.0.1 .*: choose one by --interface'

step "memory that may not be locked"
# Who may lock any amount is not limited.
fails memlock timeout 60 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock bash -c \
  "ulimit -l 64 && exec \"\$@\"" _ "$bin/braid" launch --local=2 --host=$address -- \
  "${train[@]}" --transport=rdma
expect memlock 'cannot register [0-9]+ bytes with RDMA device rxe0: this process may lock 65536 bytes of memory \(ulimit -l\); raise that limit'

step "done"
