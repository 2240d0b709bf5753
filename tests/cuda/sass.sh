#!/usr/bin/env bash
# tests/cuda/sass.sh MODULE: what a card will run, in its own instructions. The kernels that are bound
# by memory read and write 16 bytes at a time, and keep what they compute with in registers. Needs
# CUDA's cuobjdump and nvdisasm, in PATH or in /usr/local/cuda/bin; without them it exits with 77.
set -euo pipefail
export PATH=$PATH:/usr/local/cuda/bin
for tool in cuobjdump nvdisasm c++filt; do
  command -v "$tool" > /dev/null || {
    echo "SKIP: there is no $tool here"
    exit 77
  }
done
exec python3 "$(dirname "${BASH_SOURCE[0]}")/sass.py" "${1:?usage: sass.sh MODULE}"
