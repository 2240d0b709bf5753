// The ranks of a world that are all started by one program on this machine.
#pragma once

#include "absl/status/statusor.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/network/socket.h"

namespace braid {

struct ReservedRanks {
  LocalRanks ranks;
  Socket port;  // keeps the master's port theirs until it is closed
};
// They meet at a free port of loopback. Their secret is BRAID_AUTH_TOKEN if it is exported, else a
// fresh one.
absl::StatusOr<ReservedRanks> ReserveLocalRanks(int count);

}  // namespace braid
