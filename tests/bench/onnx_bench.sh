#!/usr/bin/env bash
# Milliseconds of a Run of one step of ONNX models: Braid and ONNX Runtime, taking turns, each on one
# thread and pinned to one core, with the memory that their processes took at most. Prints a line for
# each model and at the end the median of ONNX Runtime's time by Braid's; models that are slower than
# ONNX Runtime come last. Needs build/release/bin/braid_onnx_run and a Python with numpy, onnx and
# onnxruntime, /usr/bin/python3 or that of BRAID_BENCH_PYTHON.
#
#   tests/bench/onnx_bench.sh FOLDER [TURNS] [SECONDS] [NAME...]
#
# FOLDER has cases, NAME/model.onnx and inputs beside it (tests/onnx/export_models.py writes them);
# with NAMEs only those whose names contain one of these. BRAID_BENCH_BATCH=8 gives all inputs that
# leading size, in those models that can have it; without it they have that of the case.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
program=$braid_root/build/release/bin/braid_onnx_run
[[ -x $program ]] || braid_fail "no $program; build it: ninja -C build/release braid_onnx_run"
[[ $# -ge 1 && -d $1 ]] || braid_fail "usage: tests/bench/onnx_bench.sh FOLDER [TURNS] [SECONDS] [NAME...]"
exec "${BRAID_BENCH_PYTHON:-/usr/bin/python3}" "$braid_root/tests/bench/onnx_bench.py" "$program" "$@"
