#include "runtime/cuda/card_network.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace braid::cuda {
namespace {

static_assert(kDeviceWordBytes >= kNcclWordBytes);

// NCCL's own threads work on what a call has begun.
constexpr Nanoseconds kAskAgain = 50 * kMicrosecond;

struct Nccl {
  const ModuleTable& module;
  const void* library;

  const NcclTable& table() const { return module.nccl; }
};

// One device's end of what NCCL knows of a list of members. Its device's thread makes and uses it;
// any thread may end it.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // `done` comes on the thread of `reactor`, which is the caller's.
  struct Call {
    std::string_view what;
    Reactor* reactor;
    std::function<void(absl::Status)> done;
  };

  Communicator(const Nccl& nccl, const CudaDevice& device) : nccl_(nccl), device_(device) {}
  ~Communicator() { End(); }

  // All members call it, with the same word; it is done when all have.
  void Join(std::span<const std::byte> word, size_t members, int rank, Call call) {
    Settle(Try([&](void*& handle) {
             return nccl_.table().join(nccl_.library, word.data(), static_cast<int32_t>(members),
                                       rank, &handle);
           }),
           std::move(call));
  }

  void Collect(const NcclCall& part, void* stream, Call call) {
    Settle(Try([&](void*& handle) { return nccl_.table().collect(handle, part, stream); }),
           std::move(call));
  }

  // What has gone wrong since, with the other members for instance.
  absl::Status Look() {
    const std::optional<Error> state = State();
    const bool is_well = !state.has_value() || *state == kDone || *state == kNotReady;
    return is_well ? absl::OkStatus() : Failure("its work", *state);
  }

  void End() {
    MutexLock lock(mutex_);
    has_ended_ = true;
    if (handle_ == nullptr) return;
    nccl_.module.use_card(device_.card());
    nccl_.table().end(std::exchange(handle_, nullptr));
  }

 private:
  // None: it has ended.
  template <class Function>
  std::optional<Error> Try(const Function& function) {
    MutexLock lock(mutex_);
    if (has_ended_) return std::nullopt;
    nccl_.module.use_card(device_.card());
    return function(handle_);
  }

  std::optional<Error> State() {
    return Try(
        [&](void*& handle) { return handle == nullptr ? kDone : nccl_.table().state(handle); });
  }

  // Asks for the state until what was begun is done.
  void Settle(std::optional<Error> state, Call call) {
    if (!state.has_value()) return call.done(absl::AbortedError("another member has failed"));
    if (*state == kDone) return call.done(absl::OkStatus());
    if (*state != kNotReady) return call.done(Failure(call.what, *state));
    Reactor& reactor = *call.reactor;
    reactor.RunAfter(kAskAgain, [self = shared_from_this(), call = std::move(call)]() mutable {
      self->Settle(self->State(), std::move(call));
    });
  }

  absl::Status Failure(std::string_view what, Error error) const {
    return absl::UnavailableError(absl::StrFormat(
        "cuda %d (card %d): NCCL says of %s: %s; NCCL_DEBUG=WARN makes it say more",
        device_.index(), device_.card(), what, nccl_.table().error_text(nccl_.library, error)));
  }

  const Nccl nccl_;
  const CudaDevice& device_;
  Mutex mutex_;
  void* handle_ BRAID_GUARDED_BY(mutex_) = nullptr;  // null: not yet, or not any more
  bool has_ended_ BRAID_GUARDED_BY(mutex_) = false;
};

// By their nodes and indices there, in rank order.
using Members = std::vector<std::pair<int, int>>;

Members MembersOf(const DeviceCollectiveSpec& spec) {
  Members members;
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    members.emplace_back(spec.nodes[i], spec.devices[i]);
  }
  return members;
}

}  // namespace

// Of all devices.
class Communicators {
 public:
  Communicators(const ModuleTable& module, const void* library, std::vector<CudaDevice*> devices)
      : nccl_{module, library}, devices_(std::move(devices)) {}

  const Nccl& nccl() const { return nccl_; }
  CudaDevice& device(int index) const { return *devices_[index]; }

  // Null: these members have none yet.
  std::shared_ptr<Communicator> Find(int device, const Members& members) {
    MutexLock lock(mutex_);
    const auto found = all_.find({device, members});
    return found == all_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Communicator> Add(int device, const Members& members) {
    const auto made = std::make_shared<Communicator>(nccl_, *devices_[device]);
    MutexLock lock(mutex_);
    if (has_ended_) made->End();
    all_[{device, members}] = made;
    return made;
  }

  absl::Status Look(int device) {
    absl::Status status;
    for (const auto& communicator : Of(device)) status.Update(communicator->Look());
    return status;
  }

  void End() {
    {
      MutexLock lock(mutex_);
      has_ended_ = true;
    }
    for (size_t device = 0; device < devices_.size(); ++device) {
      for (const auto& communicator : Of(static_cast<int>(device))) communicator->End();
    }
  }

 private:
  std::vector<std::shared_ptr<Communicator>> Of(int device) {
    std::vector<std::shared_ptr<Communicator>> found;
    MutexLock lock(mutex_);
    for (const auto& [key, communicator] : all_) {
      if (key.first == device) found.push_back(communicator);
    }
    return found;
  }

  const Nccl nccl_;
  const std::vector<CudaDevice*> devices_;
  Mutex mutex_;
  std::map<std::pair<int, Members>, std::shared_ptr<Communicator>> all_ BRAID_GUARDED_BY(mutex_);
  bool has_ended_ BRAID_GUARDED_BY(mutex_) = false;
};

namespace {

class NcclCollective final : public DeviceCollective {
 public:
  NcclCollective(std::shared_ptr<Communicators> communicators, DeviceCollectiveSpec spec)
      : communicators_(std::move(communicators)),
        spec_(std::move(spec)),
        members_(MembersOf(spec_)),
        reduces_(spec_.kind == CollectiveKind::kAllReduce ||
                 spec_.kind == CollectiveKind::kReduceScatter) {}

  void Come(const std::byte* input, std::byte* output) override {
    input_ = input;
    output_ = output;
  }

  // The first of all collectives that these members do, which is the same one everywhere, has a
  // word.
  absl::Status Tell(std::span<std::byte> word) override {
    communicator_ = communicators_->Find(device(), members_);
    if (communicator_ != nullptr || spec_.my_rank != 0) return absl::OkStatus();
    const Nccl& nccl = communicators_->nccl();
    if (const Error error = nccl.table().make_word(nccl.library, word.data()); error != kDone) {
      return absl::UnavailableError(absl::StrFormat(
          "NCCL cannot listen for the other cards: %s; NCCL_SOCKET_IFNAME says by which interface, "
          "and NCCL_DEBUG=WARN makes it say more",
          nccl.table().error_text(nccl.library, error)));
    }
    return absl::OkStatus();
  }

  void Queue(std::span<const std::byte> word, std::function<void(absl::Status)> done) override {
    if (communicator_ != nullptr) return Collect(std::move(done));
    communicator_ = communicators_->Add(device(), members_);
    communicator_->Join(word, members_.size(), spec_.my_rank,
                        {.what = "joining the other cards",
                         .reactor = spec_.reactor,
                         .done = [this, done = std::move(done)](absl::Status joined) {
                           if (!joined.ok()) return done(std::move(joined));
                           Collect(done);
                         }});
  }

 private:
  int device() const { return spec_.devices[spec_.my_rank]; }

  void Collect(std::function<void(absl::Status)> done) {
    const NcclCall part{.kind = spec_.kind,
                        .dtype = spec_.dtype,
                        .element_bytes = static_cast<int64_t>(SizeOf(spec_.dtype)),
                        .reduction = reduces_ ? CombineNumber(spec_.reduction) : 0,
                        .members = static_cast<int32_t>(members_.size()),
                        .rank = spec_.my_rank,
                        .root = spec_.root,
                        .counts = spec_.counts.data(),
                        .receives = spec_.receives.data(),
                        .input = input_,
                        .output = output_};
    auto& stream =
        static_cast<CudaStream&>(communicators_->device(device()).stream(StreamKind::kCollective));
    communicator_->Collect(part, stream.queue().stream,
                           {.what = CollectiveKindName(spec_.kind),
                            .reactor = spec_.reactor,
                            .done = std::move(done)});
  }

  const std::shared_ptr<Communicators> communicators_;
  const DeviceCollectiveSpec spec_;
  const Members members_;
  const bool reduces_;
  std::shared_ptr<Communicator> communicator_;
  // Of the piece under way.
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace

CardNetwork::CardNetwork(const ModuleTable& module, const void* nccl,
                         const std::vector<CudaDevice*>& devices)
    : communicators_(std::make_shared<Communicators>(module, nccl, devices)) {
  for (CudaDevice* device : devices) {
    device->SetLook([all = communicators_, index = device->index()] { return all->Look(index); });
  }
}

CardNetwork::~CardNetwork() { communicators_->End(); }

absl::StatusOr<std::unique_ptr<DeviceCollective>> CardNetwork::Create(
    const DeviceCollectiveSpec& spec) {
  CudaDevice& device = communicators_->device(spec.devices[spec.my_rank]);
  // Without streams it has failed, and says why.
  if (device.together() == nullptr) return device.Allocate(MemoryKind::kOwn, 1).status();
  return std::make_unique<NcclCollective>(communicators_, spec);
}

void CardNetwork::Abort() { communicators_->End(); }

}  // namespace braid::cuda
