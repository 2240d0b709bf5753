#include "comm/rdma/rdma_device.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {

absl::Status VerbsError(int error, const std::string& what) {
  rlimit locked = {};
  if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
      locked.rlim_cur != RLIM_INFINITY) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: this process may lock %d bytes of memory (ulimit -l); raise that limit (ulimit -l "
        "unlimited, or docker run --ulimit memlock=-1)",
        what, locked.rlim_cur));
  }
  return absl::ErrnoToStatus(error, what);
}

absl::StatusOr<std::shared_ptr<RdmaDevice>> RdmaDevice::Open(const Verbs& verbs, ibv_device* device,
                                                             SharedHeap* heap) {
  const std::string name = verbs.get_device_name(device);
  ibv_context* const context = verbs.open_device(device);
  if (context == nullptr) {
    return VerbsError(errno, absl::StrFormat("cannot open RDMA device %s", name));
  }
  auto opened = std::make_shared<RdmaDevice>(verbs, context, heap);
  if (const int error = verbs.query_device(context, &opened->limits_); error != 0) {
    return VerbsError(error, absl::StrFormat("cannot ask RDMA device %s for its limits", name));
  }
  opened->domain_ = verbs.alloc_pd(context);
  if (opened->domain_ == nullptr) {
    return VerbsError(errno, absl::StrFormat("RDMA device %s gives no protection domain", name));
  }
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return VerbsError(errno, absl::StrFormat("cannot wait for the events of %s", name));
  }
  return opened;
}

RdmaDevice::~RdmaDevice() {
  {
    MutexLock lock(heap_mutex_);
    heap_regions_.clear();
  }
  if (domain_ != nullptr) verbs_.dealloc_pd(domain_);
  verbs_.close_device(context_);
}

absl::StatusOr<RdmaRegion> RdmaDevice::Register(std::span<std::byte> memory, RdmaAccess access) {
  const int allowed = access == RdmaAccess::kRemote
                          ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                          : IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* const region = verbs_.reg_mr(domain_, memory.data(), memory.size(), allowed);
  if (region != nullptr) return RdmaRegion(verbs_, region);
  return VerbsError(errno, absl::StrFormat("cannot register %d bytes with RDMA device %s",
                                           memory.size(), name()));
}

absl::StatusOr<std::optional<uint32_t>> RdmaDevice::KeyInHeap(std::span<const std::byte> memory) {
  if (heap_ == nullptr) return std::nullopt;
  const std::span<std::byte> run = heap_->RunOf(memory);
  if (run.empty()) return std::nullopt;
  MutexLock lock(heap_mutex_);
  auto found = heap_regions_.find({run.data(), run.size()});
  if (found == heap_regions_.end()) {
    BRAID_ASSIGN_OR_RETURN(RdmaRegion region, Register(run, RdmaAccess::kLocal));
    found = heap_regions_.emplace(std::pair(run.data(), run.size()), std::move(region)).first;
  }
  return found->second.local_key();
}

absl::StatusOr<Descriptor> RdmaDevice::EventDescriptor() const {
  Descriptor own(fcntl(context_->async_fd, F_DUPFD_CLOEXEC, 0));
  if (own.is_open()) return own;
  return absl::ErrnoToStatus(errno, absl::StrFormat("cannot wait for the events of %s", name()));
}

void RdmaDevice::ListenToEvents(const ibv_qp* queue_pair, uint8_t port,
                                std::function<void(const RdmaEvent& event)> listener) {
  MutexLock lock(events_mutex_);
  listeners_[queue_pair] = {.port = port, .told = std::move(listener)};
}

void RdmaDevice::LeaveEvents(const ibv_qp* queue_pair) {
  MutexLock lock(events_mutex_);
  listeners_.erase(queue_pair);
}

void RdmaDevice::TakeEvents() {
  MutexLock lock(events_mutex_);
  ibv_async_event event = {};
  while (verbs_.get_async_event(context_, &event) == 0) {
    Tell(event);
    verbs_.ack_async_event(&event);  // or its queue pair could not be destroyed
  }
}

void RdmaDevice::Tell(const ibv_async_event& event) {
  RdmaEvent told{.text = verbs_.event_type_str(event.event_type)};
  VLOG(1) << "RDMA device " << name() << ": " << told.text;
  switch (event.event_type) {
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_REQ_ERR:
      told.is_refusal = true;
      [[fallthrough]];
    case IBV_EVENT_QP_FATAL:
      if (const auto of = listeners_.find(event.element.qp); of != listeners_.end()) {
        of->second.told(told);
      }
      return;
    case IBV_EVENT_PORT_ERR:
      for (const auto& [queue_pair, listener] : listeners_) {
        if (listener.port == event.element.port_num) listener.told(told);
      }
      return;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      for (const auto& [queue_pair, listener] : listeners_) listener.told(told);
      return;
    default:
      return;
  }
}

}  // namespace braid
