#!/usr/bin/env python3
"""Ranks that do not make the same calls, and ranks that do not fit together: real processes.

    dist_mismatch.py BIN_DIR [--case=NAME] [--slack=SECONDS]

Each case starts three ranks. All must end with the same error, which has the case's words, within
the case's time from the call that is wrong; nothing may be printed as if it were a result. Prints a
table of the seconds of the slowest rank.
"""

import argparse
import functools
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

RANKS = 3
RUN_TIMEOUT = 60


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(command, change=lambda rank, environment: None):
    """The ranks' exit codes, last lines of standard error, and output."""
    port = free_port()
    started = []
    for rank in range(RANKS):
        environment = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE=str(RANKS),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        change(rank, environment)
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
        started.append((process, out, err))
    deadline = time.monotonic() + RUN_TIMEOUT
    ends = []
    for process, out, err in started:
        try:
            code = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            for other, _, _ in started:
                other.kill()
            raise Failed("a rank did not end within %d s" % RUN_TIMEOUT)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
            file.close()
        lines = texts[1].strip().splitlines()
        ends.append((code, lines[-1] if lines else "", texts[0]))
    return ends


def expect_one_cause(ends, words):
    for rank, (code, line, _) in enumerate(ends):
        if code != 1:
            raise Failed("rank %d ended with %s, not 1: %s" % (rank, code, line))
        if not line.startswith("error: "):
            raise Failed("rank %d says no error: %r" % (rank, line))
        if line != ends[0][1]:
            raise Failed("rank %d says %r, rank 0 %r" % (rank, line, ends[0][1]))
        for ways in words:
            if not any(way in line for way in ways.split("|")):
                raise Failed("rank %d says %r, not %r" % (rank, line, ways))


def try_calls(program, name, limit, words):
    ends = run_ranks([program, "mismatch", name])
    expect_one_cause(ends, words)
    seconds = []
    for rank, (_, _, out) in enumerate(ends):
        found = re.fullmatch(r"took ([0-9.]+) s\n", out)
        if not found:
            raise Failed("rank %d printed %r" % (rank, out))
        seconds.append(float(found.group(1)))
    if max(seconds) > limit:
        raise Failed("the error came after %.3f s, more than %g" % (max(seconds), limit))
    return max(seconds)


def two_of_one_rank(rank, environment):
    if rank == 2:
        environment["RANK"] = "1"


def another_world_size(rank, environment):
    if rank == 2:
        environment["WORLD_SIZE"] = "4"


def rank_out_of_range(rank, environment):
    environment["RANK"] = str(RANKS)


def no_world(rank, environment):
    environment["WORLD_SIZE"] = "0"


def no_rank(rank, environment):
    del environment["RANK"]


def no_number(rank, environment):
    environment["MASTER_PORT"] = "port"


# What the variables say, and the words of the error.
JOINS = {
    "TwoOfOneRank": (two_of_one_rank, ["rank 1 is taken twice", "own RANK"]),
    "AnotherWorldSize": (another_world_size, ["rank 2", "4 ranks", "the master 3", "WORLD_SIZE"]),
    "RankOutOfRange": (rank_out_of_range, ["(RANK) is out of range", "ranks 0 to 2 (WORLD_SIZE)"]),
    "NoWorld": (no_world, ["WORLD_SIZE", "the world size is 0"]),
    "NoRank": (no_rank, ["RANK", "WORLD_SIZE"]),
    "NoPort": (no_number, ["MASTER_PORT", "'port'"]),
}


def try_join(program, change, words, slack):
    began = time.monotonic()
    ends = run_ranks([program, "mismatch", "Count"], change)
    took = time.monotonic() - began
    for rank, (_, _, out) in enumerate(ends):
        if out:
            raise Failed("rank %d printed %r" % (rank, out))
    expect_one_cause(ends, words)
    if took > 1 + slack:
        raise Failed("the error came after %.3f s" % took)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin_dir")
    parser.add_argument("--case")
    parser.add_argument("--slack", type=float, default=0, help="seconds that sanitizers may add")
    arguments = parser.parse_args()
    program = os.path.join(arguments.bin_dir, "dist_program")
    listed = subprocess.run([program, "mismatches"], check=True, capture_output=True, text=True)
    cases = [line.split("\t") for line in listed.stdout.splitlines()]
    runs = {
        name: functools.partial(try_calls, program, name, float(limit) + arguments.slack, words)
        for name, limit, *words in cases
    }
    for name, (change, words) in JOINS.items():
        runs[name] = functools.partial(try_join, program, change, words, arguments.slack)
    failed = 0
    for name, run in runs.items():
        if arguments.case not in (None, name):
            continue
        try:
            print("%-28s %6.3f s" % (name, run()), flush=True)
        except Failed as error:
            failed += 1
            print("%-28s FAILED: %s" % (name, error), flush=True)
    if failed:
        print("%d cases failed" % failed)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
