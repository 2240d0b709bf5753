#!/usr/bin/env python3
"""The work of onnx_bench.sh, which says what it does: onnx_bench.py PROGRAM FOLDER [TURNS [SECONDS [NAME...]]]"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

KEEPS_ITS_BATCH = 3  # an exit code

# What a process that starts others has in memory counts as theirs: this one stays small, and imports
# what is large in processes of their own.


def write_inputs(case, folder, batch):
    """With a `batch` also the model with that leading size of all inputs, if it can have it."""
    import numpy as np
    import onnx

    arrays = {}
    for path in pathlib.Path(case, "test_data_set_0").glob("input_*.pb"):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        arrays[path.stem] = onnx.numpy_helper.to_array(tensor)
    if batch:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        model = onnx.load(f"{case}/model.onnx")
        weights = {each.name for each in model.graph.initializer}
        for info in model.graph.input:
            dims = info.type.tensor_type.shape.dim
            if info.name not in weights and len(dims) > 0:
                dims[0].Clear()
                dims[0].dim_value = batch
        for info in model.graph.output:
            info.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
        arrays = {
            name: np.resize(array, (batch, *array.shape[1:])) if array.ndim else array
            for name, array in arrays.items()
        }
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            session.run(None, {
                each.name: arrays[f"input_{i}"] for i, each in enumerate(session.get_inputs())
            })
        except Exception:  # a size that its exporter wrote into it
            sys.exit(KEEPS_ITS_BATCH)
        onnx.save(model, f"{folder}/model.onnx")
    for name, array in arrays.items():
        np.save(f"{folder}/{name}.npy", array)


def run_runtime(model, folder, seconds):
    """As the program prints it."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {
        each.name: np.load(f"{folder}/input_{i}.npy") for i, each in enumerate(session.get_inputs())
    }
    start = time.perf_counter()
    while time.perf_counter() - start < seconds / 10:
        session.run(None, feeds)
    times = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - begin)
    print(f"  {1e3 * statistics.median(times):.6g} ms a run")


def measure(command):
    """Milliseconds of a step, and MiB of the process; None if it failed."""
    with tempfile.TemporaryFile() as out:
        # Some processors' older libraries are told of a type that newer ones do not know.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        pid = os.posix_spawnp(
            "taskset",
            ["taskset", "-c", "0", *command],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, out.fileno(), 2),
            ],
        )
        _, status, usage = os.wait4(pid, 0)
        out.seek(0)
        text = out.read().decode(errors="replace")
    found = re.search(r"([0-9.e+-]+) ms a run", text)
    if status != 0 or found is None:
        return None, text.strip().splitlines()[-1:] or ["nothing was printed"]
    return float(found.group(1)), usage.ru_maxrss / 1024


def main():
    if sys.argv[1] == "runtime":
        return run_runtime(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    if sys.argv[1] == "inputs":
        return write_inputs(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    program, top = sys.argv[1], pathlib.Path(sys.argv[2])
    turns = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    seconds = sys.argv[4] if len(sys.argv) > 4 else "0.5"
    names = sys.argv[5:]
    batch = os.environ.get("BRAID_BENCH_BATCH", "0")
    results, kept, shares = [], [], []
    for case in sorted(each.parent for each in top.glob("*/model.onnx")):
        if names and not any(name in case.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([sys.executable, __file__, "inputs", str(case), folder, batch])
            if made.returncode == KEEPS_ITS_BATCH:
                kept.append(case.name)
                continue
            made.check_returncode()
            model = str((case if batch == "0" else pathlib.Path(folder)) / "model.onnx")
            commands = {
                "braid": [program, f"--model={model}", f"--inputs={folder}", "--devices=cpu:1",
                          f"--bench={seconds}"],
                "runtime": [sys.executable, __file__, "runtime", model, folder, seconds],
            }
            times = {"braid": [], "runtime": []}
            memory = {}
            failure = None
            for _ in range(turns):
                for name, command in commands.items():
                    took, beside = measure(command)
                    if took is None:
                        failure = f"{name}: {beside[0]}"
                        break
                    times[name].append(took)
                    memory[name] = max(memory.get(name, 0), beside)
                if failure:
                    break
        if failure:
            print(f"{case.name}: {failure}", flush=True)
            continue
        ours, theirs = (statistics.median(times[name]) for name in ("braid", "runtime"))
        results.append((theirs / ours, case.name))
        shares.append((memory["braid"] / memory["runtime"], case.name))
        print(
            f"{case.name}: braid {ours:.4g} ms, {memory['braid']:.0f} MiB; ONNX Runtime {theirs:.4g} "
            f"ms, {memory['runtime']:.0f} MiB; rate {theirs / ours:.2f}",
            flush=True,
        )
    if results:
        rates = [rate for rate, _ in results]
        print(f"{len(rates)} models: median rate {statistics.median(rates):.2f}, least {min(rates):.2f}")
        slower = [f"{name} {rate:.2f}" for rate, name in sorted(results) if rate < 1]
        print(f"{len(slower)} slower than ONNX Runtime: {', '.join(slower)}")
        median = statistics.median(share for share, _ in shares)
        most, name = max(shares)
        print(f"memory of ONNX Runtime's process: median {median:.2f}, most {most:.2f} ({name})")
    if kept:
        print(f"{len(kept)} have another batch written into them: {', '.join(kept)}")


if __name__ == "__main__":
    main()
