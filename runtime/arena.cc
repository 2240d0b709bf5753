#include "runtime/arena.h"

#include <errno.h>
#include <glog/logging.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_format.h"

namespace braid {

uint64_t SystemMemory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

// Address space only: no plan that fits needs more, and a limit on address space (a sanitizer's,
// ulimit's) leaves room for many devices.
Arena::Arena() : reserved_(SystemMemory()) {
  void* base =
      mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(base != MAP_FAILED) << "reserving address space for a device's arena";
  base_ = static_cast<std::byte*>(base);
}

Arena::~Arena() { munmap(base_, reserved_); }

absl::Status Arena::Grow(uint64_t bytes) {
  if (bytes <= bytes_) return absl::OkStatus();
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  const uint64_t rounded = bytes > reserved_ ? bytes : (bytes + page - 1) / page * page;
  if (rounded > reserved_ || mprotect(base_, rounded, PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a device's arena needs %d bytes by plan and this machine has %d (%s); take a smaller "
        "batch, more micro-batches or more devices",
        bytes, reserved_, rounded > reserved_ ? "more than its memory" : strerror(errno)));
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

}  // namespace braid
