#include "comm/collective/chunk_machine.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/collective/collective_frame.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr int64_t kSlotAlignment = 64;
// Items of up to so many bytes are short.
constexpr int64_t kShortBytes = 16 << 10;

}  // namespace

int64_t AlignedSlot(int64_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

ChunkMachine::ChunkMachine(Options options)
    : options_(std::move(options)),
      group_(*options_.group),
      inbox_(std::make_shared<MemberInbox>(
          *options_.reactor, [this](MemberEvent& event) { Handle(event); }, options_.most_events)) {
}

ChunkMachine::~ChunkMachine() {
  CHECK(!is_running_) << Name() << " is destroyed while piece " << work_.piece << " is under way";
  inbox_->Close();
}

void ChunkMachine::AddSendLane(int to, Link* link, uint32_t slots, int64_t slot_bytes) {
  auto lane = std::make_unique<SendLane>();
  lane->to = to;
  lane->link = link;
  lane->slots = slots;
  lane->slot_bytes = slot_bytes;
  lane->outstanding.Reserve(slots);
  for (uint32_t slot = 0; link && slot < slots; ++slot) {
    lane->writes.push_back({.machine = this, .to = to});
  }
  send_lanes_.push_back(std::move(lane));
}

void ChunkMachine::AddReceiveLane(int from, Link* link, uint32_t slots) {
  auto lane = std::make_unique<ReceiveLane>();
  lane->from = from;
  lane->link = link;
  lane->slots = slots;
  lane->arrivals.Reserve(slots);
  receive_lanes_.push_back(std::move(lane));
}

bool ChunkMachine::HasSendLane(int to) const {
  return std::ranges::any_of(send_lanes_, [to](const auto& lane) { return lane->to == to; });
}

bool ChunkMachine::HasReceiveLane(int from) const {
  return std::ranges::any_of(receive_lanes_,
                             [from](const auto& lane) { return lane->from == from; });
}

void ChunkMachine::ReserveHops(size_t sends, size_t receives) {
  sends_.reserve(sends);
  receives_.reserve(receives);
}

void ChunkMachine::Start(const ChunkWork& work, Collective::DoneCallback done) {
  CHECK(options_.reactor->InThread()) << Name() << " was started on another thread than its own";
  CHECK(!is_running_) << Name() << ": piece " << work.piece << " was started before piece "
                      << work_.piece << " was done";
  if (absl::Status status = group_.status(); !status.ok()) {
    done(std::move(status));
    return;
  }
  is_running_ = true;
  work_ = work;
  done_ = std::move(done);
  const ChunkSchedule& schedule = *work_.schedule;
  sends_.clear();
  receives_.clear();
  for (const ReceiveHop& hop : schedule.receives) {
    ReceiveLane& lane = LaneFrom(hop.from);
    lane.is_used = !hop.items.empty();
    receives_.push_back({.hop = &hop, .lane = &lane});
    if (const absl::Status status = Offer(receives_.back()); !status.ok()) {
      is_refused_ = true;
      return group_.Fail(status);
    }
  }
  for (const auto& lane : send_lanes_) lane->placed_bytes = 0;
  for (const SendHop& hop : schedule.sends) {
    SendLane& lane = LaneTo(hop.to);
    lane.placed_bytes = static_cast<uint64_t>(hop.placed_bytes);
    sends_.push_back({.hop = &hop, .lane = &lane, .base = lane.sent});
    SendReady(sends_.back());
  }
  const std::byte* from = work_.input + schedule.copy_from;
  std::byte* to = Target(schedule.copy_target) + schedule.copy_to;
  if (schedule.copy_bytes > 0 && from != to) std::memcpy(to, from, schedule.copy_bytes);
  Advance();
}

std::vector<int> ChunkMachine::Awaits() const {
  std::vector<int> ranks;
  if (!is_running_) return ranks;
  for (const ReceiveState& in : receives_) {
    if (in.next < in.hop->items.size() && in.lane->arrivals.empty()) ranks.push_back(in.hop->from);
  }
  // What is not sent or has not left waits for an acknowledgement, or for the link.
  for (const SendState& out : sends_) {
    const SendLane& lane = *out.lane;
    const bool is_full =
        out.next < out.hop->items.size() &&
        (lane.outstanding.size() >= lane.slots || !HasTarget(lane, out.hop->items[out.next]));
    if ((is_full || HasUnwritten(lane)) && ranks.empty()) ranks.push_back(out.hop->to);
  }
  return ranks;
}

void ChunkMachine::PendingWrite::Answer(absl::Status status) const {
  const std::shared_ptr<MemberInbox> inbox = machine->inbox_;
  inbox->Push({.type = MemberEvent::Type::kWritten,
               .peer = to,
               .index = number,
               .status = std::move(status)});
}

std::string ChunkMachine::Name() const {
  const CollectiveSpec& spec = group_.spec();
  return absl::StrFormat("collective %d (%s), member %d", spec.id, CollectiveKindName(spec.kind),
                         options_.my_rank);
}

void ChunkMachine::Handle(MemberEvent& event) {
  ++events_;
  if (event.type != MemberEvent::Type::kFailed) last_heard_ = event.peer;
  switch (event.type) {
    case MemberEvent::Type::kKey: {
      SendLane& lane = LaneTo(event.peer);
      lane.has_key = true;
      lane.key = event.key;
      lane.reads_lent = event.reads_lent;
      break;
    }
    case MemberEvent::Type::kChunk: {
      ReceiveLane& lane = LaneFrom(event.peer);
      lane.arrivals.push_back(event);
      if (!is_running_ && !has_failed_ && !is_refused_) RefuseUnexpected(lane);
      break;
    }
    case MemberEvent::Type::kAck:
      TakeAck(event);
      break;
    case MemberEvent::Type::kOffer:
      LaneTo(event.peer).offer = event;
      break;
    case MemberEvent::Type::kWritten: {
      SendLane& lane = LaneTo(event.peer);
      lane.outstanding[event.index - (lane.sent - lane.outstanding.size())].is_written = true;
      Retire(lane);
      if (!event.status.ok()) group_.Fail(event.status);
      break;
    }
    case MemberEvent::Type::kFailed:
      has_failed_ = true;
      break;
    case MemberEvent::Type::kMet:
      break;  // these members do not meet
  }
  Advance();
}

ChunkMachine::SendLane& ChunkMachine::LaneTo(int rank) {
  for (const auto& lane : send_lanes_) {
    if (lane->to == rank) return *lane;
  }
  LOG(FATAL) << Name() << " sends nothing to member " << rank;  // who routes checks what comes in
}

ChunkMachine::ReceiveLane& ChunkMachine::LaneFrom(int rank) {
  for (const auto& lane : receive_lanes_) {
    if (lane->from == rank) return *lane;
  }
  LOG(FATAL) << Name() << " receives nothing from member " << rank;
}

// Acknowledgements come in the order of the items.
void ChunkMachine::TakeAck(const MemberEvent& event) {
  SendLane& lane = LaneTo(event.peer);
  Outstanding* next = nullptr;
  for (size_t i = 0; i < lane.outstanding.size() && next == nullptr; ++i) {
    if (!lane.outstanding[i].is_acked) next = &lane.outstanding[i];
  }
  const bool is_known = next != nullptr;
  if (!is_known || next->slot != event.slot || next->piece != event.piece ||
      next->index != event.index) {
    group_.Fail(absl::InternalError(absl::StrFormat(
        "%s: member %d acknowledged piece %d, item %d in slot %d; expected was %s", Name(),
        event.peer, event.piece, event.index, event.slot,
        is_known
            ? absl::StrFormat("piece %d, item %d in slot %d", next->piece, next->index, next->slot)
            : "none")));
    return;
  }
  next->is_acked = true;
  if (next->lent.has_value()) lane.link->Withdraw(*next->lent);
  if (!lane.link || next->lent.has_value()) next->is_written = true;
  next->lent.reset();
  Retire(lane);
}

void ChunkMachine::Retire(SendLane& lane) {
  while (!lane.outstanding.empty() && lane.outstanding.front().is_acked &&
         lane.outstanding.front().is_written) {
    lane.outstanding.pop_front();
  }
}

int64_t ChunkMachine::FirstNotTaken() const {
  int64_t first = -1;
  for (const auto& lane : send_lanes_) {
    if (lane->outstanding.empty()) continue;
    const int64_t piece = lane->outstanding.front().piece;
    if (first < 0 || piece < first) first = piece;
  }
  return first;
}

// How many items of this piece have left their source, counted up to the first that has not.
int64_t ChunkMachine::NumWritten(const SendState& out) {
  const RingBuffer<Outstanding>& outstanding = out.lane->outstanding;
  int64_t number = out.lane->sent - static_cast<int64_t>(outstanding.size());
  for (size_t i = 0; i < outstanding.size() && outstanding[i].is_written; ++i) ++number;
  return number - out.base;
}

bool ChunkMachine::HasUnwritten(const SendLane& lane, bool counts_lent) {
  for (size_t i = 0; i < lane.outstanding.size(); ++i) {
    const Outstanding& item = lane.outstanding[i];
    if (!item.is_written && (counts_lent || !item.lent.has_value())) return true;
  }
  return false;
}

// Does all that can be done now. May end the piece, and with it this object: comes last.
void ChunkMachine::Advance() {
  if (!is_running_) return AdvanceBetweenPieces();
  if (has_failed_) {
    for (const auto& lane : send_lanes_) {
      if (lane->link && HasUnwritten(*lane, /*counts_lent=*/false)) return;  // it reads them still
    }
    return Finish(group_.status());
  }
  if (is_refused_) return;  // the failure is on its way
  // Receiving gives what to send, and sending may free what the next is received into.
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (ReceiveState& in : receives_) {
      if (!ReceiveReady(in, has_moved)) return;
    }
    if (RefuseAnyUnexpected() || RefuseAnyOffer()) return;
    for (SendState& out : sends_) has_moved = SendReady(out) || has_moved;
  }
  for (const SendState& out : sends_) {
    if (out.next < out.hop->items.size() || HasUnwritten(*out.lane)) return;
  }
  for (const ReceiveState& in : receives_) {
    if (in.next < in.hop->items.size()) return;
  }
  for (const LocalSum& sum : work_.schedule->sums) {
    const absl::Status summed =
        Reduce(work_.output + sum.offset, Source(sum.first) + sum.first_offset,
               work_.staging + sum.second_offset, sum.bytes);
    if (summed.ok()) continue;
    is_refused_ = true;
    return group_.Fail(summed);
  }
  Finish(absl::OkStatus());
}

void ChunkMachine::AdvanceBetweenPieces() {
  if (!when_taken_ || has_failed_ || is_refused_ || FirstNotTaken() >= 0) return;
  std::exchange(when_taken_, nullptr)();
}

void ChunkMachine::WhenTaken(std::function<void()> taken) {
  when_taken_ = std::move(taken);
  if (!is_running_) AdvanceBetweenPieces();
}

bool ChunkMachine::RefuseAnyUnexpected() {
  return std::ranges::any_of(receive_lanes_,
                             [this](const auto& lane) { return RefuseUnexpected(*lane); });
}

bool ChunkMachine::RefuseUnexpected(const ReceiveLane& lane) {
  if (lane.is_used || lane.arrivals.empty()) return false;
  const MemberEvent& arrival = lane.arrivals.front();
  if (arrival.piece > work_.piece) return false;  // of one that is not started here
  Refuse(arrival, absl::StrFormat("piece %d, item %d, %d bytes; expected was nothing more of "
                                  "piece %d",
                                  arrival.piece, arrival.index, arrival.bytes, work_.piece));
  return true;
}

void ChunkMachine::Refuse(const MemberEvent& arrival, const std::string& what) {
  is_refused_ = true;
  if (options_.on_unexpected) {
    return options_.on_unexpected(arrival.peer, std::min(arrival.piece, work_.piece), what);
  }
  group_.Fail(
      absl::InternalError(absl::StrFormat("%s: member %d sent %s", Name(), arrival.peer, what)));
}

bool ChunkMachine::RefuseAnyOffer() {
  for (const auto& lane : send_lanes_) {
    const MemberEvent& offer = lane->offer;
    if (offer.piece != work_.piece || IsOffered(*lane)) continue;
    Refuse(offer, absl::StrFormat("a place for %d bytes of piece %d, of signature %x; expected was "
                                  "one for %d bytes, of %x",
                                  offer.key.bytes, offer.piece, offer.signature, lane->placed_bytes,
                                  work_.signature));
    return true;
  }
  return false;
}

absl::Status ChunkMachine::Offer(ReceiveState& in) const {
  const ReceiveHop& hop = *in.hop;
  if (in.lane->link == nullptr || hop.placed_bytes == 0) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(in.offered, in.lane->link->Expose(std::span(
                                         work_.output + hop.placed_offset, hop.placed_bytes)));
  in.lane->link->Send(EncodedCollectiveFrame({.type = CollectiveFrame::Type::kOffer,
                                              .channel = options_.channel,
                                              .collective = group_.spec().id,
                                              .from = static_cast<uint16_t>(options_.my_rank),
                                              .to = static_cast<uint16_t>(hop.from),
                                              .piece = work_.piece,
                                              .key = *in.offered,
                                              .fingerprint = work_.signature})
                          .bytes());
  return absl::OkStatus();
}

void ChunkMachine::WithdrawAll() {
  for (ReceiveState& in : receives_) {
    if (in.offered.has_value()) in.lane->link->Withdraw(*in.offered);
    in.offered.reset();
  }
  for (const auto& lane : send_lanes_) {
    for (size_t i = 0; i < lane->outstanding.size(); ++i) {
      std::optional<MemoryKey>& lent = lane->outstanding[i].lent;
      if (lent.has_value()) lane->link->Withdraw(*lent);
      lent.reset();
    }
  }
}

bool ChunkMachine::IsOffered(const SendLane& lane) const {
  return lane.offer.piece == work_.piece && lane.offer.signature == work_.signature &&
         lane.offer.key.bytes == lane.placed_bytes;
}

bool ChunkMachine::HasTarget(const SendLane& lane, const SendItem& item) const {
  if (lane.link == nullptr) return true;
  return item.is_placed ? IsOffered(lane) : lane.has_key;
}

bool ChunkMachine::AreWorkedIn(const ItemsBefore& before) const {
  return before.items == 0 || static_cast<int64_t>(receives_[before.hop].next) >= before.items;
}

bool ChunkMachine::SendReady(SendState& out) {
  const std::vector<SendItem>& items = out.hop->items;
  const SendLane& lane = *out.lane;
  const size_t first = out.next;
  while (out.next < items.size() && lane.outstanding.size() < lane.slots &&
         AreWorkedIn(items[out.next].after_receives) && HasTarget(lane, items[out.next])) {
    Send(out, items[out.next]);
  }
  return out.next > first;
}

void ChunkMachine::SendWhatAwaits(const ReceiveState& in) {
  const int hop = static_cast<int>(&in - receives_.data());
  for (SendState& out : sends_) {
    if (out.next == out.hop->items.size()) continue;
    const ItemsBefore& before = out.hop->items[out.next].after_receives;
    if (before.items > 0 && before.hop == hop) SendReady(out);
  }
}

void ChunkMachine::Send(SendState& out, const SendItem& item) {
  SendLane& lane = *out.lane;
  const std::byte* source = Source(item.buffer) + item.offset;
  const auto slot = static_cast<uint32_t>(lane.sent % lane.slots);
  const auto index = static_cast<int64_t>(out.next);
  std::optional<MemoryKey> lent;
  if (lane.link && lane.reads_lent && !item.is_placed && item.bytes >= work_.schedule->lend_from) {
    lent = lane.link->Lend(std::span(source, item.bytes));
  }
  Outstanding outstanding{.piece = work_.piece, .index = index, .slot = slot, .lent = lent};
  if (lane.link) {
    CollectiveFrame frame{.type = CollectiveFrame::Type::kChunk,
                          .channel = options_.channel,
                          .collective = group_.spec().id,
                          .from = static_cast<uint16_t>(options_.my_rank),
                          .to = static_cast<uint16_t>(lane.to),
                          .slot = slot,
                          .piece = work_.piece,
                          .index = index,
                          .bytes = item.bytes,
                          .fingerprint = work_.signature};
    if (lent.has_value()) {
      frame.type = CollectiveFrame::Type::kLent;
      frame.token = lent->token;
      lane.link->Send(EncodedCollectiveFrame(frame).bytes());
    } else {
      PendingWrite* const write = &lane.writes[slot];
      write->number = lane.sent;
      outstanding.is_acked = item.is_placed;
      outstanding.is_written = lane.link->Write(
          std::span(source, item.bytes), item.is_placed ? lane.offer.key : lane.key,
          item.is_placed ? item.place : slot * lane.slot_bytes,
          EncodedCollectiveFrame(frame).bytes(),
          [write](absl::Status status) { write->Answer(std::move(status)); });
    }
  } else {
    group_.Push(lane.to, {.type = MemberEvent::Type::kChunk,
                          .peer = options_.my_rank,
                          .slot = slot,
                          .piece = work_.piece,
                          .index = index,
                          .data = source,
                          .bytes = item.bytes,
                          .signature = work_.signature});
  }
  ++out.next;
  ++lane.sent;
  lane.outstanding.push_back(outstanding);
  Retire(lane);
}

bool ChunkMachine::ReceiveReady(ReceiveState& in, bool& has_moved) {
  const std::vector<ReceiveItem>& items = in.hop->items;
  ReceiveLane& lane = *in.lane;
  while (in.next < items.size() && !lane.arrivals.empty()) {
    const MemberEvent& arrival = lane.arrivals.front();
    const ReceiveItem& item = items[in.next];
    const auto slot = static_cast<uint32_t>(lane.received % lane.slots);
    if (arrival.piece != work_.piece || arrival.index != static_cast<int64_t>(in.next) ||
        arrival.bytes != item.bytes || arrival.slot != slot ||
        arrival.signature != work_.signature) {
      Refuse(arrival,
             absl::StrFormat("piece %d, item %d, %d bytes in slot %d, of signature %x; expected "
                             "was piece %d, item %d, %d bytes in slot %d, of %x",
                             arrival.piece, arrival.index, arrival.bytes, arrival.slot,
                             arrival.signature, work_.piece, in.next, item.bytes, slot,
                             work_.signature));
      return false;
    }
    const ItemsBefore& sent = item.after_sends;
    if (sent.items > 0 && sent.items > NumWritten(sends_[sent.hop])) return true;
    if (!AreWorkedIn(item.after_receives)) return true;
    if (!lane.link || !item.is_placed) {
      if (!TakeIn(lane, arrival, item)) return false;
      Acknowledge(lane, arrival);
    }
    lane.arrivals.pop_front();
    ++in.next;
    ++lane.received;
    lane.is_used = in.next < items.size();
    has_moved = true;
    // What this made ready goes out before the next item is worked in.
    SendWhatAwaits(in);
  }
  return true;
}

bool ChunkMachine::TakeIn(const ReceiveLane& lane, const MemberEvent& arrival,
                          const ReceiveItem& item) {
  absl::Status worked_in;
  if (!lane.link) {
    if (!group_.BeginRead()) return false;  // kFailed is on its way
    worked_in = WorkIn(item, arrival.data);
    group_.EndRead();
  } else if (arrival.token == 0) {
    worked_in = WorkIn(item, arrival.data);
  } else if (!lane.link->ReadLent(
                 arrival.token, static_cast<uint64_t>(arrival.bytes),
                 [&](std::span<const std::byte> data) { worked_in = WorkIn(item, data.data()); })) {
    AwaitCause(arrival);
    return false;
  }
  if (worked_in.ok()) return true;
  is_refused_ = true;
  group_.Fail(worked_in);
  return false;
}

void ChunkMachine::AwaitCause(const MemberEvent& arrival) {
  is_refused_ = true;
  awaits_cause_ = options_.reactor->RunAfter(
      kCausePatience, [this, from = arrival.peer, piece = arrival.piece, index = arrival.index] {
        awaits_cause_.reset();
        group_.Fail(absl::InternalError(
            absl::StrFormat("%s: member %d lent piece %d, item %d, and took it back before it was "
                            "acknowledged",
                            Name(), from, piece, index)));
      });
}

void ChunkMachine::Acknowledge(const ReceiveLane& lane, const MemberEvent& arrival) const {
  if (!lane.link) {
    return group_.Push(lane.from, {.type = MemberEvent::Type::kAck,
                                   .peer = options_.my_rank,
                                   .slot = arrival.slot,
                                   .piece = arrival.piece,
                                   .index = arrival.index});
  }
  const EncodedCollectiveFrame frame({.type = CollectiveFrame::Type::kAck,
                                      .channel = options_.channel,
                                      .collective = group_.spec().id,
                                      .from = static_cast<uint16_t>(options_.my_rank),
                                      .to = static_cast<uint16_t>(lane.from),
                                      .slot = arrival.slot,
                                      .piece = arrival.piece,
                                      .index = arrival.index});
  // That of a short item waits for what the next call sends: one system call in place of two.
  const bool is_short = arrival.bytes <= kShortBytes && arrival.token == 0;
  if (is_short) return lane.link->SendLater(frame.bytes());
  lane.link->Send(frame.bytes());
}

absl::Status ChunkMachine::WorkIn(const ReceiveItem& item, const std::byte* data) const {
  std::byte* target = Target(item.target) + item.offset;
  if (!item.is_reduction) {
    std::memcpy(target, data, item.bytes);
    return absl::OkStatus();
  }
  const std::byte* own = Source(item.own) + item.own_offset;
  if (item.last_offset != ReceiveItem::kNoPart) {
    std::byte* sum = work_.staging + item.own_offset;
    BRAID_RETURN_IF_ERROR(Reduce(sum, own, data, item.bytes));
    return Reduce(target, sum, work_.input + item.last_offset, item.bytes);
  }
  return Reduce(target, item.is_own_first ? own : data, item.is_own_first ? data : own, item.bytes);
}

absl::Status ChunkMachine::Reduce(std::byte* target, const std::byte* first,
                                  const std::byte* second, int64_t bytes) const {
  const int64_t n = bytes / work_.element_size;
  if (work_.fallible_reduce) return (*work_.fallible_reduce)(target, first, second, n);
  work_.reduce(target, first, second, n);
  return absl::OkStatus();
}

std::byte* ChunkMachine::Target(ChunkBuffer buffer) const {
  return buffer == ChunkBuffer::kStaging ? work_.staging : work_.output;
}

const std::byte* ChunkMachine::Source(ChunkBuffer buffer) const {
  switch (buffer) {
    case ChunkBuffer::kInput:
      return work_.input;
    case ChunkBuffer::kOutput:
      return work_.output;
    case ChunkBuffer::kStaging:
      return work_.staging;
  }
  LOG(FATAL) << "no such buffer";
}

// Comes last: `done` may destroy this object or start the next piece.
void ChunkMachine::Finish(absl::Status status) {
  WithdrawAll();
  if (awaits_cause_.has_value()) options_.reactor->CancelTimer(*awaits_cause_);
  awaits_cause_.reset();
  is_running_ = false;
  const Collective::DoneCallback done = std::move(done_);
  done(std::move(status));
}

}  // namespace braid
