#include "runtime/cuda/cuda_device.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"
#include "runtime/cuda/module.h"
#include "runtime/device/host_memory.h"
#include "runtime/kernels/cuda/pointwise_fuser.h"

namespace braid::cuda {
namespace {

constexpr Nanoseconds kLook = 50 * kMillisecond;

// Streams that are the device's own, in the order of CudaDevice::streams_.
constexpr StreamKind kOwnStreams[] = {StreamKind::kCompute, StreamKind::kCopyIn,
                                      StreamKind::kCopyOut, StreamKind::kCollective};

std::string NameOf(const WorkName& name) {
  return name.location.empty() ? name.what : absl::StrFormat("%s (%s)", name.what, name.location);
}

}  // namespace

CudaDevice::CudaDevice(const DeviceRequest& request, const Options& options)
    : Device("cuda", request.index),
      module_(*options.module),
      card_(options.card),
      kernels_(options.kernels),
      pinned_(request.devices),
      reactor_(request.environment->StartReactor(
          absl::StrFormat("cuda n%d d%d", request.node, request.index))) {
  absl::Status status = options.status;
  if (status.ok()) status = Start(request, options);
  if (!status.ok()) Fail(status);
}

absl::Status CudaDevice::Start(const DeviceRequest& request, const Options& options) {
  CardInfo info = {};
  if (const Error error = module_.describe(card_, &info); error != kDone) {
    return Failure(error, {});
  }
  BRAID_ASSIGN_OR_RETURN(note_memory_, Allocate(MemoryKind::kPinned, sizeof(IndexNote)));
  *reinterpret_cast<IndexNote*>(note_memory_.data()) = {};
  BRAID_ASSIGN_OR_RETURN(noted_memory_, Allocate(MemoryKind::kOwn, sizeof(int32_t)));
  BRAID_ASSIGN_OR_RETURN(step_memory_, Allocate(MemoryKind::kOwn, sizeof(int64_t)));
  queue_.note = reinterpret_cast<IndexNote*>(note_memory_.data());
  queue_.is_noted = reinterpret_cast<int32_t*>(noted_memory_.data());
  queue_.multiprocessors = info.multiprocessors;
  queue_.rounds_to_tf32 = options.rounds_to_tf32;
  queue_.sums_by_winograd = options.sums_by_winograd;
  if (const Error error = module_.use_card(card_); error != kDone) return Failure(error, {});
  queue_.libraries = module_.open_libraries(options.libraries.c_str());
  const std::string missing = module_.missing_libraries(queue_.libraries);
  if (!missing.empty() && request.index == 0) {
    LOG(WARNING) << "node " << request.node << ": " << missing
                 << "; slower kernels of Braid's own do their work";
  }
  // The common parts of all queues are known now.
  for (size_t i = 0; i < std::size(kOwnStreams) + 1; ++i) {  // and what is done together
    const bool is_for_kernels = i == 0;
    Queue queue = queue_;
    if (is_for_kernels) queue.step = reinterpret_cast<int64_t*>(step_memory_.data());
    streams_.push_back(
        std::make_unique<CudaStream>(this, queue, options.uses_graphs && is_for_kernels));
  }
  streams_[0]->Clear(noted_memory_.data(), sizeof(int32_t));
  if (options.compiler != nullptr) {
    programs_ = std::make_unique<CardPrograms>(
        CardPrograms::Options{.module = &module_, .compiler = options.compiler, .card = card_});
    fuser_ = std::make_unique<PointwiseFuser>(programs_.get());
  }
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  // Until its thread has ended it reads the pointer, which a reset would make null before.
  std::default_delete<Reactor>()(reactor_.get());
  static_cast<void>(reactor_.release());
  streams_.clear();
  fuser_.reset();
  programs_.reset();
  if (queue_.libraries != nullptr) module_.close_libraries(queue_.libraries);
  {
    MutexLock lock(mutex_);
    for (const std::span<std::byte> part : pinned_parts_) module_.unpin(part.data());
  }
  module_.release(&own_);
}

absl::Status CudaDevice::Failure(Error error, const WorkRange& work) const {
  std::string message =
      absl::StrFormat("cuda %d (card %d): %s", index(), card_, ErrorWords(module_, error));
  if (work.first != nullptr && work.last != nullptr) {
    message += work.first == work.last
                   ? absl::StrFormat("; it was at work on %s", NameOf(*work.first))
                   : absl::StrFormat("; it was at work between %s and %s", NameOf(*work.first),
                                     NameOf(*work.last));
  }
  return absl::InternalError(message);
}

absl::Status CudaDevice::OutOfMemory(Error error, const char* what, uint64_t bytes) const {
  uint64_t free_bytes = 0;
  CardInfo info = {};
  if (module_.free_memory(card_, &free_bytes) != kDone || module_.describe(card_, &info) != kDone) {
    return Failure(error, {});
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "cuda %d (card %d, %s) has no %d bytes for %s: %d of its %d are free (%s); take a smaller "
      "batch, more micro-batches or more devices",
      index(), card_, info.name, bytes, what, free_bytes, info.bytes, ErrorWords(module_, error)));
}

absl::StatusOr<Memory> CudaDevice::Allocate(MemoryKind kind, uint64_t bytes) {
  if (kind == MemoryKind::kHost) return AllocateHostMemory(bytes);
  {
    MutexLock lock(mutex_);
    BRAID_RETURN_IF_ERROR(failure_);
  }
  if (kind == MemoryKind::kPinned) {
    BRAID_ASSIGN_OR_RETURN(Memory host, AllocateHostMemory(bytes));
    if (bytes == 0) return host;
    if (const Error error = module_.pin(host.data(), bytes); error != kDone) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "cuda %d: %d bytes of the host's memory cannot be pinned (%s); ulimit -l limits them",
          index(), bytes, ErrorWords(module_, error)));
    }
    const std::span<std::byte> span(host.data(), bytes);
    return Memory(kind, span,
                  [this, host = std::make_shared<Memory>(std::move(host))](
                      std::span<std::byte> lent) { module_.unpin(lent.data()); });
  }
  if (bytes == 0) return Memory(kind, {}, nullptr);
  void* address = nullptr;
  if (const Error error = module_.allocate(card_, bytes, &address); error != kDone) {
    return OutOfMemory(error, "variables or kernels", bytes);
  }
  return Memory(kind, {static_cast<std::byte*>(address), bytes},
                [this](std::span<std::byte> lent) { module_.free(card_, lent.data()); });
}

std::span<std::byte> CudaDevice::arena(MemoryKind kind) const {
  if (kind != MemoryKind::kOwn) return pinned_.bytes();
  return {static_cast<std::byte*>(own_.address), own_bytes_};
}

absl::Status CudaDevice::GrowArena(MemoryKind kind, uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    BRAID_RETURN_IF_ERROR(failure_);
  }
  if (kind != MemoryKind::kOwn) return PinArena(bytes);
  if (bytes <= own_bytes_) return absl::OkStatus();
  if (own_.address == nullptr) {
    CardInfo info = {};
    Error error = module_.describe(card_, &info);
    // No plan that fits needs more than the card has.
    if (error == kDone) error = module_.reserve(card_, std::max(bytes, info.bytes), &own_);
    if (error != kDone) return OutOfMemory(error, "the address space of activations", bytes);
  }
  if (const Error error = module_.extend(&own_, bytes); error != kDone) {
    return OutOfMemory(error, "activations", bytes);
  }
  own_bytes_ = bytes;
  return absl::OkStatus();
}

// Page by page, as it grows.
absl::Status CudaDevice::PinArena(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  const uint64_t before = (pinned_.bytes().size() + page - 1) / page * page;
  BRAID_RETURN_IF_ERROR(pinned_.Grow(bytes));
  const uint64_t after = (pinned_.bytes().size() + page - 1) / page * page;
  if (after <= before) return absl::OkStatus();
  const std::span<std::byte> part(pinned_.bytes().data() + before, after - before);
  if (const Error error = module_.pin(part.data(), part.size()); error != kDone) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "cuda %d: %d bytes of the host's memory cannot be pinned (%s); ulimit -l limits them",
        index(), part.size(), ErrorWords(module_, error)));
  }
  MutexLock lock(mutex_);
  pinned_parts_.push_back(part);
  return absl::OkStatus();
}

uint64_t CudaDevice::PinnedTogether(const std::byte* from) const {
  MutexLock lock(mutex_);
  for (const std::span<std::byte>& part : pinned_parts_) {
    if (from >= part.data() && from < part.data() + part.size()) {
      return static_cast<uint64_t>(part.data() + part.size() - from);
    }
  }
  return std::numeric_limits<uint64_t>::max();
}

Stream& CudaDevice::stream(StreamKind kind) {
  // Without streams it has failed, and nothing of a job gets here.
  if (IsHostStream(kind) || streams_.empty()) return host_;
  for (size_t i = 0; i < std::size(kOwnStreams); ++i) {
    if (kOwnStreams[i] == kind) return *streams_[i];
  }
  LOG(FATAL) << "no stream " << static_cast<int>(kind);
}

std::unique_ptr<StreamEvent> CudaDevice::MakeEvent() {
  return std::make_unique<CudaEvent>(module_, card_);
}

void CudaDevice::Drain(Notice drained) {
  struct Waiting {
    std::atomic<size_t> missing;
    Mutex mutex;
    absl::Status status BRAID_GUARDED_BY(mutex);
  };
  const auto waiting = std::make_shared<Waiting>();
  waiting->missing = streams_.size();
  if (streams_.empty()) {
    absl::Status failure;
    {
      MutexLock lock(mutex_);
      failure = failure_;
    }
    return drained(failure);
  }
  for (const std::unique_ptr<CudaStream>& stream : streams_) {
    stream->Notify([waiting, drained](const absl::Status& status) {
      absl::Status all;
      {
        MutexLock lock(waiting->mutex);
        waiting->status.Update(status);
        all = waiting->status;
      }
      if (--waiting->missing == 0) drained(all);
    });
  }
}

DueNotice* CudaDevice::Expect(Notice notice, const WorkRange& work) {
  bool begins = false;
  DueNotice* due = nullptr;
  {
    MutexLock lock(mutex_);
    const uint64_t number = next_number_++;
    std::unique_ptr<DueNotice>& entry = due_[number];
    entry = std::make_unique<DueNotice>(
        DueNotice{.device = this, .number = number, .notice = std::move(notice), .work = work});
    due = entry.get();
    begins = !std::exchange(is_watched_, true);
  }
  if (begins) reactor_->Post([this] { Watch(); });
  return due;
}

void CudaDevice::OnReached(void* due) {
  CudaDevice& device = *static_cast<DueNotice*>(due)->device;
  std::unique_ptr<DueNotice> reached;
  absl::Status status;
  {
    MutexLock lock(device.mutex_);
    const auto it = device.due_.find(static_cast<DueNotice*>(due)->number);
    if (it == device.due_.end()) return;  // given up
    reached = std::move(it->second);
    device.due_.erase(it);
    device.ReadNoteLocked();
    status = device.failure_;
  }
  reached->notice(status);
}

Error CudaDevice::Reach(CudaDevice& other) {
  if (other.card_ == card_) return kDone;
  Error error = module_.allow_peer(card_, other.card_);
  if (error == kDone) error = module_.share(&other.own_, card_);
  if (error != kDone) unseen_.push_back(&other);
  return error;
}

const CudaDevice* CudaDevice::UnseenOwner(const std::byte* address) const {
  int32_t card = 0;
  if (unseen_.empty() || module_.card_of(address, &card) != kDone) return nullptr;
  const auto found =
      std::ranges::find_if(unseen_, [&](const CudaDevice* other) { return other->card_ == card; });
  return found == unseen_.end() ? nullptr : *found;
}

void CudaDevice::SetOnFailure(std::function<void(const absl::Status&)> on_failure) {
  MutexLock lock(mutex_);
  on_failure_ = std::move(on_failure);
}

void CudaDevice::SetLook(std::function<absl::Status()> look) {
  MutexLock lock(mutex_);
  look_ = std::move(look);
}

void CudaDevice::Fail(const absl::Status& status) {
  std::vector<Notice> lost;
  absl::Status failure;
  std::function<void(const absl::Status&)> on_failure;
  {
    MutexLock lock(mutex_);
    failure_.Update(status);
    failure = failure_;
    std::swap(on_failure, on_failure_);
    for (auto& [number, due] : due_) {
      lost.push_back(std::move(due->notice));
      given_up_.push_back(std::move(due));
    }
    due_.clear();
  }
  for (const Notice& notice : lost) notice(failure);
  if (on_failure) on_failure(failure);
}

void CudaDevice::ReadNoteLocked() {
  const IndexNote& note = *queue_.note;
  // The device writes it last, in the host's memory.
  if (__atomic_load_n(&note.is_set, __ATOMIC_ACQUIRE) == 0 || !failure_.ok()) return;
  constexpr const char* kNames[] = {"index", "label", "position"};  // by IndexName
  const absl::Status status = absl::OutOfRangeError(absl::StrFormat(
      "%s %d at position %d is outside [%d, %d)", kNames[static_cast<int>(note.name)], note.value,
      note.position, note.low, note.high));
  failure_ =
      note.work == nullptr ? status : NameFailure(*static_cast<const WorkName*>(note.work), status);
}

void CudaDevice::Watch() {
  std::function<absl::Status()> look;
  {
    MutexLock lock(mutex_);
    if (due_.empty()) {
      is_watched_ = false;
      return;
    }
    look = look_;
  }
  if (look) {
    if (const absl::Status status = look(); !status.ok()) Fail(status);
  }
  for (const std::unique_ptr<CudaStream>& stream : streams_) {
    const Error state = stream->state();
    if (state == kDone || state == kNotReady) continue;
    WorkRange oldest;
    {
      MutexLock lock(mutex_);
      if (!due_.empty()) oldest = due_.begin()->second->work;
    }
    Fail(Failure(state, oldest));
    break;
  }
  reactor_->RunAfter(kLook, [this] { Watch(); });
}

}  // namespace braid::cuda
