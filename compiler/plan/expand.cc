#include "compiler/plan/expand.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "compiler/plan/exchange_tasks.h"
#include "compiler/plan/plan_edges.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

constexpr uint32_t kDirect = 0, kRing = 1;  // plan::Collective::algorithm
constexpr uint64_t kChunkBytes = 256 * 1024;

uint64_t Aligned(uint64_t bytes) {
  return static_cast<uint64_t>(AlignInArena(static_cast<int64_t>(bytes)));
}

class Expander {
 public:
  Expander(const PhysicalGraph& graph, int node) : graph_(graph), node_(node), edges_(graph) {}

  absl::StatusOr<plan::NodePlan> Expand() {
    RETURN_IF_ERROR(edges_.Number());
    plan_.set_job(graph_.job);
    plan_.set_node(static_cast<uint32_t>(node_));
    plan_.set_num_nodes(static_cast<uint32_t>(graph_.num_nodes));
    plan_.set_seed(graph_.seed);
    MeasureArenas();
    for (const TaskGroup& group : graph_.groups()) {
      switch (group.kind) {
        case GroupKind::kCompute:
          EmitPerRank(group, &Expander::EmitCompute);
          break;
        case GroupKind::kVariable:
          EmitPerRank(group, &Expander::EmitVariables);
          break;
        case GroupKind::kCollective:
          EmitPerRank(group, &Expander::EmitCollective);
          break;
        case GroupKind::kExchange:
          EmitExchange(group);
          break;
      }
    }
    for (const auto& [device, arena] : arenas_) *plan_.add_arenas() = arena;
    for (int peer : peers_) plan_.add_peers(static_cast<uint32_t>(peer));
    for (const auto& [peer, bytes] : link_bytes_) {
      plan::NodePlan::LinkBytes& link = *plan_.add_links();
      link.set_peer(static_cast<uint32_t>(peer));
      link.set_bytes(bytes);
    }
    return std::move(plan_);
  }

 private:
  static bool HasMemory(const Register& reg) {
    return std::any_of(reg.parts.begin(), reg.parts.end(),
                       [](const Part& part) { return part.variable.empty(); });
  }

  static void SetMemory(const Register& reg, int device, plan::Memory& memory) {
    CHECK_GE(reg.offset, 0) << "register " << reg.name << " has no place in the arena";
    memory.set_device(static_cast<uint32_t>(device));
    memory.set_offset(static_cast<uint64_t>(reg.offset));
    memory.set_stride(static_cast<uint64_t>(reg.slot_bytes));
  }

  void AddInput(const Register& reg, const PlanEdges::Source& source, int period, int device,
                plan::Task& task) {
    plan::Input& input = *task.add_inputs();
    input.set_register_(source.reg);
    *input.mutable_producer() = edges_.IdOf(source.producer);
    input.set_slots(static_cast<uint32_t>(reg.slots));
    input.set_period(static_cast<uint32_t>(period));
    input.set_initial_tokens(static_cast<uint32_t>(reg.initial_tokens));
    if (HasMemory(reg)) SetMemory(reg, device, *input.mutable_memory());
  }

  plan::Output& AddOutput(const Register& reg, const TaskKey& key, plan::Task& task) {
    plan::Output& output = *task.add_outputs();
    output.set_register_(edges_.RegisterId(reg.id, key.number));
    output.set_slots(static_cast<uint32_t>(reg.slots));
    output.set_period(static_cast<uint32_t>(reg.period));
    output.set_initial_tokens(static_cast<uint32_t>(reg.initial_tokens));
    if (HasMemory(reg)) SetMemory(reg, edges_.DeviceOf(key).device, *output.mutable_memory());
    return output;
  }

  void AddConsumers(const std::vector<TaskKey>& keys, plan::Output& output) {
    for (const TaskKey& key : keys) *output.add_consumers() = edges_.IdOf(key);
  }

  // ---- operands --------------------------------------------------------------------------------

  static void SetShard(const TensorLayout& layout, const Region& region, plan::Shard& shard) {
    shard.set_dtype(static_cast<uint32_t>(layout.type.dtype));
    for (int64_t dim : layout.type.shape) shard.add_logical(dim);
    for (int64_t offset : region.offset) shard.add_offset(offset);
    for (int64_t size : region.size) shard.add_size(size);
    if (layout.time.is_split()) {
      shard.set_time_axis(layout.time.axis + 1);
      shard.set_time_stride(layout.type.shape[layout.time.axis] / layout.time_parts);
    }
    shard.set_partial(layout.sbp.has_partial());
  }

  // One end of a task: its number among the task's inputs or outputs, and whose memory it is.
  struct End {
    bool is_input = true;
    uint32_t index = 0;
    int device = 0;
  };

  static void SetPart(const Part& part, const End& end, plan::Operand& operand) {
    if (!part.variable.empty()) {
      operand.set_source(plan::Operand::VARIABLE);
      operand.set_variable(part.variable);
      operand.set_index(static_cast<uint32_t>(end.device));
      return;
    }
    operand.set_source(end.is_input ? plan::Operand::INPUT : plan::Operand::OUTPUT);
    operand.set_index(end.index);
    operand.set_offset(static_cast<uint64_t>(part.offset));
  }

  // ---- tasks -----------------------------------------------------------------------------------

  using EmitWork = void (Expander::*)(const TaskGroup&, int rank, plan::Task&);

  void EmitPerRank(const TaskGroup& group, EmitWork work) {
    for (int rank : group.placement.RanksOn(node_)) {
      plan::Task& task = StartTask(group, {group.id, rank}, group.name);
      input_index_.assign(group.inputs.size(), 0);
      for (size_t i = 0; i < group.inputs.size(); ++i) {
        const Register& reg = graph_.reg(group.inputs[i].reg);
        input_index_[i] = static_cast<uint32_t>(task.inputs_size());
        for (const PlanEdges::Source& source : edges_.SourcesOf(reg, group, rank)) {
          AddInput(reg, source, group.inputs[i].period, group.placement.device(rank).device, task);
        }
      }
      for (GroupRegisterId id : group.outputs) {
        const Register& reg = graph_.reg(id);
        AddConsumers(edges_.ConsumersOf(reg, rank), AddOutput(reg, {group.id, rank}, task));
      }
      (this->*work)(group, rank, task);
    }
  }

  plan::Task& StartTask(const TaskGroup& group, const TaskKey& key, const std::string& name) {
    plan::Task& task = *plan_.add_tasks();
    *task.mutable_id() = edges_.IdOf(key);
    task.set_name(name);
    task.set_device(static_cast<uint32_t>(edges_.DeviceOf(key).device));
    task.set_acts_per_step(static_cast<uint32_t>(group.rate));
    task.set_deferrable(group.is_deferrable);
    return task;
  }

  void EmitCompute(const TaskGroup& group, int rank, plan::Task& task) {
    const std::vector<int64_t> coordinate = group.placement.CoordinateOf(rank);
    for (const KernelCall& call : group.kernels) {
      plan::Kernel& kernel = *task.mutable_compute()->add_kernels();
      kernel.set_op(call.op);
      kernel.set_name(call.name);
      kernel.set_attrs(call.attrs.ToString());
      kernel.set_location(call.location.ToString());
      kernel.set_contributes(Contributes(call, coordinate));
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        SetOperand(group, rank, call.inputs[i], call.input_layouts[i], *kernel.add_inputs());
      }
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        SetOperand(group, rank, call.outputs[i], call.output_layouts[i], *kernel.add_outputs());
      }
    }
    if (group.kernels.empty()) task.mutable_compute();
  }

  // Rank 0 of every dimension in which the kernel makes an addend out of something that is none.
  static bool Contributes(const KernelCall& call, const std::vector<int64_t>& coordinate) {
    for (size_t dim = 0; dim < coordinate.size(); ++dim) {
      const auto is_partial = [dim](const TensorLayout& layout) {
        return layout.sbp[static_cast<int>(dim)].is_partial();
      };
      const bool makes_addend =
          std::any_of(call.output_layouts.begin(), call.output_layouts.end(), is_partial) &&
          std::none_of(call.input_layouts.begin(), call.input_layouts.end(), is_partial);
      if (makes_addend && coordinate[dim] != 0) return false;
    }
    return true;
  }

  void SetOperand(const TaskGroup& group, int rank, const OperandRef& ref,
                  const TensorLayout& layout, plan::Operand& operand) {
    SetShard(layout, RegionOf(layout, group.placement, rank), *operand.mutable_shard());
    switch (ref.source) {
      case OperandRef::Source::kInput:
        SetPart(graph_.reg(group.inputs[ref.index].reg).parts[ref.part],
                {true, input_index_[ref.index], group.placement.device(rank).device}, operand);
        break;
      case OperandRef::Source::kOutput:
        SetPart(graph_.reg(group.outputs[ref.index]).parts[ref.part],
                {false, static_cast<uint32_t>(ref.index), group.placement.device(rank).device},
                operand);
        break;
      case OperandRef::Source::kScratch:
        CHECK_GE(group.scratch[ref.index].offset, 0) << group.name << " has unplanned scratch";
        operand.set_source(plan::Operand::SCRATCH);
        operand.set_index(static_cast<uint32_t>(ref.index));
        operand.set_offset(static_cast<uint64_t>(group.scratch[ref.index].offset));
        break;
    }
  }

  void EmitVariables(const TaskGroup& group, int rank, plan::Task& task) {
    plan::VariableOwner& owner = *task.mutable_variables();
    for (const Part& part : graph_.reg(group.outputs[0]).parts) {
      plan::Variable& variable = *owner.add_variables();
      variable.set_name(part.variable);
      SetShard(part.layout, RegionOf(part.layout, group.placement, rank),
               *variable.mutable_shard());
      for (const KernelCall& call : group.kernels) {
        if (call.name == part.variable) variable.set_init(call.attrs.ToString());
      }
      const uint64_t bytes = static_cast<uint64_t>(BytesOf(part.layout, group.placement, rank));
      plan::Arena& arena = arenas_[group.placement.device(rank).device];
      arena.set_variable_bytes(arena.variable_bytes() + bytes);
    }
  }

  // The members of a collective, whose lowest rank is `lowest`.
  struct MemberList {
    uint32_t number = 0;     // in the plan
    std::vector<int> ranks;  // of the placement
    std::set<int> nodes;
  };
  const MemberList& MembersOf(const TaskGroup& group, int lowest) {
    const auto [found, is_new] =
        member_lists_.try_emplace({group.placement, group.hierarchy_dim, lowest});
    MemberList& list = found->second;
    if (!is_new) return list;
    list.number = static_cast<uint32_t>(plan_.members_size());
    if (group.hierarchy_dim < 0) {
      list.ranks.resize(group.placement.size());
      std::iota(list.ranks.begin(), list.ranks.end(), 0);
    } else {
      std::vector<int64_t> coordinate = group.placement.CoordinateOf(lowest);
      for (int64_t i = 0; i < group.placement.hierarchy()[group.hierarchy_dim]; ++i) {
        coordinate[group.hierarchy_dim] = i;
        list.ranks.push_back(group.placement.RankOf(coordinate));
      }
    }
    plan::Members& members = *plan_.add_members();
    for (int member : list.ranks) {
      const DeviceId& device = group.placement.device(member);
      members.add_nodes(static_cast<uint32_t>(device.node));
      members.add_devices(static_cast<uint32_t>(device.device));
      list.nodes.insert(device.node);
    }
    for (int node : list.nodes) {
      if (node != node_) peers_.insert(node);
    }
    return list;
  }

  void EmitCollective(const TaskGroup& group, int rank, plan::Task& task) {
    plan::Collective& collective = *task.mutable_collective();
    int my_rank = rank, lowest = 0;
    if (group.hierarchy_dim >= 0) {
      std::vector<int64_t> coordinate = group.placement.CoordinateOf(rank);
      my_rank = static_cast<int>(std::exchange(coordinate[group.hierarchy_dim], 0));
      lowest = group.placement.RankOf(coordinate);
    }
    const MemberList& list = MembersOf(group, lowest);
    const std::vector<int>& members = list.ranks;
    collective.set_id(static_cast<uint32_t>(edges_.first_collective(group.id) + lowest));
    collective.set_kind(static_cast<uint32_t>(group.collective));
    collective.set_members(list.number);
    collective.set_rank(static_cast<uint32_t>(my_rank));
    collective.set_dtype(static_cast<uint32_t>(group.source.type.dtype));
    collective.set_reduction(static_cast<uint32_t>(group.reduction));
    collective.set_algorithm(list.nodes.size() == 1 ? kDirect : kRing);
    collective.set_chunk_bytes(kChunkBytes);
    const std::vector<int64_t> counts = CountsOf(group, members, rank);
    for (int64_t count : counts) collective.add_counts(count);
    SetVector(group, rank, true, *collective.mutable_input());
    SetVector(group, rank, false, *collective.mutable_output());
    CountRingBytes(group, members, my_rank, counts);
  }

  std::vector<int64_t> CountsOf(const TaskGroup& group, const std::vector<int>& members, int rank) {
    const auto source = [&](int member) { return RegionOf(group.source, group.placement, member); };
    const auto destination = [&](int member) {
      return RegionOf(group.destination, group.placement, member);
    };
    const auto size = static_cast<int64_t>(members.size());
    std::vector<int64_t> counts;
    switch (group.collective) {
      case CollectiveKind::kAllReduce: {
        // A bucket is one vector: all of its parts, with the gaps between them.
        const int64_t n = IsBucket(group)
                              ? graph_.reg(group.outputs[0]).slot_bytes /
                                    static_cast<int64_t>(SizeOf(group.source.type.dtype))
                              : source(rank).size.num_elements();
        for (int64_t i = 0; i < size; ++i) counts.push_back(SplitEvenly(n, size, i).size);
        break;
      }
      case CollectiveKind::kAllGather:
        for (int member : members) counts.push_back(source(member).size.num_elements());
        break;
      case CollectiveKind::kReduceScatter:
        for (int member : members) counts.push_back(destination(member).size.num_elements());
        break;
      case CollectiveKind::kAllToAll:
        for (int from : members) {
          for (int to : members) {
            counts.push_back(Intersect(source(from), destination(to)).size.num_elements());
          }
        }
        break;
    }
    return counts;
  }

  bool IsBucket(const TaskGroup& group) const {
    return graph_.reg(group.outputs[0]).parts.size() > 1;
  }

  void SetVector(const TaskGroup& group, int rank, bool is_input, plan::Operand& operand) {
    const Register& reg = graph_.reg(is_input ? group.inputs[0].reg : group.outputs[0]);
    const int part = is_input && !IsBucket(group) ? group.part : 0;
    SetPart(reg.parts[part],
            {is_input, is_input ? input_index_[0] : 0, group.placement.device(rank).device},
            operand);
    const TensorLayout& layout = is_input ? group.source : group.destination;
    SetShard(layout, RegionOf(layout, group.placement, rank), *operand.mutable_shard());
  }

  // What this member sends to the next one in the ring, or to every peer in an all_to_all.
  void CountRingBytes(const TaskGroup& group, const std::vector<int>& members, int my_rank,
                      const std::vector<int64_t>& counts) {
    const auto size = static_cast<int>(members.size());
    const auto element = static_cast<int64_t>(SizeOf(group.source.type.dtype));
    const auto node_of = [&](int index) { return group.placement.device(members[index]).node; };
    const auto add = [&](int node, int64_t elements) {
      if (node != node_) {
        link_bytes_[node] += static_cast<uint64_t>(elements * element * group.rate);
      }
    };
    if (group.collective == CollectiveKind::kAllToAll) {
      for (int to = 0; to < size; ++to) add(node_of(to), counts[my_rank * size + to]);
      return;
    }
    int64_t all = 0;
    for (int64_t count : counts) all += count;
    const int next = (my_rank + 1) % size;
    // A block passes every hop but the one into where it starts (gathering) or out of where it ends
    // (reducing).
    const int64_t gathered = all - counts[next];
    const int64_t reduced = all - counts[my_rank];
    if (group.collective != CollectiveKind::kReduceScatter) add(node_of(next), gathered);
    if (group.collective != CollectiveKind::kAllGather) add(node_of(next), reduced);
  }

  void EmitExchange(const TaskGroup& group) {
    ExchangeTasks& exchange = edges_.ExchangeOf(group);
    for (int rank : exchange.destination().RanksOn(node_)) {
      if (exchange.IsDirect(rank)) {
        peers_.insert(exchange.source().device(exchange.PiecesOf(rank)[0].move.source_rank).node);
        continue;
      }
      EmitCopy(group, exchange, rank);
    }
    for (int rank : exchange.source().RanksOn(node_)) {
      for (const auto& transfer : exchange.TransfersFrom(rank)) {
        EmitTransfer(group, exchange, transfer);
      }
    }
  }

  // Memory of the landing slots of a transfer to this node, made when first asked for.
  void SetLanding(const TaskGroup& group, const ExchangeTasks::Piece& piece, uint32_t id,
                  plan::Memory& memory) {
    const Register& out = graph_.reg(group.outputs[0]);
    const int device = group.placement.device(piece.owner).device;
    if (piece.is_direct) return SetMemory(out, device, memory);
    const uint64_t stride = Aligned(edges_.ExchangeOf(group).BytesOf(piece.move.region));
    auto found = landings_.find(id);
    if (found == landings_.end()) {
      plan::Arena& arena = arenas_[device];
      found = landings_.emplace(id, arena.bytes()).first;
      arena.set_bytes(arena.bytes() + stride * static_cast<uint64_t>(out.slots));
    }
    memory.set_device(static_cast<uint32_t>(device));
    memory.set_offset(found->second);
    memory.set_stride(stride);
  }

  void EmitCopy(const TaskGroup& group, ExchangeTasks& exchange, int rank) {
    const Register& in = graph_.reg(group.inputs[0].reg);
    const Register& out = graph_.reg(group.outputs[0]);
    const TaskKey key{group.id, exchange.CopyTask(rank)};
    plan::Task& task = StartTask(group, key, group.name);
    plan::Copy& copy = *task.mutable_copy();
    std::map<uint32_t, uint32_t> index_of;  // register -> input
    int64_t covered = 0;
    for (const auto& piece : exchange.PiecesOf(rank)) {
      plan::Copy::Move& move = *copy.add_moves();
      const int source_rank = piece.move.source_rank;
      plan::Operand& operand = *move.mutable_source();
      if (piece.owner < 0) {
        const PlanEdges::Source source = edges_.SourceAt(in, source_rank);
        const uint32_t reg = source.reg;
        const auto [it, is_new] =
            index_of.try_emplace(reg, static_cast<uint32_t>(task.inputs_size()));
        if (is_new) {
          AddInput(in, source, group.inputs[0].period, exchange.source().device(source_rank).device,
                   task);
        }
        SetPart(in.parts[group.part],
                {true, it->second, exchange.source().device(source_rank).device}, operand);
        SetShard(group.source, RegionOf(group.source, exchange.source(), source_rank),
                 *operand.mutable_shard());
      } else {
        const TaskKey from{group.id, exchange.TransferTask(source_rank, piece.owner)};
        const uint32_t reg = edges_.LandingId(group, from.number);
        peers_.insert(exchange.source().device(source_rank).node);
        const auto [it, is_new] =
            index_of.try_emplace(reg, static_cast<uint32_t>(task.inputs_size()));
        if (is_new) {
          plan::Input& input = *task.add_inputs();
          input.set_register_(reg);
          *input.mutable_producer() = edges_.IdOf(from);
          input.set_slots(static_cast<uint32_t>(out.slots));
          input.set_period(1);
          SetLanding(group, piece, reg, *input.mutable_memory());
        }
        operand.set_source(plan::Operand::INPUT);
        operand.set_index(it->second);
        SetShard(group.source, piece.move.region, *operand.mutable_shard());
      }
      for (int64_t offset : piece.move.region.offset) move.add_offset(offset);
      for (int64_t size : piece.move.region.size) move.add_size(size);
      move.set_add(piece.move.add);
      if (!piece.move.add) covered += piece.move.region.size.num_elements();
    }
    const Region whole = RegionOf(group.destination, group.placement, rank);
    const int task_device = group.placement.device(rank).device;
    plan::Operand& destination = *copy.mutable_destination();
    SetPart(out.parts[0], {false, 0, task_device}, destination);
    SetShard(group.destination, whole, *destination.mutable_shard());
    copy.set_zero_first(covered < whole.size.num_elements());
    copy.set_reduction(static_cast<uint32_t>(group.reduction));
    for (GroupRegisterId id : group.outputs) {
      const Register& reg = graph_.reg(id);
      AddConsumers(edges_.ConsumersOf(reg, key.number), AddOutput(reg, key, task));
    }
  }

  void EmitTransfer(const TaskGroup& group, ExchangeTasks& exchange,
                    const ExchangeTasks::Transfer& transfer) {
    const Register& in = graph_.reg(group.inputs[0].reg);
    const Register& out = graph_.reg(group.outputs[0]);
    const int source_rank = transfer.source_rank;
    const TaskKey key{group.id, exchange.TransferTask(source_rank, transfer.owner)};
    const int device = exchange.source().device(source_rank).device;
    const int peer = exchange.destination().device(transfer.owner).node;
    plan::Task& task = StartTask(group, key, group.name + ".transfer");
    AddInput(in, edges_.SourceAt(in, source_rank), group.inputs[0].period, device, task);

    plan::Transfer& work = *task.mutable_transfer();
    SetPart(in.parts[group.part], {true, 0, device}, *work.mutable_source());
    SetShard(group.source, RegionOf(group.source, exchange.source(), source_rank),
             *work.mutable_source()->mutable_shard());
    for (int64_t offset : transfer.region.offset) work.add_offset(offset);
    for (int64_t size : transfer.region.size) work.add_size(size);
    const uint64_t bytes = static_cast<uint64_t>(exchange.BytesOf(transfer.region));
    work.set_peer(static_cast<uint32_t>(peer));
    work.set_bytes(bytes);
    work.set_staging(arenas_[device].bytes());
    arenas_[device].set_bytes(arenas_[device].bytes() + Aligned(bytes));
    peers_.insert(peer);
    link_bytes_[peer] += bytes * static_cast<uint64_t>(group.rate);

    plan::Output& landing = *task.add_outputs();
    landing.set_register_(edges_.LandingId(group, key.number));
    landing.set_slots(static_cast<uint32_t>(out.slots));
    landing.set_period(1);
    landing.mutable_memory()->set_stride(transfer.is_direct ? static_cast<uint64_t>(out.slot_bytes)
                                                            : Aligned(bytes));
    std::vector<TaskKey> readers;
    if (transfer.is_direct) readers = edges_.ConsumersOf(out, transfer.owner);
    for (int reader : transfer.readers) readers.push_back({group.id, exchange.CopyTask(reader)});
    AddConsumers(readers, landing);
    for (GroupRegisterId id : group.outputs) {
      const Register& reg = graph_.reg(id);
      if (reg.is_control())
        AddConsumers(edges_.ConsumersOf(reg, key.number), AddOutput(reg, key, task));
    }
  }

  // ---- memory ----------------------------------------------------------------------------------

  void MeasureArenas() {
    const auto arena_of = [&](const Placement& placement, int rank) -> plan::Arena& {
      const int device = placement.device(rank).device;
      plan::Arena& arena = arenas_[device];
      arena.set_device(static_cast<uint32_t>(device));
      arena.set_device_type(placement.device_type());
      while (arena.scratch_bytes_size() < kNumStreams) arena.add_scratch_bytes(0);
      return arena;
    };
    for (const TaskGroup& group : graph_.groups()) {
      uint64_t scratch = 0;
      for (const Scratch& entry : group.scratch) {
        scratch = std::max(scratch, static_cast<uint64_t>(
                                        entry.offset + MaxBytesOf(entry.layout, group.placement)));
      }
      const int stream = static_cast<int>(group.stream);
      for (int rank : group.placement.RanksOn(node_)) {
        plan::Arena& arena = arena_of(group.placement, rank);
        arena.set_scratch_bytes(stream, std::max(arena.scratch_bytes(stream), Aligned(scratch)));
      }
    }
    for (const Register& reg : graph_.registers()) {
      if (!HasMemory(reg)) continue;
      const auto end = static_cast<uint64_t>(reg.offset + reg.slots * reg.slot_bytes);
      for (int rank : reg.placement.RanksOn(node_)) {
        plan::Arena& arena = arena_of(reg.placement, rank);
        arena.set_bytes(std::max(arena.bytes(), Aligned(end)));
      }
    }
  }

  const PhysicalGraph& graph_;
  const int node_;
  PlanEdges edges_;
  std::vector<uint32_t> input_index_;      // of the task being made: group input -> task input
  std::map<int, plan::Arena> arenas_;      // by device
  std::map<uint32_t, uint64_t> landings_;  // landing register -> arena offset
  // By placement, dimension of its hierarchy and lowest rank.
  std::map<std::tuple<Placement, int, int>, MemberList> member_lists_;
  std::set<int> peers_;
  std::map<int, uint64_t> link_bytes_;
  plan::NodePlan plan_;
};

}  // namespace

absl::StatusOr<plan::NodePlan> ExpandPlan(const PhysicalGraph& graph, int node) {
  return Expander(graph, node).Expand();
}

int64_t NumCollectiveIds(const PhysicalGraph& graph) {
  int64_t ids = 0;
  for (const TaskGroup& group : graph.groups()) {
    if (group.kind == GroupKind::kCollective) ids += group.placement.size();
  }
  return ids;
}

}  // namespace braid::compiler
