#!/usr/bin/env bash
# tests/install/run.sh BUILD_DIR: installs a build into a folder of its own, and builds and runs
# another project that knows nothing but that folder.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$1" --prefix "$work/braid" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
cmake -G Ninja -S "$project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/braid" \
  -DCMAKE_BUILD_TYPE=Release
cmake --build "$work/build"
"$work/build/train" --devices=cpu:2 --progress=off
"$work/build/operators"
