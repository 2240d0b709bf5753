#include "runtime/device/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <new>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace braid {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector

// The least of `file` in the group's folder and in those above it. A group that another name space
// named has no folder here; what is mounted as the topmost one is its container's then.
uint64_t LeastOfGroups(const std::string& mounted, std::string group, const std::string& file) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    std::ifstream stream(mounted + group + "/" + file);
    std::string text;
    uint64_t bytes = 0;
    if (stream >> text && absl::SimpleAtoi(text, &bytes)) least = std::min(least, bytes);
    if (group.empty()) return least;
    group.resize(std::min(group.rfind('/'), group.size() - 1));
  }
}

// See "Control Groups version 1" and "Control Group v2" of the Linux kernel's manual: a line is
// "number:controllers:/path", and of version 2 number is 0 and there are no controllers.
uint64_t ControlGroupLimit(const std::string& root) {
  uint64_t least = UINT64_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[0] == "0" && fields[1].empty()) {
      least = std::min(least, LeastOfGroups(root + "/sys/fs/cgroup", fields[2], "memory.max"));
    } else if (std::ranges::find(controllers, "memory") != controllers.end()) {
      least = std::min(
          least, LeastOfGroups(root + "/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

uint64_t SystemMemory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

MemoryLimits ReadMemoryLimits(const std::string& root) {
  MemoryLimits limits{.shared = std::min(SystemMemory(), ControlGroupLimit(root))};
  rlimit address_space = {};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
    limits.process = address_space.rlim_cur;
  }
  return limits;
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
