#!/usr/bin/env bash
# Steps per second of Braid against PyTorch, one thread pinned to one core, taking turns; prints
# each turn, and for each PyTorch the median ratios of steps per second, of steps per second of CPU
# time (which other load disturbs less) and of peak memory. Needs build/release/bin/step_bench, and
# a text for gpt.
#
#   tests/bench/step_bench.sh TEXT [ROUNDS] [SECONDS] [MODEL:BATCH[:SIDE[:PRECISION]]...]
#   tests/bench/step_bench.sh - 5 10 lenet:64 resnet18:64 resnet50:4:224 resnet50:4:224:bf16
#
# gpt is of 4 layers, 256 channels and context 128, gpt6 of 6 layers, 384 channels and context 256;
# bf16 compares --precision=bf16 with autocast.
#
# BRAID_BENCH_PYTHONS lists the Pythons whose PyTorch is compared with (/usr/bin/python3, which has
# Debian's python3-torch), BRAID_BENCH_TORCH more options of step_torch.py (--sdpa --compile),
# BRAID_BENCH_CORE the core (0), BRAID_STEP_BENCH another build's program.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
text=${1:?usage: step_bench.sh TEXT [ROUNDS] [SECONDS] [MODEL:BATCH[:SIDE[:PRECISION]]...]}
rounds=${2:-5}
seconds=${3:-3}
models=("${@:4}")
((${#models[@]})) || models=(mlp:100 mlp:1024 gpt:8)
braid=${BRAID_STEP_BENCH:-$root/build/release/bin/step_bench}
read -r -a pythons <<<"${BRAID_BENCH_PYTHONS:-/usr/bin/python3}"
read -r -a torch_options <<<"${BRAID_BENCH_TORCH-}"
core=${BRAID_BENCH_CORE:-0}
export OMP_NUM_THREADS=1

versions=()
for python in "${pythons[@]}"; do
  versions+=("$("$python" -c 'import torch; print(torch.__version__)')")
done
median() { sort -n | awk '{r[NR] = $1} END {print r[int((NR + 1) / 2)]}'; }
quotient() { awk "BEGIN {printf \"%.3f\", $1 / $2}"; }

for what in "${models[@]}"; do
  IFS=: read -r model batch side precision <<<"$what"
  options=(--side "${side:-32}" --precision "${precision:-f32}" --details)
  [[ $model != gpt6 ]] || options+=(--layers 6 --width 384 --heads 6 --context 256)
  ratios=() cpu_ratios=() memory=()
  for ((round = 0; round < rounds; ++round)); do
    # In a variable first: the next one starts when this one has ended, not when it has printed.
    line=$(taskset -c "$core" "$braid" --model="${model%6}" \
      --batch="$batch" --seconds="$seconds" --text="$text" --progress=off "${options[@]}")
    read -r ours cpu peak parameters loss <<<"$line"
    echo "$what: braid $ours steps/s, $cpu of CPU time, $peak MiB, loss $loss"
    for i in "${!pythons[@]}"; do
      line=$(taskset -c "$core" "${pythons[i]}" "$root/tests/bench/step_torch.py" "${model%6}" \
        "$batch" "$seconds" "$text" "${options[@]}" "${torch_options[@]}")
      read -r theirs their_cpu their_peak their_parameters loss <<<"$line"
      echo "$what: torch ${versions[i]} $theirs steps/s, $their_cpu of CPU time," \
        "$their_peak MiB, loss $loss"
      if [[ $parameters != "$their_parameters" ]]; then
        echo "$what: braid trains $parameters numbers, torch $their_parameters" >&2
        exit 1
      fi
      ratios[i]+=$(quotient "$ours" "$theirs")$'\n'
      cpu_ratios[i]+=$(quotient "$cpu" "$their_cpu")$'\n'
      memory[i]+=$(quotient "$peak" "$their_peak")$'\n'
    done
  done
  for i in "${!pythons[@]}"; do
    echo "$what, torch ${versions[i]}: median ratio $(median <<<"${ratios[i]%$'\n'}")," \
      "by CPU time $(median <<<"${cpu_ratios[i]%$'\n'}")," \
      "of peak memory $(median <<<"${memory[i]%$'\n'}")"
  done
done
