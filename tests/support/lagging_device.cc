#include "tests/support/lagging_device.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/device/host_arena.h"
#include "runtime/device/host_memory.h"
#include "runtime/kernels/kernel.h"
#include "tests/support/lagging_group.h"
#include "tests/support/protected_memory.h"

namespace braid {
namespace {

constexpr Nanoseconds kMostLag = 20 * kMicrosecond;

using Task = std::function<absl::Status()>;

class LaggingDevice;

// How often the mark was left, and how often its stream has come to it. Under the node's lock.
class Mark final : public StreamEvent {
 public:
  ~Mark() override {
    CHECK_EQ(queued, 0) << "a mark is gone while a stream has not come to it: its job ended before "
                           "the device had done its work";
  }
  int64_t recorded = 0;
  int64_t reached = 0;
  StreamKind by = StreamKind::kCompute;  // that recorded it last
  mutable int64_t queued = 0;            // how many items of streams name it
};

struct Item {
  enum class Type : uint8_t { kWork, kRecord, kWait, kNotice, kMeet };
  Type type = Type::kWork;
  Task work;
  const WorkName* name = nullptr;
  Mark* mark = nullptr;
  int64_t count = 0;  // of the mark
  Notice notice;
  LaggingMeeting* meeting = nullptr;
  std::shared_ptr<LaggingPart> part;
};

class LaggingStream final : public Stream {
 public:
  LaggingStream(LaggingDevice* device, StreamKind kind) : device_(*device), kind_(kind) {}

  void Queue(Task work);
  void Meet(LaggingMeeting* meeting, std::shared_ptr<LaggingPart> part);

  void Copy(std::byte* to, const std::byte* from, uint64_t bytes) override {
    Do([=](Stream& host) { host.Copy(to, from, bytes); });
  }
  void Clear(std::byte* to, uint64_t bytes) override {
    Do([=](Stream& host) { host.Clear(to, bytes); });
  }
  void CopyBox(const BoxRuns& runs, size_t element_size, const std::byte* from,
               std::byte* to) override {
    Do([=, &runs](Stream& host) { host.CopyBox(runs, element_size, from, to); });
  }
  void CombineBox(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const std::byte* from,
                  std::byte* to) override {
    Do([=, &runs](Stream& host) { host.CombineBox(runs, dtype, kind, from, to); });
  }
  void Record(StreamEvent& event) override;
  void Wait(const StreamEvent& event) override;
  void Notify(Notice notice) override;
  void SetName(const WorkName* name) override { name_ = name; }

 private:
  friend class LaggingDevice;

  void Do(std::function<void(Stream&)> what) {
    Queue([what = std::move(what)] {
      HostStream host;
      what(host);
      return absl::OkStatus();
    });
  }
  bool IsForgotten(const Mark& mark) const;

  LaggingDevice& device_;
  const StreamKind kind_;
  const WorkName* name_ = nullptr;
  std::deque<Item> items_;  // under the node's lock
};

// A CPU's kernel, which runs when the stream has come to it.
class LaggingKernel final : public Kernel {
 public:
  LaggingKernel(const KernelSpec& spec, std::unique_ptr<Kernel> kernel)
      : kernel_(std::move(kernel)), inputs_(spec.inputs.size()), outputs_(spec.outputs.size()) {}

  absl::Status Run(const KernelRun& run) override {
    Queue(run, [kernel = kernel_](const KernelRun& later) { return kernel->Run(later); });
    return absl::OkStatus();
  }
  OpParts parts() const override { return kernel_->parts(); }
  void RunPart(const KernelRun& run, int64_t begin, int64_t size) override {
    Queue(run, [kernel = kernel_, begin, size](const KernelRun& later) {
      kernel->RunPart(later, begin, size);
      return absl::OkStatus();
    });
  }

 private:
  void Queue(const KernelRun& run, std::function<absl::Status(const KernelRun&)> work) const {
    CHECK(run.stream != nullptr) << "a kernel of a lagging device was run without a stream";
    std::vector<void*> operands(run.inputs, run.inputs + inputs_);
    operands.insert(operands.end(), run.outputs, run.outputs + outputs_);
    static_cast<LaggingStream*>(run.stream)
        ->Queue([later = run, operands = std::move(operands), inputs = inputs_,
                 work = std::move(work)]() mutable {
          later.stream = nullptr;
          later.inputs = operands.data();
          later.outputs = operands.data() + inputs;
          return work(later);
        });
  }

  const std::shared_ptr<Kernel> kernel_;  // shared with queued work
  const size_t inputs_, outputs_;
};

class LaggingDevice final : public Device {
 public:
  LaggingDevice(const DeviceRequest& request, LaggingFault fault, LaggingCounts* counts)
      : Device("lagging", request.index),
        node_number_(request.node),
        fault_(fault),
        counts_(counts),
        is_simulated_(request.environment->is_simulated()),
        kernels_(request.cpu_kernels,
                 [](const KernelSpec& spec, std::unique_ptr<Kernel> kernel) {
                   return std::make_unique<LaggingKernel>(spec, std::move(kernel));
                 }),
        random_(request.simulation_seed * 1000003 + request.node * 1009 + request.index),
        pinned_(request.devices),
        compute_(this, StreamKind::kCompute),
        copy_in_(this, StreamKind::kCopyIn),
        copy_out_(this, StreamKind::kCopyOut),
        collective_(this, StreamKind::kCollective),
        reactor_(request.environment->StartReactor(
            absl::StrFormat("lagging n%d d%d", request.node, request.index))) {}

  const KernelRegistry& kernels() const override { return kernels_; }
  bool is_host() const override { return false; }

  absl::StatusOr<Memory> Allocate(MemoryKind kind, uint64_t bytes) override {
    if (kind != MemoryKind::kOwn) return AllocateHostMemory(bytes);
    MutexLock lock(memory_mutex_);
    auto block = memory_.Take(bytes);
    if (!block.ok()) return block.status();
    Count(static_cast<int64_t>(block->size()));
    return Memory(kind, *block, [this](std::span<std::byte> lent) {
      MutexLock lock(memory_mutex_);
      Count(-static_cast<int64_t>(lent.size()));
      memory_.GiveBack(lent);
    });
  }
  std::span<std::byte> arena(MemoryKind kind) const override {
    return kind == MemoryKind::kOwn ? memory_.arena() : pinned_.bytes();
  }
  absl::Status GrowArena(MemoryKind kind, uint64_t bytes) override {
    if (kind != MemoryKind::kOwn) return pinned_.Grow(bytes);
    MutexLock lock(memory_mutex_);
    const size_t before = memory_.arena().size();
    const absl::Status status = memory_.GrowArena(bytes);
    Count(static_cast<int64_t>(memory_.arena().size() - before));
    return status;
  }

  Stream& stream(StreamKind kind) override {
    if (IsHostStream(kind)) return host_;
    for (LaggingStream* stream : streams_) {
      if (stream->kind_ == kind) return *stream;
    }
    LOG(FATAL) << "no stream " << static_cast<int>(kind);
  }
  std::unique_ptr<StreamEvent> MakeEvent() override { return std::make_unique<Mark>(); }
  void Drain(Notice drained) override {
    if (fault_ == LaggingFault::kDrainsEarly) return drained(absl::OkStatus());
    const auto missing = std::make_shared<std::atomic<size_t>>(streams_.size());
    for (LaggingStream* stream : streams_) {
      Push(*stream,
           {.type = Item::Type::kNotice, .notice = [missing, drained](const absl::Status& status) {
              if (--*missing == 0) drained(status);
            }});
    }
  }

 private:
  friend class LaggingStream;
  friend class LaggingGroup;
  friend class braid::LaggingNetwork;

  void Count(int64_t bytes) {
    if (counts_ != nullptr) counts_->bytes += bytes;
  }

  void Push(LaggingStream& stream, Item item) {
    MutexLock lock(*mutex_);
    const bool is_work = item.type == Item::Type::kWork || item.type == Item::Type::kMeet;
    if (is_work && counts_ != nullptr) ++counts_->queued;
    if (item.mark != nullptr) {
      ++item.mark->queued;
      if (item.type == Item::Type::kRecord) {
        item.count = ++item.mark->recorded;
        item.mark->by = stream.kind_;
      } else {
        item.count = item.mark->recorded;
      }
    }
    stream.items_.push_back(std::move(item));
    WakeLocked();
  }

  void Wake() {
    MutexLock lock(*mutex_);
    WakeLocked();
  }
  void WakeLocked() {
    if (std::exchange(is_awake_, true)) return;
    reactor_->Post([this] { PrepareTurn(); });
  }

  // The next turn comes after a while that the seed draws. Only a simulated clock has time for
  // that: elsewhere the device lags because it has a thread of its own.
  void PrepareTurn() {
    if (!is_simulated_) return reactor_->Post([this] { Turn(); });
    const auto lag = static_cast<Nanoseconds>(random_() % kMostLag);
    reactor_->RunAfter(lag, [this] { Turn(); });
  }

  // Does what is next in one of the streams that can go on.
  void Turn() {
    Item item;
    StreamKind kind = StreamKind::kCompute;
    {
      MutexLock lock(*mutex_);
      std::vector<LaggingStream*> ready;
      for (LaggingStream* stream : streams_) {
        if (!stream->items_.empty() && MayGoOn(stream->items_.front())) ready.push_back(stream);
      }
      if (ready.empty()) {
        is_awake_ = false;
        return;
      }
      LaggingStream& stream = *ready[random_() % ready.size()];
      std::deque<Item>& items = stream.items_;
      item = items.front();
      kind = stream.kind_;
      // Who has come to a collective stays there until all have.
      if (item.type != Item::Type::kMeet || IsDone(item)) items.pop_front();
      if (item.mark != nullptr) --item.mark->queued;
      if (item.type == Item::Type::kRecord) {
        item.mark->reached = item.count;
        for (LaggingDevice* other : node_) other->WakeLocked();  // who waits for the mark
      }
    }
    if (item.type == Item::Type::kWork) Work(item, kind);
    if (item.type == Item::Type::kNotice) item.notice(failure_);
    if (item.type == Item::Type::kMeet) Meet(item);
    PrepareTurn();
  }

  static bool IsDone(const Item& item) {
    return item.meeting->StateOf(*item.part) == LaggingMeeting::State::kDone;
  }
  static bool MayGoOn(const Item& item) {
    if (item.type == Item::Type::kMeet) {
      return item.meeting->StateOf(*item.part) != LaggingMeeting::State::kWaits;
    }
    return item.type != Item::Type::kWait || item.mark->reached >= item.count;
  }

  void Meet(const Item& item) {
    if (!IsDone(item)) {
      item.meeting->Come(item.part, failure_);
      return;
    }
    failure_.Update(item.part->status);
    if (counts_ != nullptr) ++counts_->done;
  }

  // Nothing is done any more after a failure. Copies into the device's memory may come from that of
  // the node's others.
  void Work(const Item& item, StreamKind kind) {
    if (failure_.ok()) {
      absl::Status status;
      const std::vector<LaggingDevice*> self = {this};
      WithMemory(kind == StreamKind::kCopyIn && !node_.empty() ? node_ : self, 0,
                 [&] { status = item.work(); });
      if (!status.ok()) failure_ = item.name == nullptr ? status : NameFailure(*item.name, status);
    }
    if (counts_ != nullptr) ++counts_->done;
  }

  // Opens that of the devices from number `i` of the list on, which ascends: two such do not wait
  // for each other.
  static void WithMemory(const std::vector<LaggingDevice*>& devices, size_t i,
                         const std::function<void()>& work) {
    if (i == devices.size()) return work();
    LaggingDevice& device = *devices[i];
    MutexLock lock(device.memory_mutex_);
    device.memory_.Open();
    WithMemory(devices, i + 1, work);
    device.memory_.Close();
  }

  const int node_number_;
  const LaggingFault fault_;
  LaggingCounts* const counts_;  // may be null
  const bool is_simulated_;
  const KernelRegistry kernels_;
  std::mt19937_64 random_;  // on the reactor's thread
  Mutex memory_mutex_;
  ProtectedMemory memory_;
  HostArena pinned_;
  HostStream host_;
  // Of the streams' items, of marks and of is_awake_; the node's others have the same one.
  std::shared_ptr<Mutex> mutex_ = std::make_shared<Mutex>();
  LaggingStream compute_, copy_in_, copy_out_, collective_;
  const std::vector<LaggingStream*> streams_ = {&compute_, &copy_in_, &copy_out_, &collective_};
  std::vector<LaggingDevice*> node_;  // all of its node, by index; empty: they have no group
  bool is_awake_ = false;             // a turn is to come
  absl::Status failure_;              // the first; on the reactor's thread
  std::unique_ptr<Reactor> reactor_;
};

void LaggingStream::Queue(Task work) {
  device_.Push(*this, {.type = Item::Type::kWork, .work = std::move(work), .name = name_});
}

void LaggingStream::Record(StreamEvent& event) {
  device_.Push(*this, {.type = Item::Type::kRecord, .mark = static_cast<Mark*>(&event)});
}

void LaggingStream::Meet(LaggingMeeting* meeting, std::shared_ptr<LaggingPart> part) {
  device_.Push(*this, {.type = Item::Type::kMeet, .meeting = meeting, .part = std::move(part)});
}

// Data goes from copying in to computing to copying out; readers' marks go the other way.
bool LaggingStream::IsForgotten(const Mark& mark) const {
  if (kind_ == StreamKind::kCollective) return device_.fault_ == LaggingFault::kMeetsTooEarly;
  if (mark.by == StreamKind::kCollective) return false;
  const bool by_writer = kind_ == StreamKind::kCopyOut ||
                         (kind_ == StreamKind::kCompute && mark.by == StreamKind::kCopyIn);
  return device_.fault_ ==
         (by_writer ? LaggingFault::kReadsTooEarly : LaggingFault::kWritesTooEarly);
}

void LaggingStream::Wait(const StreamEvent& event) {
  // Marks are the device's own to change.
  auto* mark = const_cast<Mark*>(static_cast<const Mark*>(&event));
  {
    MutexLock lock(*device_.mutex_);
    if (mark->recorded == 0 || IsForgotten(*mark)) return;
  }
  device_.Push(*this, {.type = Item::Type::kWait, .mark = mark});
}

void LaggingStream::Notify(Notice notice) {
  if (device_.fault_ == LaggingFault::kNotifiesEarly) return notice(absl::OkStatus());
  device_.Push(*this, {.type = Item::Type::kNotice, .notice = std::move(notice)});
}

}  // namespace

// Devices have places, in the order in which they were made.
class LaggingNetwork {
 public:
  LaggingMeeting& meeting() { return meeting_; }

  int Add(LaggingDevice* device) {
    MutexLock lock(mutex_);
    const int place = static_cast<int>(devices_.size());
    devices_.push_back(device);
    places_[{device->node_number_, device->index()}] = place;
    return place;
  }

  // Of the members, in rank order; they are on `node` if the spec names none.
  std::vector<int> PlacesOf(const DeviceCollectiveSpec& spec, int node) const {
    MutexLock lock(mutex_);
    std::vector<int> places;
    for (size_t rank = 0; rank < spec.devices.size(); ++rank) {
      places.push_back(
          places_.at({spec.nodes.empty() ? node : spec.nodes[rank], spec.devices[rank]}));
    }
    return places;
  }

  // Whether the member has met these before.
  bool Knows(const LaggingPart& part) const {
    MutexLock lock(mutex_);
    return known_.contains({part.place(), part.places});
  }
  uint64_t NewWord() {
    MutexLock lock(mutex_);
    return ++words_;
  }
  // The member meets them, who all heard this word.
  absl::Status Meet(const LaggingPart& part, uint64_t word) {
    MutexLock lock(mutex_);
    if (word == 0 || word > words_) {
      return absl::InternalError(absl::StrFormat(
          "device %d and others meet first in collective %d, and rank 0 told them %d, no word of "
          "its own",
          part.place(), part.spec->id, word));
    }
    known_.emplace(part.place(), part.places);
    return absl::OkStatus();
  }

  // Of devices that are to be made; no two are the same.
  std::vector<std::string> NewCards(int devices) {
    MutexLock lock(mutex_);
    std::vector<std::string> cards;
    for (int i = 0; i < devices; ++i) cards.push_back(absl::StrFormat("lagging %d", ++cards_));
    return cards;
  }

 private:
  LaggingDevice* At(int place) const {
    MutexLock lock(mutex_);
    return devices_[place];
  }

  mutable Mutex mutex_;
  std::vector<LaggingDevice*> devices_ BRAID_GUARDED_BY(mutex_);        // also those that are gone
  std::map<std::pair<int, int>, int> places_ BRAID_GUARDED_BY(mutex_);  // by node and index
  std::set<std::pair<int, std::vector<int>>> known_ BRAID_GUARDED_BY(mutex_);
  uint64_t words_ BRAID_GUARDED_BY(mutex_) = 0;
  int cards_ BRAID_GUARDED_BY(mutex_) = 0;
  LaggingMeeting meeting_{{.with_memory =
                               [this](std::vector<int> places, const std::function<void()>& work) {
                                 std::sort(places.begin(), places.end());
                                 std::vector<LaggingDevice*> members;
                                 for (const int place : places) members.push_back(At(place));
                                 LaggingDevice::WithMemory(members, 0, work);
                               },
                           .wake = [this](int place) { At(place)->Wake(); }}};
};

std::shared_ptr<LaggingNetwork> MakeLaggingNetwork() { return std::make_shared<LaggingNetwork>(); }

namespace {

class LaggingCollective final : public DeviceCollective {
 public:
  LaggingCollective(DeviceCollectiveSpec spec, LaggingDevice* device, int node,
                    std::shared_ptr<LaggingNetwork> network)
      : spec_(std::make_shared<const DeviceCollectiveSpec>(std::move(spec))),
        stream_(static_cast<LaggingStream&>(device->stream(StreamKind::kCollective))),
        node_(node),
        network_(std::move(network)) {}

  void Come(const std::byte* input, std::byte* output) override {
    part_ = std::make_shared<LaggingPart>();
    part_->spec = spec_;
    part_->places = network_->PlacesOf(*spec_, node_);
    part_->input = input;
    part_->output = output;
    is_first_ = part_->spans_nodes() && !network_->Knows(*part_);
  }
  absl::Status Tell(std::span<std::byte> word) override {
    if (!is_first_ || spec_->my_rank != 0) return absl::OkStatus();
    const uint64_t told = network_->NewWord();
    std::memcpy(word.data(), &told, sizeof told);
    return absl::OkStatus();
  }
  void Queue(std::span<const std::byte> word, std::function<void(absl::Status)> done) override {
    if (is_first_) {
      uint64_t heard = 0;
      CHECK_GE(word.size(), sizeof heard);
      std::memcpy(&heard, word.data(), sizeof heard);
      if (absl::Status met = network_->Meet(*part_, heard); !met.ok()) return done(std::move(met));
    }
    stream_.Meet(&network_->meeting(), part_);
    done(absl::OkStatus());
  }

 private:
  const std::shared_ptr<const DeviceCollectiveSpec> spec_;
  LaggingStream& stream_;
  const int node_;
  const std::shared_ptr<LaggingNetwork> network_;
  std::shared_ptr<LaggingPart> part_;
  bool is_first_ = false;  // of those that its members do between nodes
};

class LaggingGroup final : public DeviceGroup {
 public:
  // `network`: of several nodes, or null.
  LaggingGroup(const Devices& devices, const std::shared_ptr<LaggingNetwork>& network)
      : is_alone_(network == nullptr), network_(is_alone_ ? MakeLaggingNetwork() : network) {
    for (const auto& device : devices) {
      devices_.push_back(static_cast<LaggingDevice*>(device.get()));
    }
    for (LaggingDevice* device : devices_) {
      device->mutex_ = devices_[0]->mutex_;
      device->node_ = devices_;
      places_.push_back(network_->Add(device));
    }
  }

  absl::StatusOr<std::unique_ptr<DeviceCollective>> Create(
      const DeviceCollectiveSpec& spec) override {
    if (is_alone_ && !spec.nodes.empty()) {
      return absl::UnimplementedError("lagging devices do collectives on their own node alone");
    }
    LaggingDevice* const device = devices_[spec.devices[spec.my_rank]];
    return std::make_unique<LaggingCollective>(spec, device, device->node_number_, network_);
  }

  void Abort() override {
    for (const int place : places_) network_->meeting().Leave(place);
  }

 private:
  const bool is_alone_;
  const std::shared_ptr<LaggingNetwork> network_;
  std::vector<LaggingDevice*> devices_;  // by index
  std::vector<int> places_;              // theirs
};

}  // namespace

DeviceKinds::Kind LaggingKind(LaggingFault fault, LaggingCounts* counts,
                              std::shared_ptr<LaggingNetwork> network) {
  DeviceKinds::Kind kind = {.is_host = false,
                            .make =
                                [fault, counts](const DeviceRequest& request) {
                                  return std::make_unique<LaggingDevice>(request, fault, counts);
                                },
                            .make_group =
                                [network](const Devices& devices) {
                                  return std::make_unique<LaggingGroup>(devices, network);
                                }};
  if (network == nullptr) return kind;
  kind.between_nodes = [network](int devices) {
    return ReachBetweenNodes{.library = "a lagging network", .cards = network->NewCards(devices)};
  };
  return kind;
}

DeviceKinds KindsWithLagging(LaggingFault fault, LaggingCounts* counts,
                             std::shared_ptr<LaggingNetwork> network) {
  DeviceKinds kinds;
  CHECK(kinds.Register("lagging", LaggingKind(fault, counts, std::move(network))).ok());
  return kinds;
}

}  // namespace braid
