#include "runtime/device/host_memory.h"

#include <sys/mman.h>
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
// From this size on, as tables have that are looked up here and there, in large pages: else most
// accesses wait for the page's address, too.
constexpr uint64_t kLeastInLargePages = 32 << 20;
constexpr uint64_t kLargePage = 2 << 20;

std::align_val_t AlignmentOf(uint64_t bytes) {
  return bytes < kLeastInLargePages ? kAlignment : std::align_val_t{kLargePage};
}

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
  const std::align_val_t alignment = AlignmentOf(bytes);
  auto* data =
      static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), alignment, std::nothrow));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "this machine has no %d bytes of memory left, of %d in all", bytes, SystemMemory()));
  }
  // Whole pages of it alone, and only where the system has them.
  if (alignment != kAlignment) madvise(data, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
  return Memory(
      MemoryKind::kHost, {data, static_cast<size_t>(bytes)},
      [alignment](std::span<std::byte> lent) { ::operator delete(lent.data(), alignment); });
}

}  // namespace braid
