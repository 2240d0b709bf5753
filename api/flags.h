// The flags that every program with Main has.
#pragma once

#include "absl/status/statusor.h"
#include "api/network.h"
#include "api/session.h"
#include "comm/cluster/cluster.h"

namespace braid {

// What the flags say. A cluster of several nodes is in `session.network`; of one, in
// `session.devices`.
struct ProgramFlags {
  SessionOptions session;
  bool is_master = true;
  bool measures_machine = false;  // its rates are asked for: by --machine=measured, or to estimate
};
absl::StatusOr<ProgramFlags> ReadFlags(const ClusterOptions& defaults,
                                       const DeviceKinds& device_kinds);

}  // namespace braid
