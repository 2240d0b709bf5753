// The flags by which programs of sessions and of process groups choose their network.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "comm/transport.h"

namespace braid {

struct NetworkFlags {
  std::string secret;     // of --auth_token_file, or BRAID_AUTH_TOKEN; "": none
  std::string interface;  // "": any
  std::string transport;  // "tcp"; "": the usual ones
  RdmaChoice rdma;
  bool is_insecure = false;
};
// INVALID_ARGUMENT for a transport that there is not, with those that there are; and for an RDMA
// device or GID without the transport rdma.
absl::StatusOr<NetworkFlags> ReadNetworkFlags();

}  // namespace braid
