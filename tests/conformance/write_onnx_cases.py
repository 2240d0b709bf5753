#!/usr/bin/env python3
"""Writes the test cases of the installed Python package `onnx` as onnx_conformance_tests reads them.

    python3 -m venv venv && venv/bin/pip install onnx
    venv/bin/python tests/conformance/write_onnx_cases.py FOLDER
    BRAID_ONNX_CASES=FOLDER build/release/bin/onnx_conformance_tests

Cases of single operators are made anew by the package; the other sets are files that it brings. Of
the real models it brings those whose weights are made by ConstantOfShape, and their outputs; their
inputs are made as its own runner makes them.
"""

import json
import os
import pathlib
import shutil
import sys

import numpy as np
import onnx
import onnx.backend.test
import onnx.backend.test.case.model
import onnx.backend.test.case.node


def to_bytes(value, info):
    """One input or output as the file format has it."""
    helper = onnx.numpy_helper
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString()
    if info.type.HasField("map_type"):
        return helper.from_dict(value, info.name).SerializeToString()
    if info.type.HasField("sequence_type"):
        return helper.from_list(value, info.name).SerializeToString()
    if info.type.HasField("optional_type"):
        return helper.from_optional(value, info.name).SerializeToString()
    return helper.from_array(value, info.name).SerializeToString()


def write(case, folder):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        graph = case.model.graph
        for prefix, values, infos in (
            ("input", inputs, graph.input),
            ("output", outputs, graph.output),
        ):
            for i, value in enumerate(values):
                (data / f"{prefix}_{i}.pb").write_bytes(to_bytes(value, infos[i]))


def ramp(info):
    """Numbers from 0 to 1 of an input's shape, as onnx.backend.test.runner feeds these models."""
    shape = [dim.dim_value if dim.HasField("dim_value") else 1
             for dim in info.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def write_real(case, light, folder):
    """`case` says which of the models in the folder `light` it is."""
    url = json.loads((case / "data.json").read_text())["url"]
    path = light / pathlib.PurePosixPath(url).name
    model = onnx.load(str(path))
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    shutil.copy(path, folder / "model.onnx")
    weights = {each.name for each in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in weights]
    for i, info in enumerate(inputs):
        (data / f"input_{i}.pb").write_bytes(to_bytes(ramp(info), info))
    for i in range(len(model.graph.output)):
        shutil.copy(path.with_name(f"{path.stem}_output_{i}.pb"), data / f"output_{i}.pb")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    top = pathlib.Path(sys.argv[1])
    if top.exists():
        sys.exit(f"{top} exists already; name a new folder")
    cases = onnx.backend.test.case.node.collect_testcases(None)
    cases += onnx.backend.test.case.model.collect_testcases()
    written = 0
    for case in cases:
        if case.model is not None and case.data_sets is not None:
            write(case, top / case.kind / case.name)
            written += 1
    data = pathlib.Path(os.path.dirname(onnx.backend.test.__file__)) / "data"
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for case in sorted((data / kind).iterdir()):
            if case.is_dir() and not (top / kind / case.name).exists():
                shutil.copytree(case, top / kind / case.name)
                written += 1
    for case in sorted((data / "real").iterdir()):
        if (case / "data.json").exists():
            write_real(case, data / "light", top / "real" / case.name)
            written += 1
    print(f"wrote {written} cases of onnx {onnx.__version__} to {top}")


if __name__ == "__main__":
    main()
