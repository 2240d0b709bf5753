#!/usr/bin/env python3
"""Losses of the mnist example under every layout against those of one device, on real digits.

    mnist_equality.py BIN_DIR

f64: 200 losses within 1e-9 relative. f32: two runs of one layout write equal files; how far the
curves of 50 losses are from one device's is printed, not bounded, because one ReLU that flips on
rounding parts them. acceptance_tests hold f32 to one device's losses and gradients, flip by flip.
All with and without dropout and micro-batches. Exits 77 without $BRAID_TEST_DATA/mnist.
"""

import json
import os
import subprocess
import sys
import tempfile

CLUSTERS = ["--devices=cpu:%d" % n for n in (1, 2, 3, 4)] + [
    "--simulate_nodes=" + nodes for nodes in ("2x1", "2x2", "4x1", "1+2")
]
VARIANTS = [[], ["--dropout=0.2"], ["--dropout=0.2", "--micro_batches=4"]]


def untimed(text):
    """A loss file's lines without what the clock says."""
    lines = [json.loads(line) for line in text.decode().splitlines()]
    clock = ("time", "samples_per_second")
    return [{key: line[key] for key in line if key not in clock} for line in lines]


def run(program, data, steps, arguments):
    """The lines of a run's loss file."""
    with tempfile.NamedTemporaryFile() as file:
        command = [program, "--data=" + data, "--steps=%d" % steps, "--metrics_json=" + file.name]
        subprocess.run(command + arguments, check=True, stdout=subprocess.DEVNULL)
        return untimed(file.read())


def losses(lines):
    return [line["loss"] for line in lines if line["job"] == "train"]


def compare_layouts(dtype, steps, variant, run_layout):
    """Failures of all layouts, and the largest relative difference from one device's losses."""
    failures, reference, worst, parted = 0, None, 0.0, 0
    for parallel in ("data", "model", "hybrid", "pipeline"):
        for cluster in CLUSTERS:
            if parallel == "hybrid" and "+" in cluster:
                continue
            arguments = ["--dtype=" + dtype, "--parallel=" + parallel, cluster] + variant
            lines = run_layout(steps, arguments)
            got = losses(lines)
            if reference is None:
                reference = got
            error = max(abs(a - b) / abs(b) for a, b in zip(got, reference))
            worst = max(worst, error)
            parted += error > 1e-4
            if len(got) != steps:
                print("%d losses instead of %d:" % (len(got), steps), *arguments)
                failures += 1
            if dtype == "f64" and not error <= 1e-9:
                print("relative error %.2e:" % error, *arguments)
                failures += 1
            if dtype == "f32" and run_layout(steps, arguments) != lines:
                print("two runs differ:", *arguments)
                failures += 1
    note = "; %d layouts above 1e-4" % parted if dtype == "f32" else ""
    print("%s %s: worst relative error %.2e%s" % (dtype, " ".join(variant), worst, note), flush=True)
    return failures


def main():
    program = os.path.join(sys.argv[1], "mnist")
    data = os.path.join(os.environ.get("BRAID_TEST_DATA", ""), "mnist")
    if not os.path.isdir(data):
        print("SKIPPED: no $BRAID_TEST_DATA/mnist")
        return 77

    def run_layout(steps, arguments):
        return run(program, data, steps, arguments)

    failures = 0
    for dtype, steps in (("f64", 200), ("f32", 50)):
        for variant in VARIANTS:
            failures += compare_layouts(dtype, steps, variant, run_layout)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
