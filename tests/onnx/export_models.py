#!/usr/bin/env python3
"""Exports small models of other frameworks as cases that onnx_conformance_tests reads.

    python3 -m venv venv && venv/bin/pip install onnx onnxruntime onnxscript torch torchvision \\
        transformers scikit-learn skl2onnx onnxconverter-common
    venv/bin/python tests/onnx/export_models.py FOLDER [NAME...]
    BRAID_ONNX_CASES=FOLDER build/release/bin/onnx_conformance_tests --gtest_filter='*exported*'

Each case is FOLDER/exported/NAME: model.onnx, its inputs, and the outputs of ONNX Runtime; of those
whose names end in _trained also what torch makes of the model by 20 steps of SGD. Weights
are random, of fixed seeds: nothing is downloaded. What is not installed is left out, and said. With
NAMEs only the models whose names contain one of these are made, anew if they are there.
"""

import importlib.util
import pathlib
import shutil
import sys
import time
import traceback
import warnings

import numpy as np
import onnx
import onnxruntime

import models_sklearn
import models_torch
import models_quantized


def tensor_bytes(value, name):
    return onnx.numpy_helper.from_array(np.ascontiguousarray(value), name).SerializeToString()


def output_bytes(value, name):
    """Of a list of maps from class to probability (ZipMap) the probabilities: a row for each map.

    In the file it is a sequence, so the one tensor is in a SequenceProto."""
    if not isinstance(value, list):
        return tensor_bytes(value, name)
    rows = np.array([list(row.values()) for row in value], np.float32)
    sequence = onnx.SequenceProto(name=name, elem_type=onnx.SequenceProto.TENSOR)
    sequence.tensor_values.append(onnx.numpy_helper.from_array(rows))
    return sequence.SerializeToString()


def expected_outputs(model, feeds):
    options = onnxruntime.SessionOptions()
    # What fuses operators also rounds otherwise than the model says.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # With several, DynamicQuantizeLSTM measures the range of each thread's samples.
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def write(folder, model, inputs, trained=None):
    """`inputs` are arrays in the order of the graph's inputs, `trained` what the first output is
    after training."""
    weights = {each.name for each in model.graph.initializer}
    infos = [info for info in model.graph.input if info.name not in weights]
    if len(infos) != len(inputs):
        raise ValueError(f"{len(inputs)} inputs for {[info.name for info in infos]}")
    feeds = {info.name: value for info, value in zip(infos, inputs)}
    outputs = expected_outputs(model, feeds)
    if folder.exists():
        shutil.rmtree(folder)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for i, (name, value) in enumerate(feeds.items()):
        (data / f"input_{i}.pb").write_bytes(tensor_bytes(value, name))
    for i, (info, value) in enumerate(zip(model.graph.output, outputs)):
        (data / f"output_{i}.pb").write_bytes(output_bytes(value, info.name))
    if trained is not None:
        (data / "trained_output_0.pb").write_bytes(tensor_bytes(trained, "trained"))


def operators(model):
    return {f"{node.domain}.{node.op_type}".lstrip(".") for node in model.graph.node}


def versions(model):
    return " ".join(f"{each.domain or 'onnx'}:{each.version}" for each in model.opset_import)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    warnings.filterwarnings("ignore")
    onnxruntime.set_default_logger_severity(3)
    top, wanted = pathlib.Path(sys.argv[1]) / "exported", sys.argv[2:]
    begin, written, failed = time.time(), 0, []
    print(f"{'model':34} {'nodes':>6} {'kinds':>6} {'KB':>8} {'s':>6}  operator sets")
    for family in (models_sklearn, models_torch, models_quantized):
        missing = [each for each in family.NEEDS if importlib.util.find_spec(each) is None]
        if missing:
            print(f"{family.__name__}: left out, as {', '.join(missing)} is not installed")
            continue
        for name, make in family.models():
            if wanted and not any(part in name for part in wanted):
                continue
            start = time.time()
            try:
                model, *arrays = make()
                write(top / name, model, *arrays)
            except Exception as error:  # of any exporter; the others go on
                failed.append((name, error))
                traceback.print_exc(file=sys.stderr)
                continue
            written += 1
            print(
                f"{name:34} {len(model.graph.node):6} {len(operators(model)):6} "
                f"{model.ByteSize() / 1024:8.0f} {time.time() - start:6.1f}  {versions(model)}",
                flush=True,
            )
    print(f"wrote {written} models to {top} in {time.time() - begin:.0f} s")
    for name, error in failed:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"not exported: {name}: {reason[:150]}")


if __name__ == "__main__":
    main()
