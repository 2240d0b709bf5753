// What the control group of this process (a container, a job of Slurm) limits.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

// "memory" or "pids", with the file that says how much of it in version 1 and in version 2.
struct ControlGroupResource {
  std::string controller;
  std::string file_v1;
  std::string file_v2;
};

// The least of the group's limit and those of the groups above it; UINT64_MAX if there is none.
// `root` stands before /proc and /sys.
uint64_t ControlGroupLimit(const std::string& root, const ControlGroupResource& resource);

}  // namespace braid
