// The flags by which programs of sessions and of process groups choose their network.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace braid {

struct NetworkFlags {
  std::string secret;     // of --auth_token_file, or BRAID_AUTH_TOKEN; "": none
  std::string interface;  // "": any
  bool is_insecure = false;
};
absl::StatusOr<NetworkFlags> ReadNetworkFlags();

}  // namespace braid
