// A peer of the tcp transport that a test plays by hand: a blocking socket that says what the test
// wants, right or wrong.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/joining/node_greeting.h"
#include "comm/network/socket.h"
#include "comm/tcp/tcp_wire.h"

namespace braid {

// A packet as a peer would send it, with its payload.
std::vector<std::byte> RawPacket(TcpHeader header, std::span<const std::byte> frame,
                                 std::span<const std::byte> payload = {});

class RawPeer {
 public:
  static RawPeer Dial(const SocketAddress& address);
  // The next connection to a listener.
  static RawPeer Accept(const Socket& listener);

  void Say(std::span<const std::byte> bytes);
  void Say(const NodeGreeting& greeting);
  // Exactly `bytes`, or fewer if the connection ends before.
  std::vector<std::byte> Hear(size_t bytes);
  // All until the other end closes the connection.
  std::vector<std::byte> HearAll();
  // True if there is nothing to hear for 100 ms.
  bool HearsNothing();
  // The reason of the kClose packet that is next; empty if none comes.
  std::string HearFarewell();
  void Leave() { socket_.Close(); }
  void LeaveWithReset();

 private:
  explicit RawPeer(Socket socket);

  Socket socket_;
};

}  // namespace braid
