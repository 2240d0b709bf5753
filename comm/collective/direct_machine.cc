#include "comm/collective/direct_machine.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/collective/chunk_schedule.h"
#include "comm/collective/whole_elements.h"
#include "glog/logging.h"
#include "runtime/base/streaming_copy.h"

namespace braid {
namespace {

// What is summed at a time: it stays in the nearer caches until it is written to all.
constexpr int64_t kSummedBytes = int64_t{32} << 10;
// What is moved at a time: its owner waits so long for it at most if it fails.
constexpr int64_t kMovedBytes = int64_t{256} << 10;
// More would not stay in the caches: it goes past them.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;
// Then the reactor has its turn.
constexpr int64_t kTurnBytes = int64_t{4} << 20;

// A part of `whole` bytes.
void Copy(std::byte* to, const std::byte* from, int64_t bytes, int64_t whole) {
  if (whole >= kStreamedBytes) return StreamingCopy(to, from, static_cast<size_t>(bytes));
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

DirectMachine::DirectMachine(Options options)
    : options_(std::move(options)),
      stands_(options_.member, [this] { return Advance(); }),
      others_(members()) {}

DirectMachine::~DirectMachine() {
  CHECK(!is_running()) << options_.name << " is destroyed while call " << work_.piece
                       << " is under way";
}

void DirectMachine::Start(const DirectWork& work, Collective::DoneCallback done,
                          std::function<void()> is_unable) {
  CHECK(!is_running() && stands_.is_open());
  work_ = work;
  done_ = std::move(done);
  is_unable_ = std::move(is_unable);
  PlanRanges();
  const bool is_able = Offer();
  if (!is_able) WithdrawAll();
  const bool is_lending = std::ranges::any_of(others_, [](const Other& other) {
    return other.lent.has_value() || other.target.has_value();
  });
  stands_.board() = {.piece = work_.piece,
                     .signature = work_.signature,
                     .is_able = is_able ? 1u : 0u,
                     .is_lending = is_lending ? 1u : 0u};
  state_ = State::kMeeting;
  stands_.Arrive();
  if (!Advance()) stands_.Wait();
}

bool DirectMachine::Reduces() const {
  return work_.spec->kind == CollectiveKind::kAllReduce ||
         work_.spec->kind == CollectiveKind::kReduceScatter;
}

void DirectMachine::PlanRanges() {
  const CollectiveSpec& spec = *work_.spec;
  const int64_t size = spec.element_size;
  // Block after block, each of so many elements.
  const auto lay_out = [&](const auto& count_of, const auto& range_of) {
    int64_t offset = 0;
    for (int rank = 0; rank < members(); ++rank) {
      Range& range = range_of(rank);
      range = {.offset = offset, .bytes = count_of(rank) * size};
      offset += range.bytes;
    }
  };
  blocks_.assign(members(), {});
  for (Other& other : others_) other = {};
  own_ = {};
  place_ = 0;
  is_whole_ = false;
  const auto block_of = [this](int rank) -> Range& { return blocks_[rank]; };
  const auto counted = [&](int rank) { return spec.counts[rank]; };
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
      lay_out(
          [&](int rank) {
            return work_.blocks->empty() ? EvenBlock(spec.counts[0], members(), rank)
                                         : (*work_.blocks)[rank];
          },
          block_of);
      return PlanAllReduce();
    case CollectiveKind::kReduceScatter:
      lay_out(counted, block_of);
      for (int rank = 0; rank < members(); ++rank) {
        others_[rank].gives = blocks_[rank];
        others_[rank].takes = {.offset = 0, .bytes = blocks_[me()].bytes};
      }
      return;
    case CollectiveKind::kAllGather:
      lay_out(counted, block_of);
      own_ = {.offset = 0, .bytes = blocks_[me()].bytes};
      place_ = blocks_[me()].offset;
      for (int rank = 0; rank < members(); ++rank) {
        others_[rank].gives = own_;
        others_[rank].takes = blocks_[rank];
      }
      return;
    case CollectiveKind::kBroadcast: {
      const Range whole{.offset = 0, .bytes = spec.counts[0] * size};
      if (me() == spec.root) own_ = whole;
      for (Other& other : others_) other.gives = own_;
      if (me() != spec.root) others_[spec.root].takes = whole;
      return;
    }
    case CollectiveKind::kAllToAll:
      lay_out(counted, [this](int rank) -> Range& { return others_[rank].gives; });
      lay_out([&](int rank) { return spec.receives[rank]; },
              [this](int rank) -> Range& { return others_[rank].takes; });
      own_ = others_[me()].gives;
      place_ = others_[me()].takes.offset;
      return;
  }
}

void DirectMachine::PlanAllReduce() {
  const Range whole{.offset = 0, .bytes = blocks_.back().offset + blocks_.back().bytes};
  is_whole_ = whole.bytes <= kStandSlotBytes;
  for (int rank = 0; rank < members(); ++rank) {
    others_[rank].gives = is_whole_ ? whole : blocks_[rank];
    others_[rank].takes = is_whole_ ? whole : blocks_[me()];
  }
}

bool DirectMachine::Offer() {
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (int rank = 0; rank < members(); ++rank) {
    const Range& gives = others_[rank].gives;
    if (rank == me() || gives.bytes == 0) continue;
    begin = std::min(begin, gives.offset);
    end = std::max(end, gives.offset + gives.bytes);
  }
  const bool writes_to_all = work_.spec->kind == CollectiveKind::kAllReduce && !is_whole_;
  if (!writes_to_all && end - begin <= kStandSlotBytes) {
    if (begin < end) std::memcpy(stands_.slot().data(), work_.input + begin, end - begin);
    for (int rank = 0; rank < members(); ++rank) {
      const Range& gives = others_[rank].gives;
      stands_.offer(rank) = {
          .bytes = static_cast<uint64_t>(gives.bytes),
          .offset = static_cast<uint64_t>(gives.bytes == 0 ? 0 : gives.offset - begin)};
    }
    return true;
  }
  for (int rank = 0; rank < members(); ++rank) {
    if (rank != me() && !LendTo(rank)) return false;
  }
  return true;
}

bool DirectMachine::LendTo(int rank) {
  Other& other = others_[rank];
  StandOffer& offer = stands_.offer(rank);
  offer = {.bytes = static_cast<uint64_t>(other.gives.bytes)};
  if (other.gives.bytes == 0) return true;
  Link& link = link_to(rank);
  const std::span<const std::byte> input(work_.input + other.gives.offset,
                                         static_cast<size_t>(other.gives.bytes));
  if (work_.spec->kind == CollectiveKind::kAllReduce) {
    std::byte* const output = work_.output + other.gives.offset;
    other.target = link.LendForWriting(std::span(output, input.size()));
    if (!other.target.has_value()) return false;
    offer.target = offer.token = other.target->token;
    if (output == input.data()) return true;
  }
  other.lent = link.Lend(input);
  if (!other.lent.has_value()) return false;
  offer.token = other.lent->token;
  return true;
}

void DirectMachine::WithdrawAll() {
  for (int rank = 0; rank < members(); ++rank) {
    Other& other = others_[rank];
    for (std::optional<MemoryKey>* const key : {&other.lent, &other.target}) {
      if (key->has_value()) link_to(rank).Withdraw(**key);
      key->reset();
    }
  }
}

bool DirectMachine::Advance() {
  if (state_ == State::kIdle) return AdvanceLeaving();
  if (state_ == State::kStalled) return false;
  if (state_ != State::kWorking) {
    const absl::StatusOr<bool> are_there = stands_.HaveArrived();
    if (!are_there.ok()) {
      Fail(are_there.status());
      return true;
    }
    if (!*are_there) {
      if (!stands_.gone().has_value()) return false;
      AwaitCause(*stands_.gone());
      return true;
    }
    if (state_ == State::kParting) {
      Finish(absl::OkStatus());
      return true;
    }
    if (!ReadBoards()) return true;
    state_ = State::kWorking;
    at_ = 0;
  }
  if (!Work()) {
    if (state_ == State::kWorking) stands_.Wait();
    return true;
  }
  if (!meets_twice_) {
    Finish(absl::OkStatus());
    return true;
  }
  state_ = State::kParting;
  stands_.Arrive();
  if (!Advance()) stands_.Wait();
  return true;
}

bool DirectMachine::ReadBoards() {
  bool are_able = stands_.board().is_able != 0;
  meets_twice_ = stands_.board().is_lending != 0;
  for (int rank = 0; rank < members(); ++rank) {
    if (rank == me()) continue;
    const std::optional<Stands::Said> said = stands_.Read(rank);
    if (!said.has_value()) {
      AwaitCause(rank);
      return false;
    }
    const StandBoard& board = said->board;
    if (board.piece != work_.piece || board.signature != work_.signature) {
      Refuse(rank, board.piece,
             absl::StrFormat("piece %d, of signature %x; expected was piece %d, of %x", board.piece,
                             board.signature, work_.piece, work_.signature));
      return false;
    }
    are_able = are_able && board.is_able != 0;
    meets_twice_ = meets_twice_ || board.is_lending != 0;
    others_[rank].offer = said->offer;
  }
  if (!are_able) {
    WithdrawAll();
    stands_.EndCall();
    stands_.StopWaiting();
    state_ = State::kIdle;
    done_ = nullptr;
    std::exchange(is_unable_, nullptr)();
    return false;
  }
  for (int rank = 0; rank < members(); ++rank) {
    if (rank != me() && !CheckOffer(rank)) return false;
  }
  return true;
}

bool DirectMachine::CheckOffer(int rank) {
  const Other& other = others_[rank];
  const StandOffer& offer = other.offer;
  const bool is_target_needed = work_.spec->kind == CollectiveKind::kAllReduce && !is_whole_;
  if (offer.bytes == static_cast<uint64_t>(other.takes.bytes) &&
      offer.offset % static_cast<uint64_t>(work_.spec->element_size) == 0 &&
      (offer.bytes == 0 || !is_target_needed || (offer.token != 0 && offer.target != 0))) {
    return true;
  }
  Refuse(rank, work_.piece,
         absl::StrFormat(
             "%d bytes of piece %d, at %d or by key %d, and a place by key %d; expected "
             "were %d bytes of elements of %d%s",
             offer.bytes, work_.piece, offer.offset, offer.token, offer.target, other.takes.bytes,
             work_.spec->element_size, is_target_needed ? ", and keys" : ""));
  return false;
}

bool DirectMachine::Work() { return Reduces() ? Sum() : Move(); }

bool DirectMachine::Move() {
  if (at_ == 0 && own_.bytes > 0 && work_.output + place_ != work_.input + own_.offset) {
    Copy(work_.output + place_, work_.input + own_.offset, own_.bytes, /*whole=*/own_.bytes);
  }
  int64_t begin = 0;  // of what is taken from a member, in all that is taken
  const int64_t stop = at_ + kTurnBytes;
  for (int rank = 0; rank < members(); ++rank) {
    const Range takes = rank == me() ? Range() : others_[rank].takes;
    while (at_ < begin + takes.bytes) {
      if (at_ >= stop) return false;
      const int64_t offset = at_ - begin;
      const int64_t bytes = std::min(kMovedBytes, takes.bytes - offset);
      std::byte* const target = work_.output + takes.offset + offset;
      if (!ReadOffered(rank, offset, bytes, [&](const std::byte* data) {
            Copy(target, data, bytes, /*whole=*/takes.bytes);
          })) {
        return false;
      }
      at_ += bytes;
    }
    begin += takes.bytes;
  }
  return true;
}

bool DirectMachine::Sum() {
  const auto first_of = [this](int block) {
    if (work_.spec->algorithm == CollectiveAlgorithm::kExchange) return 0;
    return (block + 1) % members();
  };
  if (!is_whole_) return SumRange(blocks_[me()].offset, blocks_[me()].bytes, first_of(me()));
  for (int block = 0; block < members(); ++block) {
    at_ = 0;
    if (!SumRange(blocks_[block].offset, blocks_[block].bytes, first_of(block))) return false;
  }
  return true;
}

bool DirectMachine::SumRange(int64_t offset, int64_t bytes, int first) {
  const int64_t most = WholeElements(kSummedBytes, work_.spec->element_size);
  if (members() > 2 && static_cast<int64_t>(tile_.size()) < most) {
    absl::StatusOr<Memory> tile = options_.member.allocate(static_cast<uint64_t>(most));
    if (!tile.ok()) {
      Fail(tile.status());
      return false;
    }
    tile_ = *std::move(tile);
  }
  const bool scatters = work_.spec->kind == CollectiveKind::kReduceScatter;
  const int64_t stop = at_ + kTurnBytes;
  while (at_ < bytes) {
    if (at_ >= stop) return false;
    const int64_t tile = std::min(most, bytes - at_);
    std::byte* const target = work_.output + (scatters ? 0 : offset) + at_;
    if (!SumTile(target, offset + at_, tile, first)) return false;
    if (!scatters && !is_whole_ && !Push(at_, tile)) return false;
    at_ += tile;
  }
  return true;
}

// target = what all have at `offset` of their inputs, from member `first` on in the order of ranks.
bool DirectMachine::SumTile(std::byte* target, int64_t offset, int64_t bytes, int first) {
  const std::byte* const own = work_.input + offset;
  // Of what the others offer.
  const int64_t offered = is_whole_ ? offset : offset - blocks_[me()].offset;
  const auto nth = [&](int n) { return (first + n) % members(); };
  const auto sum_for = [&](int n) { return n == members() - 1 ? target : tile_.data(); };
  absl::Status summed;
  const std::byte* so_far = own;
  int next = 1;
  if (nth(0) != me()) {
    // Where the next is this member's own, it is added while the other's is read.
    const bool adds_own = nth(1) == me();
    std::byte* const sum = adds_own ? sum_for(1) : tile_.data();
    if (!ReadOffered(nth(0), offered, bytes, [&](const std::byte* data) {
          if (adds_own) {
            summed = Reduce(sum, data, own, bytes);
          } else {
            std::memcpy(sum, data, bytes);
          }
        })) {
      return false;
    }
    so_far = sum;
    next = adds_own ? 2 : 1;
  }
  for (int n = next; n < members() && summed.ok(); ++n) {
    std::byte* const sum = sum_for(n);
    if (nth(n) == me()) {
      summed = Reduce(sum, so_far, own, bytes);
    } else if (!ReadOffered(nth(n), offered, bytes, [&](const std::byte* data) {
                 summed = Reduce(sum, so_far, data, bytes);
               })) {
      return false;
    }
    so_far = sum;
  }
  if (!summed.ok()) Fail(summed);
  return summed.ok();
}

bool DirectMachine::Push(int64_t offset, int64_t bytes) {
  const std::span<const std::byte> sum(work_.output + blocks_[me()].offset + offset,
                                       static_cast<size_t>(bytes));
  for (int rank = 0; rank < members(); ++rank) {
    if (rank == me()) continue;
    if (link_to(rank).WriteLent(others_[rank].offer.target, static_cast<uint64_t>(offset), sum)) {
      continue;
    }
    AwaitCause(rank);
    return false;
  }
  return true;
}

absl::Status DirectMachine::Reduce(void* dst, const void* a, const void* b, int64_t bytes) const {
  const int64_t n = bytes / work_.spec->element_size;
  if (work_.fallible_reduce != nullptr) return (*work_.fallible_reduce)(dst, a, b, n);
  work_.spec->reduce(dst, a, b, n);
  return absl::OkStatus();
}

bool DirectMachine::ReadOffered(int rank, int64_t offset, int64_t bytes, Stands::Reader read) {
  const StandOffer& offer = others_[rank].offer;
  const bool is_read =
      offer.token == 0
          ? stands_.ReadSlot(rank, offer.offset + static_cast<uint64_t>(offset),
                             static_cast<uint64_t>(bytes), read)
          : link_to(rank).ReadLent(offer.token, offer.bytes, [&](std::span<const std::byte> data) {
              read(data.data() + offset);
            });
  if (!is_read) AwaitCause(rank);
  return is_read;
}

void DirectMachine::Refuse(int rank, int64_t piece, const std::string& what) {
  state_ = State::kStalled;
  stands_.StopWaiting();
  options_.on_unexpected(rank, std::min(piece, work_.piece), what);
}

void DirectMachine::Fail(const absl::Status& status) {
  state_ = State::kStalled;
  stands_.StopWaiting();
  options_.fail(status);
}

void DirectMachine::AwaitCause(int rank) {
  state_ = State::kStalled;
  stands_.StopWaiting();
  awaits_cause_ = options_.member.reactor->RunAfter(kCausePatience, [this, rank] {
    awaits_cause_.reset();
    options_.fail(absl::InternalError(
        absl::StrFormat("%s: rank %d took back what it had lent for call %d before the call ended",
                        options_.name, rank, work_.piece)));
  });
}

// Comes last: `done` may start the next call.
void DirectMachine::Finish(const absl::Status& status) {
  WithdrawAll();
  if (status.ok()) stands_.EndCall();
  stands_.StopWaiting();
  state_ = State::kIdle;
  is_unable_ = nullptr;
  std::exchange(done_, nullptr)(status);
}

void DirectMachine::Abort(const absl::Status& reason) {
  when_taken_ = nullptr;
  if (awaits_cause_.has_value()) options_.member.reactor->CancelTimer(*awaits_cause_);
  awaits_cause_.reset();
  if (is_running()) Finish(reason);
}

int64_t DirectMachine::FirstNotTaken() {
  return stands_.is_open() && !stands_.HaveEnded() ? work_.piece : -1;
}

void DirectMachine::WhenTaken(std::function<void()> taken) {
  when_taken_ = std::move(taken);
  if (!when_taken_ || is_running()) return;
  if (!AdvanceLeaving()) stands_.Wait(/*for_end=*/true);
}

bool DirectMachine::AdvanceLeaving() {
  if (!when_taken_ || FirstNotTaken() >= 0) return false;
  stands_.StopWaiting();
  std::exchange(when_taken_, nullptr)();
  return true;
}

}  // namespace braid
