// What one end of an rdma link posts to its queue pair, as far as there is room for it: requests
// that are under way, receives of the peer's that are posted, and memory to stage payload in that
// the device cannot read where it lies.
//
// The peer posts a receive for each message before it gives a credit for it. Messages give the
// credits back; who has nothing to say gives them by a message of its own once they are half of
// all, for which one credit is always kept. So no two ends wait for each other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/rdma/rdma_queue_pair.h"
#include "comm/rdma/rdma_wire.h"
#include "comm/transport.h"
#include "comm/write_answers.h"
#include "runtime/base/ring_buffer.h"

namespace braid {

// A frame, or a Write.
struct RdmaPacket {
  std::array<std::byte, kMaxFrameBytes> frame;
  size_t frame_bytes = 0;
  // Of a Write, which has a done callback.
  std::span<const std::byte> payload;
  MemoryKey key;
  uint64_t offset = 0;
  Link::DoneCallback done;
  uint64_t posted = 0;  // bytes of the payload

  LandingWrite write() const {
    return {.token = key.token, .offset = offset, .bytes = payload.size()};
  }
};

// One thread at a time.
class RdmaSender {
 public:
  // The queue pair outlives its calls. `owed`: receives that were posted again and are not given
  // back; whoever posts them adds.
  RdmaSender(RdmaQueuePair& pair, std::atomic<uint32_t>& owed) : pair_(pair), owed_(owed) {
    posted_.Reserve(pair.sends());
  }

  // The peer takes messages from now on, so many before it gives credits.
  void Begin(uint32_t receives);

  enum class Progress {
    kWaits,   // for room, for all of it or for the rest: Complete or Grant may make some
    kPosted,  // all of it; Complete answers its `done`, which it has taken
    kDone,    // all of it, and the payload may be reused
  };
  // Errors: what a device refused, or could not register.
  absl::StatusOr<Progress> Post(RdmaPacket& packet);
  // Whether so many credits are owed that they cannot wait. Any thread.
  static bool OwesMany(const std::atomic<uint32_t>& owed) {
    return owed.load(std::memory_order_relaxed) >= kRdmaReceives / 2;
  }
  // If so many are owed, and there is room.
  absl::Status PostCredits();
  // Asks the peer's device whether it is there, if nothing else does.
  absl::Status PostProbe();

  // Credits of a message of the peer's. INVALID_ARGUMENT with both values: they are more than
  // it had got.
  absl::Status Grant(uint32_t credits);

  // The request of this number, and with it all before, have completed.
  void Complete(uint64_t number, WriteAnswers& answers);
  // Of the request of this number, for who says that it failed.
  LandingWrite WriteOf(uint64_t number);
  // After the queue pair's end.
  void Abandon(const absl::Status& reason, WriteAnswers& answers);

 private:
  struct Posted {
    uint64_t number = 0;
    uint32_t sends = 0;
    uint64_t staged = 0;  // bytes
    LandingWrite write;
    Link::DoneCallback done;
  };

  // As much of the rest as can be posted at once; empty though there is a rest: none.
  std::span<const std::byte> NextPart(const RdmaPacket& packet, std::optional<uint32_t> key) const;
  std::span<const std::byte> Stage(std::span<const std::byte> part);
  std::span<const std::byte> MakeMessage(RdmaMessage message, std::span<const std::byte> frame);
  bool HasRoomFor(uint32_t sends) const { return sends_ + sends <= pair_.sends(); }
  absl::Status PostRequest(RdmaQueuePair::Request request, Posted posted);

  RdmaQueuePair& pair_;
  std::atomic<uint32_t>& owed_;
  RingBuffer<Posted> posted_;
  uint64_t last_number_ = 0;
  uint64_t numbers_at_probe_ = 0;
  uint32_t sends_ = 0;                  // under way
  uint32_t unsignaled_ = 0;             // of these, since the last that says when it completes
  uint64_t staged_ = 0, released_ = 0;  // bytes
  uint32_t receives_ = 0;               // of the peer; 0: it does not take messages yet
  uint32_t credits_ = 0;
  uint32_t sequence_ = 0;
  std::array<std::byte, kRdmaMessageBytes> message_;
};

}  // namespace braid
