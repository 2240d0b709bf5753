// Where the members of a collective meet that read each other's memory: every member has a stand,
// which it alone writes and the others read where it lies (Link::Lend). On it is how many times it
// has arrived, what it says of the call under way, and room for small data. So a meeting takes no
// message, unless somebody sleeps: a member that waits looks at the stands whenever its reactor
// looks around, and says on its own when it sleeps; who arrives rings it.
//
// What others have written is read once and then checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/collective/collective_frame.h"
#include "comm/transport.h"
#include "runtime/base/ids.h"
#include "runtime/base/memory.h"
#include "runtime/base/reactor.h"

namespace braid {

// What a member says of a call to all, before it arrives.
struct StandBoard {
  int64_t piece = 0;
  uint64_t signature = 0;
  uint32_t is_able = 0;     // what the others need of its memory is on the stand or lent
  uint32_t is_lending = 0;  // some is lent: all meet once more before it is taken back
};

// And to one of them: what that one reads.
struct StandOffer {
  uint64_t bytes = 0;
  uint64_t token = 0;   // with which it is lent; 0: it is in the slot,
  uint64_t offset = 0;  // from there on
  uint64_t target = 0;  // where that one writes, as lent for writing; 0: nowhere
};

// So much data of a call fits on a stand.
constexpr int64_t kStandSlotBytes = int64_t{16} << 10;

// Which member this is, of which.
struct StandsMember {
  Reactor* reactor = nullptr;  // borrowed
  int my_rank = 0;
  int members = 0;
  Channel channel = Channel::kCollective;  // of its frames
  CollectiveId id = 0;
  AllocateMemory allocate;                 // for the stand
  std::function<Link*(int rank)> link_to;  // to another member, once the stands are opened
};

// One member's view. The reactor's thread.
class Stands : private Lookout {
 public:
  // `look`: while this member waits, looks at what it waits for. True if it has come further; it
  // has called Wait then, if it waits still.
  Stands(StandsMember member, std::function<bool()> look);
  ~Stands() override;
  Stands(const Stands&) = delete;
  Stands& operator=(const Stands&) = delete;

  // Makes the stand and shows it to the others, which do the same. `done` comes once all have said
  // whether they see all the others' stands, maybe inside this call, or never. Once.
  void Open(std::function<void(const absl::Status&)> done);
  bool was_opened() const { return was_opened_; }
  // All members see all stands, and know that: they can meet.
  bool is_open() const { return is_open_; }
  // kStand, kSeen and kRing; an error closes the link. May come before Open.
  absl::Status HandleFrame(const CollectiveFrame& frame);
  // Nobody sees the stand any more. Nothing else is called afterwards.
  void Close();

  // Of the call that begins: this member's own.
  StandBoard& board() { return *At<StandBoard>(BoardAt(turn())); }
  StandOffer& offer(int rank) { return *At<StandOffer>(OfferAt(turn(), rank)); }
  std::span<std::byte> slot();
  // What another member says, once it has arrived; nothing if it shows its stand no more.
  struct Said {
    StandBoard board;
    StandOffer offer;  // to this member
  };
  std::optional<Said> Read(int rank) const;
  // Bytes of another member's slot. False: they are not of the slot, or it shows it no more.
  using Reader = absl::FunctionRef<void(const std::byte* data)>;
  bool ReadSlot(int rank, uint64_t offset, uint64_t bytes, Reader read) const;

  // This member is where it wants to meet the others.
  void Arrive();
  // Whether all the others are there. An error: one has said what cannot be.
  absl::StatusOr<bool> HaveArrived();
  // Who has not, and shows its stand no more.
  std::optional<int> gone() const { return gone_; }
  // The call is over, and nothing of the others' slots is needed any more; the next one begins.
  void EndCall();
  // The same of all the others, for all calls that ended here; who shows its stand no more has
  // left, after its last call.
  bool HaveEnded();
  // From now on `look` is called until StopWaiting. For others to end calls: `for_end`.
  void Wait(bool for_end = false);
  void StopWaiting();
  // How often others arrived: it grows while there is progress.
  int64_t events() const { return events_; }

 private:
  // The start of the memory, which others read at any time.
  struct Head;
  struct Other {
    Link* link = nullptr;
    bool is_there = false;  // its frame kStand has come
    MemoryKey key = {};
    std::optional<bool> sees_all;
    std::optional<MemoryKey> shown = {};  // to it
    uint64_t arrived = 0;                 // as last seen
    uint64_t ended = 0;
  };

  uint64_t turn() const { return calls_ % 2; }
  size_t BoardAt(uint64_t turn) const;
  size_t OfferAt(uint64_t turn, int rank) const;
  size_t SlotAt(uint64_t turn) const;
  size_t StandBytes() const { return SlotAt(2); }
  template <typename T>
  T* At(size_t offset) {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }
  Head& head() { return *At<Head>(0); }
  // Calls `read` with another's stand.
  bool ReadStand(int rank, Reader read) const;
  void TellWhetherSeen();
  void TellIfOpen();
  void Send(int rank, const CollectiveFrame& frame) const;
  void Ring(uint32_t for_what);
  void SetAwake();
  bool Look() override;
  bool Sleep() override;

  const StandsMember member_;
  const std::function<bool()> look_;
  Memory memory_;
  std::vector<Other> others_;  // by rank; its own entry is not used
  bool was_opened_ = false;
  bool has_told_ = false;  // whether it sees all
  bool is_open_ = false;
  std::function<void(const absl::Status&)> on_open_;
  uint64_t arrived_ = 0;
  std::optional<int> gone_;
  uint64_t calls_ = 0;  // that ended
  bool is_waiting_ = false;
  bool waits_for_end_ = false;
  int64_t events_ = 0;
};

}  // namespace braid
