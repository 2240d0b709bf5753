#!/usr/bin/env python3
"""Runs the cases that export_models.py wrote with `braid onnx` on one, two, four and 2 x 2 devices.

    venv/bin/python tests/onnx/run_models.py build/release/bin/braid_onnx_run FOLDER/exported [NAME...]

Prints a line for each case that is refused or differs on some devices, and at the end how many agree.
Outputs of whole models are compared by the largest number in them, within 1e-5; 2e-3 where the model
computes in 16 bits, and 1e-3 where it quantizes by ranges of its own (a rounding before that may
move a number by a step).
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx

DEVICES = ("--devices=cpu:1", "--devices=cpu:2", "--devices=cpu:4", "--simulate_nodes=2x2")


def arrays(case, prefix):
    """input_0.pb, ... as arrays; of a sequence its only tensor."""
    found = []
    for i in range(1000):
        path = case / "test_data_set_0" / f"{prefix}_{i}.pb"
        if not path.exists():
            return found
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(path.read_bytes())
            found.append(onnx.numpy_helper.to_array(tensor))
        except Exception:  # what protobuf says of another message differs between versions
            sequence = onnx.SequenceProto()
            sequence.ParseFromString(path.read_bytes())
            found.append(onnx.numpy_helper.to_array(sequence.tensor_values[0]))
    return found


def tolerance(model):
    kinds = {each.data_type for each in model.graph.initializer}
    ops = {node.op_type for node in model.graph.node}
    if onnx.TensorProto.FLOAT16 in kinds:
        return 2e-3
    return 1e-3 if any(op.startswith("DynamicQuantize") for op in ops) else 1e-5


def main():
    program, top, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    agree = total = 0
    for case in sorted(each.parent for each in top.glob("*/model.onnx")):
        if names and not any(name in case.name for name in names):
            continue
        total += 1
        model = onnx.load(str(case / "model.onnx"))
        problems = []
        with tempfile.TemporaryDirectory() as folder:
            for prefix in ("input", "output"):
                for i, array in enumerate(arrays(case, prefix)):
                    np.save(f"{folder}/{prefix}_{i}.npy", array)
            for devices in DEVICES:
                ran = subprocess.run(
                    [program, f"--model={case / 'model.onnx'}", f"--inputs={folder}", devices,
                     f"--tolerance={tolerance(model)}"],
                    capture_output=True, text=True, timeout=300)
                if ran.returncode != 0:
                    problems.append(f"{devices}: {ran.stderr.strip().splitlines()[-1][:300]}")
        if problems:
            print(f"{case.name}: " + "\n  ".join(problems), flush=True)
        else:
            agree += 1
    print(f"{agree} of {total} models agree on one, two, four and 2 x 2 devices")
    sys.exit(agree < 0.97 * total)


if __name__ == "__main__":
    main()
