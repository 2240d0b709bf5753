// The flags that every program with Main has, and the environment they fall back to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/network.h"
#include "api/session.h"
#include "comm/cluster.h"

namespace braid {

std::optional<std::string> EnvironmentVariable(const std::string& name);

// What the flags say. A cluster of several nodes is in `session.network`; of one, in
// `session.devices`.
struct ProgramFlags {
  SessionOptions session;
  bool is_master = true;
};
absl::StatusOr<ProgramFlags> ReadFlags(const ClusterOptions& defaults);

}  // namespace braid
