#!/usr/bin/env bash
# tests/cuda/prove.sh DIR [STAGE]...: what only a card can show, with what pack.sh put into DIR: needs a
# driver, CUDA's libraries and a Python with PyTorch, no compiler and no network. Stages:
#   correct   every operator's kernel against the CPU's; sessions on one and more parts of the card
#   train     mnist, gpt and resnet: losses as on CPUs
#   layouts   every operator in every legal layout
#   sanitize  compute-sanitizer on a part of `correct`
#   bench     steps a second, Braid's and PyTorch's in turns
# Without a stage all of them. DIR/report.json has what was found; a stage that is whole there is not
# run again. The last lines are a table.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/prove.py" "$@"
