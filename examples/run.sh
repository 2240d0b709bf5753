#!/usr/bin/env bash
# Installs what is missing, builds, and trains on handwritten digits on 2 nodes of 2 CPU devices
# each, two processes of this machine that talk over TCP; the last line is the accuracy. Digits are
# drawn by the program unless --data DIR names a folder with MNIST's files. All arguments go to the
# program: examples/run.sh --helpfull.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

braid_install "${braid_packages[@]}"
braid_configure release
braid_build release mnist braid

bin=$braid_root/build/release/bin
command=("$bin/braid" launch --local 2 --devices cpu:2 -- "$bin/mnist" --parallel=hybrid)
# Who says the nodes himself starts them himself.
for argument in "$@"; do
  [[ $argument =~ ^--?(devices|simulate_nodes|nodes|help.*)(=|$) ]] && command=("$bin/mnist")
done
exec "${command[@]}" --epochs=5 "$@"
