#!/usr/bin/env bash
# Steps per second of Braid against PyTorch (Debian's python3-torch), one thread pinned to one core,
# taking turns; prints each pair and the median ratio. Needs build/release/bin/step_bench and a text.
#
#   tests/bench/step_bench.sh TEXT [ROUNDS] [SECONDS]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
text=${1:?usage: step_bench.sh TEXT [ROUNDS] [SECONDS]}
rounds=${2:-5}
seconds=${3:-3}
braid=${BRAID_STEP_BENCH:-$root/build/release/bin/step_bench}
export OMP_NUM_THREADS=1
for what in "mlp 100" "mlp 1024" "gpt 8"; do
  read -r model batch <<<"$what"
  ratios=()
  for ((round = 0; round < rounds; ++round)); do
    ours=$(taskset -c 0 "$braid" --model="$model" --batch="$batch" --seconds="$seconds" \
      --text="$text" --progress=off)
    theirs=$(taskset -c 0 /usr/bin/python3 "$root/tests/bench/step_torch.py" "$model" "$batch" \
      "$seconds" "$text")
    ratios+=("$(awk "BEGIN {printf \"%.3f\", $ours / $theirs}")")
    echo "$model batch $batch: braid $ours steps/s, torch $theirs steps/s"
  done
  printf '%s\n' "${ratios[@]}" | sort -n |
    awk -v what="$what" '{r[NR] = $1} END {print what ": median ratio " r[int((NR + 1) / 2)]}'
done
