#include "runtime/device/host_arena.h"

#include <errno.h>
#include <glog/logging.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "runtime/device/host_memory.h"

namespace braid {

namespace {

// Of x86-64 and of arm64 with small pages; where they are larger, the system takes small ones.
constexpr uint64_t kHugePage = 2 * 1024 * 1024;

}  // namespace

// Address space only: no plan that fits needs more, and a limit on address space (a sanitizer's,
// ulimit's) leaves room for many devices.
void HostArena::Reserve() {
  reserved_ = SystemMemory();
  mapped_ = mmap(nullptr, reserved_ + kHugePage, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(mapped_ != MAP_FAILED) << "reserving address space for a device's arena";
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  base_ = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
}

HostArena::~HostArena() {
  if (mapped_ != nullptr) munmap(mapped_, reserved_ + kHugePage);
}

absl::Status HostArena::Grow(uint64_t bytes) {
  if (bytes <= size_) return absl::OkStatus();
  if (mapped_ == nullptr) Reserve();
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  const uint64_t rounded = bytes > reserved_ ? bytes : (bytes + page - 1) / page * page;
  if (rounded > reserved_ || mprotect(base_, rounded, PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a device's arena needs %d bytes by plan and this machine has %d (%s); take a smaller "
        "batch, more micro-batches or more devices",
        bytes, reserved_, rounded > reserved_ ? "more than its memory" : strerror(errno)));
  }
  // A step touches most of its memory: with small pages, matrix products wait for translations. A
  // piece at the end keeps small ones, so that no more memory is used than planned. Advice only: a
  // system that has no huge pages does without.
  if (const uint64_t whole = rounded / kHugePage * kHugePage; whole > 0) {
    madvise(base_, whole, MADV_HUGEPAGE);
  }
  size_ = bytes;
  return absl::OkStatus();
}

}  // namespace braid
