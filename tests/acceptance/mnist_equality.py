#!/usr/bin/env python3
"""Losses of the mnist example under every layout against those of one device, on real digits.

    mnist_equality.py BIN_DIR

f64: 200 losses within 1e-9 relative; f32: the first 50 within 1e-4; with and without dropout and
micro-batches; two runs of one layout write equal files. Exits 77 without $BRAID_TEST_DATA/mnist.
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


def run(program, data, steps, arguments):
    """The loss file of a run, as bytes."""
    with tempfile.NamedTemporaryFile() as file:
        command = [program, "--data=" + data, "--steps=%d" % steps, "--metrics_json=" + file.name]
        subprocess.run(command + arguments, check=True, stdout=subprocess.DEVNULL)
        return file.read()


def losses(text):
    lines = [json.loads(line) for line in text.decode().splitlines()]
    return [line["loss"] for line in lines if line["job"] == "train"]


def main():
    program = os.path.join(sys.argv[1], "mnist")
    data = os.path.join(os.environ.get("BRAID_TEST_DATA", ""), "mnist")
    if not os.path.isdir(data):
        print("SKIPPED: no $BRAID_TEST_DATA/mnist")
        return 77
    failures = 0
    for dtype, steps, bound in (("f64", 200, 1e-9), ("f32", 50, 1e-4)):
        for variant in VARIANTS:
            reference, worst = None, 0.0
            for parallel in ("data", "model", "hybrid", "pipeline"):
                for cluster in CLUSTERS:
                    if parallel == "hybrid" and "+" in cluster:
                        continue
                    arguments = ["--dtype=" + dtype, "--parallel=" + parallel, cluster] + variant
                    text = run(program, data, steps, arguments)
                    got = losses(text)
                    if reference is None:
                        reference = got
                    if dtype == "f32" and run(program, data, steps, arguments) != text:
                        print("two runs differ:", *arguments)
                        failures += 1
                    error = max(abs(a - b) / abs(b) for a, b in zip(got, reference))
                    worst = max(worst, error)
                    if len(got) != steps or not error <= bound:
                        print("relative error %.2e:" % error, *arguments)
                        failures += 1
            print("%s %s: worst relative error %.2e" % (dtype, " ".join(variant), worst), flush=True)
    return 1 if failures else 0


sys.exit(main())
