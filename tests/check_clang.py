#!/usr/bin/env python3
"""tests/check_clang.py [--each] BUILD_DIR [CLANG]: clang reads every file of the libraries and of the
tool, without generating code: its errors, its warnings, and which lock guards what; as many at a time
as are compiled at a time. With --each it reads every file by itself, those of the tests and examples,
too. BUILD_DIR is a built one, since it has the compile commands and the generated headers. Prints
what clang says, and fails if it says anything."""
import collections
import concurrent.futures
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile

FOLDERS = ("actor", "api", "comm", "compiler", "graph", "runtime")
MORE_FOLDERS = ("examples", "tests")
# Designated initialisers leave the rest to its defaults on purpose.
OPTIONS = ["-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wthread-safety",
           "-Wno-unknown-warning-option", "-Wno-missing-field-initializers", "-Wno-pass-failed"]


def options_of(command):
    """The definitions, include paths and instruction sets of a compile command."""
    words = shlex.split(command)
    kept = []
    for word, following in zip(words, words[1:] + [""]):
        if word.startswith(("-D", "-I", "-m")) or word == "-fopenmp":
            kept.append(word)
        elif word == "-isystem":
            kept += [word, following]
    return tuple(kept)


def joined_in(file):
    """The files that CMake joined into this one."""
    with open(file, encoding="utf-8") as text:
        return re.findall(r'#include "(.*)"', text.read())


def main():
    arguments = sys.argv[1:]
    is_each = arguments[:1] == ["--each"]
    arguments = arguments[is_each:]
    if len(arguments) not in (1, 2):
        sys.exit(__doc__)
    # Whoever ends this program finds nothing left of it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    build = os.path.abspath(arguments[0])
    clang = arguments[1] if len(arguments) == 2 else "clang++"
    with open(f"{build}/compile_commands.json", encoding="utf-8") as file:
        entries = json.load(file)
    folders = FOLDERS + (MORE_FOLDERS if is_each else ())
    files = {}
    count = 0
    for entry in entries:
        file = os.path.join(entry["directory"], entry["file"])
        sources = joined_in(file) if file.endswith("_cxx.cxx") else [file]
        ours = [source for source in sources
                if os.path.relpath(source, root).split("/")[0] in folders and source.endswith(".cc")]
        count += len(ours)
        for name in ours if is_each or len(ours) < 2 else [file]:
            files[name] = options_of(entry["command"])
    if not files:
        sys.exit(f"error: {build}/compile_commands.json names no file of {root}")

    with tempfile.TemporaryDirectory() as work:
        # Headers read once serve all files that have the same options; it pays from three files on.
        sets = collections.Counter(files.values())
        common = [options for options, count in sets.items() if count >= 3]
        headers = {options: f"{work}/{i}.pch" for i, options in enumerate(common)}
        for options, header in headers.items():
            subprocess.run([clang, *OPTIONS, *options, f"-I{root}", "-x", "c++-header",
                            f"{root}/cmake/precompiled.h", "-o", header], check=True)

        def read(name):
            options = files[name]
            header = ["-include-pch", headers[options]] if options in headers else []
            result = subprocess.run(
                [clang, *OPTIONS, *options, f"-I{root}", f"-I{build}", *header, "-fsyntax-only",
                 name],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            return result.returncode, result.stdout

        failed = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                for returncode, output in pool.map(read, sorted(files)):
                    sys.stdout.write(output)
                    failed += returncode != 0
            finally:
                pool.shutdown(cancel_futures=True)
    print(f"{clang} read {count} files in {len(files)} runs; {failed} with errors or warnings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
