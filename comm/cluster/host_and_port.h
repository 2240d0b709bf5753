// Where a node is, as users write it: "node7", "10.0.0.1:9988", "[fd00::3]:9988". Nothing here asks
// the resolver or this machine's interfaces; socket.h does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

struct HostAndPort {
  std::string host;   // without brackets
  uint16_t port = 0;  // 0: none was given

  bool operator==(const HostAndPort&) const = default;
};

// INVALID_ARGUMENT says what is wrong with the text and what was expected.
absl::StatusOr<HostAndPort> ParseHostAndPort(std::string_view text);
std::string FormatHostAndPort(const HostAndPort& address);
// OK for a host name or a numeric address without brackets and port.
absl::Status CheckHost(std::string_view host);

}  // namespace braid
