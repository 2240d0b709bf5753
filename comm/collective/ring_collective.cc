#include "comm/collective/ring_collective.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/collective/chunk_machine.h"
#include "comm/collective/chunk_schedule.h"
#include "comm/collective/collective_frame.h"
#include "runtime/base/members_by_host.h"

namespace braid {
namespace {

bool SameNode(const CollectiveSpec& spec, int rank) {
  return spec.members[rank].node == spec.members[spec.my_rank].node;
}

class RingCollective final : public Collective {
 public:
  RingCollective(const CollectiveContext& context, ChunkSchedule schedule)
      : spec_(context.spec),
        group_(context.group),
        schedule_(std::move(schedule)),
        machine_({.reactor = context.reactor,
                  .group = context.group,
                  .my_rank = spec_.my_rank,
                  .most_events = MostEvents(schedule_)}) {
    machine_.ReserveHops(schedule_.sends.size(), schedule_.receives.size());
  }

  ~RingCollective() override {
    machine_.inbox()->Close();
    if (has_joined_) group_->Leave(spec_.my_rank);
    for (const auto& [link, key] : exposed_) link->Withdraw(key);
  }

  absl::Status Init(const CollectiveContext& context) {
    int64_t bytes = AlignedSlot(schedule_.staging_bytes);
    for (const ReceiveHop& hop : schedule_.receives) {
      if (!SameNode(spec_, hop.from)) bytes += schedule_.slots * AlignedSlot(LargestItem(hop));
    }
    if (bytes > 0) {
      absl::StatusOr<Memory> memory = context.allocate(static_cast<uint64_t>(bytes));
      if (!memory.ok()) return memory.status();
      memory_ = *std::move(memory);
    }
    LocalMember member{.inbox = machine_.inbox(), .landings = {}, .targets = {}};
    const bool is_all_to_all = spec_.kind == CollectiveKind::kAllToAll;
    fingerprint_ = CollectiveFingerprint(spec_);
    if (is_all_to_all) {
      member.counts = spec_.counts;
      member.receives = spec_.receives;
    }
    std::byte* free = memory_.data() + AlignedSlot(schedule_.staging_bytes);
    for (const ReceiveHop& hop : schedule_.receives) {
      Link* here = nullptr;
      if (!SameNode(spec_, hop.from)) {
        auto link = context.link_to(spec_.members[hop.from].node);
        if (!link.ok()) return link.status();
        here = *link;
        const int64_t slot_bytes = AlignedSlot(LargestItem(hop));
        const std::span<std::byte> landing(free, schedule_.slots * slot_bytes);
        free += landing.size();
        auto key = here->Expose(landing);
        if (!key.ok()) return key.status();
        exposed_.emplace_back(here, *key);
        member.landings.push_back({.from = hop.from,
                                   .memory = landing.data(),
                                   .key = *key,
                                   .slots = schedule_.slots,
                                   .slot_bytes = slot_bytes,
                                   .fingerprint = HopFingerprint(
                                       fingerprint_, is_all_to_all ? spec_.receives[hop.from] : 0),
                                   .reads_lent = here->can_read_lent()});
      }
      machine_.AddReceiveLane(hop.from, here, schedule_.slots);
    }
    for (const SendHop& hop : schedule_.sends) {
      Link* there = nullptr;
      const int64_t slot_bytes = AlignedSlot(LargestItem(hop));
      if (!SameNode(spec_, hop.to)) {
        auto link = context.link_to(spec_.members[hop.to].node);
        if (!link.ok()) return link.status();
        there = *link;
        member.targets.push_back({.to = hop.to,
                                  .slots = schedule_.slots,
                                  .slot_bytes = slot_bytes,
                                  .fingerprint = HopFingerprint(
                                      fingerprint_, is_all_to_all ? spec_.counts[hop.to] : 0)});
      }
      machine_.AddSendLane(hop.to, there, schedule_.slots, slot_bytes);
    }
    group_->Join(spec_.my_rank, std::move(member));
    has_joined_ = true;
    return absl::OkStatus();
  }

  void Start(int64_t piece, const void* input, void* output, DoneCallback done) override {
    machine_.Start({.schedule = &schedule_,
                    .piece = piece,
                    .signature = fingerprint_,
                    .input = static_cast<const std::byte*>(input),
                    .output = static_cast<std::byte*>(output),
                    .staging = memory_.data(),
                    .element_size = spec_.element_size,
                    .reduce = spec_.reduce},
                   std::move(done));
  }

  std::vector<int> Awaits() const override { return machine_.Awaits(); }
  int LastHeard() const override { return machine_.LastHeard(); }

  void Abort(absl::Status reason) override { group_->Fail(reason); }

 private:
  // That wait for this member: of each slot of a hop that it is full or free, and that it is
  // written; and of each hop an offer. Twice, as the peers may be a piece ahead of a member that
  // has got no processor.
  static size_t MostEvents(const ChunkSchedule& schedule) {
    const size_t of_piece =
        schedule.slots * (2 * schedule.sends.size() + schedule.receives.size()) +
        schedule.sends.size();
    return 2 * of_piece;
  }

  const CollectiveSpec spec_;
  const std::shared_ptr<LocalGroup> group_;
  const ChunkSchedule schedule_;
  Memory memory_;  // staging, then the landings
  std::vector<std::pair<Link*, MemoryKey>> exposed_;
  uint64_t fingerprint_ = 0;
  bool has_joined_ = false;
  ChunkMachine machine_;
};

}  // namespace

absl::Status CheckRing(const CollectiveSpec&) { return absl::OkStatus(); }

// On one node each would read what the other overwrites, in place.
absl::Status CheckExchange(const CollectiveSpec& spec) {
  if (spec.kind == CollectiveKind::kAllReduce && spec.members.size() == 2 &&
      !SameNode(spec, 1 - spec.my_rank)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "collective %d (%s): exchange is an all_reduce of two members on two nodes; it has %d "
      "members, the first on node %d and the last on node %d",
      spec.id, CollectiveKindName(spec.kind), spec.members.size(), spec.members.front().node,
      spec.members.back().node));
}

absl::Status CheckDoubling(const CollectiveSpec& spec) {
  if (spec.kind != CollectiveKind::kAllToAll) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("collective %d (%s): doubling is for all_reduce, all_gather, reduce_scatter "
                      "and broadcast",
                      spec.id, CollectiveKindName(spec.kind)));
}

absl::Status CheckPairwise(const CollectiveSpec& spec) {
  if (spec.kind == CollectiveKind::kAllReduce || spec.kind == CollectiveKind::kReduceScatter) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("collective %d (%s): pairwise is an all_reduce or a reduce_scatter", spec.id,
                      CollectiveKindName(spec.kind)));
}

absl::Status CheckHierarchical(const CollectiveSpec& spec) {
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "collective %d (%s): hierarchical %s", spec.id, CollectiveKindName(spec.kind), what));
  };
  if (spec.kind == CollectiveKind::kAllToAll)
    return wrong("is for all_reduce, all_gather, reduce_scatter and broadcast");
  if (NumHostsAlike(HostsOf(spec)) > 1) return absl::OkStatus();
  std::vector<std::string> hosts;
  for (const auto& members : MembersByHost(HostsOf(spec))) {
    hosts.push_back(absl::StrCat(members.size()));
  }
  return wrong(absl::StrFormat(
      "needs several hosts with several members each, as many on each; of %d members there are %s "
      "on the %d hosts",
      spec.members.size(), absl::StrJoin(hosts, ", "), hosts.size()));
}

int64_t RingMemoryBytes(const CollectiveSpec& spec) {
  const ChunkSchedule schedule = MakeChunkSchedule(spec);
  int64_t bytes = AlignedSlot(schedule.staging_bytes);
  for (const ReceiveHop& hop : schedule.receives) {
    if (!SameNode(spec, hop.from)) bytes += schedule.slots * AlignedSlot(LargestItem(hop));
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Collective>> MakeRing(const CollectiveContext& context) {
  auto collective = std::make_unique<RingCollective>(context, MakeChunkSchedule(context.spec));
  if (absl::Status status = collective->Init(context); !status.ok()) return status;
  return collective;
}

}  // namespace braid
