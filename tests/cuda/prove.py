"""prove.py DIR [STAGE]...: see prove.sh, which calls it."""

import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

CARD_LIMIT = 520  # seconds of one stage


class Proof:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.bin = os.path.join(self.folder, "bin")
        self.report_path = os.path.join(self.folder, "report.json")
        self.report = {}
        if os.path.exists(self.report_path):
            with open(self.report_path) as file:
                self.report = json.load(file)
        self.environment = dict(os.environ, BRAID_TEST_DEVICE="cuda:1")
        self.libraries = library_folders()
        self.environment["LD_LIBRARY_PATH"] = os.path.join(self.folder, "lib") + ":" + self.libraries

    def run(self, *command, limit=CARD_LIMIT, **environment):
        """The exit code, what it printed, and its seconds."""
        begin = time.monotonic()
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=limit, env=dict(self.environment, **environment), cwd=self.folder,
                errors="replace",
            )
            code, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            text = expired.stdout or ""
            code, text = 124, text if isinstance(text, str) else text.decode(errors="replace")
        return code, text, time.monotonic() - begin

    def program(self, name, *flags, **options):
        return self.run(
            os.path.join(self.bin, name), *flags, "--progress=off", "--event_dump=none",
            "--cuda_libraries=" + self.libraries, **options,
        )

    def note(self, stage, name, **found):
        self.report.setdefault(stage, {})[name] = found
        with open(self.report_path, "w") as file:
            json.dump(self.report, file, indent=1)
        print(f"{stage}: {name}: " + ", ".join(f"{key} {value}" for key, value in found.items()), flush=True)


def library_folders():
    """Where the wheels of the Python registry and the toolkit have CUDA's libraries."""
    folders = []
    for base in sys.path:
        nvidia = os.path.join(base, "nvidia")
        if not os.path.isdir(nvidia):
            continue
        for package in sorted(os.listdir(nvidia)):
            lib = os.path.join(nvidia, package, "lib")
            if os.path.isdir(lib):
                folders.append(lib)
    folders += [folder for folder in ("/usr/local/cuda/lib64",) if os.path.isdir(folder)]
    return ":".join(folders)


def save(proof, name, text):
    with open(os.path.join(proof.folder, name), "w") as file:
        file.write(text)


def gtest(proof, stage, program, pattern, limit):
    name = f"{program} {pattern}"
    code, text, seconds = proof.run(
        os.path.join(proof.bin, program), "--gtest_filter=" + pattern, limit=limit)
    save(proof, f"{program}_{re.sub('[^a-zA-Z]', '', pattern)}.log", text)
    passed = len(re.findall(r"^\[       OK \]", text, re.M))
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([^ ,\n]*/\w+|\w+\.\w+)", text, re.M)))
    proof.note(stage, name, exit=code, passed=passed, failed=len(failed),
               seconds=round(seconds, 1), which=" ".join(failed)[:2000])


def correct(proof):
    gtest(proof, "correct", "cuda_card_tests", "-*IsConformant*", 120)
    gtest(proof, "correct", "cuda_module_tests", "*", 240)


def layouts(proof):
    gtest(proof, "layouts", "cuda_card_tests", "*IsConformant*", 280)


def losses(proof, name, flags, device, **environment):
    path = os.path.join(proof.folder, "metrics.json")
    if os.path.exists(path):
        os.remove(path)
    code, text, seconds = proof.program(
        name, *flags, "--devices=" + device, "--metrics_json=" + path, **environment)
    save(proof, f"{name}_{device.replace(':', '_')}.log", text)
    if code != 0:
        return None, text[-600:], seconds
    values = []
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            if "loss" in row:
                values.append(row["loss"])
    return values, "", seconds


def train(proof):
    # Batch normalization of few images makes small differences large: f32 only for as many steps as
    # two layouts of CPU devices agree, which is measured as well.
    text = "--data=" + os.path.join(proof.folder, "text.txt")
    cases = [
        ("mnist", ["--steps=50"], 1e-3),
        ("mnist", ["--steps=50", "--dtype=f64"], 1e-9),
        ("gpt", [text, "--steps=50", "--generate=0"], 1e-3),
        ("gpt", [text, "--steps=50", "--generate=0", "--dtype=f64"], 1e-9),
        ("resnet", ["--steps=5", "--batch=16"], 1e-3),
        ("resnet", ["--steps=20", "--batch=16", "--dtype=f64"], 1e-6),
    ]
    for name, flags, tolerance in cases:
        what = name + (" f64" if "--dtype=f64" in flags else "")
        expected, error, _ = losses(proof, name, flags, "cpu:1")
        for device in ("cpu:2", "cuda:1", "cuda:2@0"):
            compare(proof, f"{what} {device}", expected, tolerance, losses(proof, name, flags, device), error)
    clusters(proof)


def compare(proof, what, expected, tolerance, run, error):
    got, error_there, seconds = run
    if not expected or not got:
        proof.note("train", what, ok=False, error=(error or error_there))
        return
    worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(got, expected))
    proof.note("train", what, ok=len(got) == len(expected) and worst <= tolerance,
               steps=len(got), worst=f"{worst:.2g}", first=got[0], last=got[-1],
               seconds=round(seconds, 1))


def clusters(proof):
    """Two nodes on this machine: a CPU and a card, and a card each, whose collectives go by NCCL."""
    flags = ["--steps=50", "--dtype=f64"]
    expected, error, _ = losses(proof, "mnist", flags, "cpu:2")
    for kinds in (["cpu", "cuda"], ["cuda", "cuda"]):
        what = "mnist f64, nodes of " + " and ".join(kind + ":1" for kind in kinds)
        if kinds.count("cuda") > count_cards(proof):
            proof.note("train", what, skipped="there are not so many cards")
            continue
        with socket.socket() as first, socket.socket() as second:
            for one in (first, second):
                one.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in (first, second)]
        nodes = os.path.join(proof.folder, "nodes.txt")
        save(proof, "nodes.txt", "".join(f"127.0.0.1:{port} {kind}:1\n" for port, kind in zip(ports, kinds)))
        # Each node's own card is the only one that it sees.
        environments = [{"CUDA_VISIBLE_DEVICES": str(kinds[:node].count("cuda"))} for node in (0, 1)]
        common = flags + ["--nodes=" + nodes]
        other = threading.Thread(target=lambda: save(proof, "node_1.log", proof.program(
            "mnist", *common, "--node_rank=1", **environments[1])[1]))
        other.start()
        run = losses(proof, "mnist", common + ["--node_rank=0"], "", **environments[0])
        other.join()
        compare(proof, what, expected, 1e-9, run, error)


def count_cards(proof):
    if "BRAID_PROVE_CARDS" in os.environ:
        return int(os.environ["BRAID_PROVE_CARDS"])
    if shutil.which("nvidia-smi") is None:
        return 0
    return len(re.findall(r"^GPU \d+:", proof.run("nvidia-smi", "--list-gpus")[1], re.M))


def sanitize(proof):
    kernels = "--gtest_filter=*EqualsTheCpu/*"
    for tool in ("memcheck", "racecheck", "synccheck"):
        code, text, seconds = proof.run(
            "compute-sanitizer", "--tool", tool, "--error-exitcode", "9",
            os.path.join(proof.bin, "cuda_card_tests"), kernels, limit=170)
        save(proof, f"sanitize_{tool}.log", text)
        summary = re.findall(r"ERROR SUMMARY.*|RACECHECK SUMMARY.*", text)
        proof.note("sanitize", tool, exit=code, seconds=round(seconds, 1), summary=summary[-1:] or text[-300:])


def bench(proof):
    text = os.path.join(proof.folder, "text.txt")
    rounds = int(os.environ.get("BRAID_PROVE_ROUNDS", "3"))
    gpt2 = {"layers": 12, "width": 768, "heads": 12, "context": 1024}
    cases = [
        ("gpt", 8, gpt2, "bf16"),
        ("gpt", 16, {}, "f32"),
        ("lenet", 64, {}, "f32"),
        ("mlp", 100, {}, "f32"),
        ("resnet18", 128, {}, "f32"),
        ("resnet18", 128, {}, "tf32"),
        ("resnet50", 32, {"side": 224}, "bf16"),
    ]
    wanted = os.environ.get("BRAID_PROVE_MODEL", "")
    for model, batch, options, precision in cases:
        # In the first turn also: two devices of one card share the batch; without graphs the host
        # launches each kernel; without fusion pointwise kernels run one by one.
        ours = {"braid": ["--devices=cuda:1"], "no_graphs": ["--devices=cuda:1", "--cuda_graphs=false"],
                "no_fusion": ["--devices=cuda:1", "--cuda_fusion=false"],
                "two_devices": ["--devices=cuda:2@0"]}
        rates_of = {way: [] for way in ours}
        theirs, fails = {"eager": [], "compile": []}, []
        name = f"{model} batch {batch} {precision}" + (" gpt2" if options is gpt2 else "")
        if wanted not in name:
            continue
        for turn in range(rounds):
            flags = [f"--{key}={value}" for key, value in options.items()]
            for way, of_way in ours.items():
                if turn > 0 and way != "braid":
                    continue
                code, out, _ = proof.program("step_bench", f"--model={model}", f"--batch={batch}",
                                             "--seconds=3", "--text=" + text, "--precision=" + precision,
                                             *of_way, *flags, limit=90)
                found = re.findall(r"^([\d.]+)", out, re.M)
                if code == 0 and found:
                    rates_of[way].append(float(found[-1]))
                else:
                    fails.append(f"{way}: {out[-400:]}")
                fails += re.findall(r".*slower kernels of Braid's own.*", out)
            for way in theirs:
                command = [sys.executable, os.path.join(proof.folder, "step_torch.py"), model, str(batch), "3", text,
                           "--device=cuda", "--precision=" + precision, "--sdpa", *flags]
                if way == "compile":
                    command.append("--compile")
                environment = dict(os.environ)
                try:
                    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
                    theirs[way].append(float(done.stdout.split()[0]))
                except Exception as error:  # its absence is told in the table
                    fails.append(f"torch {way}: {error}"[:200])
        found = {way: statistics.median(rates) if rates else None
                 for way, rates in (rates_of | theirs).items()}
        for way, rate in found.copy().items():
            if way != "braid" and found["braid"] and rate:
                found["to_" + way] = round(found["braid"] / rate, 3)
        if fails:
            found["fails"] = fails[0]
        proof.note("bench", name, **found)


STAGES = {"correct": correct, "train": train, "layouts": layouts, "sanitize": sanitize, "bench": bench}


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: prove.py DIR [STAGE]...")
    proof = Proof(sys.argv[1])
    stages = sys.argv[2:] or list(STAGES)
    for stage in stages:
        if stage not in STAGES:
            raise SystemExit(f"stage '{stage}'; one of these was expected: {', '.join(STAGES)}")
        if proof.report.get(stage, {}).get("whole", {}).get("seconds"):
            continue
        begin = time.monotonic()
        STAGES[stage](proof)
        proof.note(stage, "whole", seconds=round(time.monotonic() - begin, 1))
    print(json.dumps(proof.report, indent=1))


main()
