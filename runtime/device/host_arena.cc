#include "runtime/device/host_arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "runtime/base/shared_heap.h"
#include "runtime/base/shared_memory.h"
#include "runtime/base/status.h"
#include "runtime/device/host_memory.h"

namespace braid {

// Nodes of one process do not know of each other: where it is full, less is tried.
absl::Status HostArena::Reserve(uint64_t bytes) {
  if (heap_ != nullptr) {
    if (const auto reserved = heap_->Reserve(SystemMemory()); reserved.ok()) {
      is_in_heap_ = true;
      reserved_ = reserved->size();
      base_ = reserved->data();
      return absl::OkStatus();
    }
  }
  const MemoryLimits limits = ReadMemoryLimits();
  const uint64_t least = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  reserved_ = SystemMemory();
  if (limits.process > 0) {
    const uint64_t left = limits.process - std::min(limits.process, AddressSpaceInUse());
    const uint64_t share = left / 4 / static_cast<uint64_t>(devices_);
    reserved_ = std::min(reserved_, std::max(share, 2 * least));
  }
  do {
    mapped_ = mmap(nullptr, reserved_ + kLargePage, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ != MAP_FAILED) {
      const auto address = reinterpret_cast<uintptr_t>(mapped_);
      base_ = reinterpret_cast<std::byte*>((address + kLargePage - 1) / kLargePage * kLargePage);
      return absl::OkStatus();
    }
    reserved_ /= 2;
  } while (reserved_ >= least);
  mapped_ = nullptr;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "a device's arena needs %d bytes by plan and there is no address space left for them (%s), "
      "of %d bytes that this process may have; raise its limit (ulimit -v), or take a smaller "
      "batch, more micro-batches or fewer devices in a process",
      bytes, strerror(errno), limits.least()));
}

HostArena::~HostArena() {
  if (mapped_ != nullptr) munmap(mapped_, reserved_ + kLargePage);
}

absl::Status HostArena::Grow(uint64_t bytes) {
  if (bytes <= size_) return absl::OkStatus();
  if (base_ == nullptr) BRAID_RETURN_IF_ERROR(Reserve(bytes));
  const uint64_t page = SystemPage();
  const uint64_t rounded = bytes > reserved_ ? bytes : (bytes + page - 1) / page * page;
  std::string refusal;
  if (rounded > reserved_) {
    refusal = ReadMemoryLimits().process > 0 ? "its part of the limited address space, ulimit -v"
                                             : "all of this machine's memory";
  } else if (is_in_heap_) {
    refusal = std::string(heap_->Fill({base_ + size_, rounded - size_}).message());
  } else if (mprotect(base_, rounded, PROT_READ | PROT_WRITE) != 0) {
    refusal = strerror(errno);
  }
  if (!refusal.empty()) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a device's arena needs %d bytes by plan and %d are reserved for it (%s); take a smaller "
        "batch, more micro-batches or more devices",
        bytes, reserved_, refusal));
  }
  if (!is_in_heap_) AdviseLargePages(base_, rounded);
  size_ = bytes;
  return absl::OkStatus();
}

}  // namespace braid
