#include "api/network_flags.h"

#include "absl/flags/flag.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/control/secret.h"
#include "comm/transport.h"
#include "runtime/base/status.h"

ABSL_FLAG(std::string, interface, "", "Network interface for everything, e.g. eth0. Empty: any");
ABSL_FLAG(
    std::string, transport, "",
    "The transports that may be used between nodes, with commas between: tcp, and shm between "
    "processes of one machine, which is then taken there. Empty: tcp");
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
  flags.is_insecure = absl::GetFlag(FLAGS_insecure);
  return flags;
}

}  // namespace braid
