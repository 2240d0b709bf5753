// A launch from its start to its end, on this machine: the launchers of several machines join, then
// programs start, run, and start again if they may.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "api/tool/launch_failure.h"
#include "api/tool/node_command.h"
#include "comm/control/network_place.h"

namespace braid {

struct LaunchOptions {
  // What is started here after so many restarts. Of several machines, its ranks meet at this port
  // of machine 0.
  absl::AnyInvocable<std::vector<NodeCommand>(int restarts, uint16_t port)> commands;
  int max_restarts = 0;
  bool tag_output = false;
  std::optional<NetworkPlace> place = std::nullopt;  // where launchers meet; none: one is alone
  std::string terms;                                 // the same on all machines (launch_terms.h)
};

// By the host thread, before it has started others. An error: nothing was started, here or
// elsewhere.
absl::StatusOr<LaunchOutcome> RunLaunch(LaunchOptions options);

}  // namespace braid
