// One node's part of a Plan, expanded: all that its runtime is told. expand.h makes it on the node,
// and it never leaves it. It borrows the layouts, the calls and the variables' names of the graph
// that it was made from, which must outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/plan/physical_graph.h"
#include "graph/dtype.h"
#include "graph/sbp.h"
#include "runtime/base/collective_kind.h"
#include "runtime/base/ids.h"

namespace braid::plan {

// Where an actor lives and which one it is. `task` is unique in the plan.
struct ActorId {
  uint32_t node = 0;
  uint32_t thread = 0;  // ThreadOf its device and stream
  uint32_t task = 0;

  friend bool operator==(const ActorId&, const ActorId&) = default;
};

// A tensor's box on one device in micro-batch 0; memory is dense.
struct Shard {
  const compiler::TensorLayout* layout = nullptr;
  Region region;
};

// Bytes of a register on one device: slot s has `bytes` bytes from offset + s * stride of the
// device's arena of that kind on.
struct Memory {
  uint32_t device = 0;
  MemoryKind kind = MemoryKind::kOwn;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t stride = 0;
};

struct Input {
  uint32_t reg = 0;
  ActorId producer;
  uint32_t slots = 0;
  uint32_t period = 0;
  uint32_t initial_tokens = 0;
  int32_t lane = kNoLane;        // whose acts alone use it
  std::optional<Memory> memory;  // absent: a control edge or a register of variables
};

struct Output {
  uint32_t reg = 0;
  uint32_t slots = 0;
  uint32_t period = 0;
  uint32_t initial_tokens = 0;
  int32_t lane = kNoLane;  // whose acts alone fill it
  std::vector<ActorId> consumers;
  std::optional<Memory> memory;
};

// Where an operand's bytes are.
struct Operand {
  enum class Source : uint8_t {
    kInput,
    kOutput,
    kScratch,   // `offset` in the stream's scratch area; the task's next act may find other bytes
    kKept,      // `offset` in what the job keeps on the device, which stays until it is written
    kVariable,  // `variable` in the variable store
  };
  Source source = Source::kInput;
  uint32_t index = 0;   // of the task's inputs or outputs; which scratch; a variable's device
  uint64_t offset = 0;  // bytes from the slot's start, in the scratch area or in what is kept
  std::string_view variable;
  Shard shard;
};

struct Kernel {
  const compiler::KernelCall* call = nullptr;
  std::vector<Operand> inputs, outputs;
  bool contributes = true;  // this and the next three as in KernelSpec
  int64_t replica = 0;
  int64_t replicas = 1;
  int64_t mirror = 0;
};

struct Compute {
  std::vector<Kernel> kernels;
  std::span<const compiler::Turns> turns;  // of these kernels
};

// Boxes copied or added into one operand; what none covers is zero.
struct Copy {
  struct Move {
    Operand source;  // its shard says which box the source bytes hold
    Region box;      // what moves, in logical coordinates
    bool add = false;
  };
  Operand destination;
  std::vector<Move> moves;
  bool zero_first = false;  // some element of the destination is covered by no move
  Sbp::Kind reduction = Sbp::Kind::kPartialSum;  // of `add`
};

// Bytes copied between a device's own memory and the host's.
struct Staging {
  struct Part {
    Operand from, to;  // of equal shards
  };
  std::vector<Part> parts;
};

// A box of input 0 goes into the landing slot, output 0, on another node. (Inside a node, a pull or
// a push is a Copy into the landing slot.)
struct Transfer {
  Operand source;
  Region box;
  uint32_t peer = 0;  // the node where output 0's memory is
  uint64_t bytes = 0;
  // Where a box that is not one run of bytes is packed first.
  std::optional<Memory> staging;
  uint64_t landing = 0;  // bytes from the landing slot's start
};

struct Collective {
  uint32_t id = 0;  // from 0 on in the job
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  uint32_t members = 0;  // which of NodePlan::members
  uint32_t rank = 0;
  DType dtype = DType::kF32;
  Sbp::Kind reduction = Sbp::Kind::kPartialSum;
  std::vector<int64_t> counts, receives;  // those of the CollectiveSpec
  Operand input, output;
  uint64_t chunk_bytes = 0;

  // All but its name, where its operands lie and how it adds up: what is sent and which memory it
  // takes is that of every other collective of these.
  using Shape = std::tuple<CollectiveKind, CollectiveAlgorithm, uint32_t, uint32_t, DType,
                           std::vector<int64_t>, std::vector<int64_t>, uint64_t>;
  Shape shape() const {
    return {kind, algorithm, members, rank, dtype, counts, receives, chunk_bytes};
  }
};

// A variable's bytes on this device; made when absent, else they must agree.
struct Variable {
  std::string_view name;
  Shard shard;
  const Attrs* init = nullptr;  // of the variable's op; null: none, the bytes must be there
};

struct VariableOwner {
  std::vector<Variable> variables;
};

struct Task {
  ActorId id;
  std::string_view name;  // its group's
  uint32_t device = 0;
  StreamKind stream = StreamKind::kCompute;  // of the device
  uint32_t acts_per_step = 0;
  uint32_t lanes = 0;          // it acts for one of them (an asynchronous server's); 0: it has none
  bool is_deferrable = false;  // acts when nothing else on its thread can
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::variant<Compute, Copy, Staging, Transfer, Collective, VariableOwner> work;
};

struct Arena {
  uint32_t device = 0;
  std::string device_type;
  uint64_t bytes = 0;           // of the device's own: registers, landing slots and staging
  uint64_t pinned_bytes = 0;    // of the host's: the same
  uint64_t variable_bytes = 0;  // what this job's variables take here, for reports
  uint64_t kept_bytes = 0;      // of the device's own, for as long as the job is loaded
  // By StreamKind. Where the device's memory is not the host's, that of host streams is pinned.
  std::array<uint64_t, kNumStreams> scratch_bytes = {};
};

// Devices that do a collective together, in rank order.
struct Members {
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> devices;
  std::vector<uint32_t> hosts;
};

struct NodePlan {
  std::string job;
  uint32_t node = 0;
  uint64_t seed = 0;
  std::vector<Arena> arenas;
  std::vector<Task> tasks;
  std::vector<Members> members;  // of its collectives: many have the same
  std::vector<uint32_t> peers;   // nodes with which this one shares an edge, ascending
  std::vector<std::pair<uint32_t, uint64_t>> links;  // (peer, payload bytes sent there in one step)
};

}  // namespace braid::plan
