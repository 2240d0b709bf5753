#!/usr/bin/env bash
# The mpirun of Open MPI and of MPICH start mnist and ddp_mnist on one machine and on two. Exits 77
# where that cannot be set up.
#
#   tests/multiprocess/launchers/mpi.sh build/release/bin
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"
lab_enter "${1:?usage: mpi.sh BIN_DIR}" openmpi-bin mpich

lab_machine left 1
lab_machine right 2
# In place of ssh: FLAG... MACHINE COMMAND.
cat >"$work/agent" <<'END'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
on "$1" sh -c "${*:2}"
END
export -f on
export work
chmod +x "$work/agent"

# rank N: the mnist that is this rank.
rank() {
  local pid
  for pid in $(processes mnist); do
    ! grep -qzE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1$" "/proc/$pid/environ" || echo "$pid"
  done
}

# expect_cause TEXT: in what the master or mpirun says; who notices first ends the other.
expect_cause() {
  grep -qE "$1" "$work/$name".{out,err} || lab_fail "$name does not say '$1'"
}

# try MPI COMMAND...: `there` places processes on two machines, `master_left` tells them where the
# master is.
try() {
  local mpi=$1
  shift
  unset BRAID_AUTH_TOKEN
  run "${mpi}_one_machine" "$@" -np 2 "${train[@]}" "$(losses "${mpi}_one_machine")"
  expect_training 2x1
  run "${mpi}_ranks_on_one_machine" "$@" -np 2 "${train_ranks[@]}"
  expect_ranks 2
  run "${mpi}_no_master" "$@" "${there[@]}" -np 2 "${train[@]}"
  expect_code '!0'
  expect_error "${mpi_size}=2.* set MASTER_ADDR to it"
  run "${mpi}_no_secret" "$@" "${there[@]}" "${master_left[@]}" -np 2 "${train[@]}" \
    --join_timeout=5s
  expect_code '!0'
  expect_error "error: node [01] would use [0-9.]*, .*BRAID_AUTH_TOKEN"

  lab_make_secret
  run "${mpi}_two_machines" "$@" "${there[@]}" "${master_left[@]}" -np 2 \
    "${train[@]}" --devices=cpu:2 --parallel=hybrid "$(losses "${mpi}_two_machines")"
  expect_training 2x2 --parallel=hybrid

  run "${mpi}_ranks" "$@" "${there[@]}" "${master_left[@]}" -np 2 "${train_ranks[@]}"
  expect_ranks 2

  start_training "${mpi}_worker_killed" "$@" -np 2 "${train_on[@]}"
  kill -KILL "$(rank 1)"
  finish 10
  expect_code '!0'
  expect_cause '^error: node 1 lost while |rank 1 .* signal 9|\(signal 9\)'
  await 10 nothing_runs

  start_training "${mpi}_master_killed" "$@" -np 2 "${train_on[@]}"
  kill -KILL "$(rank 0)"
  finish 10
  expect_code '!0'
  expect_cause '^error: master lost while |rank 0 .* signal 9|\(signal 9\)'
  await 10 nothing_runs

  start_training "${mpi}_interrupted" "$@" -np 2 "${train_on[@]}"
  kill -INT "$started"
  finish 10  # with a code of mpirun's own, sometimes 0
  expect_error 'interrupted by SIG'
  await 10 nothing_runs
}

there=(--host "left,right" --mca plm_rsh_agent "$work/agent")
master_left=(-x MASTER_ADDR=left -x BRAID_AUTH_TOKEN)
mpi_size=OMPI_COMM_WORLD_SIZE
try openmpi mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none

there=(-hosts "left,right" -launcher-exec "$work/agent")
master_left=(-genv MASTER_ADDR left)
mpi_size=PMI_SIZE
try mpich mpiexec.hydra
echo "PASSED"
