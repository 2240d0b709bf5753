#!/usr/bin/env bash
# Microseconds of an all_reduce of two ranks of this machine: Braid's process groups, Gloo
# (libgloo-dev) and Open MPI (libopenmpi-dev), taking turns, with checked results. Prints each turn,
# then the medians and how many times as long the others take. Needs build/release/bin with dist_bench.
#
#   tests/bench/dist_bench.sh [TURNS] [TRANSPORT]
#
# TRANSPORT is tcp, over loopback, or shm, which is Open MPI's vader then; Gloo has TCP only.
# Ranks of Gloo are not pinned, since on a core of its own each takes 4 ms from 32 bytes on.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
turns=${1:-5}
transport=${2:-tcp}
bin=$braid_root/build/release/bin
[[ -x $bin/dist_bench ]] || braid_fail "no $bin/dist_bench; build it with -DBRAID_BUILD_BENCH=ON"
braid_install libgloo-dev libopenmpi-dev openmpi-bin

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags=(-std=c++20 -O3 -I"$braid_root")
g++ "${flags[@]}" "$braid_root/tests/bench/dist_gloo.cc" -o "$folder/dist_gloo" -lgloo -lpthread
mpicxx "${flags[@]}" "$braid_root/tests/bench/dist_mpi.cc" -o "$folder/dist_mpi"

measure_braid() {
  local rank port=$((20000 + RANDOM % 10000))
  for rank in 0 1; do
    BRAID_BENCH_TRANSPORT=$transport RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      taskset -c "$rank" "$bin/dist_bench" &
  done
  wait
}

measure_gloo() {
  local rank meeting
  meeting=$(mktemp -d -p "$folder")
  for rank in 0 1; do "$folder/dist_gloo" "$meeting" "$rank" 2 & done
  wait
}

measure_mpi() {
  local ways=(--mca btl tcp,self --mca btl_tcp_if_include lo)
  [[ $transport == tcp ]] || ways=(--mca btl vader,self)
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --bind-to core --mca pml ob1 "${ways[@]}" -n 2 "$folder/dist_mpi"
}

for ((turn = 1; turn <= turns; ++turn)); do
  for library in braid gloo mpi; do
    "measure_$library" | sed "s/^/$library /" | tee -a "$folder/times"
  done
done
echo "median of $turns turns, in microseconds"
sort -k1,1 -k2,2n -k3,3n "$folder/times" | awk -v turns="$turns" '
  { key = $1 " " $2; times[key] = times[key] " " $3; if ($1 == "braid") sizes[$2] = 1 }
  END {
    for (key in times) { split(times[key], t, " "); median[key] = t[int((turns + 1) / 2)] }
    for (bytes in sizes) {
      printf "%9d bytes: braid %.1f, gloo %.1f (%.2f), mpi %.1f (%.2f)\n", bytes,
        median["braid " bytes], median["gloo " bytes],
        median["gloo " bytes] / median["braid " bytes], median["mpi " bytes],
        median["mpi " bytes] / median["braid " bytes]
    }
  }' | sort -n
