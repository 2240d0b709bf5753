#!/usr/bin/env bash
# Installs what is missing, builds, and trains on handwritten digits on 2 simulated nodes of 2 CPU
# devices each; the last line is the accuracy. Digits are drawn by the program unless --data DIR
# names a folder with MNIST's files. All arguments go to the program: examples/run.sh --helpfull.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

braid_install "${braid_packages[@]}"
braid_configure release
braid_build release mnist

# A later flag beats an earlier one, except that --devices and --simulate_nodes exclude each other.
cluster=(--simulate_nodes=2x2 --parallel=hybrid)
for argument in "$@"; do
  [[ $argument =~ ^--?(devices|simulate_nodes)(=|$) ]] && cluster=()
done
exec "$braid_root/build/release/bin/mnist" "${cluster[@]}" --epochs=5 "$@"
