// How the nodes of a job find and recognise each other over stream sockets before a link begins:
// the address that the control plane carries, and the greetings that open a connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/network/socket.h"

namespace braid {

// A secret of a node's data port, which its peers learn from the control plane.
using NodeCookie = std::array<std::byte, 16>;

// How two nodes make sure that they reached each other. The dialer says kHello with the cookie of
// the port's node; that node answers kWelcome, and kJoined with the dialer's own cookie as soon as
// it wants the link, too. The dialer, which may have given this attempt up by then, says kConfirmed
// with the cookie of the port's node again. Packets begin right after it.
struct NodeGreeting {
  enum class Stage : uint8_t { kHello = 1, kWelcome = 2, kJoined = 3, kConfirmed = 4 };

  Stage stage = Stage::kHello;
  uint16_t from = 0;
  uint16_t to = 0;
  NodeCookie cookie{};
};
constexpr size_t kNodeGreetingBytes = 28;

std::array<std::byte, kNodeGreetingBytes> EncodeNodeGreeting(const NodeGreeting& greeting);
// `bytes`: kNodeGreetingBytes. All is compared with what is `expected`, the cookie in constant
// time; of kHello the sender (`from`) may be any.
absl::StatusOr<NodeGreeting> CheckNodeGreeting(std::span<const std::byte> bytes,
                                               const NodeGreeting& expected);

// Where a node's data port is, as text: "<cookie in hex>@10.0.0.1:4711,[fd00::2]:4712".
struct NodeAddress {
  NodeCookie cookie{};
  std::vector<SocketAddress> candidates;  // at least one, best first

  std::string ToString() const;
  static absl::StatusOr<NodeAddress> Parse(std::string_view text);
};

// Both need a connected, non-blocking socket. Errors have errno's text.
absl::Status SendNodeGreeting(const Socket& socket, const NodeGreeting& greeting);
class NodeGreetingReader {
 public:
  // True once bytes() are all there. Reads nothing that comes after them.
  absl::StatusOr<bool> Read(const Socket& socket);
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::array<std::byte, kNodeGreetingBytes> bytes_{};
  size_t received_ = 0;
};

}  // namespace braid
