#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests: without arguments the tier that fits in 15
# minutes on 2 cores; with --units only the suites that start no processes and take seconds; with
# --all also the long tests, the benchmarks' build, the format, the installed package, and the suites
# under the address, undefined and thread sanitizers; --stage=NAME runs one of its stages alone (some
# take an hour). With --strict, as for developers and CI, a compiler's warning is an error.
# Tests on real data look for mnist/ and text/ in $BRAID_TEST_DATA, by default ../shared/data.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

tier=quick
preset=release
# Of --all, from what is quick to what is slow; the first failure ends it.
all_stages=(format release install asan tsan long)
stages=("${all_stages[@]}")
for argument in "$@"; do
  case "$argument" in
    --units | --all) tier=${argument#--} ;;
    --strict) preset=strict ;;
    --stage=*)
      tier=all
      stages=("${argument#--stage=}")
      [[ " ${all_stages[*]} " == *" ${stages[0]} "* ]] ||
        braid_fail "there is no stage '${stages[0]}'; the stages are ${all_stages[*]}"
      ;;
    *)
      braid_fail "unknown argument '$argument'; usage:" \
        "tests/run.sh [--units | --all | --stage=NAME] [--strict]"
      ;;
  esac
done

if [[ -z ${BRAID_TEST_DATA-} && -d $braid_root/../shared/data ]]; then
  BRAID_TEST_DATA=$(cd "$braid_root/../shared/data" && pwd)
fi
if [[ -n ${BRAID_TEST_DATA-} ]]; then
  export BRAID_TEST_DATA
  echo "real data: $BRAID_TEST_DATA"
else
  echo "real data: none; its tests SKIP. Set BRAID_TEST_DATA to a folder with mnist/ and text/"
fi

# run_tests BUILD OPTION...: at most two that compute at a time, since a test program may use several
# threads, or four that wait.
run_tests() {
  local build=$1
  shift
  ctest --test-dir "$braid_root/build/$build" --no-tests=error --output-on-failure -j 4 "$@"
}

# run_tests_and_clang BUILD OPTION...: clang reads the sources while the tests wait; what it says is shown
# after them.
run_tests_and_clang() {
  local build=$braid_root/build/$1 failed=0 clang
  nice -n 19 "$braid_root/tests/check_clang.py" "$build" >"$build/clang.log" 2>&1 </dev/null &
  clang=$!
  # shellcheck disable=SC2064  # this one's
  trap "kill $clang 2>/dev/null || true; wait" EXIT
  run_tests "$@" || failed=$?
  wait "$clang" || failed=$?
  trap - EXIT
  cat "$build/clang.log"
  return "$failed"
}

braid_install "${braid_packages[@]}"
[[ $tier == units ]] || braid_install "${braid_test_packages[@]}"
if [[ $tier != all ]]; then
  braid_configure "$preset" -DBRAID_BUILD_TESTS=ON -DBRAID_BUILD_BENCH=OFF
  if [[ $tier == units ]]; then
    braid_build "$preset" unit_tests
    run_tests release -L unit
    exit
  fi
  braid_build "$preset"
  run_tests_and_clang release -LE long
  exit
fi
# What the stages of the release preset have in common.
build_release() {
  braid_configure strict -DBRAID_BUILD_TESTS=ON -DBRAID_BUILD_BENCH=ON
  braid_build strict
}

run_stage() {
  case $1 in
    format)  # one clang-format for everyone: versions differ in detail
      braid_install clang-format-14
      "$braid_root/tests/check_format.sh" clang-format-14
      ;;
    release)
      build_release
      "$braid_root/tests/check_clang.py" --each "$braid_root/build/release"
      run_tests release -LE long
      ;;
    install)
      build_release
      "$braid_root/tests/install/run.sh" "$braid_root/build/release"
      ;;
    asan | tsan)
      braid_configure "$1" -DBRAID_BUILD_TESTS=ON -DBRAID_BUILD_BENCH=OFF
      braid_build "$1"
      local left_out=long
      [[ $1 == asan ]] || left_out+="|one_thread"
      run_tests "$1" -LE "$left_out"
      ;;
    long)
      build_release
      run_tests release -L long
      ;;
  esac
}

braid_install python3 "${braid_clang_packages[@]}"
for stage in "${stages[@]}"; do
  echo "==== $stage"
  run_stage "$stage"
done
