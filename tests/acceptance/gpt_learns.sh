#!/usr/bin/env bash
# Trains the gpt example (4 layers, 128 channels, context 128) on real text on one device and on 2x2
# hybrid, until held-out text takes less than 1.9 nats a character. Exits 77 without the data.
#
#   tests/acceptance/gpt_learns.sh build/release/bin [steps]
set -euo pipefail
bin=${1:?usage: gpt_learns.sh BIN_DIR [STEPS]}
steps=${2:-1500}
text=${BRAID_TEST_DATA-}/text/tinyshakespeare.txt
[[ -e $text ]] || {
  echo "SKIPPED: no \$BRAID_TEST_DATA/text/tinyshakespeare.txt"
  exit 77
}
for layout in "--devices=cpu:1" "--simulate_nodes=2x2 --parallel=hybrid"; do
  # shellcheck disable=SC2086
  nats=$("$bin/gpt" --data="$text" --steps="$steps" --generate=0 $layout |
    tee /dev/stderr | awk '/held-out/ {last = $NF} END {print last}')
  echo "$layout: $nats nats per character"
  awk "BEGIN {exit !($nats < 1.9)}"
done
