// One rank's end of a process group: makes the group's collectives one after the other, in the
// order in which the program makes them, over lanes to the other ranks that last as long as the
// group; sends and receives (transfers.h) and what is done in windows (windows.h) go on beside
// them. Nothing of a call is worked in before its signature was compared; a call that does not come
// further has the master ask all ranks which call they are in (roll_call.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "comm/collective/chunk_machine.h"
#include "comm/collective/chunk_schedule.h"
#include "comm/collective/direct_machine.h"
#include "comm/collective/local_group.h"
#include "comm/peers/peers.h"
#include "runtime/base/memory.h"
#include "runtime/base/reactor.h"
#include "runtime/group/group_batch.h"
#include "runtime/group/group_call.h"
#include "runtime/group/group_frame.h"
#include "runtime/group/transfers.h"
#include "runtime/group/windows.h"

namespace braid {

namespace control {
class RollAnswer;
class RollCall;
}  // namespace control

namespace dist {

// Everything happens on the node's control thread, where the links are.
class GroupEnd {
 public:
  struct Options {
    Reactor* reactor = nullptr;  // borrowed
    Peers* peers = nullptr;      // borrowed; until Close is done
    AllocateMemory allocate;     // for landing slots and staging, in host memory
    // A link to this node is wanted there, too.
    std::function<void(uint16_t node)> dial;
    std::function<void(const control::RollCall&)> ask;  // the master
    // The session, whose first cause then ends this group's calls: Close follows.
    std::function<void(const absl::Status& cause)> fail;
  };
  GroupEnd(GroupIdentity identity, Options options);
  // After Close is done.
  ~GroupEnd();
  GroupEnd(const GroupEnd&) = delete;
  GroupEnd& operator=(const GroupEnd&) = delete;

  const GroupIdentity& identity() const { return identity_; }

  // `done` comes once, maybe inside this call: from then on nobody reads the input or touches the
  // output. A call that does not pass CheckCall is none.
  void Start(GroupCall call, std::function<void(absl::Status)> done);

  // Whether calls are made directly where their memory can be lent: known once one was made.
  bool IsDirect() const { return direct_.stands().is_open(); }
  // By which the last collective was begun: "ring"; "" before the first.
  std::string_view last_algorithm() const { return last_algorithm_; }

  // Of this group, from a peer; an error closes the link.
  absl::Status HandleFrame(uint16_t peer, const GroupFrame& frame);

  // The program makes no calls any more. `left` once the other ranks have taken what its calls sent
  // them, maybe inside this call, or never if the group is closed before: a call that another rank
  // has not made, or not so, is found even if this one was done with it.
  void Leave(std::function<void()> left);

  // What the master is told of this rank.
  void Answer(int64_t number, control::RollAnswer& answer) const;

  // What is under way and all later calls get `reason`; `closed` once the memory of the calls and
  // the links are not used any more, maybe inside this call.
  void Close(const absl::Status& reason, std::function<void()> closed);

 private:
  struct Pending {
    GroupCall call;
    std::function<void(absl::Status)> done;
  };
  // What follows from a call's shape.
  struct PlannedCall {
    GroupCall call;  // one of that shape
    CollectiveSpec spec = {};
    std::vector<int64_t> blocks = {};                      // as of MakeChunkSchedule
    uint64_t shape = 0;                                    // ShapeOf
    std::optional<ChunkSchedule> schedule = std::nullopt;  // once one was made by it
    absl::Status fits = absl::OkStatus();                  // CheckAlgorithm
  };
  struct Landing {
    Memory memory;
    Link* link = nullptr;
    MemoryKey key;
  };

  absl::Status CheckSender(uint16_t peer, uint16_t from, uint16_t to) const;
  absl::Status HandleCollective(const CollectiveFrame& frame);
  // `then` once the link to a rank is there, maybe inside this call.
  void WithLink(int rank, std::function<void()> then);
  // A collective, when those before it are done.
  void Queue(GroupCall call, std::function<void(absl::Status)> done);
  // A collective of a window.
  void StartOfWindow(GroupCall call, std::function<void(absl::Status)> done);
  void StartNext();
  // Of the call that is now under way.
  PlannedCall* FindPlan();
  // The call that is now under way: directly, where the ranks can, or by a schedule.
  void Begin();
  // Whether all ranks are where links lend: the same on all of them.
  bool AreNear();
  // Sees to the links to all, and shows them this rank's stand; then Begin.
  void OpenStands();
  void RunDirectly();
  // Sees to the links of the schedule's hops; then Run.
  void Connect();
  void Run();
  std::function<void(int from, int64_t piece, const std::string& what)> OnUnexpected();
  std::function<Link*(int rank)> LinkTo() const;
  // By this rank or by others.
  int64_t FirstNotTaken();
  // Where the data of the call under way is.
  const std::byte* Input() const;
  std::byte* Output() const;
  int ranks() const { return static_cast<int>(identity_.nodes.size()); }
  // By the function of the call under way.
  absl::Status Reduce(void* dst, const void* a, const void* b, int64_t n) const;
  absl::Status MakeLanes();
  void OnDone(const absl::Status& status);
  void Look();
  void LookAtCall();
  void LookAtTransfers();
  void LookAtWindows();
  void LookAtUnexpected();
  void LookAtLeaving();
  void LookLater(Nanoseconds wait);
  control::RollCall RollCallOf(int64_t number) const;
  // The master, about a collective.
  void Ask(int64_t number, const std::string& evidence, Nanoseconds overdue,
           Nanoseconds waited = 0);
  void FinishClose();
  const std::string& name() const { return identity_.name; }

  const GroupIdentity identity_;
  const Options options_;
  const std::shared_ptr<LocalGroup> local_;
  std::map<int, Landing> landings_;  // by the rank that writes there
  // Of ranks that this one sends nothing to yet.
  std::map<int, CollectiveFrame> early_keys_, early_offers_;
  std::deque<Pending> waiting_;
  std::optional<Pending> running_;
  bool is_starting_ = false;                        // StartNext is under way
  int64_t number_ = -1;                             // of the call under way, or the last
  std::deque<std::pair<int64_t, GroupCall>> made_;  // the last calls that are done, for the master
  std::deque<PlannedCall> planned_;                 // the last shapes, the newest first
  PlannedCall* plan_ = nullptr;                     // of the call under way, or the last
  std::string_view last_algorithm_;
  std::optional<bool> are_near_;  // AreNear, once it is known
  const FallibleReduceFn reduce_ = [this](void* dst, const void* a, const void* b, int64_t n) {
    return Reduce(dst, a, b, n);
  };
  JoinedData joined_;  // of the call under way, if it is several
  Memory staging_;
  int64_t staging_bytes_ = 0;
  int links_missing_ = 0;
  Nanoseconds began_ = 0;
  int64_t seen_ = 0;  // events of the machines at the last Look
  std::optional<TimerId> look_;
  Nanoseconds look_due_ = 0;
  absl::Status closed_;
  std::optional<std::pair<int64_t, std::string>> unexpected_;  // of a collective, and what it was
  bool has_left_ = false;
  std::function<void()> on_closed_;
  int closing_ = 0;  // of transfers and windows: that are not closed
  // What Peers answers after this end has gone finds it false. Shared with the callbacks.
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
  int64_t calls_ = 0;  // that were started
  ChunkMachine machine_;
  DirectMachine direct_;
  Transfers transfers_;
  Windows windows_;
};

}  // namespace dist
}  // namespace braid
