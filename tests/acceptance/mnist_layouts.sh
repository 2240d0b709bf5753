#!/usr/bin/env bash
# Trains the mnist example on real digits for 10 epochs under every parallelism on every layout of
# devices; each must reach 94 %, and all must lie within one point. Exits 77 without the data.
#
#   tests/acceptance/mnist_layouts.sh build/release/bin [epochs]
set -euo pipefail
bin=${1:?usage: mnist_layouts.sh BIN_DIR [EPOCHS]}
epochs=${2:-10}
data=${BRAID_TEST_DATA-}/mnist
[[ -e $data/t10k-images-idx3-ubyte.gz || -e $data/t10k-images-idx3-ubyte ]] || {
  echo "SKIPPED: no digits in \$BRAID_TEST_DATA/mnist"
  exit 77
}
results=()
for parallel in data model hybrid pipeline; do
  for cluster in --devices=cpu:{1,2,3,4} --simulate_nodes={2x1,2x2,4x1,1+2}; do
    [[ $parallel == hybrid && $cluster == *1+2 ]] && continue  # not rectangular
    accuracy=$("$bin/mnist" --data="$data" --epochs="$epochs" --parallel="$parallel" "$cluster" |
      awk '/^accuracy/ {print $2}')
    echo "$parallel $cluster: $accuracy %"
    results+=("$accuracy")
  done
done
printf '%s\n' "${results[@]}" | awk '
  NR == 1 {low = high = $1}
  {if ($1 < low) low = $1; if ($1 > high) high = $1}
  END {
    printf "%d layouts: lowest %.2f %%, highest %.2f %%\n", NR, low, high
    exit !(low >= 94 && high - low <= 1)
  }'
