#!/usr/bin/env bash
# tests/cuda/pack.sh BUILD DIR: what tests/cuda/prove.sh needs on a machine with a card, which may have
# neither a compiler nor Braid's libraries: programs of BUILD (build/release, with the module and the
# benchmarks built), the libraries that they were linked with, a text. Not CUDA's libraries.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:?usage: pack.sh BUILD DIR}
target=${2:?usage: pack.sh BUILD DIR}
programs=(cuda_card_tests cuda_module_tests mnist gpt resnet step_bench)
rm -rf "$target"
mkdir -p "$target/bin" "$target/lib"
for program in "${programs[@]}" braid_cuda.so; do
  [[ -e $build/bin/$program ]] || {
    echo "error: $build/bin/$program is missing; build it: ninja -C $build $program" >&2
    exit 1
  }
  strip -o "$target/bin/$program" "$build/bin/$program"
done
# The C library is the other machine's: it belongs to its kernel and loader.
for program in "${programs[@]}"; do ldd "$build/bin/$program"; done |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libpthread|libdl|librt|libgcc_s|ld-linux[^/]*)\.so' |
  while read -r library; do strip -o "$target/lib/$(basename "$library")" "$(readlink -f "$library")"; done
cp "$root/tests/bench/step_torch.py" "$root/tests/cuda/prove.py" "$target"
# The benchmark's GPT has 65 letters, as this text has.
cp "${BRAID_TEST_DATA:?a folder with text/tinyshakespeare.txt}/text/tinyshakespeare.txt" "$target/text.txt"
du -sh "$target"
