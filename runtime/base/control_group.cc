#include "runtime/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace braid {
namespace {

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

}  // namespace

// See "Control Groups version 1" and "Control Group v2" of the Linux kernel's manual: a line is
// "number:controllers:/path", and of version 2 number is 0 and there are no controllers.
uint64_t ControlGroupLimit(const std::string& root, const ControlGroupResource& resource) {
  uint64_t least = UINT64_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[0] == "0" && fields[1].empty()) {
      least = std::min(least, LeastOfGroups(root + "/sys/fs/cgroup", fields[2], resource.file_v2));
    } else if (std::ranges::find(controllers, resource.controller) != controllers.end()) {
      least = std::min(least, LeastOfGroups(root + "/sys/fs/cgroup/" + resource.controller,
                                            fields[2], resource.file_v1));
    }
  }
  return least;
}

}  // namespace braid
