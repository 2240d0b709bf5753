#!/usr/bin/env python3
"""Every fault, in every phase of a session, on a worker and on the master: real processes.

    fault_matrix.py BIN_DIR [--tier=quick|all] [--repeat=N] [--jobs=N] [--cell=FAULT/PHASE/ROLE]
                    [--devices=cpu|lagging|mixed] [--program=NAME] [--transport=NAME]

Three nodes (four in "joining", of which one is not started yet) run phase_program, which stays in a
phase until the fault has been made; --program names another one. Then either all survivors end with the same first cause, which
names the peer and the phase, or, if the fault is harmless, the job goes on to the same loss as
undisturbed. Afterwards nothing is left. Prints a table of the seconds from the fault to the last
survivor's end, median / worst. What needs a network (a pulled cable) is skipped, and said to be,
where there are no namespaces; exits 77 if all is.
"""

import argparse
import concurrent.futures
import contextlib
import os
import queue
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback

from fault_kinds import BETWEEN_CALLS, FAULTS, PHASES, ROLES, WHILE, GoesOn, all_cells
from fault_lab import (
    PROGRAMS,
    Cluster,
    Failed,
    LoopbackHosts,
    Missed,
    NamespaceHosts,
    isolate,
)

JOIN_TIMEOUT = 30
MAX_MISSED = 3  # runs of a cell that come between two saves
STATUS = {
    "joining": r"joining since .*; missing: (node|rank) 3",
    "compiling": "compiling job 'train'",
    "connecting": "connecting job 'train'",
    "stepping": "stepping job '",
    "saving": "saving to ",
    "closing": "closing",
}


def same_cause(line):
    """Without what differs by who says it: its own name while joining, and how long it waited."""
    line = re.sub(r"^error: (node|rank) \d: joining: ", "error: joining: ", line)
    return re.sub(r"\d+\.\d s", "N s", line)


def expect_end(cluster, nodes, cause):
    lines = {}
    if cluster.program.is_of_ranks:  # each is the node of its number
        cause = re.sub(r"\bnode (?=[\d[(])", "(node|rank) ", cause)
    for k in nodes:
        code, line = cluster.processes[k].returncode, cluster.last_error(k)
        if code != 1:
            raise Failed("node %d ended with %s, not 1" % (k, code))
        if not re.search("^error: .*" + cause, line):
            for phase in ("saving", "stepping"):
                if re.search("^error: .*" + cause.replace(WHILE[phase], BETWEEN_CALLS), line):
                    raise Missed(line)
            raise Failed("node %d says %r, not '%s'" % (k, line, cause))
        lines[k] = same_cause(line)
    if len(set(lines.values())) > 1:
        raise Failed("not the same cause: %s" % lines)


def run_fatal(cluster, cell, slack):
    """The seconds from the fault to the last survivor's end."""
    fault, expected, victim = cell.fault, cell.expected, ROLES[cell.role]
    began = fault.inject(cluster, cell)
    survivors = [k for k in cluster.processes if k != victim or fault.victim_survives]
    cluster.await_end(survivors, expected.within + 20)
    seconds = max(cluster.ended[k] for k in survivors) - began
    causes = expected.causes(cluster, cell, fault)
    for nodes, cause in causes:
        expect_end(cluster, [k for k in nodes if k in survivors], cause)
    within = expected.within + slack
    if seconds > within:
        raise Failed("%.2f s to the last end; at most %.1f" % (seconds, within))
    fault.after(cluster, cell)
    return seconds


def run_harmless(cluster, cell, reference):
    cell.fault.inject(cluster, cell)
    for k in range(cluster.nodes):
        if k not in cluster.processes:
            cluster.start(k)
    cluster.release(cell.phase)
    cluster.await_end(range(cluster.nodes))
    for k in range(cluster.nodes):
        if cluster.processes[k].returncode != 0:
            raise Failed("node %d ended with %s" % (k, cluster.processes[k].returncode))
    if cluster.output(0) != reference:
        raise Failed("it gave %r; undisturbed %r" % (cluster.output(0), reference))
    cell.fault.after(cluster, cell)
    return None


def make_cluster(hosts, arguments, folder, nodes):
    program = PROGRAMS[arguments.program]
    return Cluster(
        hosts,
        arguments.bin_dir,
        folder,
        nodes,
        program,
        arguments.devices,
        arguments.transport,
        arguments.slack,
    )


def new_cluster(hosts, arguments, folder, cell):
    nodes = 4 if cell.phase == "joining" and cell.fault.awaits_phase(cell) else 3
    cluster = make_cluster(hosts, arguments, folder, nodes)
    cluster.limit_joining(JOIN_TIMEOUT)
    return cluster


def run_once(hosts, arguments, folder, cell, references):
    cluster = new_cluster(hosts, arguments, folder, cell)
    try:
        cluster.hold(cell.phase)
        cell.fault.begin(cluster, cell)
        for k in range(3):
            cluster.start(k)
        if cell.fault.awaits_phase(cell):
            cluster.await_status(STATUS[cell.phase])
            time.sleep(0.1)  # status is the master's word, and the others follow
        if isinstance(cell.expected, GoesOn):
            seconds = run_harmless(cluster, cell, references[cluster.nodes])
        else:
            seconds = run_fatal(cluster, cell, arguments.slack)
        cluster.check_nothing_is_left(cell.fault.may_leave(cell))
        return seconds, ""
    except Missed:
        raise
    except Failed as failed:
        text = str(failed)
    except Exception:
        text = traceback.format_exc()
    finally:
        cluster.close()
    for k in sorted(cluster.processes):
        text += "\n  node %d:" % k
        for line in (cluster.output(k) + cluster.output(k, "err")).splitlines()[-6:]:
            text += "\n    " + line
    return None, text


def reference_run(hosts, arguments, folder, nodes):
    cluster = make_cluster(hosts, arguments, folder, nodes)
    try:
        for k in range(nodes):
            cluster.start(k)
        cluster.await_end(range(nodes))
        if not re.fullmatch(cluster.program.result, cluster.output(0)):
            sys.exit("undisturbed, it says %r, %r" % (cluster.output(0), cluster.output(0, "err")))
        return cluster.output(0)
    finally:
        cluster.close()


class Runner:
    """Runs cells, several at a time, each on machines of its own."""

    def __init__(self, arguments, has_network):
        self.arguments = arguments
        kind = NamespaceHosts if has_network else LoopbackHosts
        self.hosts = queue.Queue()
        # One more than nodes: where strangers are.
        self.all_hosts = [kind(index, 5) for index in range(arguments.jobs)]
        for hosts in self.all_hosts:
            self.hosts.put(hosts)
        # In memory where that goes with us: a checkpoint is to take as long everywhere.
        self.folder = tempfile.mkdtemp(prefix="braid_faults.", dir="/run" if has_network else None)
        self.count = 0
        self.missed = 0  # runs that did not count

    def run(self, cells, repeat):
        """By cell: (seconds of each good run, texts of the others)."""
        hosts = self.hosts.get()
        references = {
            nodes: reference_run(hosts, self.arguments, self.new_folder(), nodes)
            for nodes in (3, 4)
        }
        self.hosts.put(hosts)
        results = {cell: ([], []) for cell in cells}
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            futures = {
                pool.submit(self.run_cell, cell, references): cell
                for _ in range(repeat)
                for cell in cells
            }
            for future in concurrent.futures.as_completed(futures):
                cell = futures[future]
                seconds, text = future.result()
                if text:
                    print("FAILED: %s: %s" % (cell, text), flush=True)
                    results[cell][1].append(text)
                else:
                    results[cell][0].append(seconds)
                    took = "goes on" if seconds is None else "%.2f s" % seconds
                    print("%s: %s" % (cell, took), flush=True)
        return results

    def new_folder(self):
        self.count += 1
        return "%s/%d" % (self.folder, self.count)

    def run_cell(self, cell, references):
        missed = []
        while len(missed) < MAX_MISSED:
            hosts = self.hosts.get()
            folder = self.new_folder()
            try:
                return run_once(hosts, self.arguments, folder, cell, references)
            except Missed as error:
                missed.append(str(error))
                self.missed += 1
                print("once more, the phase was over: %s: %s" % (cell, error), flush=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                self.hosts.put(hosts)
        return None, "%d times the phase was over: %s" % (len(missed), missed)

    def close(self):
        for hosts in self.all_hosts:
            hosts.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        left = os.listdir("/dev/shm") if self.all_hosts[0].has_network else []
        # LLVM's OpenMP, which clang's builds have, leaves one for each process that is killed.
        left = [name for name in left if not name.startswith("__KMP_REGISTERED_LIB_")]
        if left:
            print("FAILED: shared memory is left: %s" % left)
        return not left


def print_table(cells, results):
    """In Markdown; what cannot be has a number, and its reason below."""
    reasons = []
    print("\n| fault | role | %s |\n|%s" % (" | ".join(PHASES), "---|" * (len(PHASES) + 2)))
    for fault in FAULTS:
        for role in ROLES:
            words = []
            for phase in PHASES:
                cell = cells.get((fault.name, phase, role))
                if cell is None:
                    words.append("")
                elif isinstance(cell.expected, str):
                    if cell.expected not in reasons:
                        reasons.append(cell.expected)
                    words.append("(%d)" % (1 + reasons.index(cell.expected)))
                elif cell not in results:
                    words.append("not run")
                elif results[cell][1]:
                    words.append("FAILED")
                elif isinstance(cell.expected, GoesOn):
                    words.append("goes on")
                else:
                    seconds = results[cell][0]
                    words.append("%.2f / %.2f" % (statistics.median(seconds), max(seconds)))
            print("| %s | %s | %s |" % (fault.name, role, " | ".join(words)))
    for number, reason in enumerate(reasons):
        print("%s(%d) %s" % ("\n" if number == 0 else "", 1 + number, reason))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", type=os.path.abspath)
    parser.add_argument("--tier", choices=("quick", "all"), default="all")
    parser.add_argument("--repeat", type=int)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--slack", type=float, default=0, help="seconds more, of slower programs")
    parser.add_argument(
        "--program",
        choices=sorted(PROGRAMS),
        default="phase_program",
        help="of each node; ddp_mnist can be held in two phases only",
    )
    parser.add_argument(
        "--devices",
        choices=("cpu", "lagging", "mixed"),
        default="cpu",
        help="of the nodes; lagging: with memory and streams of their own; mixed: every other node's",
    )
    parser.add_argument(
        "--transport",
        default="",
        help="of the nodes; shm: of one machine, and cells that need a network or data ports skip",
    )
    parser.add_argument("--cell", help="a regular expression for FAULT/PHASE/ROLE")
    arguments = parser.parse_args()
    arguments.repeat = arguments.repeat or (1 if arguments.tier == "quick" else 3)
    why_not = isolate()
    if arguments.transport == "shm":
        why_not = "shm is within one machine, and opens no data port"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cells = {cell.key: cell for cell in all_cells(PROGRAMS[arguments.program])}
    chosen = [
        cell
        for cell in cells.values()
        if not isinstance(cell.expected, str)
        and (arguments.tier == "all" or cell.is_quick())
        and (not arguments.cell or re.search(arguments.cell, str(cell)))
    ]
    skipped = [cell for cell in chosen if why_not and cell.fault.needs_network]
    if arguments.transport == "shm":  # workers listen at no port that a stranger could find
        skipped += [cell for cell in chosen if cell.fault.needs_data_port(cell)]
    chosen = [cell for cell in chosen if cell not in skipped]
    if why_not:
        print("SKIPPED, as there is no network between machines here (%s):" % why_not)
        print("".join("  %s\n" % cell for cell in skipped), flush=True)
    if not chosen:
        return 77
    began = time.monotonic()
    runner = Runner(arguments, has_network=not why_not)
    is_clean = False
    try:
        results = runner.run(chosen, arguments.repeat)
    finally:
        with contextlib.suppress(OSError):
            is_clean = runner.close()
    print_table(cells, results)
    failures = sum(len(failed) for _, failed in results.values())
    runs = sum(len(good) + len(failed) for good, failed in results.values())
    print(
        "\n%d cells, %d runs, %d failed, %d repeated as their phase was over, %d cells skipped for "
        "want of a network, in %.0f s; load %.1f"
        % (
            len(chosen),
            runs,
            failures,
            runner.missed,
            len(skipped),
            time.monotonic() - began,
            os.getloadavg()[0],
        )
    )
    return 0 if failures == 0 and is_clean else 1


sys.exit(main())
