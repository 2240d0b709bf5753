#include "comm/collective/direct_collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/collective/whole_elements.h"
#include "glog/logging.h"

namespace braid {
namespace {

// The bytes that a reduction works on at a time: whole elements, which stay in the first-level
// cache.
int64_t ReductionTileBytes(int64_t element_size) {
  return WholeElements(int64_t{8} << 10, element_size);
}

// That wait for a member: each meeting of all sends it one, and it goes to none without it.
constexpr size_t kMostEvents = 4;

void Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Where the members' blocks begin, in bytes; not of an all_to_all, where each has its own.
class Layout {
 public:
  explicit Layout(const CollectiveSpec& spec)
      : p_(static_cast<int64_t>(spec.members.size())),
        element_size_(spec.element_size),
        counts_(spec.counts) {
    whole_ = std::accumulate(counts_.begin(), counts_.end(), int64_t{0}) * element_size_;
    if (spec.kind == CollectiveKind::kBroadcast) return;
    if (spec.kind == CollectiveKind::kAllReduce) {
      const int64_t n = counts_[0];
      counts_.resize(p_);
      for (int64_t r = 0; r < p_; ++r) counts_[r] = n / p_ + (r < n % p_ ? 1 : 0);
    }
    offsets_.resize(p_);
    std::exclusive_scan(counts_.begin(), counts_.end(), offsets_.begin(), int64_t{0});
  }

  int64_t whole() const { return whole_; }
  int64_t offset(int rank) const { return offsets_[rank] * element_size_; }
  int64_t bytes(int rank) const { return counts_[rank] * element_size_; }

 private:
  const int64_t p_;
  const int64_t element_size_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> offsets_;
  int64_t whole_ = 0;
};

class DirectCollective final : public Collective {
 public:
  explicit DirectCollective(const CollectiveContext& context)
      : spec_(context.spec),
        layout_(spec_),
        tile_bytes_(ReductionTileBytes(spec_.element_size)),
        tile_(static_cast<size_t>(DirectMemoryBytes(spec_))),
        group_(context.group),
        inbox_(std::make_shared<MemberInbox>(
            *context.reactor, [this](MemberEvent& event) { Handle(event); }, kMostEvents)),
        reactor_(*context.reactor) {
    LocalMember member{.inbox = inbox_, .landings = {}, .targets = {}};
    if (spec_.kind == CollectiveKind::kAllToAll) {
      member.counts = spec_.counts;
      member.receives = spec_.receives;
    }
    group_->Join(rank(), std::move(member));
  }

  ~DirectCollective() override {
    CHECK(!is_running_) << Name() << " is destroyed while piece " << piece_ << " is under way";
    inbox_->Close();
    group_->Leave(rank());
  }

  void Start(int64_t piece, const void* input, void* output, DoneCallback done) override {
    CHECK(reactor_.InThread()) << Name() << " was started on another thread than its own";
    CHECK(!is_running_) << Name() << ": piece " << piece << " was started before piece " << piece_
                        << " was done";
    if (absl::Status status = group_->status(); !status.ok()) {
      done(std::move(status));
      return;
    }
    is_running_ = true;
    piece_ = piece;
    phase_ = 0;
    done_ = std::move(done);
    group_->stations()[rank()] = {.piece = piece,
                                  .input = static_cast<const std::byte*>(input),
                                  .output = static_cast<std::byte*>(output)};
    if (!group_->Arrive(rank())) return;
    if (!PiecesAgree()) return;
    if (!group_->BeginRead()) return;
    const bool does_all = spec_.algorithm != CollectiveAlgorithm::kDirect;
    if (spec_.algorithm == CollectiveAlgorithm::kDirectByOne) WorkForAll();
    // Before the end of reading: a failure comes either before all have met, and reaches all of
    // them, or after. Devices rely on it, which wait for what the others were told to do.
    group_->Meet(rank(), /*is_done=*/does_all);
    group_->EndRead();
    if (does_all) return Finish(absl::OkStatus());
    NextPhase();
  }

  std::vector<int> Awaits() const override {
    return is_running_ ? group_->Missing() : std::vector<int>();
  }
  int LastHeard() const override { return last_heard_; }

  void Abort(absl::Status reason) override { group_->Fail(reason); }

 private:
  // A piece: all arrive; all work (all_reduce: each sums one block, into the outputs of all); all
  // arrive, so that nobody's memory is touched any more.
  static constexpr int kLast = 2;

  int rank() const { return spec_.my_rank; }
  int p() const { return spec_.members.size(); }
  // Of an all_to_all, when all have arrived, between BeginRead and EndRead.
  const std::vector<std::shared_ptr<const LocalMember>>& Members() {
    for (int r = static_cast<int>(members_.size()); r < p(); ++r) {
      members_.push_back(group_->Find(r));
    }
    return members_;
  }
  static int64_t Sum(const std::vector<int64_t>& counts, int n) {
    return std::accumulate(counts.begin(), counts.begin() + n, int64_t{0});
  }
  const LocalGroup::Station& station(int r) const { return group_->stations()[r]; }

  std::string Name() const {
    return absl::StrFormat("collective %d (%s), member %d", spec_.id,
                           CollectiveKindName(spec_.kind), rank());
  }

  void Handle(MemberEvent& event) {
    if (!is_running_) return;
    if (event.type == MemberEvent::Type::kFailed) return Finish(group_->status());
    if (event.type != MemberEvent::Type::kMet) return;
    last_heard_ = event.peer;
    if (event.index == 1) return Finish(absl::OkStatus());
    NextPhase();
  }

  bool PiecesAgree() {
    for (int r = 0; r < p(); ++r) {
      if (station(r).piece == piece_) continue;
      group_->Fail(absl::InternalError(
          absl::StrFormat("%s started piece %d while member %d started piece %d", Name(), piece_, r,
                          station(r).piece)));
      return false;
    }
    return true;
  }

  // All members have arrived. The last to arrive goes on without waiting.
  void NextPhase() {
    while (true) {
      if (++phase_ == kLast) return Finish(absl::OkStatus());
      if (!group_->BeginRead()) return;  // kFailed is on its way
      Work(rank());
      group_->EndRead();
      if (!group_->Arrive(rank())) return;
      group_->Meet(rank());
    }
  }

  // What member `r` contributes to or takes from the others' memory.
  void Work(int r) {
    std::byte* output = station(r).output;
    switch (spec_.kind) {
      case CollectiveKind::kAllReduce:
        return ReduceForAll(r, layout_.offset(r), layout_.bytes(r));
      case CollectiveKind::kReduceScatter:
        for (int64_t at = 0; at < layout_.bytes(r); at += tile_bytes_) {
          const int64_t size = std::min(tile_bytes_, layout_.bytes(r) - at);
          ReduceTile(output + at, layout_.offset(r) + at, size);
        }
        return;
      case CollectiveKind::kAllGather:
        for (int from = 0; from < p(); ++from) {
          Copy(output + layout_.offset(from), station(from).input, layout_.bytes(from));
        }
        return;
      case CollectiveKind::kAllToAll:
        for (int from = 0; from < p(); ++from) {
          const int64_t size = spec_.element_size;
          const std::vector<int64_t>& sent = Members()[from]->counts;
          Copy(output + Sum(Members()[r]->receives, from) * size,
               station(from).input + Sum(sent, r) * size, sent[r] * size);
        }
        return;
      case CollectiveKind::kBroadcast:
        return Copy(output, station(spec_.root).input, layout_.whole());
    }
  }

  // The whole piece, on this thread, while all the others wait.
  void WorkForAll() {
    if (spec_.kind == CollectiveKind::kAllReduce) return ReduceForAll(rank(), 0, layout_.whole());
    for (int r = 0; r < p(); ++r) Work(r);
  }

  // Of an all_reduce, into the outputs of all, by way of member `r`'s. The outputs may be the
  // inputs: of this part nobody else reads any.
  void ReduceForAll(int r, int64_t offset, int64_t bytes) {
    for (int64_t at = offset; at < offset + bytes; at += tile_bytes_) {
      const int64_t size = std::min(tile_bytes_, offset + bytes - at);
      std::byte* const sum = station(r).output + at;
      ReduceTile(sum, at, size);
      for (int to = 0; to < p(); ++to) Copy(station(to).output + at, sum, size);
    }
  }

  // target = the inputs' bytes at `offset`, reduced in rank order. The target may be one of them:
  // it is written last, unless it is one of the first two, which nobody needs once they are summed.
  void ReduceTile(std::byte* target, int64_t offset, int64_t bytes) {
    bool is_aliased = false;
    for (int r = 2; r < p(); ++r) is_aliased = is_aliased || station(r).input + offset == target;
    std::byte* const sum = is_aliased ? tile_.data() : target;
    const std::byte* so_far = station(0).input + offset;
    for (int r = 1; r < p(); ++r) {
      spec_.reduce(sum, so_far, station(r).input + offset, bytes / spec_.element_size);
      so_far = sum;
    }
    if (p() == 1) Copy(sum, so_far, bytes);
    Copy(target, sum, bytes);
  }

  // Comes last: `done` may destroy this object or start the next piece.
  void Finish(absl::Status status) {
    is_running_ = false;
    const DoneCallback done = std::move(done_);
    done(std::move(status));
  }

  const CollectiveSpec spec_;
  const Layout layout_;
  const int64_t tile_bytes_;
  std::vector<std::byte> tile_;  // for sums into memory that they read
  const std::shared_ptr<LocalGroup> group_;
  const std::shared_ptr<MemberInbox> inbox_;
  Reactor& reactor_;
  std::vector<std::shared_ptr<const LocalMember>> members_;  // all_to_all

  bool is_running_ = false;
  int last_heard_ = -1;
  int64_t piece_ = 0;
  int phase_ = 0;  // how many times all have arrived
  DoneCallback done_;
};

}  // namespace

absl::Status CheckDirect(const CollectiveSpec& spec) {
  for (const Member& member : spec.members) {
    if (member.node == spec.members[0].node) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "collective %d (%s): direct needs all members in one process, but there are some on node "
        "%d and some on node %d",
        spec.id, CollectiveKindName(spec.kind), spec.members[0].node, member.node));
  }
  return absl::OkStatus();
}

int64_t DirectMemoryBytes(const CollectiveSpec& spec) {
  const bool reduces =
      spec.kind == CollectiveKind::kAllReduce || spec.kind == CollectiveKind::kReduceScatter;
  if (!reduces || spec.members.size() < 3 || spec.algorithm == CollectiveAlgorithm::kDevice) {
    return 0;
  }
  return ReductionTileBytes(spec.element_size);
}

absl::StatusOr<std::unique_ptr<Collective>> MakeDirect(const CollectiveContext& context) {
  return std::make_unique<DirectCollective>(context);
}

}  // namespace braid
