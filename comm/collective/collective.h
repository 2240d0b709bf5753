// Group operations over the members of several nodes: what a member's end is told and promises. The
// ends are made by a CollectiveHub (collective_hub.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/collective_kind.h"
#include "runtime/base/ids.h"

namespace braid {

// dst = a op b, for n elements; dst may be a or b. The caller binds type and operation.
using ReduceFn = void (*)(void* dst, const void* a, const void* b, int64_t n);

struct Member {
  uint16_t node = 0;
  uint32_t device = 0;  // which of the node's; only told apart, never used
  uint32_t host = 0;    // where the node is, by any number; for kHierarchical

  bool operator==(const Member&) const = default;
};

// The same on all members but for `my_rank`, an all_to_all's counts, and the address of `reduce`.
struct CollectiveSpec {
  CollectiveId id = 0;    // unique in the cluster, for ever
  std::string name = {};  // the op's, so that members of different ops never meet; may be empty
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<Member> members;  // in rank order
  int my_rank = 0;
  int64_t element_size = 0;  // bytes
  // Elements a block; zero and unequal ones are fine.
  //   all_reduce, broadcast: one, the whole.
  //   all_gather: counts[r] is r's input; the output is all blocks in rank order.
  //   reduce_scatter: the input is all blocks in rank order; counts[r] is r's output.
  //   all_to_all: counts[r] go to r, `receives[r]` come from r; blocks in rank order. What one
  //   sends is what the other receives.
  std::vector<int64_t> counts;
  std::vector<int64_t> receives;  // all_to_all only
  ReduceFn reduce = nullptr;      // all_reduce and reduce_scatter
  int root = 0;                   // broadcast
  int64_t chunk_bytes = CollectiveMethod{}.chunk_bytes;
  CollectiveAlgorithm algorithm = CollectiveMethod{}.algorithm;
  // Where a ring moves at least that many bytes, what is only moved goes straight to the receiver's
  // output: the receiver has nothing to copy, and says first where that is. Of an all_to_all the
  // bytes from one member to another.
  int64_t place_from = int64_t{256} << 10;
  // What a ring moves from memory that the receiver maps is not moved first if it is at least that
  // many bytes at a time: the receiver reads it where it lies.
  int64_t lend_from = int64_t{16} << 10;
};

std::vector<uint32_t> HostsOf(const CollectiveSpec& spec);  // of the members

// Of CollectiveSpec::counts.
size_t NumCounts(CollectiveKind kind, size_t members);

// OK if the spec can be carried out, else what is wrong with it.
absl::Status CheckCollective(const CollectiveSpec& spec);

// Memory that a member's end allocates for itself (landing slots and staging), in bytes.
int64_t CollectiveMemoryBytes(const CollectiveSpec& spec);

// One member's end. It belongs to the reactor it was created with: Start comes from that thread,
// the arithmetic happens there, `done` is called there, and it is destroyed there, with no Start
// under way.
//
// Results are the same bits on every run and for every order of events: the ring adds block b in
// the order of ranks b+1, b+2, ..., b; hierarchical adds block b on each host in the order of its
// members from the one in b's place on, and these sums in the order of hosts from the one after b's
// on; doubling adds as the ring does; the other algorithms add in rank order.
// All members get the same bits.
class Collective {
 public:
  using DoneCallback = std::function<void(absl::Status)>;

  virtual ~Collective() = default;

  // Takes part in the operation's occurrence `piece`: every member starts the same pieces in the
  // same order, one after the other's done. `done` is called exactly once, maybe inside this call:
  // from then on nobody reads `input` or touches `output`. Output may equal input for all_reduce
  // and broadcast, or contain it at its own block's place for all_gather; for reduce_scatter the
  // output may be the own block of the input. Broadcast reads only the root's input; elsewhere it
  // may be null.
  virtual void Start(int64_t piece, const void* input, void* output, DoneCallback done) = 0;

  // For reports, on the reactor's thread. The ranks whose frames or arrival the piece under way
  // waits for; empty if none is.
  virtual std::vector<int> Awaits() const = 0;
  // The rank from which something came last; -1: none yet.
  virtual int LastHeard() const = 0;

  // Ends the collective on this node: Starts under way here and later ones get `reason`. The first
  // reason counts. Any thread.
  virtual void Abort(absl::Status reason) = 0;
};

}  // namespace braid
