#include "runtime/device/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <new>

#include "absl/strings/str_format.h"
#include "runtime/base/control_group.h"

namespace braid {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector

}  // namespace

uint64_t SystemMemory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

MemoryLimits ReadMemoryLimits(const std::string& root) {
  MemoryLimits limits{
      .shared =
          std::min(SystemMemory(), ControlGroupLimit(root, {.controller = "memory",
                                                            .file_v1 = "memory.limit_in_bytes",
                                                            .file_v2 = "memory.max"}))};
  rlimit address_space = {};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
    limits.process = address_space.rlim_cur;
  }
  return limits;
}

uint64_t AddressSpaceInUse() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

absl::StatusOr<Memory> AllocateHostMemory(uint64_t bytes) {
  auto* data =
      static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "this machine has no %d bytes of memory left, of %d in all", bytes, SystemMemory()));
  }
  return Memory(MemoryKind::kHost, {data, static_cast<size_t>(bytes)},
                [](std::span<std::byte> lent) { ::operator delete(lent.data(), kAlignment); });
}

}  // namespace braid
