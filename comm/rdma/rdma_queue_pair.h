// A reliable connection (RC) of verbs: a queue pair, its completions, and the registered memory in
// which messages arrive and payload is staged. It knows nothing of frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/rdma/rdma_device.h"
#include "comm/rdma/rdma_route.h"
#include "comm/rdma/rdma_wire.h"
#include "comm/rdma/verbs.h"

namespace braid {

// So many requests may be under way, and so many messages arrive before their receives are posted
// again. A device may allow less.
constexpr uint32_t kRdmaSends = 512;
constexpr uint32_t kRdmaReceives = 256;
// For payload that the device cannot read where it lies.
constexpr size_t kRdmaStagingBytes = 1 << 20;

// What completed, in order; those that are found are kept until they are taken.
class RdmaCompletions {
 public:
  // Null: nothing more has completed. Until the next call.
  const ibv_wc* Next();
  // Whether Next would give one.
  bool HasNext();
  void SetQueue(ibv_cq* queue) { queue_ = queue; }
  ibv_cq* queue() const { return queue_; }

 private:
  static constexpr int kAtOnce = 32;
  ibv_cq* queue_ = nullptr;
  std::array<ibv_wc, kAtOnce> found_;
  int count_ = 0;
  int taken_ = 0;
};

class RdmaQueuePair {
 public:
  // Receives are posted. Errors name the device, what it refused, and a limit that is reached.
  static absl::StatusOr<std::unique_ptr<RdmaQueuePair>> Make(const RdmaRoute& route);
  explicit RdmaQueuePair(const RdmaRoute& route) : route_(route) {}
  // When it returns, the device reads and writes nothing for it any more.
  ~RdmaQueuePair();
  RdmaQueuePair(const RdmaQueuePair&) = delete;
  RdmaQueuePair& operator=(const RdmaQueuePair&) = delete;

  const RdmaRoute& route() const { return route_; }
  const ibv_qp* handle() const { return queue_pair_; }
  const RdmaHello& hello() const { return hello_; }
  uint32_t sends() const { return sends_; }
  std::span<std::byte> staging() const {
    return {memory_.get() + ReceiveBytes(), kRdmaStagingBytes};
  }
  uint32_t staging_key() const { return region_.local_key(); }

  // From now on it takes what the peer sends, and may send once the peer takes it, too. The packets
  // have `mtu_bytes`.
  absl::Status Connect(const RdmaHello& peer, uint32_t mtu_bytes);

  // A request, or two: a write unless there is no payload, and a message unless that is empty.
  struct Request {
    uint64_t number = 0;       // of its completion
    bool is_signaled = false;  // it completes also if it succeeds
    std::span<const std::byte> payload;
    uint32_t local_key = 0;  // of the payload
    uint64_t remote_address = 0;
    uint32_t remote_key = 0;
    std::span<const std::byte> message;  // copied; at most kRdmaMessageBytes
  };
  static uint32_t SendsOf(const Request& request);
  // One thread at a time.
  absl::Status Send(const Request& request);
  // A write of no bytes, which the peer's device answers.
  absl::Status SendProbe(uint64_t number);

  // All that follows: one thread. `slot`: of a receive's completion, its wr_id.
  std::span<const std::byte> Received(uint64_t slot, size_t bytes) const;
  absl::Status PostReceive(uint64_t slot);
  // What went wrong with a request or a receive, and what to look at.
  std::string ErrorOf(const ibv_wc& failed) const;
  RdmaCompletions& sent() { return sent_; }
  RdmaCompletions& received() { return received_; }
  // Readable when something completes after AskToBeWoken.
  int descriptor() const { return channel_->fd; }
  // False: something has completed, so nobody wakes.
  bool AskToBeWoken();
  void TakeWakeUps();

 private:
  static constexpr size_t kSlotBytes = 128;
  static_assert(kRdmaMessageBytes <= kSlotBytes);
  static size_t ReceiveBytes() { return kRdmaReceives * kSlotBytes; }

  absl::Status MakeQueues();
  absl::Status MakePair();
  absl::Status Modify(ibv_qp_attr& attributes, int mask, const char* to);
  absl::Status Post(ibv_send_wr* first);
  absl::Status Refused(int error, const std::string& what) const;

  const RdmaRoute route_;
  const Verbs& verbs_ = route_.device->verbs();
  std::unique_ptr<std::byte[]> memory_;  // receives, then staging
  RdmaRegion region_;
  ibv_comp_channel* channel_ = nullptr;
  RdmaCompletions sent_, received_;
  ibv_qp* queue_pair_ = nullptr;
  uint32_t sends_ = kRdmaSends;
  RdmaHello hello_;
};

}  // namespace braid
