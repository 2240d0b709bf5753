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
#include "runtime/base/shared_heap.h"

namespace braid {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector
constexpr uint64_t kLeastInLargePages = 32 << 20;

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

void AdviseLargePages(void* begin, uint64_t bytes) {
  const uint64_t whole = bytes / kLargePage * kLargePage;
  if (whole > 0) madvise(begin, whole, MADV_HUGEPAGE);
}

absl::StatusOr<Memory> AllocateHostMemory(uint64_t bytes) {
  const std::align_val_t alignment = AlignmentOf(bytes);
  auto* data =
      static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), alignment, std::nothrow));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "this machine has no %d bytes of memory left, of %d in all", bytes, SystemMemory()));
  }
  if (alignment != kAlignment) AdviseLargePages(data, bytes);
  return Memory(
      MemoryKind::kHost, {data, static_cast<size_t>(bytes)},
      [alignment](std::span<std::byte> lent) { ::operator delete(lent.data(), alignment); });
}

AllocateMemory MemoryForPeers(SharedHeap* heap) {
  if (heap == nullptr) return AllocateHostMemory;
  return [heap](uint64_t bytes) {
    absl::StatusOr<Memory> memory = heap->Allocate(bytes);
    return memory.ok() ? std::move(memory) : AllocateHostMemory(bytes);
  };
}

}  // namespace braid
