#include "api/network_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/control/secret.h"
#include "comm/transport.h"
#include "runtime/base/status.h"

ABSL_FLAG(
    std::string, interface, "",
    "Network interface to use, e.g. eth0, but for processes that meet at loopback and those that "
    "share memory. Empty: any");
ABSL_FLAG(std::string, transport, "",
          "The transports that may be used between nodes, with commas between: shm between "
          "processes of one machine, which is then taken there, tcp, or rdma between ports that "
          "speak RoCE. Empty: shm and tcp");
ABSL_FLAG(
    std::string, rdma_device, "",
    "Where --transport has rdma, the device to use, and perhaps its port: mlx5_0:1. Empty: the one "
    "that has this node's address on the way to each peer");
ABSL_FLAG(int, rdma_gid, -1,
          "Where --transport has rdma, the number of the GID to use in the table of the device's "
          "port. -1: that of the address, of RoCE v2 if there is one");
ABSL_FLAG(std::string, auth_token_file, "",
          "File with the secret that all nodes share, readable by its owner only. Empty: the "
          "environment's BRAID_AUTH_TOKEN, else no secret and loopback addresses only");
ABSL_FLAG(bool, insecure, false,
          "Without a secret, use other addresses than loopback, too: whoever reaches the port may "
          "join");

namespace braid {

absl::StatusOr<NetworkFlags> ReadNetworkFlags() {
  NetworkFlags flags;
  BRAID_ASSIGN_OR_RETURN(flags.secret,
                         ReadSecret(absl::GetFlag(FLAGS_auth_token_file), EnvironmentVariable));
  flags.interface = absl::GetFlag(FLAGS_interface);
  flags.transport = absl::GetFlag(FLAGS_transport);
  BRAID_RETURN_IF_ERROR(CheckTransportNames("--transport", flags.transport));
  flags.rdma = {.device = absl::GetFlag(FLAGS_rdma_device), .gid = absl::GetFlag(FLAGS_rdma_gid)};
  const bool has_choice = !flags.rdma.device.empty() || flags.rdma.gid >= 0;
  if (has_choice && !NamesTransport(flags.transport, "rdma")) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--rdma_device=%s and --rdma_gid=%d are for --transport=rdma, and --transport=%s was given",
        flags.rdma.device, flags.rdma.gid, flags.transport));
  }
  flags.is_insecure = absl::GetFlag(FLAGS_insecure);
  return flags;
}

}  // namespace braid
