#!/usr/bin/env bash
# tests/check_format.sh [CLANG_FORMAT]: fails if a source file is not as clang-format leaves it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
find actor api comm compiler examples graph runtime tests -name '*.cc' -o -name '*.h' -o -name '*.cu' |
  LC_ALL=C sort | xargs "${1:-clang-format}" --dry-run -Werror
