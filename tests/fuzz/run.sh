#!/usr/bin/env bash
# tests/fuzz/run.sh [SECONDS [TARGET...]]: builds the fuzzers with clang and runs each for the given
# time (60 s), as many at once as there are cores (BRAID_FUZZ_JOBS), from the corpus in the tree and
# what earlier runs found (build/fuzz/corpus). Prints runs, coverage and crashes of each target; what
# crashed lies in build/fuzz/crashes, to be fixed and then put into tests/fuzz/corpus/TARGET, where
# every build's fuzz_regression runs it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"

seconds=${1-60}
[[ $seconds =~ ^[0-9]+$ ]] || braid_fail "SECONDS is '$seconds'; usage: tests/fuzz/run.sh [SECONDS [TARGET...]]"
targets=("${@:2}")
[[ ${#targets[@]} -gt 0 ]] || targets=(tcp shm rdma frames groups control master join plan nodes checkpoint data onnx objects)

braid_install "${braid_packages[@]}" "${braid_clang_packages[@]}"
braid_configure fuzz -DBRAID_BUILD_TESTS=ON -DBRAID_BUILD_BENCH=OFF
braid_build fuzz "${targets[@]/#/fuzz_}"

build=$braid_root/build/fuzz
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Files of the targets are small and short-lived.
scratch=$(mktemp -d -p "$([[ -w /dev/shm ]] && echo /dev/shm || echo /tmp)")
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:${ASAN_OPTIONS-}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS-}
jobs=${BRAID_FUZZ_JOBS:-$(nproc)}  # which counts one core once OMP_NUM_THREADS says so
export OMP_NUM_THREADS=1

fuzz() {
  local target=$1 log=$build/$1.log result=ok dictionary=() last runs
  mkdir -p "$build/corpus/$target" "$build/crashes"
  [[ ! -f $folder/$target.dict ]] || dictionary=(-dict="$folder/$target.dict")
  # No input may take 10 s, and no allocation 512 MiB: there is nothing in them that asks for more.
  "$build/bin/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -malloc_limit_mb=512 -max_len=16384 -print_final_stats=1 -artifact_prefix="$build/crashes/$target-" \
    "${dictionary[@]}" "$build/corpus/$target" "$folder/corpus/$target" >"$log" 2>&1 ||
    result="FAILED, see $log"
  last=$(grep -a ' cov: ' "$log" | tail -1 || true)
  number() { sed -n "s/.* $1: \([0-9]*\).*/\1/p" <<<"$last"; }
  runs=$(sed -n 's/^#\([0-9]*\).*/\1/p' <<<"$last")
  printf '%-12s %10s %8s %8s %8s %8s  %s\n' "$target" "${runs:-?}" \
    "$((${runs:-0} / (seconds > 0 ? seconds : 1)))" \
    "$(number cov)" "$(number ft)" "$(number corp)" "$result"
  [[ $result == ok ]]
}

failed=0 running=0
printf '%-12s %10s %8s %8s %8s %8s  %s\n' target runs runs/s edges features inputs result
for target in "${targets[@]}"; do
  if ((running == jobs)); then
    wait -n || failed=1
    running=$((running - 1))
  fi
  fuzz "$target" &
  running=$((running + 1))
done
for ((; running > 0; --running)); do wait -n || failed=1; done
exit $failed
