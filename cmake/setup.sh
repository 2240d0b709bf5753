# shellcheck shell=bash disable=SC2034
# Sourced by examples/run.sh and tests/run.sh: installs what the build needs and builds a preset.
# Works on Debian 12, 13 and testing, as root or with sudo, without asking anything. Ubuntu 24.04 and
# newer have the same packages; it was not tried there.

braid_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What the CMakeLists.txt files look for, and the tests' own.
braid_packages=(
  g++ cmake ninja-build
  libabsl-dev libgoogle-glog-dev libunwind-dev libprotobuf-dev protobuf-compiler
  libdnnl-dev ocl-icd-opencl-dev  # dnnl's CMake package asks for OpenCL
  libopenblas-openmp-dev libssl-dev zlib1g-dev nlohmann-json3-dev
  libibverbs-dev  # rdma is left out without it
  libgtest-dev libgmock-dev libbenchmark-dev
)
# What only running the tests needs: cases that others wrote; machines in namespaces, their faults;
# a second compiler's reading of the sources.
braid_test_packages=(libonnx-testdata iproute2 nftables python3 clang libomp-dev)
# What the guest takes in which RDMA is tested (tests/rdma/image.sh).
braid_vm_packages=(qemu-system-x86 busybox-static kmod cpio xz-utils ibverbs-providers iproute2)
# What the presets asan and fuzz build with: libFuzzer is clang's.
braid_clang_packages=(clang-14 libclang-rt-14-dev libomp-14-dev)

braid_fail() {
  echo "error: $*" >&2
  exit 1
}

# braid_install PACKAGE...: installs those that are missing; apt is not touched if none is.
braid_install() {
  local missing=() package
  command -v dpkg-query >/dev/null || braid_fail "no dpkg here: on other systems than Debian and" \
    "Ubuntu, install the equivalents of: $*"
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null || braid_fail "no apt-get here; please install: ${missing[*]}"

  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      braid_fail "neither root nor sudo; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
    [[ -t 0 ]] || as_root=(sudo -n)  # nobody is there to type a password
  fi
  echo "installing ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  "${as_root[@]}" "${apt[@]}" update ||
    echo "warning: apt-get update failed; trying with the package lists at hand" >&2
  "${as_root[@]}" "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null ||
    braid_fail "apt-get could not install: ${missing[*]}"
}

# braid_configure PRESET OPTION...
braid_configure() {
  local preset=$1
  shift
  if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    # Without it nothing is taken from the cache that uses a precompiled header.
    export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
  fi
  (cd "$braid_root" && cmake --preset "$preset" "$@")
}

# braid_build PRESET TARGET...: all targets if none is named. A compiler may take 1 GB.
braid_build() {
  local preset=$1 jobs memory
  shift
  jobs=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 1000000)}' /proc/meminfo)
  ((jobs <= memory)) || jobs=$((memory > 0 ? memory : 1))
  (cd "$braid_root" && cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"})
}
