#!/usr/bin/env bash
# `braid launch --nnodes`, one on each of two machines, starts ddp_mnist; ranks, launchers and the
# network between them fail. Exits 77 where that cannot be set up.
#
#   tests/multiprocess/launchers/machines.sh build/release/bin
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"
lab_enter "${1:?usage: machines.sh BIN_DIR}"

lab_machine left 1
lab_machine right 2
train_ranks_on=("$bin/ddp_mnist" --epochs=1000000)  # until something ends it

# start_both NAME FLAG... -- PROGRAM...: a launcher on each; what the left one prints is NAME's.
start_both() {
  local both=$1
  shift
  local common=(--nnodes=2 --nproc_per_node=1 --master_addr=left)
  on right "$bin/braid" launch "${common[@]}" --node_rank=1 "$@" \
    >"$work/${both}_right.out" 2>"$work/${both}_right.err" &
  right=$!
  start "$both" on left "$bin/braid" launch "${common[@]}" --node_rank=0 "$@"
}

# finish_both SECONDS: $code is the left one's exit code, $code_right the other's.
finish_both() {
  finish "$1"
  code_right=0
  wait "$right" || code_right=$?
}

# expect_both CODE TEXT: how both end, TEXT being an extended regular expression for the last line.
expect_both() {
  local file
  expect_code "$1"
  [[ $code_right == "$1" ]] || lab_fail "${name}_right: exit code $code_right; $1 was expected"
  for file in "$work/$name.err" "$work/${name}_right.err"; do
    tail -n 1 "$file" | grep -qxE -- "braid launch: $2" ||
      lab_fail "$file ends with '$(tail -n 1 "$file")'"
  done
}

trains_on() { grep -qs '^epoch 1: ' "$work/$name.out"; }
start_both_training() {
  start_both "$@" -- "${train_ranks_on[@]}"
  await 60 trains_on
}

# The oldest of a machine: its guard, a child, has the same command line.
launcher() { processes braid "$1" | head -n 1; }

start_both no_secret --join_timeout=5s -- "${train_ranks[@]}"
finish_both 20
expect_code 1
expect_error 'error: machine 0 would use 0.0.0.0, .*BRAID_AUTH_TOKEN'
grep -q 'error: machine 1 would use 10.99.0.1, .*BRAID_AUTH_TOKEN' "$work/${name}_right.err" ||
  lab_fail "the right one does not say that it needs a secret"

lab_make_secret
start_both ranks -- "${train_ranks[@]}"
finish_both 120
expect_ranks 2
[[ $code_right == 0 ]] || lab_fail "the right launcher exits with $code_right"

# A rank is killed after two of the epochs; the weights are those of a run that nothing disturbed.
run undisturbed "$bin/braid" launch --standalone --nproc_per_node=2 -- "$bin/ddp_mnist" --epochs=4 \
  "--checkpoints=$work/well" "--weights=$work/well.safetensors"
expect_code 0
start_both restarts --max_restarts=2 -- "$bin/ddp_mnist" --epochs=4 \
  "--checkpoints=$work/killed" "--weights=$work/killed.safetensors"
for machine in right left; do
  step=$((${step-0} + 90))
  await 60 test -e "$work/killed/step-$step"
  kill -KILL "$(processes ddp_mnist "$machine")"
done
finish_both 120
expect_code 0
[[ $code_right == 0 ]] || lab_fail "the right launcher exits with $code_right"
for file in "$work/restarts.err" "$work/restarts_right.err"; do
  grep -q '^braid launch: rank 1 (pid [0-9]*, machine 1, right) failed first: signal 9 (Killed); restart 1 of 2$' "$file" ||
    lab_fail "$file does not name rank 1 first"
  grep -q '^braid launch: rank 0 (pid [0-9]*, machine 0, left) failed first: signal 9 (Killed); restart 2 of 2$' "$file" ||
    lab_fail "$file does not name rank 0 afterwards"
done
cmp "$work/well.safetensors" "$work/killed.safetensors"
await 10 nothing_runs

start_both_training rank_killed
kill -KILL "$(processes ddp_mnist right)"
finish_both 10
expect_both 137 'rank 1 \(pid [0-9]+, machine 1, right\) failed first: signal 9 \(Killed\)'
await 10 nothing_runs

start_both_training launcher_killed --max_restarts=2
kill -KILL "$(launcher right)"
finish_both 10
expect_code 1
expect_error '^braid launch: machine 1 (right) lost: the connection was closed without a word'
await 10 nothing_runs

start_both_training master_killed --max_restarts=2
kill -KILL "$(launcher left)"
finish_both 10
[[ $code_right == 1 ]] || lab_fail "the right launcher exits with $code_right"
grep -q '^braid launch: machine 0 (left) lost: the connection was closed' "$work/${name}_right.err" ||
  lab_fail "the right launcher does not say that the left one is lost"
await 10 nothing_runs

start_both_training interrupted
kill -INT "$(launcher right)"
finish_both 10
expect_both 130 'machine 1 \(right\): ended by signal 2 \(Interrupt\)'
await 10 nothing_runs

# Neither side of a cut cable hears anything any more.
start_both_training cut --max_restarts=2
ip link set right down
finish_both 20
expect_code 1
expect_error '^braid launch: machine 1 (right) lost: no heartbeat for '
[[ $code_right == 1 ]] || lab_fail "the right launcher exits with $code_right"
grep -q '^braid launch: machine 0 (left) lost: no heartbeat for ' "$work/${name}_right.err" ||
  lab_fail "the right launcher does not say that the left one is lost"
await 20 nothing_runs
echo "PASSED"
