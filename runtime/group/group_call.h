// One call of a process group as one rank makes it: which collective of comm/ carries it out, what
// of it must be the same on all ranks, and how it is said in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "comm/collective/collective.h"
#include "graph/source_location.h"
#include "runtime/base/reactor.h"
#include "runtime/group/element_type.h"

namespace braid {

namespace control {
class GroupCall;
}  // namespace control

namespace dist {

struct GroupBatch;

enum class CallKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kGather,
  kReduceScatter,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,  // of one rank to another, as is
  kReceive,
  kMakeWindow,  // of all ranks, as are a window's fence and its close
  kPut,         // of one rank
  kGet,
  kWaitSignal,
  kFence,
  kCloseWindow,
  kDropWindow,  // of one rank, without the others
};
std::string_view NameOf(CallKind kind);  // "all_reduce"

// What all ranks of a group know alike.
struct GroupIdentity {
  uint64_t id = 0;              // in the world
  std::string name;             // "the world", "group 2 of ranks 0, 3"
  std::vector<uint16_t> nodes;  // by rank
  int my_rank = 0;
  std::optional<CollectiveAlgorithm> algorithm = std::nullopt;  // in place of the table's
  std::vector<uint32_t> hosts = {};  // by rank, equal for those on one machine; empty: all on one
};

// A window of a group, as the calls of one rank name it.
struct WindowHandle {
  std::string name;             // the user's
  std::byte* memory = nullptr;  // of this rank
  int64_t bytes = 0;
  // In the group, from 1; 0: it was not begun. Given and read on the node's control thread.
  uint32_t number = 0;
};

struct GroupCall {
  CallKind kind = CallKind::kAllReduce;
  ElementType type = ElementType::kF32;
  int64_t element_size = 4;
  ReduceOp op = ReduceOp::kSum;                              // of those that compute
  std::shared_ptr<const ReduceFunction> function = nullptr;  // in place of `op`
  int root = -1;                                             // of those that have one
  // In elements, by rank. All reduce, reduce and broadcast: one, the whole. Gather, scatter and
  // all_to_all: what this rank sends to each; the others: the blocks.
  std::vector<int64_t> counts;
  std::vector<int64_t> receives;  // gather, scatter and all_to_all: what it gets from each
  std::string name = {};          // the user's; must be the same on all ranks
  SourceLocation where = {};      // may differ
  const void* input = nullptr;
  void* output = nullptr;
  std::shared_ptr<const void> keeps = nullptr;  // lasts until the call is done
  Nanoseconds timeout = 0;
  int peer = -1;  // send, receive, put and get: the other rank
  int tag = 0;    // send and receive
  // Of the calls of windows; the program and the group have it together.
  std::shared_ptr<WindowHandle> window = nullptr;
  int64_t offset = 0;    // put and get: in elements, in the other rank's memory
  int signal = -1;       // put: -1 is none; wait_signal
  int64_t at_least = 0;  // wait_signal
  // The program's thread that uses the group makes no other call of it before this one is done.
  bool is_blocking = false;
  // If it is made in a batch (group_batch.h): the batch's calls that this one is, by their place
  // there. Of several, `counts` are the sums, and each has data of its own.
  std::shared_ptr<const GroupBatch> batch = nullptr;
  std::vector<int> parts = {};
};

bool Computes(CallKind kind);
bool HasRoot(CallKind kind);
// The call as reports need it, when it is done: nothing of the program's is kept any longer.
GroupCall Remembered(GroupCall call);
// What one rank sends another is known to these two only.
bool IsPairwise(CallKind kind);
// A call between two ranks, of which the others know nothing; beside the group's other calls.
bool IsTransfer(CallKind kind);
// A call of one rank, which no other answers; beside the group's other calls.
bool IsOneSided(CallKind kind);

// What is wrong with the call by itself; OK if it can be started.
absl::Status CheckCall(const GroupCall& call, int ranks);

// The collective that does it, unless it is a transfer or one-sided: a reduce is a reduce_scatter
// whose one block is the root's, gather and scatter are all_to_alls of which one side is empty, a
// barrier gathers a byte of each, as do a window's fence and close; its making gathers sizes. What
// is only moved is counted in bytes, so that chunks fit into a lane's slots whatever the elements
// are.
CollectiveSpec SpecOf(const GroupCall& call, const GroupIdentity& group);
// With more ranks, each would have to look at too many stands and keep too many links.
constexpr int kMostDirectRanks = 16;
// Whether the group's algorithm lets its ranks make calls in each other's memory, if they can.
bool MayBeDirect(const GroupIdentity& group);
// Whether the algorithm that the group has in place of the table's, if any, can do this.
// `are_near`: the ranks can make calls directly.
absl::Status CheckAlgorithm(const GroupIdentity& group, const CollectiveSpec& spec, bool are_near);

// The same on both ranks, whichever of them sends, if the calls fit together.
uint64_t TransferSignatureOf(const GroupCall& call, uint64_t group);

// Appends what the ranks must say alike of a call by itself.
void AppendSubject(const GroupCall& call, std::string& text);
// Equal for calls that fit together, as far as one rank can tell.
uint64_t SignatureOf(const GroupCall& call, uint64_t group, int64_t number);
// Of a call's shape: the signature of the one with this number.
uint64_t NumberedSignature(uint64_t shape, int64_t number);
uint64_t ShapeOf(const GroupCall& call, uint64_t group);
// True only if both have the same spec and shape; a call of a window, of a batch or by a function
// has that of no other.
bool HaveSameShape(const GroupCall& a, const GroupCall& b);

// "all_reduce of 4 f32, sum (train.cc:12)".
std::string Describe(const GroupCall& call);

void Encode(const GroupCall& call, uint64_t group, int64_t number, control::GroupCall& message);
// What Encode leaves out: the calls of its batch, so that one that differs can be named.
void EncodeBatch(const GroupCall& call, control::GroupCall& message);

}  // namespace dist
}  // namespace braid
