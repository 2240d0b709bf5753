// What one end of a tcp link has to say, in order, until the kernel has taken it. Whoever adds a
// packet while nothing waits writes it to the socket at once, with those that were added for later;
// what does not fit, or comes while another thread writes, waits for that thread or for the
// reactor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/first_packets.h"
#include "comm/network/socket.h"
#include "comm/tcp/tcp_wire.h"
#include "comm/transport.h"
#include "runtime/base/mutex.h"
#include "runtime/base/ring_buffer.h"

namespace braid {

class TcpOutbox {
 public:
  // The outcome of a Write, which the owner brings to its `done` on the reactor.
  struct Answer {
    Link::DoneCallback done;
    absl::Status status;
  };

  // `socket` is open at first, and stays so until is_idle().
  explicit TcpOutbox(const Socket& socket);

  struct Added {
    // The kernel has all of it; there will be no Answer.
    bool is_written = false;
    // The owner must see to the outbox on the reactor, which calls BeginService; until then no
    // other call asks for it.
    bool asks_for_service = false;
  };
  // Any thread. `header` needs no sequence and frame_bytes; `done` is empty but for a Write. After
  // Stop the packet is dropped.
  Added Add(TcpHeader header, std::span<const std::byte> frame, std::span<const std::byte> payload,
            Link::DoneCallback done);

  // A frame for the next Add or Flush to write; dropped after Stop. True: the owner must see to a
  // Flush by itself, for nobody writes now.
  bool AddForLater(TcpHeader header, std::span<const std::byte> frame);

  // Any thread; the first counts. Packets not begun are answered with `reason`, as are those that
  // come later. What was begun stays, and after it `farewell` is said unless it is empty. True: it
  // asks for service as Add does.
  bool Stop(const absl::Status& reason, std::string farewell);

  // What follows is for the reactor's thread.
  void BeginService();
  enum class Progress {
    kEmpty,    // nothing waits
    kBlocked,  // the socket must become writable first
    kMore,     // enough for now
    kBusy,     // another thread writes and will ask for service
    kBroken,   // error() says why
  };
  Progress Flush();
  // Into `answers`, which is emptied first. Swapped, so that both keep their memory.
  void TakeAnswers(std::vector<Answer>& answers);
  int error() const;  // errno of the connection's end as a write saw it, or 0

  // Drops what is left, after Stop and unless a thread is writing.
  void Abandon();
  bool is_idle() const;          // nothing waits and no thread writes
  bool borrows_payload() const;  // of a Write that is not answered

  // Packets and payload bytes of Add.
  uint64_t frames() const;
  uint64_t bytes() const;

 private:
  struct Packet {
    std::array<std::byte, kTcpHeaderBytes + kMaxFrameBytes> head;  // header and frame
    size_t head_bytes = 0;
    std::span<const std::byte> payload;
    size_t sent = 0;  // of both
    Link::DoneCallback done;
    // Set when all is sent, instead of an answer, while the thread that added it still writes.
    bool* is_written = nullptr;

    size_t size() const { return head_bytes + payload.size(); }
  };

  void Push(TcpHeader header, std::span<const std::byte> frame, std::span<const std::byte> payload,
            Link::DoneCallback done) BRAID_REQUIRES(mutex_);
  // WriteOut writes until nothing waits, the socket is full or `budget` bytes are written; it lets
  // go of mutex_ while it writes.
  Progress WriteOut(size_t budget) BRAID_REQUIRES(mutex_);
  void Advance(size_t written) BRAID_REQUIRES(mutex_);
  void DropNotBegun() BRAID_REQUIRES(mutex_);
  bool AskForService() BRAID_REQUIRES(mutex_);

  const Socket& socket_;
  mutable Mutex mutex_;
  RingBuffer<Packet> packets_ BRAID_GUARDED_BY(mutex_);
  uint64_t next_sequence_ BRAID_GUARDED_BY(mutex_) = 0;
  bool is_writing_ BRAID_GUARDED_BY(mutex_) = false;  // one thread, without the lock
  bool is_waiting_ BRAID_GUARDED_BY(mutex_) = false;  // the reactor writes next
  bool is_service_asked_ BRAID_GUARDED_BY(mutex_) = false;
  int error_ BRAID_GUARDED_BY(mutex_) = 0;
  absl::Status stopped_ BRAID_GUARDED_BY(mutex_);
  bool has_dropped_ BRAID_GUARDED_BY(mutex_) = false;  // what was not begun, after Stop
  std::string farewell_ BRAID_GUARDED_BY(mutex_);      // a packet
  std::vector<Answer> answers_ BRAID_GUARDED_BY(mutex_);
  uint64_t frames_ BRAID_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ BRAID_GUARDED_BY(mutex_) = 0;
};

}  // namespace braid
