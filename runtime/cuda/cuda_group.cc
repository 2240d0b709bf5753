#include "runtime/cuda/cuda_group.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/cuda/card_network.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/kernels/cuda/peer_reduce.h"

namespace braid::cuda {
namespace {

// Where cards do not see each other's memory: of what one member has, at a time.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
// An all_reduce is divided among the members at multiples of so many bytes.
constexpr int64_t kLineBytes = 256;

struct Block {
  int64_t first = 0, size = 0;  // elements
};

Block BlockOf(const std::vector<int64_t>& counts, size_t rank) {
  return {std::accumulate(counts.begin(), counts.begin() + static_cast<int64_t>(rank), int64_t{0}),
          counts[rank]};
}

// The first members may have everything: what is small has one of them do all the work.
Block PartOfWhole(int64_t elements, size_t members, size_t rank, int64_t element_size) {
  const auto all = static_cast<int64_t>(members);
  const int64_t line = kLineBytes / element_size;
  const int64_t part = ((elements + all - 1) / all + line - 1) / line * line;
  const int64_t first = std::min(elements, part * static_cast<int64_t>(rank));
  return {first, std::min(part, elements - first)};
}

// Of a device that cannot read another's memory: where it puts what it reduces. Its stream
// `together` is all that touches it.
using Landing = std::shared_ptr<const Memory>;

struct Member {
  DeviceCollectiveSpec spec;
  CudaDevice* device = nullptr;
  std::unique_ptr<StreamEvent> ready, reduced, done;
  Landing landing;
  // Of the piece under way.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// One collective. Members come each on a thread of its own; the last one queues the work of all, so
// that each mark has been recorded when somebody is told to wait for it.
class Meeting {
 public:
  // `leader`: the member of rank 0. `queueing` is held by whoever queues in streams that are
  // shared.
  Meeting(const DeviceCollectiveSpec& spec, CudaDevice* leader, Mutex* queueing, bool sees_all)
      : element_size_(static_cast<int64_t>(SizeOf(spec.dtype))),
        sees_all_(sees_all),
        queueing_(*queueing),
        members_(spec.devices.size()),
        begun_(leader->MakeEvent()),
        ended_(leader->MakeEvent()) {}

  void Join(Member member) {
    const auto rank = static_cast<size_t>(member.spec.my_rank);
    MutexLock lock(queueing_);
    members_[rank] = std::move(member);
  }

  void Come(size_t rank, const std::byte* input, std::byte* output) {
    MutexLock lock(queueing_);
    Member& member = members_[rank];
    member.input = input;
    member.output = output;
    member.device->stream(StreamKind::kCollective).Record(*member.ready);
    if (++come_ < members_.size()) return;
    come_ = 0;
    Begin();
    switch (member.spec.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduceScatter:
        Reduce(member.spec);
        break;
      case CollectiveKind::kAllGather:
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kBroadcast:
        for (size_t to = 0; to < members_.size(); ++to) Collect(to);
        break;
    }
    End();
  }

  // The member's own stream goes on when all have done their parts.
  void Follow(size_t rank) { members_[rank].device->stream(StreamKind::kCollective).Wait(*ended_); }

 private:
  // All begin when all are ready, and have ended when all are done: the leader's stream waits for
  // the others and leaves a mark for them, so that there are few marks to wait for.
  void Begin() BRAID_REQUIRES(queueing_) {
    CudaStream& leader = *members_[0].device->together();
    for (const Member& member : members_) leader.Wait(*member.ready);
    leader.Record(*begun_);
    for (const Member& member : members_) {
      if (&member != &members_[0]) member.device->together()->Wait(*begun_);
    }
  }
  void End() BRAID_REQUIRES(queueing_) {
    CudaStream& leader = *members_[0].device->together();
    for (const Member& member : members_) {
      if (&member == &members_[0]) continue;
      member.device->together()->Record(*member.done);
      leader.Wait(*member.done);
    }
    leader.Record(*ended_);
  }

  // What only moves: each member fetches it.
  void Collect(size_t to) BRAID_REQUIRES(queueing_) {
    const Member& member = members_[to];
    const DeviceCollectiveSpec& spec = member.spec;
    if (spec.kind == CollectiveKind::kBroadcast) {
      return Copy(member, 0, members_[spec.root], 0, spec.counts[0]);
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      const size_t from = (to + i) % members_.size();  // not all from the same one at once
      const Member& other = members_[from];
      if (spec.kind == CollectiveKind::kAllGather) {
        Copy(member, BlockOf(spec.counts, from).first, other, 0, spec.counts[from]);
      } else {
        Copy(member, BlockOf(spec.receives, from).first, other,
             BlockOf(other.spec.counts, to).first, spec.receives[from]);
      }
    }
  }

  // Elements from `first` of the other's input to those from `at` of the member's output.
  void Copy(const Member& member, int64_t at, const Member& other, int64_t first, int64_t elements)
      BRAID_REQUIRES(queueing_) {
    std::byte* const to = member.output + at * element_size_;
    const std::byte* const from = other.input + first * element_size_;
    if (to == from || elements == 0) return;
    member.device->together()->CopyFrom(*other.device, to, from,
                                        static_cast<uint64_t>(elements * element_size_));
  }

  // Each member reduces a block of all inputs, in rank order. Of an all_reduce it writes the block
  // into every output; where cards do not see each other, the others fetch it.
  void Reduce(const DeviceCollectiveSpec& spec) BRAID_REQUIRES(queueing_) {
    const bool is_for_all = spec.kind == CollectiveKind::kAllReduce;
    std::vector<Block> blocks;
    for (size_t r = 0; r < members_.size(); ++r) {
      blocks.push_back(is_for_all ? PartOfWhole(spec.counts[0], members_.size(), r, element_size_)
                                  : BlockOf(spec.counts, r));
      if (sees_all_) {
        ReduceInPlace(r, blocks[r], is_for_all);
      } else {
        ReduceLanded(r, blocks[r], is_for_all);
      }
    }
    if (sees_all_ || !is_for_all) return;
    for (const Member& member : members_) member.device->together()->Record(*member.reduced);
    for (const Member& member : members_) {
      for (size_t r = 0; r < members_.size(); ++r) {
        const Member& other = members_[r];
        if (&other == &member || blocks[r].size == 0) continue;
        const int64_t at = blocks[r].first * element_size_;
        member.device->together()->Wait(*other.reduced);
        member.device->together()->CopyFrom(*other.device, member.output + at, other.output + at,
                                            static_cast<uint64_t>(blocks[r].size * element_size_));
      }
    }
  }

  PeerReduceLaunch LaunchOf(size_t rank, int64_t elements) const {
    const DeviceCollectiveSpec& spec = members_[rank].spec;
    return {.dtype = spec.dtype,
            .kind = CombineNumber(spec.reduction),
            .num_inputs = static_cast<int32_t>(members_.size()),
            .num_outputs = 1,
            .elements = elements};
  }

  void ReduceInPlace(size_t rank, const Block& block, bool is_for_all) BRAID_REQUIRES(queueing_) {
    const int64_t at = block.first * element_size_;
    PeerReduceLaunch launch = LaunchOf(rank, block.size);
    launch.outputs[0] = members_[rank].output;
    if (is_for_all) launch.num_outputs = launch.num_inputs;
    for (size_t r = 0; r < members_.size(); ++r) {
      launch.inputs[r] = members_[r].input + at;
      if (is_for_all) launch.outputs[r] = members_[r].output + at;
    }
    members_[rank].device->together()->Reduce(launch);
  }

  void ReduceLanded(size_t rank, const Block& block, bool is_for_all) BRAID_REQUIRES(queueing_) {
    const Member& member = members_[rank];
    const int64_t most = kPieceBytes / element_size_;
    for (int64_t done = 0; done < block.size; done += most) {
      const int64_t elements = std::min(most, block.size - done);
      const int64_t at = (block.first + done) * element_size_;
      PeerReduceLaunch launch = LaunchOf(rank, elements);
      launch.outputs[0] = member.output + (is_for_all ? at : done * element_size_);
      for (size_t r = 0; r < members_.size(); ++r) {
        launch.inputs[r] = members_[r].input + at;
        if (r == rank) continue;
        std::byte* const landed = member.landing->data() + static_cast<int64_t>(r) * kPieceBytes;
        member.device->together()->CopyFrom(*members_[r].device, landed, members_[r].input + at,
                                            static_cast<uint64_t>(elements * element_size_));
        launch.inputs[r] = landed;
      }
      member.device->together()->Reduce(launch);
    }
  }

  const int64_t element_size_;
  const bool sees_all_;  // each member's card all others' memory
  Mutex& queueing_;
  // Constant but for addresses when all have joined.
  std::vector<Member> members_;
  const std::unique_ptr<StreamEvent> begun_, ended_;
  size_t come_ BRAID_GUARDED_BY(queueing_) = 0;
};

class CudaCollective final : public DeviceCollective {
 public:
  CudaCollective(std::shared_ptr<Meeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(static_cast<size_t>(rank)) {}

  void Come(const std::byte* input, std::byte* output) override {
    meeting_->Come(rank_, input, output);
  }
  void Queue(std::span<const std::byte> /*word*/, std::function<void(absl::Status)> done) override {
    meeting_->Follow(rank_);
    done(absl::OkStatus());
  }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const size_t rank_;
};

// The devices wait for each other's marks, which never come from one that has failed.
class CommonFate {
 public:
  explicit CommonFate(std::vector<CudaDevice*> devices) : devices_(std::move(devices)) {}

  void Fail(const absl::Status& status) {
    if (has_failed_.exchange(true)) return;
    MutexLock lock(mutex_);
    for (CudaDevice* device : devices_) device->Fail(status);
  }
  void End() {
    MutexLock lock(mutex_);
    devices_.clear();
  }

 private:
  std::atomic<bool> has_failed_ = false;
  Mutex mutex_;
  std::vector<CudaDevice*> devices_ BRAID_GUARDED_BY(mutex_);
};

class CudaGroup final : public DeviceGroup {
 public:
  CudaGroup(const Devices& devices, const void* nccl) : sees_(devices.size()) {
    for (const auto& device : devices) {
      devices_.push_back(static_cast<CudaDevice*>(device.get()));
    }
    fate_ = std::make_shared<CommonFate>(devices_);
    for (size_t i = 0; i < devices_.size(); ++i) {
      for (CudaDevice* other : devices_) {
        sees_[i].push_back(devices_[i]->Reach(*other) == kDone);
        if (sees_[i].back()) continue;
        LOG_FIRST_N(WARNING, 1) << "card " << devices_[i]->card()
                                << " cannot see the memory of card " << other->card()
                                << ": what they reduce is copied first";
      }
      devices_[i]->SetOnFailure([fate = fate_](const absl::Status& status) { fate->Fail(status); });
    }
    landings_.resize(devices_.size());
    if (nccl != nullptr) network_.emplace(devices_[0]->module(), nccl, devices_);
  }
  ~CudaGroup() override { fate_->End(); }

  absl::StatusOr<std::unique_ptr<DeviceCollective>> Create(
      const DeviceCollectiveSpec& spec) override {
    if (!spec.nodes.empty()) {
      if (network_.has_value()) return network_->Create(spec);
      return absl::FailedPreconditionError(
          "cards of several nodes are to do a collective, and NCCL is not open here; start the "
          "same "
          "program with the same flags on every node");
    }
    const size_t members = spec.devices.size();
    if (members > kMaxPeers) {
      return absl::UnimplementedError(absl::StrFormat(
          "%d devices of a node are in one collective, and cards do at most %d; take more nodes",
          members, kMaxPeers));
    }
    bool sees_all = true;
    for (const int a : spec.devices) {
      for (const int b : spec.devices) sees_all = sees_all && sees_[a][b];
    }
    CudaDevice& device = *devices_[spec.devices[spec.my_rank]];
    if (device.together() == nullptr) return device.Allocate(MemoryKind::kOwn, 1).status();
    Member member{.spec = spec,
                  .device = &device,
                  .ready = device.MakeEvent(),
                  .reduced = device.MakeEvent(),
                  .done = device.MakeEvent(),
                  .landing = nullptr};
    if (!sees_all) {
      BRAID_ASSIGN_OR_RETURN(member.landing, LandingOf(device));
    }
    std::weak_ptr<Meeting>& known = meetings_[spec.id];
    std::shared_ptr<Meeting> meeting = known.lock();
    if (meeting == nullptr) {
      std::erase_if(meetings_, [](const auto& entry) { return entry.second.expired(); });
      meeting = std::make_shared<Meeting>(spec, devices_[spec.devices[0]], &queueing_, sees_all);
      meetings_[spec.id] = meeting;
    }
    meeting->Join(std::move(member));
    return std::make_unique<CudaCollective>(std::move(meeting), spec.my_rank);
  }

  void Abort() override {
    if (network_.has_value()) network_->Abort();
  }

 private:
  absl::StatusOr<Landing> LandingOf(CudaDevice& device) {
    Landing& landing = landings_[device.index()];
    if (landing == nullptr) {
      const uint64_t bytes = devices_.size() * static_cast<uint64_t>(kPieceBytes);
      BRAID_ASSIGN_OR_RETURN(Memory memory, device.Allocate(MemoryKind::kOwn, bytes));
      landing = std::make_shared<const Memory>(std::move(memory));
    }
    return landing;
  }

  std::vector<CudaDevice*> devices_;
  std::vector<std::vector<bool>> sees_;  // [i][j]: device i the memory of device j
  std::vector<Landing> landings_;        // by device; made when one is needed
  std::shared_ptr<CommonFate> fate_;
  std::optional<CardNetwork> network_;
  Mutex queueing_;
  std::map<uint64_t, std::weak_ptr<Meeting>> meetings_;  // by the collective's id
};

}  // namespace

std::unique_ptr<DeviceGroup> MakeCudaGroup(const Devices& devices, const void* nccl) {
  return std::make_unique<CudaGroup>(devices, nccl);
}

}  // namespace braid::cuda
