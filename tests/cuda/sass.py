"""sass.py MODULE: see sass.sh, which calls it."""

import re
import subprocess
import sys

# Kernels whose names match; those of one element at a time are for what is not aligned.
TYPE = r"(float|double|braid::BFloat16|braid::Float16)"
WIDE = r"<" + TYPE + r", (2|4|8)[,>]"
READ = [  # and write, if the second is true
    (r"::PointwiseKernel<.*::Float(Unary|Binary|Activation\w*)<", True),
    (r"::WholeGroupsKernel<.*::Float(Unary|Binary|Activation\w*)<", True),
    (r"::CastKernel<", True),
    (r"::UpdateKernel<", True),
    (r"::PeerReduceKernel" + WIDE, True),
    (r"::(RowNorm|RowNormInputGrad|GroupNorm|GroupNormInputGrad|Normalize)" + WIDE, True),
    (r"::(Softmax|SoftmaxGrad|CrossEntropyGrad|SparseCrossEntropyGrad)" + WIDE, True),
    (r"::(SumRowParts|SumChannels|SumParts|ReduceRows|ReduceColumns)" + WIDE, False),
]
# The remainder of a large angle is computed from a table that its thread keeps in memory.
ANGLES = re.compile(r"::WholeGroupsKernel<.*::(Sin|Cos|Tan)Op")


def kernels(module):
    """Of each: its name, how often it reads and writes 16 bytes, and its own memory."""
    dump = subprocess.Popen(["cuobjdump", "-sass", module], stdout=subprocess.PIPE, text=True)
    found, now = {}, None
    for line in dump.stdout:
        if "Function : " in line:
            now = found.setdefault(line.split("Function : ")[1].strip(), [0, 0, 0])
        elif now is None or "/*" not in line:
            continue
        elif "LDG.E.128" in line:
            now[0] += 1
        elif "STG.E.128" in line:
            now[1] += 1
        elif re.search(r" (LDL|STL)[. ]", line):
            now[2] += 1
    if dump.wait() != 0 or not found:
        raise SystemExit(f"error: cuobjdump -sass {module} shows no kernel (exit {dump.returncode})")
    names = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True)
    return zip(names.stdout.splitlines(), found.values())


def main():
    wrong, checked = [], [0] * len(READ)
    for name, (reads, writes, own) in kernels(sys.argv[1]):
        for i, (pattern, does_write) in enumerate(READ):
            if not re.search(pattern, name):
                continue
            checked[i] += 1
            if reads == 0:
                wrong.append(f"{name} reads no 16 bytes at a time")
            if does_write and writes == 0:
                wrong.append(f"{name} writes no 16 bytes at a time")
            if own > 0 and not ANGLES.search(name):
                wrong.append(f"{name} keeps {own} values in memory of its own")
    wrong += [f"no kernel is called {READ[i][0]}" for i, count in enumerate(checked) if count == 0]
    print("\n".join(wrong))
    print(f"{sum(checked)} kernels, {len(wrong)} wrong")
    raise SystemExit(1 if wrong else 0)


main()
