#!/usr/bin/env bash
# Start-up and shutdown: `braid launch` of the mnist example on several nodes of this machine, one
# training step, its evaluation and the end, beside the same in one process, where reading the
# digits is most of it. All starts use the same control port, one right after the other, and every
# one must end well. Prints medians and the longest:
#   result    from the start to the first step's and its evaluation's numbers
#   shutdown  from the last line that the program prints to the end of launch and all nodes
#
#   tests/bench/start_bench.sh DATA [STARTS] [NODES] [DEVICES]     DATA: a folder with MNIST's t10k files
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
data=${1:?usage: start_bench.sh DATA [STARTS] [NODES] [DEVICES]}
starts=${2:-100}
nodes=${3:-2}
devices=${4:-cpu:1}
bin=${BRAID_BIN:-$root/build/release/bin}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for ((node = 1; node <= nodes; ++node)); do
  echo "127.0.0.$node:19988 $devices"
done >"$folder/nodes.txt"

# timed LABEL COMMAND...: adds milliseconds to $folder/LABEL.result and $folder/LABEL.shutdown.
timed() {
  local label=$1 begin=${EPOCHREALTIME/./} first='' last=''
  shift
  "$@" --data="$data" --steps=1 --metrics_json="$folder/metrics" >"$folder/pipe" &
  local pid=$!
  while IFS= read -r _; do
    last=${EPOCHREALTIME/./}
    first=${first:-$last}
  done <"$folder/pipe"
  wait "$pid"
  local end=${EPOCHREALTIME/./}
  echo "$(((first - begin) / 1000))" >>"$folder/$label.result"
  echo "$(((end - last) / 1000))" >>"$folder/$label.shutdown"
}
# of FILE
median() {
  sort -n "$1" | awk '{r[NR] = $1} END {printf "median %d ms, longest %d ms", r[int((NR + 1) / 2)], r[NR]}'
}

mkfifo "$folder/pipe"
for ((i = 0; i < starts; ++i)); do
  timed nodes "$bin/braid" launch --nodes="$folder/nodes.txt" -- "$bin/mnist"
  timed one "$bin/mnist" --devices="$devices"
done
echo "$starts starts of $nodes nodes: result $(median "$folder/nodes.result"); shutdown $(median "$folder/nodes.shutdown")"
echo "$starts starts of 1 process: result $(median "$folder/one.result"); shutdown $(median "$folder/one.shutdown")"
