#!/usr/bin/env python3
"""Ranks on several hosts: how long a collective takes by one algorithm and by another, in turns.

    tests/bench/hosts_bench.py build/release/bin [COLLECTIVE] [--hosts=2] [--ranks=4] [--rate=1gbit]

The hosts are network namespaces, each with a link of that rate to a switch; ranks of a host reach
each other by shared memory. Ranks are on the hosts one after another ("in a row"), or in turn. Prints
medians over the turns, and how many times as long the last algorithm takes as the first, with the
least and the most of a turn. Every result is checked by the measuring program. Needs root."""

import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "multiprocess"))
import fault_lab  # noqa: E402

MOST_SECONDS = 300


def measure(arguments, hosts, places, algorithm, port):
    """Microseconds of a call, by size: medians of this turn."""
    command = [
        os.path.join(arguments.bin_dir, "braid"),
        "bench",
        arguments.collective,
        "--sizes=" + arguments.sizes,
        "--seconds=%g" % arguments.seconds,
        "--transport=" + arguments.transport,
        "--algorithm=" + algorithm,
        "--json",
    ]
    processes = []
    for rank, host in enumerate(places):
        environment = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE=str(len(places)),
            MASTER_ADDR=hosts.addresses[places[0]],
            MASTER_PORT=str(port),
            BRAID_AUTH_TOKEN="of the bench",
        )
        core = ["taskset", "-c", str(rank % os.cpu_count())]
        processes.append(
            subprocess.Popen(
                hosts.prefix(host) + core + command,
                env=environment,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
        )
    output, _ = processes[0].communicate(timeout=MOST_SECONDS)
    for process in processes:
        if process.wait(timeout=MOST_SECONDS) != 0:
            sys.exit("a rank failed")
    lines = [json.loads(line) for line in output.splitlines()]
    return {line["bytes"]: line["p50_us"] for line in lines}


def compare(arguments, hosts, name, places, port):
    algorithms = arguments.algorithms.split(",")
    times = {}
    for _ in range(arguments.turns):
        for algorithm in algorithms:
            port += 1
            for size, microseconds in measure(arguments, hosts, places, algorithm, port).items():
                times.setdefault(size, {}).setdefault(algorithm, []).append(microseconds)
    for size, by_algorithm in sorted(times.items()):
        medians = {a: statistics.median(t) for a, t in by_algorithm.items()}
        pairs = zip(by_algorithm[algorithms[0]], by_algorithm[algorithms[-1]])
        ratios = [last / first for first, last in pairs]
        print(
            "%-9s %10d bytes: %s; %.2f x (%.2f to %.2f)"
            % (
                name,
                size,
                ", ".join("%s %.0f us" % (a, medians[a]) for a in algorithms),
                medians[algorithms[-1]] / medians[algorithms[0]],
                min(ratios),
                max(ratios),
            ),
            flush=True,
        )
    return port


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin_dir")
    parser.add_argument("collective", nargs="?", default="all_reduce")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rate", default="1gbit", help="of each host's link, as tc has it")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of a size in a turn")
    parser.add_argument("--sizes", default="4KiB,64KiB,1MiB,16MiB")
    parser.add_argument("--algorithms", default="hierarchical,ring")
    parser.add_argument("--transport", default="")
    arguments = parser.parse_args()
    why_not = fault_lab.isolate()
    if why_not:
        sys.exit("no hosts can be made here: " + why_not)
    hosts = fault_lab.NamespaceHosts(0, arguments.hosts)
    burst = "burst 128kb latency 50ms"
    for k in range(arguments.hosts):
        shape = "tc qdisc add dev eth0 root tbf rate %s %s" % (arguments.rate, burst)
        subprocess.run(hosts.prefix(k) + shape.split(), check=True)
    try:
        each = arguments.ranks // arguments.hosts
        in_a_row = [rank // each for rank in range(arguments.ranks)]
        in_turn = [rank % arguments.hosts for rank in range(arguments.ranks)]
        what = (arguments.collective, arguments.ranks, arguments.hosts, arguments.rate)
        print("%s, %d ranks on %d hosts, links of %s" % what)
        port = compare(arguments, hosts, "in a row", in_a_row, 20000)
        compare(arguments, hosts, "in turn", in_turn, port)
    finally:
        hosts.close()


if __name__ == "__main__":
    main()
