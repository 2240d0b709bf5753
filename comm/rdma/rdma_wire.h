// What the two ends of an rdma link tell each other: messages from queue pair to queue pair, which
// carry frames, and notes over the greeted connection beside it. Little-endian; everything received
// is checked before it is used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/landing_regions.h"
#include "comm/network/socket.h"
#include "comm/transport.h"

namespace braid {

// One SEND: the head, then the frame.
struct RdmaMessage {
  enum class Kind : uint8_t { kFrame = 1, kWrite = 2, kCredits = 3 };

  Kind kind = Kind::kFrame;
  uint8_t frame_bytes = 0;  // of kCredits: 0
  uint16_t credits = 0;     // receives that were posted again since the last message
  uint32_t sequence = 0;    // counts the messages of one direction
  LandingWrite write;       // of kWrite; its payload is where it belongs already
};
constexpr size_t kRdmaHeadBytes = 32;
constexpr size_t kRdmaMessageBytes = kRdmaHeadBytes + kMaxFrameBytes;

// `bytes` holds kRdmaHeadBytes, which the frame follows.
void PutRdmaHead(const RdmaMessage& message, std::span<std::byte> bytes);
// All of a received message. INVALID_ARGUMENT: what is wrong, with both values.
absl::StatusOr<RdmaMessage> ReadRdmaMessage(std::span<const std::byte> bytes);

// How the peer's queue pair is reached.
struct RdmaHello {
  uint32_t queue_pair = 0;    // 24 bits, as
  uint32_t first_packet = 0;  // its sequence number
  uint32_t mtu_bytes = 0;     // of its port: 256, 512, 1024, 2048 or 4096
  uint32_t receives = 0;      // so many messages it can take before it gives credits
  std::array<std::byte, 16> gid{};
};
// Bounds of RdmaHello::receives.
constexpr uint32_t kLeastRdmaReceives = 4, kMostRdmaReceives = 1 << 15;
constexpr size_t kRdmaHelloBytes = 40;
constexpr size_t kMaxRdmaReason = 1024;

std::array<std::byte, kRdmaHelloBytes> EncodeRdmaHello(const RdmaHello& hello);
absl::StatusOr<RdmaHello> ReadRdmaHello(std::span<const std::byte> bytes);

// The connection beside a pair of queue pairs. All return at once. What the socket has no room for
// is dropped: so little is said here that then the peer does not read at all, and it is lost.
class RdmaNotes {
 public:
  explicit RdmaNotes(Socket socket) : socket_(std::move(socket)) {}

  const Socket& socket() const { return socket_; }
  void Close() { socket_.Close(); }

  // One thread at a time.
  absl::Status SendHello(const RdmaHello& hello) const;
  absl::Status SendReady() const;                       // this end's queue pair takes messages
  void SendRefused(const LandingWrite& write) const;    // which the peer's device did not allow
  void SendReason(std::string_view reason) const;       // cut at kMaxRdmaReason
  void EndOfNotes() const { socket_.ShutdownWrite(); }  // the peer reads them and then the end

  // Reads all that there is.
  struct Heard {
    std::optional<RdmaHello> hello;
    bool is_ready = false;
    std::optional<LandingWrite> refused;
    std::optional<std::string> reason;  // the peer has closed the link
    // The connection's end, or INVALID_ARGUMENT: what came is no note.
    absl::Status status;
  };
  Heard Hear();
  // What there is is thrown away. False: the connection has ended.
  bool ThrowAway() const;

 private:
  absl::Status Send(uint8_t kind, std::span<const std::byte> body) const;
  absl::Status Read(Heard& heard);
  absl::Status Take(uint8_t kind, std::span<const std::byte> body, Heard& heard);

  Socket socket_;
  std::vector<std::byte> unread_;
  bool has_hello_ = false, has_ready_ = false;
};

}  // namespace braid
