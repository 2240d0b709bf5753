// The members' ends of one collective on one node: where they find each other, share the first
// failure, and meet. Owned together by these ends and the hub.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "comm/collective/collective.h"
#include "comm/collective/collective_frame.h"
#include "comm/collective/posted_queue.h"
#include "comm/transport.h"
#include "runtime/base/mutex.h"

namespace braid {

// What happens to a member's end; handled on its reactor's thread.
struct MemberEvent {
  enum class Type : uint8_t {
    kKey,      // `peer` on another node lets this member write: key; and reads_lent
    kChunk,    // `peer` sent item `index` of `piece`; the bytes are at `data`, or lent by `token`
    kAck,      // `peer` has worked in item `index` of `piece`, which was in `slot`
    kOffer,    // `peer` on another node lets this member write into its output of `piece`: key
    kWritten,  // this member's write number `index` to `peer` has left its source; or `status`
    kMet,      // all members of the node have arrived; `index` is 1 if the piece is done, too
    kFailed,   // nobody touches this member's memory any more; the reason is the group's status
  };
  Type type = Type::kFailed;
  int peer = 0;  // rank
  uint32_t slot = 0;
  int64_t piece = 0;
  int64_t index = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  uint64_t signature = 0;  // kChunk, kOffer: ChunkWork::signature
  MemoryKey key = {};
  uint64_t token = 0;       // kChunk: 0 if it is not lent
  bool reads_lent = false;  // kKey: `peer` can read what this member lends
  absl::Status status = {};
};

using MemberInbox = PostedQueue<MemberEvent>;

// What a frame, which was checked, means for the member that it is to. `data`: the landing slot
// that a chunk names; else null.
MemberEvent EventOf(const CollectiveFrame& frame, const std::byte* data = nullptr);

// Memory of a member into which one member of another node writes: `slots` slots of `slot_bytes`.
struct Landing {
  int from = 0;  // rank
  const std::byte* memory = nullptr;
  MemoryKey key = {};
  uint32_t slots = 0;
  int64_t slot_bytes = 0;
  uint64_t fingerprint = 0;  // HopFingerprint
  bool reads_lent = false;   // what `from` lends
};

// What a member joins with. Constant afterwards.
struct LocalMember {
  std::shared_ptr<MemberInbox> inbox;
  std::vector<Landing> landings;  // one for each member of another node that writes here
  // Members of other nodes to which this one writes, into slots of this number and size.
  struct Target {
    int to = 0;
    uint32_t slots = 0;
    int64_t slot_bytes = 0;
    uint64_t fingerprint = 0;  // HopFingerprint
  };
  std::vector<Target> targets;
  std::vector<int64_t> counts, receives;  // all_to_all: of its spec
};

class LocalGroup {
 public:
  // `spec.my_rank` and an all_to_all's counts do not matter.
  LocalGroup(CollectiveSpec spec, uint16_t node);

  const CollectiveSpec& spec() const { return spec_; }
  int num_local() const { return num_local_; }
  bool IsLocal(int rank) const { return spec_.members[rank].node == node_; }

  // Any thread, all of them. Destroyed members Leave; events for them are dropped.
  void Join(int rank, LocalMember member);
  void Leave(int rank);
  std::shared_ptr<const LocalMember> Find(int rank) const;  // null: has not joined, or left
  bool HasJoined(int rank) const;                           // also if it left since
  bool is_deserted() const;                                 // all local members joined and left
  void Push(int rank, MemberEvent event) const;

  // Around all that touches another member's memory. False: the group failed, nothing may be
  // touched.
  bool BeginRead();
  void EndRead();

  // The first failure counts. Once no read is under way every member gets kFailed, and its memory
  // is its owner's again.
  void Fail(const absl::Status& status);
  absl::Status status() const;

  // True for the last of the local members, which then does what is to be done once and calls Meet:
  // all the others get kMet.
  bool Arrive(int rank);
  // The local members that have not arrived.
  std::vector<int> Missing() const;
  void Meet(int rank, bool is_done = false) const;

  // What a member starts a piece with; its own entry is written before it arrives, the others' are
  // read after.
  struct Station {
    int64_t piece = 0;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  std::vector<Station>& stations() { return stations_; }

 private:
  void NotifyFailed() const;

  const CollectiveSpec spec_;
  const uint16_t node_;
  int num_local_ = 0;
  mutable Mutex mutex_;
  // Null: it has left.
  std::map<int, std::shared_ptr<const LocalMember>> members_ BRAID_GUARDED_BY(mutex_);
  absl::Status status_ BRAID_GUARDED_BY(mutex_);
  int reading_ BRAID_GUARDED_BY(mutex_) = 0;
  std::vector<bool> has_arrived_ BRAID_GUARDED_BY(mutex_);
  int arrived_ BRAID_GUARDED_BY(mutex_) = 0;
  std::vector<Station> stations_;
};

}  // namespace braid
