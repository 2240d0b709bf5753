// Works off collectives whose members read each other's memory and meet by their stands, call after
// call. Small data goes by the stands: each member puts there what others need, all meet, and each
// takes what it needs. Other data is lent where it lies: all meet, each works in the others'
// memory, and all meet again. The member that sums a block of an all_reduce writes it into the
// outputs of all.
//
// Results have the bits that a ring or an exchange gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "comm/collective/chunk_machine.h"
#include "comm/collective/collective.h"
#include "comm/collective/stands.h"
#include "comm/transport.h"
#include "runtime/base/memory.h"
#include "runtime/base/reactor.h"

namespace braid {

// One call. What it points at lasts until it is done.
struct DirectWork {
  const CollectiveSpec* spec = nullptr;
  // How many elements each member of an all_reduce sums, as of MakeChunkSchedule.
  const std::vector<int64_t>* blocks = nullptr;
  int64_t piece = 0;
  uint64_t signature = 0;  // of all members the same
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  const FallibleReduceFn* fallible_reduce = nullptr;  // as of ChunkWork
};

// The reactor's thread.
class DirectMachine {
 public:
  struct Options {
    StandsMember member;
    std::string name;  // for messages
    // As of ChunkMachine.
    std::function<void(int from, int64_t piece, const std::string& what)> on_unexpected;
    // Something is wrong: whoever hears it aborts the call under way.
    std::function<void(const absl::Status&)> fail;
  };
  explicit DirectMachine(Options options);
  ~DirectMachine();
  DirectMachine(const DirectMachine&) = delete;
  DirectMachine& operator=(const DirectMachine&) = delete;

  Stands& stands() { return stands_; }
  const Stands& stands() const { return stands_; }

  // Once the stands are open. All members start the same calls in the same order. Either `done`
  // comes, once, maybe inside this call; or `is_unable`, on all members alike: the memory of one
  // cannot be lent, nothing was done, and all go another way.
  void Start(const DirectWork& work, Collective::DoneCallback done,
             std::function<void()> is_unable);
  bool is_running() const { return state_ != State::kIdle; }
  // As of ChunkMachine.
  int64_t FirstNotTaken();
  void WhenTaken(std::function<void()> taken);
  int64_t events() const { return stands_.events(); }
  // The call under way ends with `reason`, once nobody reads or writes this member's memory; the
  // last that is called.
  void Abort(const absl::Status& reason);

 private:
  enum class State {
    kIdle,
    kMeeting,  // all say what they have
    kWorking,
    kParting,  // all say that they have finished
    kStalled,  // something is wrong: Abort comes
  };
  // Elements are bytes here.
  struct Range {
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  struct Other {
    Range gives;                           // of this member's input, to the other
    Range takes;                           // from the other, to where in this member's output
    std::optional<MemoryKey> lent = {};    // input, or the memory of both
    std::optional<MemoryKey> target = {};  // output
    StandOffer offer;                      // what it gives, as it says
  };

  int members() const { return options_.member.members; }
  int me() const { return options_.member.my_rank; }
  Link& link_to(int rank) const { return *options_.member.link_to(rank); }
  bool Reduces() const;
  void PlanRanges();
  void PlanAllReduce();
  // Puts on the stand, or lends, what the others need. Whether all of that could be done.
  bool Offer();
  bool LendTo(int rank);
  void WithdrawAll();

  bool Advance();
  // What the others say of the call. False: something is wrong.
  bool ReadBoards();
  bool CheckOffer(int rank);
  // A bounded amount. False: more is to be done, or something is wrong.
  bool Work();
  bool Move();
  bool Sum();
  // From `at_` on, of these bytes of the input, with member `first` first.
  bool SumRange(int64_t offset, int64_t bytes, int first);
  bool SumTile(std::byte* target, int64_t offset, int64_t bytes, int first);
  bool Push(int64_t offset, int64_t bytes);
  absl::Status Reduce(void* dst, const void* a, const void* b, int64_t bytes) const;
  // Bytes of what another member offers. False: they cannot be read any more, and it stalls.
  bool ReadOffered(int rank, int64_t offset, int64_t bytes, Stands::Reader read);

  void Refuse(int rank, int64_t piece, const std::string& what);
  void Fail(const absl::Status& status);
  // A member has taken its memory back: it failed, and why is on its way; or fail by that.
  void AwaitCause(int rank);
  void Finish(const absl::Status& status);
  bool AdvanceLeaving();

  const Options options_;
  Stands stands_;
  State state_ = State::kIdle;
  DirectWork work_ = {.piece = -1};  // under way, or the last
  Collective::DoneCallback done_;
  std::function<void()> is_unable_;
  std::function<void()> when_taken_;
  std::vector<Other> others_;  // by rank
  std::vector<Range> blocks_;  // of the input, by rank, in bytes
  Range own_;                  // what of the input this member moves to its own output, to `place_`
  int64_t place_ = 0;
  bool is_whole_ = false;     // an all_reduce in which each sums all
  bool meets_twice_ = false;  // some member lends
  int64_t at_ = 0;            // how far the work has come
  Memory tile_;
  std::optional<TimerId> awaits_cause_;
};

}  // namespace braid
