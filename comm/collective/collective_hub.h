// One node's collectives: makes the members' ends, exchanges the keys of their landing slots with
// other nodes, and routes the collective frames of the node's Links to them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/collective/collective.h"
#include "comm/collective/collective_frame.h"
#include "comm/collective/local_group.h"
#include "comm/transport.h"
#include "runtime/base/ids.h"
#include "runtime/base/memory.h"
#include "runtime/base/mutex.h"

namespace braid {

// Order of use: AddLink for every peer; Create every local member; Connect, once on every node and
// again after more were created; then Start. What is created after a Connect has higher ids than
// all before it, on every node: so the hub knows a late frame without a list of what has ended.
//
// Outlives the Collectives; the Links outlive them, too.
// All calls may come from any thread.
class CollectiveHub {
 public:
  explicit CollectiveHub(uint16_t node) : node_(node) {}

  // Borrows `link`. The owner gives the frames of Channel::kCollective to HandleFrame and the end
  // of the Link to LinkClosed.
  void AddLink(uint16_t peer, Link* link);

  // The end of member `spec.my_rank`, which lives on this node, computes on `reactor`, and takes
  // the memory for landing slots and staging by `allocate`. Errors say what is wrong with the spec,
  // or how it differs from that of another member of this node.
  absl::StatusOr<std::unique_ptr<Collective>> Create(const CollectiveSpec& spec, Reactor& reactor,
                                                     AllocateMemory allocate);

  // Exchanges keys for everything created since the last call. `done` comes exactly once, from any
  // thread, maybe inside this call: OK when all peers of these collectives have sent theirs.
  void Connect(std::function<void(absl::Status)> done);

  // An error means that the frame is wrong: the owner closes the Link with it.
  absl::Status HandleFrame(uint16_t peer, std::span<const std::byte> frame);

  // Ends every collective that has a member on `peer`, and Connects that wait for it.
  void LinkClosed(uint16_t peer, const absl::Status& status);

  // Ends everything, also what is created later.
  void Abort(const absl::Status& status);

 private:
  // (collective, rank of the writer, rank of the one whose memory it is).
  using Hop = std::tuple<CollectiveId, int, int>;
  struct PendingConnect {
    int missing = 0;  // keys; and one while Connect itself runs
    std::function<void(absl::Status)> done;
  };
  struct AwaitedKey {
    uint16_t peer = 0;
    std::shared_ptr<PendingConnect> connect;
  };
  struct EarlyKey {
    uint16_t peer = 0;
    CollectiveFrame frame;
  };

  struct LinkState {
    Link* link = nullptr;
    absl::Status closed;  // OK: it is open
  };

  // Whether all members here have left: late acknowledgements for it are no error.
  bool IsOver(CollectiveId id) const BRAID_REQUIRES(mutex_) {
    return id < next_ && !groups_.contains(id);
  }
  absl::Status HandleKey(uint16_t peer, const CollectiveFrame& frame);
  // Fails the members: nobody here writes where the key would let them.
  absl::Status RefuseKey(LocalGroup& group, uint16_t peer, const CollectiveFrame& frame) const;
  // Gives a peer's key to the member that it is for.
  absl::Status TakeKey(LocalGroup& group, const CollectiveFrame& frame) const;
  // One thing less to wait for, or an error. Not under mutex_.
  void Progress(const std::shared_ptr<PendingConnect>& connect, const absl::Status& status);

  const uint16_t node_;
  Mutex mutex_;
  std::map<uint16_t, LinkState> links_ BRAID_GUARDED_BY(mutex_);
  std::map<CollectiveId, std::shared_ptr<LocalGroup>> groups_ BRAID_GUARDED_BY(mutex_);
  // All ids below were there at a Connect.
  CollectiveId next_ BRAID_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<std::shared_ptr<LocalGroup>, int>> unconnected_ BRAID_GUARDED_BY(mutex_);
  std::map<Hop, AwaitedKey> awaited_ BRAID_GUARDED_BY(mutex_);
  std::map<Hop, EarlyKey> early_ BRAID_GUARDED_BY(mutex_);  // came before this node's Connect
  absl::Status aborted_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
