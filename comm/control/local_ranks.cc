#include "comm/control/local_ranks.h"

#include <utility>

#include "comm/control/secret.h"
#include "comm/network/network.h"
#include "runtime/base/status.h"

namespace braid {

absl::StatusOr<ReservedRanks> ReserveLocalRanks(int count) {
  BRAID_ASSIGN_OR_RETURN(const SocketAddress loopback, SocketAddress::Parse("127.0.0.1:0"));
  BRAID_ASSIGN_OR_RETURN(Socket port, ReservePort(loopback));
  BRAID_ASSIGN_OR_RETURN(const SocketAddress address, port.LocalAddress());
  BRAID_ASSIGN_OR_RETURN(std::string secret, KeepOrMakeSecret(EnvironmentVariable));
  return ReservedRanks{.ranks = {.master = {.host = address.host(), .port = address.port()},
                                 .world_size = count,
                                 .count = count,
                                 .secret = std::move(secret)},
                       .port = std::move(port)};
}

}  // namespace braid
