#!/usr/bin/env bash
# Start-up: how long `braid launch --local 2` of the mnist example takes to do one training step, its
# evaluation and its end, beside the same in one process, where reading the digits is most of it. Every
# start must end well. Prints both medians.
#
#   tests/bench/start_bench.sh DATA [STARTS] [DEVICES]     DATA: a folder with MNIST's t10k files
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
data=${1:?usage: start_bench.sh DATA [STARTS] [DEVICES]}
starts=${2:-100}
devices=${3:-cpu:1}
bin=${BRAID_BIN:-$root/build/release/bin}
metrics=$(mktemp)
trap 'rm -f "$metrics"' EXIT

# milliseconds COMMAND...: from its start to its end.
milliseconds() {
  local begin
  begin=$(date +%s%N)
  "$@" --data="$data" --steps=1 --metrics_json="$metrics" >/dev/null
  local end
  end=$(date +%s%N)
  echo "$(((end - begin) / 1000000))"
}
median() { sort -n | awk '{r[NR] = $1} END {print r[int((NR + 1) / 2)], "ms, longest", r[NR]}'; }

two=() one=()
for ((i = 0; i < starts; ++i)); do
  two+=("$(milliseconds "$bin/braid" launch --local 2 --devices "$devices" -- "$bin/mnist")")
  one+=("$(milliseconds "$bin/mnist" --devices="$devices")")
done
echo "$starts starts of 2 nodes: median $(printf '%s\n' "${two[@]}" | median) ms"
echo "$starts starts of 1 node:  median $(printf '%s\n' "${one[@]}" | median) ms"
