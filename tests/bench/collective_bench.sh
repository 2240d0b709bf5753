#!/usr/bin/env bash
# Microseconds of a collective of ranks of this machine: Braid's process groups and Open MPI
# (libopenmpi-dev), and of an all_reduce of two ranks Gloo (libgloo-dev), taking turns, with checked
# results. Prints each turn, then the medians and how many times as long the others take. Needs
# build/release/bin with collective_bench.
#
#   tests/bench/collective_bench.sh [TURNS] [TRANSPORT] [COLLECTIVE] [RANKS]
#
# TRANSPORT is tcp, over loopback, or shm, which is Open MPI's vader then; Gloo has TCP only.
# COLLECTIVE is all_reduce, broadcast, all_gather, reduce_scatter or all_to_all. Ranks are pinned to
# the cores in turn. Ranks of Gloo are not, since on a core of its own each takes 4 ms from 32 bytes
# on; nor are those of Open MPI, which pins its own, where they are more than the cores.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
turns=${1:-5}
transport=${2:-tcp}
collective=${3:-all_reduce}
ranks=${4:-2}
cores=$(nproc)
bin=$braid_root/build/release/bin
[[ -x $bin/collective_bench ]] ||
  braid_fail "no $bin/collective_bench; build it with -DBRAID_BUILD_BENCH=ON"
braid_install libopenmpi-dev openmpi-bin
libraries=(braid mpi)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags=(-std=c++20 -O3 -I"$braid_root")
mpicxx "${flags[@]}" "$braid_root/tests/bench/collective_mpi.cc" -o "$folder/collective_mpi"
if [[ $collective == all_reduce && $ranks == 2 ]]; then
  braid_install libgloo-dev
  g++ "${flags[@]}" "$braid_root/tests/bench/collective_gloo.cc" -o "$folder/collective_gloo" \
    -lgloo -lpthread
  libraries+=(gloo)
fi

measure_braid() {
  local rank port=$((20000 + RANDOM % 10000))
  for ((rank = 0; rank < ranks; ++rank)); do
    BRAID_BENCH_TRANSPORT=$transport RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 \
      MASTER_PORT=$port taskset -c $((rank % cores)) "$bin/collective_bench" "$collective" &
  done
  wait
}

measure_gloo() {
  local rank meeting
  meeting=$(mktemp -d -p "$folder")
  for rank in 0 1; do "$folder/collective_gloo" "$meeting" "$rank" 2 & done
  wait
}

measure_mpi() {
  local ways=(--mca btl tcp,self --mca btl_tcp_if_include lo)
  [[ $transport == tcp ]] || ways=(--mca btl vader,self)
  if ((ranks > cores)); then ways+=(--oversubscribe --bind-to none); else ways+=(--bind-to core); fi
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --mca pml ob1 "${ways[@]}" -n "$ranks" "$folder/collective_mpi" "$collective"
}

for ((turn = 1; turn <= turns; ++turn)); do
  for library in "${libraries[@]}"; do
    "measure_$library" | sed "s/^/$library /" | tee -a "$folder/times"
  done
done
echo "median of $turns turns of $collective, $ranks ranks, over $transport, in microseconds"
sort -k1,1 -k2,2n -k3,3n "$folder/times" | awk -v turns="$turns" -v libraries="${libraries[*]}" '
  { key = $1 " " $2; times[key] = times[key] " " $3; if ($1 == "braid") sizes[$2] = 1 }
  END {
    for (key in times) { split(times[key], t, " "); median[key] = t[int((turns + 1) / 2)] }
    n = split(libraries, names, " ")
    for (bytes in sizes) {
      mine = median["braid " bytes]
      line = sprintf("%9d bytes: braid %.1f", bytes, mine)
      for (i = 2; i <= n; ++i) {
        other = median[names[i] " " bytes]
        line = line sprintf(", %s %.1f (%.2f)", names[i], other, other / mine)
      }
      print line
    }
  }' | sort -n
