#!/usr/bin/env bash
# Steps per second of two Braid nodes over TCP against PyTorch's DistributedDataParallel over Gloo
# with two ranks, on loopback, one thread a process, each pinned to a core of its own, with the same
# batch per rank, taking turns; Braid also as a program of process groups, two ranks that each read
# their own part (mlp and gpt); and, for the scaling, Braid's one node with that batch alone on the
# machine, and two of them at once that know nothing of each other, which is what two cores that share
# caches and memory can do at best. Prints each turn and the median ratios.
# Needs build/release/bin with step_bench.
#
#   tests/bench/ddp_bench.sh TEXT [ROUNDS] [SECONDS] [MODEL:BATCH[:SIDE[:whole]]...]
#
# The models are those of step_bench.sh. DistributedDataParallel normalizes each rank's images by
# themselves; so do Braid's residual networks here (a group of images a node), but with "whole" by
# the statistics of both. BRAID_BENCH_LINK, a rate as tc writes it (1gbit), puts the two nodes, and
# the two ranks, into network namespaces with a link of that rate between them (as root).
# BRAID_BENCH_TRANSPORT is of Braid's two nodes and ranks, tcp if it is not set; PyTorch's go over
# Gloo.
# BRAID_BENCH_PYTHONS and BRAID_BENCH_TORCH are those of step_bench.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
text=${1:?usage: ddp_bench.sh TEXT [ROUNDS] [SECONDS] [MODEL:BATCH[:SIDE[:whole]]...]}
rounds=${2:-5}
seconds=${3:-3}
models=("${@:4}")
((${#models[@]})) || models=(mlp:100 mlp:1024 gpt:8)
bench=${BRAID_STEP_BENCH:-$root/build/release/bin/step_bench}
port=${BRAID_BENCH_PORT:-29571}
link=${BRAID_BENCH_LINK-}
read -r -a pythons <<<"${BRAID_BENCH_PYTHONS:-/usr/bin/python3}"
read -r -a torch_options <<<"${BRAID_BENCH_TORCH-}"
versions=()
for python in "${pythons[@]}"; do
  versions+=("$("$python" -c 'import torch; print(torch.__version__)')")
done
export OMP_NUM_THREADS=1

host=127.0.0.1
if [[ -n $link ]]; then
  host=10.77.77.1
  spaces=("braid-bench-$$-0" "braid-bench-$$-1")
  trap 'for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null || true; done' EXIT
  for space in "${spaces[@]}"; do ip netns add "$space"; done
  ip link add bench netns "${spaces[0]}" type veth peer name bench netns "${spaces[1]}"
  for node in 0 1; do
    ip -n "${spaces[node]}" addr add "10.77.77.$((node + 1))/24" dev bench
    ip -n "${spaces[node]}" link set bench up
    ip -n "${spaces[node]}" link set lo up
    tc -n "${spaces[node]}" qdisc add dev bench root tbf rate "$link" burst 256kb latency 50ms
  done
  BRAID_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
  export BRAID_AUTH_TOKEN GLOO_SOCKET_IFNAME=bench
fi

# on_core CORE COMMAND...: the nodes of braid are started by hand, as the ranks of torch are.
on_core() {
  local core=$1 there=()
  shift
  [[ -z $link ]] || there=(ip netns exec "${spaces[core]}")
  "${there[@]}" taskset -c "$core" "$@"
}

# both VARIABLE COMMAND...: two of them, on a core each; the variable says which is the first, whose
# output counts.
both() {
  local variable=$1 second
  shift
  (export "$variable=1" && on_core 1 "$@") >/dev/null &
  second=$!
  (export "$variable=0" && on_core 0 "$@")
  wait "$second"
}

# The flags of two nodes or ranks with this batch each.
flags_of_two() {
  flags=(--model="$1" --batch=$((2 * $2)) --seconds="$seconds" --text="$text" "${options[@]}"
    --transport="${BRAID_BENCH_TRANSPORT:-tcp}")
}

braid_two() {
  flags_of_two "$@"
  export NNODES=2 MASTER_ADDR=$host MASTER_PORT=$port
  both NODE_RANK "$bench" "${flags[@]}" --progress=off --norm_groups="$norm_groups"
}

# The same as a program of process groups.
braid_ranks() {
  flags_of_two "$@"
  export WORLD_SIZE=2 MASTER_ADDR=$host MASTER_PORT=$((port + 2))
  both RANK "$bench" "${flags[@]}"
}

one_node() {
  local model=$1 batch=$2 core=$3
  on_core "$core" "$bench" --model="$model" --batch="$batch" --seconds="$seconds" --text="$text" \
    --progress=off "${options[@]}"
}

# The slower's rate, as that of two nodes in step.
braid_apart() {
  local other here there
  other=$(mktemp)
  one_node "$1" "$2" 1 >"$other" &
  here=$(one_node "$1" "$2" 0)
  wait $!
  there=$(<"$other")
  rm "$other"
  printf '%s\n' "$here" "$there" | sort -n | head -1
}

torch_two() {
  local python=$1
  shift
  export WORLD_SIZE=2 MASTER_ADDR=$host MASTER_PORT=$((port + 1))
  both RANK "$python" "$root/tests/bench/step_torch.py" "$1" "$2" "$seconds" "$text" "${options[@]}" \
    "${torch_options[@]}"
}

median() { sort -n | awk '{r[NR] = $1} END {print r[int((NR + 1) / 2)]}'; }
quotient() { awk "BEGIN {printf \"%.3f\", $1 / $2}"; }

for what in "${models[@]}"; do
  IFS=: read -r model batch side norm <<<"$what"
  case ${norm-} in
    "") norm_groups=2 ;;
    whole) norm_groups=0 ;;
    *) echo "$what: \"$norm\" after the side; whole, or nothing, was expected" >&2 && exit 2 ;;
  esac
  options=(--side "${side:-32}")
  [[ $model != gpt6 ]] || options+=(--layers 6 --width 384 --heads 6 --context 256)
  model=${model%6}
  ratios=() scaling=() apart_scaling=() spmd=() spmd_ratios=()
  for ((round = 0; round < rounds; ++round)); do
    two=$(braid_two "$model" "$batch")
    apart=$(braid_apart "$model" "$batch")
    one=$(one_node "$model" "$batch" 0)
    scaling+=("$(quotient "$two" "$one")")
    apart_scaling+=("$(quotient "$two" "$apart")")
    ranks=
    if [[ $model == mlp || $model == gpt ]]; then
      ranks=$(braid_ranks "$model" "$batch")
      spmd+=("$(quotient "$ranks" "$two")")
    fi
    echo "$what a rank: braid $two steps/s${ranks:+, as ranks $ranks}; one node $one, two apart $apart"
    for i in "${!pythons[@]}"; do
      theirs=$(torch_two "${pythons[i]}" "$model" "$batch")
      echo "$what a rank: torch ${versions[i]} $theirs steps/s"
      ratios[i]+=$(quotient "$two" "$theirs")$'\n'
      [[ -z $ranks ]] || spmd_ratios[i]+=$(quotient "$ranks" "$theirs")$'\n'
    done
  done
  echo "$what: two nodes' rate / one node's $(printf '%s\n' "${scaling[@]}" | median)," \
    "/ that of two apart $(printf '%s\n' "${apart_scaling[@]}" | median)"
  [[ -z $ranks ]] || echo "$what: ranks' rate / two nodes' $(printf '%s\n' "${spmd[@]}" | median)"
  for i in "${!pythons[@]}"; do
    said="$what, torch ${versions[i]}: median ratio $(median <<<"${ratios[i]%$'\n'}")"
    [[ -z $ranks ]] || said+=", as ranks $(median <<<"${spmd_ratios[i]%$'\n'}")"
    echo "$said"
  done
done
