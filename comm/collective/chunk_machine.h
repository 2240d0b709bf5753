// Works off chunk schedules: sends a member's items over lanes to other members, and works in what
// comes over theirs. A lane is the way from one member to another: slots that the sender fills in
// turn and the receiver frees. It lasts for any number of schedules, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/collective/chunk_schedule.h"
#include "comm/collective/collective.h"
#include "comm/collective/local_group.h"
#include "comm/transport.h"
#include "runtime/base/reactor.h"
#include "runtime/base/ring_buffer.h"

namespace braid {

// As ReduceFn, where it can go wrong.
using FallibleReduceFn =
    std::function<absl::Status(void* dst, const void* a, const void* b, int64_t n)>;

// For the cause of a failure that showed before it was told.
constexpr Nanoseconds kCausePatience = 5 * kSecond;

// Of landing slots.
int64_t AlignedSlot(int64_t bytes);

// One occurrence of a schedule. What it points at lasts until it is done.
struct ChunkWork {
  const ChunkSchedule* schedule = nullptr;
  int64_t piece = 0;
  uint64_t signature = 0;  // of all members the same: bytes of another one are never worked in
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* staging = nullptr;
  int64_t element_size = 1;
  ReduceFn reduce = nullptr;
  // In place of `reduce`. Its error fails the group, and nothing of its result is sent.
  const FallibleReduceFn* fallible_reduce = nullptr;
};

// An item travels thus: the sender takes a slot of the lane (to another node the slot is memory
// there, within the node just a number), sends it, and the receiver works it in when its turn comes
// and acknowledges the slot. An item has left its source when the Write is done, or within a node
// when it is acknowledged. A placed item goes to another node's output, which the receiver offers
// when it starts the piece and withdraws when it is done; nobody works it in or acknowledges it.
// A lent item stays where it is until it is acknowledged, as within a node.
//
// Everything happens on the reactor's thread, but for what says otherwise.
class ChunkMachine {
 public:
  struct Options {
    Reactor* reactor = nullptr;         // borrowed
    std::shared_ptr<LocalGroup> group;  // whose spec names the members
    int my_rank = 0;
    size_t most_events = 0;  // that wait for this member at a time; more are allowed
    Channel channel = Channel::kCollective;  // of its frames
    // `from` sent something that the piece under way does not expect: nothing is worked in any
    // more, and whoever hears it fails the group. `piece`: the first on which the two disagree.
    // Empty: the group fails with these words.
    std::function<void(int from, int64_t piece, const std::string& what)> on_unexpected;
  };
  explicit ChunkMachine(Options options);
  ~ChunkMachine();
  ChunkMachine(const ChunkMachine&) = delete;
  ChunkMachine& operator=(const ChunkMachine&) = delete;

  // `link`: null if the member is on this node, else outlives the lane. Before a schedule that uses
  // it is started.
  void AddSendLane(int to, Link* link, uint32_t slots, int64_t slot_bytes);
  void AddReceiveLane(int from, Link* link, uint32_t slots);
  bool HasSendLane(int to) const;
  bool HasReceiveLane(int from) const;
  // So that pieces of these many hops allocate nothing.
  void ReserveHops(size_t sends, size_t receives);

  // Where what happens to the member is put, from any thread.
  const std::shared_ptr<MemberInbox>& inbox() const { return inbox_; }

  // `done` comes once, maybe inside this call, and may destroy the machine or start the next piece.
  void Start(const ChunkWork& work, Collective::DoneCallback done);
  bool is_running() const { return is_running_; }
  // The first piece of which something was sent that another member has not worked in; -1: none.
  int64_t FirstNotTaken() const;
  // `taken` once, between pieces, when there is none, maybe inside this call; never if the group
  // fails before. In place of the one before.
  void WhenTaken(std::function<void()> taken);
  // What has happened to the member so far: it grows while there is progress.
  int64_t events() const { return events_; }

  // As a Collective's.
  std::vector<int> Awaits() const;
  int LastHeard() const { return last_heard_; }

 private:
  // An item that holds a slot.
  struct Outstanding {
    int64_t piece = 0;
    int64_t index = 0;
    uint32_t slot = 0;
    bool is_written = false;  // it has left its source
    bool is_acked = false;
    std::optional<MemoryKey> lent = {};  // to the receiver, until it has worked it in
  };
  // A Write that the link has not answered, one for each slot: what its callback points at.
  struct PendingWrite {
    ChunkMachine* machine = nullptr;
    int to = 0;
    int64_t number = 0;

    // The machine ends only when all are answered, which the event says.
    void Answer(absl::Status status) const;
  };
  struct SendLane {
    int to = 0;
    Link* link = nullptr;
    bool has_key = false;
    MemoryKey key;
    bool reads_lent = false;                                               // `to` does
    MemberEvent offer = {.type = MemberEvent::Type::kOffer, .piece = -1};  // the last
    uint64_t placed_bytes = 0;  // that the piece under way expects it to have
    uint32_t slots = 0;
    int64_t slot_bytes = 0;
    int64_t sent = 0;  // items since creation; the slot is this modulo their number
    RingBuffer<Outstanding> outstanding;  // the last ones of `sent`
    std::vector<PendingWrite> writes;     // by slot
  };
  struct ReceiveLane {
    int from = 0;
    Link* link = nullptr;
    uint32_t slots = 0;
    int64_t received = 0;              // items since creation
    RingBuffer<MemberEvent> arrivals;  // not yet worked in, maybe of a piece not yet started
    bool is_used = false;              // the piece under way still has items of it
  };
  // What the piece under way does with a lane.
  struct SendState {
    const SendHop* hop = nullptr;
    SendLane* lane = nullptr;
    size_t next = 0;   // item
    int64_t base = 0;  // `sent` when the piece began
  };
  struct ReceiveState {
    const ReceiveHop* hop = nullptr;
    ReceiveLane* lane = nullptr;
    size_t next = 0;
    std::optional<MemoryKey> offered = {};
  };

  std::string Name() const;
  void Handle(MemberEvent& event);
  SendLane& LaneTo(int rank);
  ReceiveLane& LaneFrom(int rank);
  void TakeAck(const MemberEvent& event);
  static void Retire(SendLane& lane);
  static int64_t NumWritten(const SendState& out);
  // Whether something is yet to leave its source: of what the link reads, or of what is lent, too.
  static bool HasUnwritten(const SendLane& lane, bool counts_lent = true);
  void Advance();
  void AdvanceBetweenPieces();
  // What a lane has brought of a piece that does not use it, or not any more. True if there was
  // any.
  bool RefuseUnexpected(const ReceiveLane& lane);
  bool RefuseAnyUnexpected();
  // For the piece under way, but of a call that is another one here.
  bool RefuseAnyOffer();
  // Whether it has come for the piece under way, and how it should.
  bool IsOffered(const SendLane& lane) const;
  absl::Status Offer(ReceiveState& in) const;
  // All that was offered or lent and is not used yet.
  void WithdrawAll();
  // Whether the item need not wait for its receiver's key or offer.
  bool HasTarget(const SendLane& lane, const SendItem& item) const;
  void Refuse(const MemberEvent& arrival, const std::string& what);
  bool AreWorkedIn(const ItemsBefore& before) const;
  // True if something was sent.
  bool SendReady(SendState& out);
  // What waits for items of this hop.
  void SendWhatAwaits(const ReceiveState& in);
  void Send(SendState& out, const SendItem& item);
  // False if the collective failed. Sets `has_moved` if something was worked in.
  bool ReceiveReady(ReceiveState& in, bool& has_moved);
  // False if it cannot be, for the collective failed.
  bool TakeIn(const ReceiveLane& lane, const MemberEvent& arrival, const ReceiveItem& item);
  // The sender of the item has taken it back: it failed, and why is on its way; or fail by that.
  void AwaitCause(const MemberEvent& arrival);
  absl::Status WorkIn(const ReceiveItem& item, const std::byte* data) const;
  void Acknowledge(const ReceiveLane& lane, const MemberEvent& arrival) const;
  absl::Status Reduce(std::byte* target, const std::byte* first, const std::byte* second,
                      int64_t bytes) const;
  const std::byte* Source(ChunkBuffer buffer) const;
  std::byte* Target(ChunkBuffer buffer) const;
  void Finish(absl::Status status);

  const Options options_;
  LocalGroup& group_;
  const std::shared_ptr<MemberInbox> inbox_;
  // In the order of their making: pointers to them stay.
  std::vector<std::unique_ptr<SendLane>> send_lanes_;
  std::vector<std::unique_ptr<ReceiveLane>> receive_lanes_;
  std::vector<SendState> sends_;
  std::vector<ReceiveState> receives_;

  ChunkWork work_ = {.piece = -1};  // under way, or the last
  bool has_failed_ = false;
  bool is_running_ = false;
  bool is_refused_ = false;  // what came is not to be worked in
  std::optional<TimerId> awaits_cause_;
  int last_heard_ = -1;
  int64_t events_ = 0;
  Collective::DoneCallback done_;
  std::function<void()> when_taken_;
};

}  // namespace braid
