#!/usr/bin/env bash
# Slurm's srun and sbatch start mnist, and srun ddp_mnist, on two machines of a cluster that lives as
# long as this script. Exits 77 where that cannot be set up.
#
#   tests/multiprocess/launchers/slurm.sh build/release/bin
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"
lab_enter "${1:?usage: slurm.sh BIN_DIR}" slurmctld slurmd slurm-client openmpi-bin

cat >"$work/slurm.conf" <<END
ClusterName=braid
SlurmctldHost=desk($lab_network.254)
NodeName=left,right CPUs=4 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES
# Nobody else is on this network.
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
# Machines here share one kernel, which slurmd is not to look at.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n.spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/%n.pid
KillWait=2
END
printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=%s\n' "$work/cgroup" >"$work/cgroup.conf"
export SLURM_CONF=$work/slurm.conf
lab_machine left 1
lab_machine right 2
mkdir "$work/state"
slurmctld -D -c >"$work/slurmctld.log" 2>&1 &
for machine in left right; do
  on "$machine" slurmd -D -N "$machine" >"$work/$machine.log" 2>&1 &
done
has_idle() { [[ $(sinfo --noheader --states=idle --format=%D) == "$1" ]]; }
await 60 has_idle 2

# One machine: loopback, and so no secret.
run one_machine srun -N1 -n2 "${train[@]}" "$(losses one_machine)"
expect_training 2x1

run no_secret srun -N2 --kill-on-bad-exit "${train[@]}"
expect_code '!0'
expect_error "error: node [01] would use [0-9.]*, .*BRAID_AUTH_TOKEN"

run ranks_on_one_machine srun -N1 -n2 "${train_ranks[@]}"
expect_ranks 2

lab_make_secret
run ranks srun -N2 "${train_ranks[@]}"
expect_ranks 2
# shellcheck disable=SC2016
run launchers srun -N2 --ntasks-per-node=1 bash -c '
  "$0" launch --nnodes="$SLURM_NNODES" --node_rank="$SLURM_NODEID" --nproc_per_node=1 \
    --master_addr=left --max_restarts=1 -- "$@"' "$bin/braid" "${train_ranks[@]}"
expect_ranks 2
run two_machines srun -N2 "${train[@]}" "$(losses two_machines)"
expect_training 2x1
run pmi2 srun -N2 --mpi=pmi2 "${train[@]}" --devices=cpu:2 --parallel=hybrid "$(losses pmi2)"
expect_training 2x2 --parallel=hybrid

# In a batch script, what srun does not start is alone, and is told so.
cat >"$work/job.sh" <<END
#!/bin/bash
#SBATCH --nodes=2 --output=$work/batch.out --error=$work/batch.err
"$bin/mnist" --steps=1 >$work/alone.out
srun ${train[*]} $(losses batch)
END
run submit sbatch --wait "$work/job.sh"
name='batch'
expect_training 2x1
expect_error 'has 2 tasks, but srun did not start this process'
[[ -s $work/alone.out ]] || lab_fail "mnist did not run without srun"

# mpirun inside an allocation brings its own ranks.
run mpirun_in_slurm salloc -N2 mpirun.openmpi --allow-run-as-root --map-by node -np 2 \
  -x BRAID_AUTH_TOKEN -x MASTER_ADDR=left "${train[@]}" "$(losses mpirun_in_slurm)"
expect_training 2x1

start_training worker_killed srun -N2 "${train_on[@]}"
kill -KILL "$(processes mnist right)"
finish 10
expect_code '!0'
expect_error "^error: node 1 lost while "
await 10 nothing_runs

start_training master_killed srun -N2 "${train_on[@]}"
kill -KILL "$(processes mnist left)"
finish 10
expect_code '!0'
expect_error "^error: master lost while "
await 10 nothing_runs

start_training cancelled srun -N2 "${train_on[@]}"
scancel --user=root
finish 10
expect_code '!0'
expect_error 'interrupted by SIGTERM'
await 10 nothing_runs
echo "PASSED"
