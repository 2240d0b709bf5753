#!/usr/bin/env python3
"""What a process uses, against variables, devices and nodes.

    curves.py BIN_DIR [--tier=quick|all] [--print]

Runs curve_program on real processes of this machine and looks at each of them after every phase
(start, compile, steps, save, load): descriptors, threads, the peak of its memory above what it had
when the phase began, and the seconds that the phase took. Then plans the same for clusters that are
not there. A figure above its limit, which is written below as a formula, fails. With --print no limit
counts and all figures are printed.
"""

import argparse
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading

MAX_WAIT = 600  # seconds for a phase; one that takes longer has failed
PHASES = ("start", "compile", "steps", "save", "load")

# (variables, devices of a node, nodes)
QUICK = [(10, 1, 1), (10, 8, 1), (300, 8, 1), (10, 2, 2), (300, 2, 2)]
ALL = [(v, d, n) for n in (1, 2, 4) for d in (1, 2, 4, 8) for v in (10, 100, 1000)]
# The same of clusters that are only planned for.
QUICK_PLANS = [(100, 8, 8), (100, 8, 32)]
ALL_PLANS = [(1000, 8, 8), (1000, 8, 128), (100, 8, 1024)]


def by_phase(*phases):
    """A figure's limit by phase; none for phases that are left out."""
    return {name: limit for names, limit in phases for name in names.split()}


# Limits of the process that uses most, by figure and phase: v variables of 4 KiB, d devices a node,
# n nodes. Memory is what a phase takes beyond what was there when it began. Half again to twice as
# much as was measured on two cores, so that only another growth is above them; compiling a job has a
# part that grows with the square of its variables (which registers may share memory).
EVERY = "start compile steps save load"
LIMITS = {
    "descriptors": by_phase((EVERY, lambda v, d, n: 10 if n == 1 else 17 + 2 * n)),
    "threads": by_phase((EVERY, lambda v, d, n: 9 + d if n == 1 else 10 + 2 * d)),
    "peak MiB": by_phase(
        ("start", lambda v, d, n: 48),
        # What other processes of the machine map is filled when a job is loaded, not when it runs.
        (
            "compile",
            lambda v, d, n: 8 + (0.15 if n == 1 else 0.3) * v + (0.03 if n == 1 else 0.09) * v * d,
        ),
        ("steps", lambda v, d, n: 16 + 0.1 * v + 0.09 * v * d),
        ("save", lambda v, d, n: 3 + 0.005 * v),
        ("load", lambda v, d, n: 3 + 0.02 * v),
    ),
    "CPU seconds": by_phase(
        ("compile", lambda v, d, n: 0.3 + 2e-3 * v + 2e-4 * v * d + 4e-6 * v * v),
        ("save", lambda v, d, n: 0.3 + 1e-3 * v + 2e-4 * v * d),
        ("load", lambda v, d, n: 0.3 + 1e-3 * v + 2e-4 * v * d),
    ),
    "plan bytes": by_phase(("compile", lambda v, d, n: 5000 + 800 * v)),
}
# Of a master that only plans: it works out every node's part, one after the other.
PLAN_LIMITS = {
    "peak MiB": by_phase(("compile", lambda v, d, n: 16 + 0.3 * v)),
    "CPU seconds": by_phase(("compile", lambda v, d, n: 0.5 + 2e-4 * v * d * n)),
    "plan bytes": by_phase(("compile", lambda v, d, n: 5000 + 800 * v)),
}


class Process:
    """A node: what it uses now."""

    def __init__(self, command):
        self.running = subprocess.Popen(
            command,
            env={**os.environ, "BRAID_AUTH_TOKEN": "of the curves", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.folder = "/proc/%d" % self.running.pid
        self.resident = 0
        self.cpu_seconds = 0.0
        self.lines = queue.Queue()
        self.error = ""
        self.readers = [
            threading.Thread(target=self.read_lines, daemon=True),
            threading.Thread(target=self.read_error, daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def read_lines(self):
        for line in self.running.stdout:
            self.lines.put(line)
        self.lines.put("")

    def next_line(self):
        """What it printed next; "" at its end."""
        try:
            return self.lines.get(timeout=MAX_WAIT)
        except queue.Empty:
            raise RuntimeError("nothing was printed for %d s" % MAX_WAIT) from None

    def read_error(self):
        self.error = self.running.stderr.read()

    def status(self):
        with open(self.folder + "/status") as file:
            return dict(line.split(":", 1) for line in file)

    def look(self):
        """Its figures since the last look."""
        status = self.status()
        with open(self.folder + "/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        peak = int(status["VmHWM"].split()[0]) / 1024
        figures = {
            "descriptors": len(os.listdir(self.folder + "/fd")),
            "threads": int(status["Threads"]),
            "peak MiB": peak - self.resident,
            "CPU seconds": cpu_seconds - self.cpu_seconds,
        }
        self.cpu_seconds = cpu_seconds
        self.resident = int(status["VmRSS"].split()[0]) / 1024
        with open(self.folder + "/clear_refs", "w") as file:
            file.write("5")  # the peak begins anew
        return figures

    def end(self):
        """Waits for a good end."""
        code = self.running.wait(timeout=MAX_WAIT)
        for reader in self.readers:
            reader.join()
        if code != 0:
            raise RuntimeError("exit code %d: %s" % (code, self.error.strip()))


def follow(processes):
    """Figures by phase of processes that run: {phase: {figure: the largest of all}}."""
    figures = {}
    try:
        while line := processes[0].next_line():
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            looks = [process.look() for process in processes]
            largest = {name: max(look[name] for look in looks) for name in looks[0]}
            phase = said.pop("phase")
            figures[phase] = {**largest, **said}
            processes[0].running.stdin.write("\n")
            processes[0].running.stdin.flush()
        for process in processes:
            process.end()
        return figures
    finally:
        for process in processes:
            process.running.kill()
            process.running.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.8.0.1", 0))
        return probe.getsockname()[1]


def measure_run(program, variables, devices, nodes):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        listed = folder + "/nodes.txt"
        with open(listed, "w") as file:
            for node in range(nodes):
                file.write("127.8.0.%d:%d cpu:%d\n" % (node + 1, port, devices))
        command = [program, "--variables=%d" % variables, "--folder=%s/saved" % folder]
        if nodes == 1:
            return follow([Process(command + ["--devices=cpu:%d" % devices])])
        return follow(
            [
                Process(command + ["--nodes=" + listed, "--node_rank=%d" % node])
                for node in range(nodes)
            ]
        )


def measure_plan(program, variables, devices, nodes):
    command = [program, "--variables=%d" % variables, "--dry_run"]
    return follow([Process(command + ["--simulate_nodes=%dx%d" % (nodes, devices)])])


def exceeded(measured, limits, place):
    """What of a run is above its limit, as lines."""
    lines = []
    for phase, figures in measured.items():
        for name, value in figures.items():
            limit = limits.get(name, {}).get(phase)
            if limit is not None and value > limit(*place):
                words = (name, phase, value, limit(*place))
                lines.append("%s of phase %s: %.4g; at most %.4g was expected" % words)
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--tier", choices=("quick", "all"), default="quick")
    parser.add_argument("--print", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # and so do the nodes
    program = os.path.join(arguments.bin_dir, "curve_program")
    runs, plans = (QUICK, QUICK_PLANS) if arguments.tier == "quick" else (ALL, ALL_PLANS)
    failures = 0
    for measure, limits, phases, places in (
        (measure_run, LIMITS, PHASES, runs),
        (measure_plan, PLAN_LIMITS, PHASES[:2], plans),
    ):
        for place in places:
            what = "%d variables, %d devices a node, %d nodes" % place
            if measure is measure_plan:
                what = "planned only: " + what
            measured = measure(program, *place)
            if tuple(measured) != phases:
                sys.exit("%s: the phases were %s" % (what, list(measured)))
            print(what)
            if arguments.print:
                for phase, figures in measured.items():
                    words = ["%s %.4g" % figure for figure in figures.items()]
                    print("  %-8s %s" % (phase, ", ".join(words)))
            else:
                for line in exceeded(measured, limits, place):
                    print("  FAILED:", line)
                    failures += 1
            sys.stdout.flush()
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
