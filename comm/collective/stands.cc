#include "comm/collective/stands.h"

#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace braid {
namespace {

// What others write often does not share a line with what they do not.
constexpr size_t kStandLine = 64;

// Of Head::sleeps.
constexpr uint32_t kForArrival = 1, kForEnd = 2;

size_t Aligned(size_t bytes) { return (bytes + kStandLine - 1) / kStandLine * kStandLine; }

}  // namespace

// The others read `arrived` in each call and look at `sleeps` twice, which hardly ever changes.
struct Stands::Head {
  alignas(kStandLine) std::atomic<uint64_t> arrived{0};
  alignas(kStandLine) std::atomic<uint64_t> ended{0};  // calls
  // What its owner sleeps for, having seen that it is not there.
  alignas(kStandLine) std::atomic<uint32_t> sleeps{0};
};

Stands::Stands(StandsMember member, std::function<bool()> look)
    : member_(std::move(member)), look_(std::move(look)), others_(member_.members) {}

Stands::~Stands() { CHECK_EQ(memory_.size(), 0u) << "stands are closed before they end"; }

size_t Stands::BoardAt(uint64_t turn) const {
  return Aligned(sizeof(Head)) +
         turn * Aligned(sizeof(StandBoard) + member_.members * sizeof(StandOffer));
}

size_t Stands::OfferAt(uint64_t turn, int rank) const {
  return BoardAt(turn) + sizeof(StandBoard) + rank * sizeof(StandOffer);
}

size_t Stands::SlotAt(uint64_t turn) const { return BoardAt(2) + turn * kStandSlotBytes; }

std::span<std::byte> Stands::slot() {
  return std::span(memory_.data() + SlotAt(turn()), size_t{kStandSlotBytes});
}

void Stands::Open(std::function<void(const absl::Status&)> done) {
  CHECK(!std::exchange(was_opened_, true)) << "stands are opened once";
  absl::StatusOr<Memory> memory = member_.allocate(StandBytes());
  if (!memory.ok()) return done(memory.status());
  memory_ = *std::move(memory);
  std::memset(memory_.data(), 0, memory_.size());
  new (memory_.data()) Head;
  on_open_ = std::move(done);
  for (int rank = 0; rank < member_.members; ++rank) {
    if (rank == member_.my_rank) continue;
    Other& other = others_[rank];
    other.link = member_.link_to(rank);
    other.shown = other.link->Lend(std::span(memory_.data(), StandBytes()));
    Send(rank, {.type = CollectiveFrame::Type::kStand, .key = other.shown.value_or(MemoryKey())});
  }
  TellWhetherSeen();
}

absl::Status Stands::HandleFrame(const CollectiveFrame& frame) {
  Other& other = others_[frame.from];
  switch (frame.type) {
    case CollectiveFrame::Type::kStand:
      if (std::exchange(other.is_there, true)) {
        return absl::InvalidArgumentError(
            absl::StrFormat("rank %d shows its stand twice", frame.from));
      }
      other.key = frame.key;
      TellWhetherSeen();
      return absl::OkStatus();
    case CollectiveFrame::Type::kSeen:
      if (!was_opened_ || other.sees_all.has_value() || frame.slot > 1) {
        return absl::InvalidArgumentError(
            absl::StrFormat("rank %d says %d of the stands that it sees, where 0 or 1 is said "
                            "once, to who shows its own",
                            frame.from, frame.slot));
      }
      other.sees_all = frame.slot == 1;
      TellIfOpen();
      return absl::OkStatus();
    case CollectiveFrame::Type::kRing:
      if (is_waiting_ && !look_()) Wait(waits_for_end_);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrFormat(
          "a frame of type %d, which is none of stands", static_cast<int>(frame.type)));
  }
}

void Stands::TellWhetherSeen() {
  if (has_told_ || memory_.size() == 0) return;
  bool sees_all = true;
  for (int rank = 0; rank < member_.members; ++rank) {
    if (rank == member_.my_rank) continue;
    if (!others_[rank].is_there) return;
    sees_all = sees_all && others_[rank].key.bytes == StandBytes() &&
               ReadStand(rank, [](const std::byte*) {});
  }
  has_told_ = true;
  others_[member_.my_rank].sees_all = sees_all;
  for (int rank = 0; rank < member_.members; ++rank) {
    if (rank == member_.my_rank) continue;
    Send(rank, {.type = CollectiveFrame::Type::kSeen, .slot = sees_all ? 1u : 0u});
  }
  TellIfOpen();
}

void Stands::TellIfOpen() {
  if (!on_open_) return;
  bool is_open = true;
  for (const Other& other : others_) {
    if (!other.sees_all.has_value()) return;
    is_open = is_open && *other.sees_all;
  }
  is_open_ = is_open;
  std::exchange(on_open_, nullptr)(absl::OkStatus());
}

void Stands::Close() {
  StopWaiting();
  on_open_ = nullptr;
  for (int rank = 0; rank < member_.members; ++rank) {
    Other& other = others_[rank];
    if (other.shown.has_value()) other.link->Withdraw(*other.shown);
    other.shown.reset();
  }
  is_open_ = false;
  memory_.Reset();
}

void Stands::Send(int rank, const CollectiveFrame& frame) const {
  CollectiveFrame sent = frame;
  sent.channel = member_.channel;
  sent.collective = member_.id;
  sent.from = static_cast<uint16_t>(member_.my_rank);
  sent.to = static_cast<uint16_t>(rank);
  others_[rank].link->Send(EncodedCollectiveFrame(sent).bytes());
}

bool Stands::ReadStand(int rank, Reader read) const {
  const Other& other = others_[rank];
  return other.link->ReadLent(other.key.token, StandBytes(),
                              [&](std::span<const std::byte> stand) { read(stand.data()); });
}

std::optional<Stands::Said> Stands::Read(int rank) const {
  Said said;
  const bool is_read = ReadStand(rank, [&](const std::byte* stand) {
    std::memcpy(&said.board, stand + BoardAt(turn()), sizeof(StandBoard));
    std::memcpy(&said.offer, stand + OfferAt(turn(), member_.my_rank), sizeof(StandOffer));
  });
  return is_read ? std::optional(said) : std::nullopt;
}

bool Stands::ReadSlot(int rank, uint64_t offset, uint64_t bytes, Reader read) const {
  if (offset > kStandSlotBytes || bytes > kStandSlotBytes - offset) return false;
  return ReadStand(rank, [&](const std::byte* stand) { read(stand + SlotAt(turn()) + offset); });
}

void Stands::Arrive() {
  head().arrived.store(++arrived_);
  Ring(kForArrival);
}

absl::StatusOr<bool> Stands::HaveArrived() {
  bool are_there = true;
  for (int rank = 0; rank < member_.members; ++rank) {
    Other& other = others_[rank];
    if (rank == member_.my_rank || other.arrived >= arrived_) continue;
    const uint64_t seen = other.arrived;
    const bool is_shown = ReadStand(rank, [&](const std::byte* stand) {
      other.arrived = reinterpret_cast<const Head*>(stand)->arrived.load();
    });
    if (!is_shown) gone_ = rank;
    if (other.arrived != seen) ++events_;
    if (other.arrived < seen || other.arrived > arrived_ + 1) {
      return absl::InternalError(
          absl::StrFormat("rank %d arrived %d times, before %d; expected were up to %d", rank,
                          other.arrived, seen, arrived_ + 1));
    }
    are_there = are_there && other.arrived >= arrived_;
  }
  return are_there;
}

void Stands::EndCall() {
  head().ended.store(++calls_);
  Ring(kForEnd);
}

bool Stands::HaveEnded() {
  bool have_ended = true;
  for (int rank = 0; rank < member_.members; ++rank) {
    Other& other = others_[rank];
    if (rank == member_.my_rank || other.ended >= calls_) continue;
    const bool is_shown = ReadStand(rank, [&](const std::byte* stand) {
      other.ended = reinterpret_cast<const Head*>(stand)->ended.load();
    });
    have_ended = have_ended && (!is_shown || other.ended >= calls_);
  }
  return have_ended;
}

// The others say that they sleep before they look once more; here it is the other way round, so
// not both can miss it.
void Stands::Ring(uint32_t for_what) {
  for (int rank = 0; rank < member_.members; ++rank) {
    if (rank == member_.my_rank) continue;
    bool sleeps = false;
    ReadStand(rank, [&](const std::byte* stand) {
      sleeps = reinterpret_cast<const Head*>(stand)->sleeps.load() == for_what;
    });
    if (sleeps) Send(rank, {.type = CollectiveFrame::Type::kRing});
  }
}

// Without a store where it is awake, which would take the line from the others.
void Stands::SetAwake() {
  std::atomic<uint32_t>& sleeps = head().sleeps;
  if (sleeps.load(std::memory_order_relaxed) != 0) sleeps.store(0, std::memory_order_relaxed);
}

void Stands::Wait(bool for_end) {
  is_waiting_ = true;
  waits_for_end_ = for_end;
  SetAwake();
  member_.reactor->LookOut(this);
}

void Stands::StopWaiting() {
  if (!std::exchange(is_waiting_, false)) return;
  SetAwake();
  member_.reactor->LookAway(this);
}

bool Stands::Look() { return is_waiting_ && look_(); }

bool Stands::Sleep() {
  if (!is_waiting_) return true;
  head().sleeps.store(waits_for_end_ ? kForEnd : kForArrival);
  return !look_();
}

}  // namespace braid
