#include "comm/collective/ring_collective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/collective/chunk_schedule.h"
#include "comm/collective/collective_frame.h"
#include "glog/logging.h"
#include "runtime/base/ring_buffer.h"

namespace braid {
namespace {

constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool SameNode(const CollectiveSpec& spec, int rank) {
  return spec.members[rank].node == spec.members[spec.my_rank].node;
}

// An item travels thus: the sender takes a slot of the hop (there are `slots`; to another node the
// slot is memory there, within the node just a number), sends it, and the receiver works it in when
// its turn comes and acknowledges the slot. An item has left its source when the Write is done, or
// within a node when it is acknowledged.
class RingCollective final : public Collective {
 public:
  RingCollective(const CollectiveContext& context, ChunkSchedule schedule)
      : spec_(context.spec),
        group_(context.group),
        schedule_(std::move(schedule)),
        inbox_(std::make_shared<MemberInbox>(
            *context.reactor, [this](MemberEvent& event) { Handle(event); },
            MostEvents(schedule_))),
        reactor_(*context.reactor) {}

  ~RingCollective() override {
    CHECK(!is_running_) << Name() << " is destroyed while piece " << piece_ << " is under way";
    inbox_->Close();
    if (has_joined_) group_->Leave(spec_.my_rank);
    for (ReceiveState& in : receives_) {
      if (in.link) in.link->Withdraw(in.key);
    }
  }

  absl::Status Init(const CollectiveContext& context) {
    int64_t bytes = Aligned(schedule_.staging_bytes);
    for (const ReceiveHop& hop : schedule_.receives) {
      if (!SameNode(spec_, hop.from)) bytes += schedule_.slots * Aligned(LargestItem(hop));
    }
    if (bytes > 0) {
      absl::StatusOr<Memory> memory = context.allocate(static_cast<uint64_t>(bytes));
      if (!memory.ok()) return memory.status();
      memory_ = *std::move(memory);
    }
    LocalMember member{.inbox = inbox_, .landings = {}, .targets = {}};
    const bool is_all_to_all = spec_.kind == CollectiveKind::kAllToAll;
    const uint64_t fingerprint = CollectiveFingerprint(spec_);
    if (is_all_to_all) {
      member.counts = spec_.counts;
      member.receives = spec_.receives;
    }
    std::byte* free = memory_.data() + Aligned(schedule_.staging_bytes);
    for (const ReceiveHop& hop : schedule_.receives) {
      ReceiveState in;
      in.hop = &hop;
      in.arrivals.Reserve(schedule_.slots);
      if (!SameNode(spec_, hop.from)) {
        in.slot_bytes = Aligned(LargestItem(hop));
        in.landing = free;
        free += schedule_.slots * in.slot_bytes;
        auto link = context.link_to(spec_.members[hop.from].node);
        if (!link.ok()) return link.status();
        auto key = (*link)->Expose(std::span(in.landing, schedule_.slots * in.slot_bytes));
        if (!key.ok()) return key.status();
        in.link = *link;
        in.key = *key;
        member.landings.push_back({.from = hop.from,
                                   .memory = in.landing,
                                   .key = *key,
                                   .slots = schedule_.slots,
                                   .slot_bytes = in.slot_bytes,
                                   .fingerprint = HopFingerprint(
                                       fingerprint, is_all_to_all ? spec_.receives[hop.from] : 0)});
      }
      receives_.push_back(std::move(in));
    }
    for (const SendHop& hop : schedule_.sends) {
      SendState out;
      out.hop = &hop;
      out.outstanding.Reserve(schedule_.slots);
      if (!SameNode(spec_, hop.to)) {
        auto link = context.link_to(spec_.members[hop.to].node);
        if (!link.ok()) return link.status();
        out.link = *link;
        out.slot_bytes = Aligned(LargestItem(hop));
        for (uint32_t slot = 0; slot < schedule_.slots; ++slot) {
          out.writes.push_back({.collective = this, .to = hop.to});
        }
        member.targets.push_back(
            {.to = hop.to,
             .slots = schedule_.slots,
             .slot_bytes = out.slot_bytes,
             .fingerprint = HopFingerprint(fingerprint, is_all_to_all ? spec_.counts[hop.to] : 0)});
      }
      sends_.push_back(std::move(out));
    }
    group_->Join(spec_.my_rank, std::move(member));
    has_joined_ = true;
    return absl::OkStatus();
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
    input_ = static_cast<const std::byte*>(input);
    output_ = static_cast<std::byte*>(output);
    done_ = std::move(done);
    for (ReceiveState& in : receives_) in.next = 0;
    for (SendState& out : sends_) {
      out.next = 0;
      out.base = out.sent;
      SendReady(out);
    }
    const std::byte* from = input_ + schedule_.copy_from;
    std::byte* to = output_ + schedule_.copy_to;
    if (schedule_.copy_bytes > 0 && from != to) std::memcpy(to, from, schedule_.copy_bytes);
    Advance();
  }

  std::vector<int> Awaits() const override {
    std::vector<int> ranks;
    if (!is_running_) return ranks;
    for (const ReceiveState& in : receives_) {
      if (in.next < in.hop->items.size() && in.arrivals.empty()) ranks.push_back(in.hop->from);
    }
    // What is not sent or has not left waits for an acknowledgement, or for the link.
    for (const SendState& out : sends_) {
      const bool is_full =
          out.next < out.hop->items.size() &&
          (out.outstanding.size() >= schedule_.slots || (out.link && !out.has_key));
      if ((is_full || HasUnwritten(out)) && ranks.empty()) ranks.push_back(out.hop->to);
    }
    return ranks;
  }
  int LastHeard() const override { return last_heard_; }

  void Abort(absl::Status reason) override { group_->Fail(reason); }

 private:
  // An item that holds a slot.
  struct Outstanding {
    int64_t piece = 0;
    int64_t index = 0;
    uint32_t slot = 0;
    bool is_written = false;  // it has left its source
    bool is_acked = false;
  };
  // A Write that the link has not answered, one for each slot: what its callback points at.
  struct PendingWrite {
    RingCollective* collective = nullptr;
    int to = 0;
    int64_t number = 0;

    // This object ends only when all are answered, which the event says.
    void Answer(absl::Status status) const {
      const std::shared_ptr<MemberInbox> inbox = collective->inbox_;
      inbox->Push({.type = MemberEvent::Type::kWritten,
                   .peer = to,
                   .index = number,
                   .status = std::move(status)});
    }
  };
  struct SendState {
    const SendHop* hop = nullptr;
    Link* link = nullptr;  // null: the receiver is on this node
    bool has_key = false;
    MemoryKey key;
    int64_t slot_bytes = 0;
    size_t next = 0;   // item
    int64_t sent = 0;  // items since creation; the slot is this modulo their number
    int64_t base = 0;  // `sent` when the piece began
    RingBuffer<Outstanding> outstanding;  // the last ones of `sent`
    std::vector<PendingWrite> writes;     // by slot
  };
  struct ReceiveState {
    const ReceiveHop* hop = nullptr;
    Link* link = nullptr;
    MemoryKey key;
    std::byte* landing = nullptr;
    int64_t slot_bytes = 0;
    size_t next = 0;
    int64_t received = 0;              // items since creation
    RingBuffer<MemberEvent> arrivals;  // not yet worked in, maybe of a piece not yet started
  };

  // That wait for this member: of each slot of a hop that it is full or free, and that it is
  // written.
  static size_t MostEvents(const ChunkSchedule& schedule) {
    return schedule.slots * (2 * schedule.sends.size() + schedule.receives.size());
  }

  std::string Name() const {
    return absl::StrFormat("collective %d (%s), member %d", spec_.id,
                           CollectiveKindName(spec_.kind), spec_.my_rank);
  }

  void Handle(MemberEvent& event) {
    if (event.type != MemberEvent::Type::kFailed) last_heard_ = event.peer;
    switch (event.type) {
      case MemberEvent::Type::kKey: {
        SendState& out = SendTo(event.peer);
        out.has_key = true;
        out.key = event.key;
        break;
      }
      case MemberEvent::Type::kChunk:
        ReceiveFrom(event.peer).arrivals.push_back(event);
        break;
      case MemberEvent::Type::kAck:
        TakeAck(event);
        break;
      case MemberEvent::Type::kWritten: {
        SendState& out = SendTo(event.peer);
        out.outstanding[event.index - (out.sent - out.outstanding.size())].is_written = true;
        Retire(out);
        if (!event.status.ok()) group_->Fail(event.status);
        break;
      }
      case MemberEvent::Type::kFailed:
        has_failed_ = true;
        break;
      case MemberEvent::Type::kMet:
        break;  // ring members do not meet
    }
    Advance();
  }

  SendState& SendTo(int rank) {
    for (SendState& out : sends_) {
      if (out.hop->to == rank) return out;
    }
    LOG(FATAL) << Name() << " sends nothing to member " << rank;  // the hub checks what comes in
  }
  ReceiveState& ReceiveFrom(int rank) {
    for (ReceiveState& in : receives_) {
      if (in.hop->from == rank) return in;
    }
    LOG(FATAL) << Name() << " receives nothing from member " << rank;
  }

  // Acknowledgements come in the order of the items.
  void TakeAck(const MemberEvent& event) {
    SendState& out = SendTo(event.peer);
    Outstanding* next = nullptr;
    for (size_t i = 0; i < out.outstanding.size() && next == nullptr; ++i) {
      if (!out.outstanding[i].is_acked) next = &out.outstanding[i];
    }
    const bool is_known = next != nullptr;
    if (!is_known || next->slot != event.slot || next->piece != event.piece ||
        next->index != event.index) {
      return Fail(
          absl::StrFormat("member %d acknowledged piece %d, item %d in slot %d; expected was %s",
                          event.peer, event.piece, event.index, event.slot,
                          is_known ? absl::StrFormat("piece %d, item %d in slot %d", next->piece,
                                                     next->index, next->slot)
                                   : "none"));
    }
    next->is_acked = true;
    if (!out.link) next->is_written = true;
    Retire(out);
  }

  static void Retire(SendState& out) {
    while (!out.outstanding.empty() && out.outstanding.front().is_acked &&
           out.outstanding.front().is_written) {
      out.outstanding.pop_front();
    }
  }

  // How many items of this piece have left their source, counted up to the first that has not.
  static int64_t NumWritten(const SendState& out) {
    int64_t number = out.sent - out.outstanding.size();
    for (size_t i = 0; i < out.outstanding.size() && out.outstanding[i].is_written; ++i) ++number;
    return number - out.base;
  }

  // Does all that can be done now. May end the piece, and with it this object: comes last.
  void Advance() {
    if (!is_running_) return;
    if (has_failed_) {
      for (const SendState& out : sends_) {
        if (out.link && HasUnwritten(out)) return;  // the link still reads the source
      }
      return Finish(group_->status());
    }
    // Receiving gives what to send and sending frees nothing at once: one round does it.
    for (ReceiveState& in : receives_) {
      if (!ReceiveReady(in)) return;
    }
    bool is_done = true;
    for (SendState& out : sends_) {
      SendReady(out);
      is_done = is_done && out.next == out.hop->items.size() && !HasUnwritten(out);
    }
    for (const ReceiveState& in : receives_) {
      is_done = is_done && in.next == in.hop->items.size();
    }
    if (is_done) Finish(absl::OkStatus());
  }

  static bool HasUnwritten(const SendState& out) {
    for (size_t i = 0; i < out.outstanding.size(); ++i) {
      if (!out.outstanding[i].is_written) return true;
    }
    return false;
  }

  void SendReady(SendState& out) {
    const std::vector<SendItem>& items = out.hop->items;
    const int64_t received = receives_.empty() ? 0 : receives_.front().next;
    while (out.next < items.size() && out.outstanding.size() < schedule_.slots &&
           items[out.next].after_receives <= received && (!out.link || out.has_key)) {
      Send(out, items[out.next]);
    }
  }

  void Send(SendState& out, const SendItem& item) {
    const std::byte* source = Source(item.buffer) + item.offset;
    const auto slot = static_cast<uint32_t>(out.sent % schedule_.slots);
    const auto index = static_cast<int64_t>(out.next);
    Outstanding outstanding{.piece = piece_, .index = index, .slot = slot};
    if (out.link) {
      const EncodedCollectiveFrame frame({.type = CollectiveFrame::Type::kChunk,
                                          .collective = spec_.id,
                                          .from = static_cast<uint16_t>(spec_.my_rank),
                                          .to = static_cast<uint16_t>(out.hop->to),
                                          .slot = slot,
                                          .piece = piece_,
                                          .index = index,
                                          .bytes = item.bytes});
      PendingWrite* const write = &out.writes[slot];
      write->number = out.sent;
      outstanding.is_written = out.link->Write(
          std::span(source, item.bytes), out.key, slot * out.slot_bytes, frame.bytes(),
          [write](absl::Status status) { write->Answer(std::move(status)); });
    } else {
      group_->Push(out.hop->to, {.type = MemberEvent::Type::kChunk,
                                 .peer = spec_.my_rank,
                                 .slot = slot,
                                 .piece = piece_,
                                 .index = index,
                                 .data = source,
                                 .bytes = item.bytes});
    }
    ++out.next;
    ++out.sent;
    out.outstanding.push_back(outstanding);
  }

  // False if the collective failed.
  bool ReceiveReady(ReceiveState& in) {
    const std::vector<ReceiveItem>& items = in.hop->items;
    while (in.next < items.size() && !in.arrivals.empty()) {
      const MemberEvent& arrival = in.arrivals.front();
      const ReceiveItem& item = items[in.next];
      const auto slot = static_cast<uint32_t>(in.received % schedule_.slots);
      if (arrival.piece != piece_ || arrival.index != static_cast<int64_t>(in.next) ||
          arrival.bytes != item.bytes || arrival.slot != slot) {
        Fail(absl::StrFormat(
            "member %d sent piece %d, item %d, %d bytes in slot %d; expected was piece %d, item "
            "%d, %d bytes in slot %d",
            in.hop->from, arrival.piece, arrival.index, arrival.bytes, arrival.slot, piece_,
            in.next, item.bytes, slot));
        return false;
      }
      if (item.after_sends > 0 && item.after_sends > NumWritten(sends_.front())) return true;
      if (in.link) {
        WorkIn(item, arrival.data);
        in.link->Send(EncodedCollectiveFrame({.type = CollectiveFrame::Type::kAck,
                                              .collective = spec_.id,
                                              .from = static_cast<uint16_t>(spec_.my_rank),
                                              .to = static_cast<uint16_t>(in.hop->from),
                                              .slot = slot,
                                              .piece = piece_,
                                              .index = arrival.index})
                          .bytes());
      } else {
        if (!group_->BeginRead()) return false;  // kFailed is on its way
        WorkIn(item, arrival.data);
        group_->EndRead();
        group_->Push(in.hop->from, {.type = MemberEvent::Type::kAck,
                                    .peer = spec_.my_rank,
                                    .slot = slot,
                                    .piece = piece_,
                                    .index = arrival.index});
      }
      in.arrivals.pop_front();
      ++in.next;
      ++in.received;
      // What this made ready goes out before the next item is worked in.
      if (!sends_.empty()) SendReady(sends_.front());
    }
    return true;
  }

  void WorkIn(const ReceiveItem& item, const std::byte* data) {
    std::byte* target =
        (item.target == ChunkBuffer::kStaging ? memory_.data() : output_) + item.offset;
    if (!item.is_reduction) {
      std::memcpy(target, data, item.bytes);
      return;
    }
    const std::byte* own = input_ + item.own_offset;
    const int64_t n = item.bytes / spec_.element_size;
    if (item.is_own_first) {
      spec_.reduce(target, own, data, n);
    } else {
      spec_.reduce(target, data, own, n);
    }
  }

  const std::byte* Source(ChunkBuffer buffer) const {
    switch (buffer) {
      case ChunkBuffer::kInput:
        return input_;
      case ChunkBuffer::kOutput:
        return output_;
      case ChunkBuffer::kStaging:
        return memory_.data();
    }
    LOG(FATAL) << "no such buffer";
  }

  void Fail(const std::string& what) {
    group_->Fail(absl::InternalError(absl::StrFormat("%s: %s", Name(), what)));
  }

  // Comes last: `done` may destroy this object or start the next piece.
  void Finish(absl::Status status) {
    is_running_ = false;
    const DoneCallback done = std::move(done_);
    done(std::move(status));
  }

  const CollectiveSpec spec_;
  const std::shared_ptr<LocalGroup> group_;
  const ChunkSchedule schedule_;
  const std::shared_ptr<MemberInbox> inbox_;
  Reactor& reactor_;
  Memory memory_;  // staging, then the landings
  std::vector<SendState> sends_;
  std::vector<ReceiveState> receives_;

  bool has_joined_ = false;
  bool has_failed_ = false;
  bool is_running_ = false;
  int last_heard_ = -1;
  int64_t piece_ = 0;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  DoneCallback done_;
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

int64_t RingMemoryBytes(const CollectiveSpec& spec) {
  const ChunkSchedule schedule = MakeChunkSchedule(spec);
  int64_t bytes = Aligned(schedule.staging_bytes);
  for (const ReceiveHop& hop : schedule.receives) {
    if (!SameNode(spec, hop.from)) bytes += schedule.slots * Aligned(LargestItem(hop));
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Collective>> MakeRing(const CollectiveContext& context) {
  auto collective = std::make_unique<RingCollective>(context, MakeChunkSchedule(context.spec));
  if (absl::Status status = collective->Init(context); !status.ok()) return status;
  return collective;
}

}  // namespace braid
