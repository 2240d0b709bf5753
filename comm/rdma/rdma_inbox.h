// What arrives at one end of an rdma link: messages are checked one after another, and the receives
// that they came by are posted again when nobody needs their memory any more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/rdma/rdma_landing.h"
#include "comm/rdma/rdma_queue_pair.h"

namespace braid {

// One thread.
class RdmaInbox {
 public:
  // All outlive its calls. `owed` as of RdmaSender; `node`: this one.
  RdmaInbox(RdmaQueuePair& pair, std::atomic<uint32_t>& owed, const RdmaLanding& landing,
            uint16_t node)
      : pair_(pair), owed_(owed), landing_(landing), node_(node) {}

  // A message, in the memory of its receive.
  struct Arrived {
    uint64_t slot = 0;
    size_t frame_bytes = 0;  // 0: it only gives credits
    uint64_t payload_bytes = 0;
    uint32_t credits = 0;
  };
  // INVALID_ARGUMENT with both values: the peer broke the rules.
  absl::StatusOr<Arrived> Read(const ibv_wc& received);
  // Its frame is copied into `frame`, which has room for kMaxFrameBytes, and its receive posted
  // again.
  absl::Status Take(const Arrived& arrived, std::span<std::byte> frame);

  // Before there is a handler: so many as there are receives.
  void Hold(const Arrived& arrived) { held_.push_back(arrived); }
  std::vector<Arrived> TakeHeld() { return std::exchange(held_, {}); }

 private:
  RdmaQueuePair& pair_;
  std::atomic<uint32_t>& owed_;
  const RdmaLanding& landing_;
  const uint16_t node_;
  uint32_t expected_sequence_ = 0;
  std::vector<Arrived> held_;
};

}  // namespace braid
