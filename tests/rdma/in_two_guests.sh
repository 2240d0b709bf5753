#!/usr/bin/env bash
# tests/rdma/in_two_guests.sh BIN: what run_two.sh runs in each of two guests: a training on both over
# tcp and over rdma, whose first losses are the same. Guest 0 is the master and compares.
set -euo pipefail
bin=${1:?usage: in_two_guests.sh BIN}
work=$(mktemp -d)
export BRAID_AUTH_TOKEN=of-these-guests GLOG_logtostderr=1
printf '10.77.0.1\n10.77.0.2\n' >"$work/nodes"

for transport in tcp rdma; do
  echo "==== ${SECONDS} s: over $transport"
  # Emulated, a step takes seconds; the guests need not start at the same time.
  GLOG_v=1 timeout 250 "$bin/mnist" --nodes="$work/nodes" --node_rank="$RANK" --join_timeout=120s \
    --transport=$transport --steps=1000 --batch=4 --metrics_json="$work/$transport.json" \
    >"$work/$transport" 2>&1 &
  training=$!
  while [[ $RANK -eq 0 ]] && kill -0 "$training" 2>/dev/null; do
    [[ $(grep -c '"loss"' "$work/$transport.json" 2>/dev/null) -lt 3 ]] || kill -TERM "$training"
    sleep 0.5
  done
  wait "$training" || true  # the master ends it
  if ! grep -qE "node $RANK <-> node $((1 - RANK)): $transport " "$work/$transport"; then
    cat "$work/$transport" >&2
    exit 1
  fi
done
[[ $RANK -eq 0 ]] || exit 0
losses() { head -n 3 "$work/$1.json" | sed -E 's/, "(time|samples_per_second)": [^,}]*//g'; }
[[ $(losses tcp | grep -c '"loss"') -eq 3 ]] || { cat "$work/tcp" >&2; exit 1; }
diff <(losses tcp) <(losses rdma) || { cat "$work/rdma" >&2; exit 1; }
