// An RDMA device as this process has opened it: memory that it may read and write, registered once
// for all links, and what it says of its ports and queue pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/rdma/verbs.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/mutex.h"
#include "runtime/base/shared_heap.h"

namespace braid {

// What a call of verbs could not do: errno's text and, if memory that may be locked was short, how
// much that is and how to raise it.
absl::Status VerbsError(int error, const std::string& what);

// Who may write memory that is registered; this process's own writes go without a device.
enum class RdmaAccess { kLocal, kRemote };

// Memory that a device knows, until this is destroyed: when that returns, the device does not touch
// it any more. A value that moves.
class RdmaRegion {
 public:
  RdmaRegion() = default;
  RdmaRegion(const Verbs& verbs, ibv_mr* region) : verbs_(&verbs), region_(region) {}
  RdmaRegion(RdmaRegion&& other) noexcept
      : verbs_(other.verbs_), region_(std::exchange(other.region_, nullptr)) {}
  RdmaRegion& operator=(RdmaRegion&& other) noexcept {
    std::swap(verbs_, other.verbs_);
    std::swap(region_, other.region_);
    return *this;
  }
  ~RdmaRegion() {
    if (region_ != nullptr) verbs_->dereg_mr(region_);
  }

  uint32_t local_key() const { return region_->lkey; }
  uint32_t remote_key() const { return region_->rkey; }

 private:
  const Verbs* verbs_ = nullptr;
  ibv_mr* region_ = nullptr;
};

// What a device says by itself.
struct RdmaEvent {
  std::string text;         // "port error"
  bool is_refusal = false;  // of what the peer asked a queue pair for; else nothing goes on
};

// Any thread. Shared by the transport and its links, which may outlive it.
class RdmaDevice {
 public:
  // `heap` outlives the links of the device. Null: there is none.
  static absl::StatusOr<std::shared_ptr<RdmaDevice>> Open(const Verbs& verbs, ibv_device* device,
                                                          SharedHeap* heap);
  RdmaDevice(const Verbs& verbs, ibv_context* context, SharedHeap* heap)
      : verbs_(verbs), context_(context), heap_(heap) {}
  ~RdmaDevice();
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  const Verbs& verbs() const { return verbs_; }
  std::string name() const { return verbs_.get_device_name(context_->device); }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  const ibv_device_attr& limits() const { return limits_; }

  // RESOURCE_EXHAUSTED, or what errno says, with the bytes. The device outlives the region.
  absl::StatusOr<RdmaRegion> Register(std::span<std::byte> memory, RdmaAccess access);
  // The local key of memory that lies in the heap; none for other memory. The heap is registered in
  // the runs in which it was filled, each when a key in it is first asked for. Errors as of
  // Register.
  absl::StatusOr<std::optional<uint32_t>> KeyInHeap(std::span<const std::byte> memory);

  // A new descriptor, the caller's, which is readable when TakeEvents has something to do.
  absl::StatusOr<Descriptor> EventDescriptor() const;
  // `listener` is told what concerns this queue pair or its port, until LeaveEvents; inside
  // somebody's TakeEvents, so it may only post.
  void ListenToEvents(const ibv_qp* queue_pair, uint8_t port,
                      std::function<void(const RdmaEvent& event)> listener);
  void LeaveEvents(const ibv_qp* queue_pair);
  void TakeEvents();

 private:
  struct Listener {
    uint8_t port = 0;
    std::function<void(const RdmaEvent& event)> told;
  };

  void Tell(const ibv_async_event& event) BRAID_REQUIRES(events_mutex_);

  const Verbs verbs_;
  ibv_context* const context_;
  ibv_pd* domain_ = nullptr;
  ibv_device_attr limits_ = {};
  SharedHeap* const heap_;
  Mutex heap_mutex_;
  // By where a run of the heap begins, and its bytes.
  std::map<std::pair<const std::byte*, size_t>, RdmaRegion> heap_regions_
      BRAID_GUARDED_BY(heap_mutex_);
  Mutex events_mutex_;
  std::map<const ibv_qp*, Listener> listeners_ BRAID_GUARDED_BY(events_mutex_);
};

}  // namespace braid
