// What passes over the Unix socket of a shm link: the sender's memory and heap, once each; bells,
// for who sleeps; and the reason of a close.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "comm/network/socket.h"
#include "runtime/base/descriptor.h"

namespace braid {

constexpr size_t kMaxShmReason = 1024;

// All return at once. What the socket has no room for is dropped: a peer for whom so much waits
// will hear enough when it reads, and one that does not read is lost.
class ShmBell {
 public:
  explicit ShmBell(Socket socket) : socket_(std::move(socket)) { unread_.reserve(kMostRead); }

  const Socket& socket() const { return socket_; }
  void Close() { socket_.Close(); }

  // One thread at a time.
  absl::Status SendMemory(int descriptor) const;
  absl::Status SendHeap(int descriptor) const;
  void Ring() const;
  bool PeerEnded() const;                          // has closed its end
  void SendReason(std::string_view reason) const;  // cut at kMaxShmReason

  // Reads all that there is.
  struct Heard {
    Descriptor memory;                  // if it came
    Descriptor heap;                    // likewise
    std::optional<std::string> reason;  // the peer has closed the link
    // The connection's end, or INVALID_ARGUMENT: what came is no message.
    absl::Status status;
  };
  Heard Hear();

 private:
  static constexpr size_t kMostRead = 2048;  // at a time

  int Send(uint8_t kind, std::string_view text, int descriptor) const;  // errno, or 0
  absl::Status Receive(bool& is_drained);
  absl::Status Read(Heard& heard);

  Socket socket_;
  std::vector<std::byte> unread_;
  bool has_memory_ = false, has_heap_ = false;
  Descriptor descriptor_;  // that has come before its message was read
};

}  // namespace braid
