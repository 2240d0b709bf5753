// The job as executed. A TaskGroup stands for one task per rank of its placement, a Register for
// the memory that such tasks fill; shapes and offsets are functions of the rank. Passes therefore
// cost the same for 4 devices and for 4,096: only expand looks at single ranks, and only at
// those of one node.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "compiler/plan/node_kinds.h"
#include "graph/attrs.h"
#include "graph/logical_graph.h"
#include "graph/placement.h"
#include "graph/sbp.h"
#include "runtime/base/collective_kind.h"
#include "runtime/base/memory.h"
#include "runtime/base/stream_kind.h"

namespace braid::compiler {

using GroupId = int32_t;
using GroupRegisterId = int32_t;

// How one logical tensor is laid over a placement and over the micro-batches of a step.
struct TensorLayout {
  TensorType type;  // logical: whole tensor, whole batch
  NdSbp sbp;
  Sbp micro_batch_sbp = sbp::B;  // S(axis), B or P over the micro-batches; B if there is one
  int micro_batches = 1;

  std::string ToString() const;  // "f32[64, 512] S(0)" or "f32[64, 512] S(0) micro_batches=S(0)/8"
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// The box that `rank` holds in micro-batch 0, in logical coordinates (micro-batch t's box is
// moved along the axis that micro_batch_sbp splits by t * size / micro_batches), and its dense
// bytes.
Region RegionOf(const TensorLayout& layout, const Placement& placement, int rank);
Region RegionOf(const TensorLayout& layout, const Placement& placement,
                std::span<const int64_t> coordinate);
int64_t BytesOf(const TensorLayout& layout, const Placement& placement, int rank);
// The most that any rank holds (rank 0: first parts are the largest).
int64_t MaxBytesOf(const TensorLayout& layout, const Placement& placement);

// A tensor inside a register's slot. Offsets are the same on every rank.
struct Part {
  TensorLayout layout;
  int64_t offset = 0;    // bytes from the slot's start; a multiple of 64
  std::string variable;  // not "": the bytes are this variable's in the variable store
  std::string name;      // of the logical tensor, for reports
};

// Memory of n slots on every device of a placement. No parts: a control edge.
struct Register {
  GroupRegisterId id = kNone;
  std::string name;
  Placement placement;
  std::vector<Part> parts;
  GroupId producer = kNone;
  int slots = 1;
  int period = 1;                        // acts of the producer that fill one slot
  int initial_tokens = 0;                // slots that are ready before the first act
  int least_slots = 1;                   // assign_slots gives it no fewer
  bool is_by_lane = false;               // a push fills it: see Exchange::Lanes
  int64_t slot_bytes = 0;                // set with the parts' offsets
  int64_t stride = 0;                    // from slot to slot: slot_bytes, until plan_memory puts
                                         // slots of others between
  MemoryKind memory = MemoryKind::kOwn;  // or kPinned: see stage_through_host
  int64_t offset = -1;                   // in that arena of the device: set by plan_memory
  bool is_control() const { return parts.empty(); }
  bool has_memory() const;  // in the arena: variables have their own, and what comes by lanes
  // From its first byte to the end of its last slot.
  int64_t span_bytes() const { return (slots - 1) * stride + slot_bytes; }
};

struct GroupInput {
  GroupRegisterId reg = kNone;
  int period = 1;  // acts of this group that one slot serves
};

// Where a kernel finds an operand.
struct OperandRef {
  enum class Source : uint8_t { kInput, kOutput, kScratch, kServed };
  Source source = Source::kInput;
  int index = 0;  // of TaskGroup::inputs / outputs, or of Compute::scratch / served
  int part = 0;   // of that register (0 for scratch and what is served)
  friend bool operator==(const OperandRef&, const OperandRef&) = default;
};

// One operator of a group.
struct KernelCall {
  std::string op;    // OpDef name
  std::string name;  // the op's name
  Attrs attrs;
  SourceLocation location;
  std::vector<OperandRef> inputs, outputs;
  std::vector<TensorLayout> input_layouts, output_layouts;
};

// A tensor that only kernels of one group use; unless it is kept, it lives within one act.
struct Scratch {
  TensorLayout layout;
  int64_t offset = -1;   // in the stream's scratch area: set by plan_memory
  bool is_kept = false;  // in what the job keeps on the device instead: see keep_steady
};

// Kernels [begin, end) of a compute group that may take turns, each doing one part of its elements
// after another, so that what one makes the next finds in the cache. What only they read of what
// they make need not leave it: every part of such scratch lies where the first one does. A rank
// whose kernels have no such parts runs them one after another.
struct Turns {
  int begin = 0, end = 0;
  int64_t part = 0;          // elements at a time
  std::vector<int> staying;  // of Compute::scratch, ascending
  friend bool operator==(const Turns&, const Turns&) = default;
};

// What a group does is one of these.

// A variable of an asynchronous server, which its update overwrites while workers hold older
// values.
struct ServedVariable {
  std::string name;
  TensorLayout layout;
};

// Kernels on each rank's device, also readers, feeds and fetches.
struct Compute {
  std::vector<KernelCall> kernels;
  std::vector<Scratch> scratch;
  std::vector<ServedVariable> served;
  // Not 0: an asynchronous server. Its tasks act once a step for each of so many workers, when what
  // that worker pushes is there: input 0 comes by lanes.
  int lanes = 0;
  std::vector<Turns> turns;  // in order, without common kernels; set by take_turns
};

// What goes from input 0 to output 0.
struct Movement {
  int part = 0;                      // of input 0
  TensorLayout source, destination;  // the part's layout, and what the output holds
  Sbp::Kind reduction = Sbp::Kind::kPartialSum;
};

// Any layout on any placement to any other, as moves of boxes. The source placement is the input
// register's.
struct Exchange {
  // Between an asynchronous server, where variables are, and its workers. Every box has a task of
  // its own at its source, on the compute stream, which goes when it may and not when others do:
  // - a pull copies a variable's box as it is at that moment, between two updates, to a worker. The
  //   worker's next pull waits for its own push before (the control edges into it);
  // - a push brings a worker's addend to the server as that worker's lane. The tasks of the groups
  //   that read its output, which has no memory, read the landing slots.
  enum class Lanes : uint8_t { kNone, kPull, kPush };
  Movement movement;
  Lanes lanes = Lanes::kNone;
};

// All ranks of one dimension of the hierarchy act together. Both registers are flat lists of equal
// parts taken as one vector (a bucket, all_reduce only), or the part alone; see
// boxing/collective_rules.cc for blocks.
struct Collective {
  Movement movement;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int hierarchy_dim = -1;  // whose ranks act together; -1: all ranks
  // How members do it that are all on one node, how those that NumHostsAlike says are on several
  // hosts, and how others; by choose_methods.
  CollectiveMethod on_one_node = {.algorithm = CollectiveAlgorithm::kDirect};
  CollectiveMethod between_nodes;
  CollectiveMethod between_hosts;
};

// The owner of variables' bytes, which the parts of output 0 name.
struct VariableOwner {
  std::vector<KernelCall> kernels;  // one a variable: none runs, their attributes say how it begins
};

// Input 0's bytes go to output 0, between the device's own memory and the host's.
struct Staging {};

struct TaskGroup {
  GroupId id = kNone;
  std::string name;
  Placement placement;  // of the tasks; of an exchange: the destination
  StreamKind stream = StreamKind::kCompute;
  int acts_per_step = 1;
  // It acts when nothing else on its thread can; set by defer_groups.
  bool is_deferrable = false;
  std::vector<GroupInput> inputs;
  std::vector<GroupRegisterId> outputs;
  std::variant<Compute, Exchange, Collective, VariableOwner, Staging> work;
  SourceLocation location;  // of the (first) op, for messages

  template <typename Work>
  bool is() const {
    return std::holds_alternative<Work>(work);
  }
  // Of an asynchronous server's tasks: how many workers push; else 0.
  int lanes() const;
  Exchange::Lanes exchange_lanes() const;  // kNone unless it is such an exchange
  // Of an exchange or a collective; else null.
  const Movement* movement() const;
  Movement* movement();
  // Of a compute group or an owner of variables; else none.
  std::span<const KernelCall> kernels() const;
  std::span<KernelCall> kernels();
};

// Of parts, registers, landing slots and scratch: a cache line, and the widest vector load. Bytes.
constexpr int64_t kArenaAlignment = 64;
constexpr int64_t AlignInArena(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Bytes from the start of its stream's scratch area in which the group's scratch lies, on the rank
// that holds the most.
int64_t EndOfScratch(const TaskGroup& group);
// The same of what the group keeps, from the start of what the job keeps on a device.
int64_t EndOfKept(const TaskGroup& group);
class PhysicalGraph;
// The most of any device.
int64_t KeptBytes(const PhysicalGraph& graph);

class PhysicalGraph {
 public:
  // Whether output 0 of the group may lie where its input 0 lies, if only this group reads that: an
  // all_reduce of a whole register can work in place.
  bool MayActInPlace(GroupId id) const;

  TaskGroup& AddGroup(TaskGroup group);  // sets its id
  Register& AddRegister(Register reg);   // sets its id
  const std::vector<TaskGroup>& groups() const { return groups_; }
  const std::vector<Register>& registers() const { return registers_; }
  TaskGroup& group(GroupId id) { return groups_[id]; }
  const TaskGroup& group(GroupId id) const { return groups_[id]; }
  Register& reg(GroupRegisterId id) { return registers_[id]; }
  const Register& reg(GroupRegisterId id) const { return registers_[id]; }
  // Replaces all groups and registers that `keep_*` say no to and renumbers both.
  void Prune(const std::vector<bool>& keep_groups, const std::vector<bool>& keep_registers);
  // (group, input index) that read each register, in group order.
  std::vector<std::vector<std::pair<GroupId, int>>> Consumers() const;
  // A zero-byte register from one group to another: `to` waits for `from`, or, with an initial
  // token, for `from`'s previous act. `pieces`: in how many equal parts both divide their acts of a
  // step; 0: in as many as they can.
  void AddControlEdge(GroupId from, GroupId to, int initial_tokens, int pieces = 0);
  // Groups in an order in which inputs without initial tokens come first; INTERNAL naming a cycle.
  absl::StatusOr<std::vector<GroupId>> TopologicalOrder() const;
  // Lays the parts of every register out (offsets, slot_bytes).
  void LayOutParts();

  std::string job;
  int num_nodes = 1;
  NodeKinds kinds;
  std::vector<uint32_t> hosts;  // what each node counts to for hierarchical; empty: all to one
  int micro_batches = 1;
  uint64_t seed = 0;               // of the job's random numbers
  bool writes_variables = true;    // or it is not known yet; of no use in a plan
  std::vector<std::string> notes;  // explanations by passes: choices, their alternatives and costs

  // What locations borrow in a graph that was decoded; else null.
  std::shared_ptr<const std::vector<std::string>> texts;

  uint32_t HostOf(int node) const { return hosts.empty() ? 0 : hosts[node]; }

  std::string ToString() const;  // one line a group and register; see physical_graph_test.cc

 private:
  std::vector<TaskGroup> groups_;
  std::vector<Register> registers_;
};

// "'fc1' (matmul 'fc1.matmul', train.cc:12)": a group as users know it.
std::string DescribeGroup(const PhysicalGraph& graph, GroupId id);

}  // namespace braid::compiler
