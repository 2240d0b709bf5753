#!/usr/bin/env bash
# CPU time (user and system, of all processes) of a cluster of many processes of one device on this
# machine, from launch to end: it joins, compiles and makes a few steps of the mnist example, beside
# as many times that of one process which does the same by itself. Both take turns; prints each turn
# and the median ratio. Needs build/release/bin with braid and mnist.
#
#   tests/bench/cluster_bench.sh [NODES] [ROUNDS] [STEPS]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
nodes=${1:-64}
rounds=${2:-3}
steps=${3:-3}
bin=${BRAID_BENCH_BIN:-$root/build/release/bin}
export OMP_NUM_THREADS=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# cpu_seconds COMMAND...: of the command and all its children.
cpu_seconds() {
  local TIMEFORMAT='%U %S'
  { time "$@" >"$log" 2>&1; } 2>&1 | awk '{ print $1 + $2 }' || { tail -20 "$log" >&2; return 1; }
}

# Every process has a row of each batch, whatever the number of nodes.
program=("$bin/mnist" --steps="$steps" --batch="$nodes" --progress=off)
ratios=()
for ((round = 1; round <= rounds; ++round)); do
  one=$(cpu_seconds "${program[@]}" --devices=cpu:1 --batch="$nodes")
  all=$(cpu_seconds "$bin/braid" launch --local "$nodes" --devices cpu:1 -- "${program[@]}")
  ratio=$(awk -v all="$all" -v one="$one" -v nodes="$nodes" 'BEGIN { printf "%.2f", all / (nodes * one) }')
  echo "round $round: $nodes nodes $all s of CPU time, one process $one s; ratio $ratio"
  ratios+=("$ratio")
done
printf '%s\n' "${ratios[@]}" | sort -n | awk '{ v[NR] = $1 } END { print "median ratio", v[int((NR + 1) / 2)] }'
