#include "compiler/plan/expand.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "compiler/plan/exchange_tasks.h"
#include "compiler/plan/plan_edges.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

uint64_t Aligned(uint64_t bytes) {
  return static_cast<uint64_t>(AlignInArena(static_cast<int64_t>(bytes)));
}

class Expander {
 public:
  Expander(const PhysicalGraph& graph, int node) : graph_(graph), node_(node), edges_(graph) {}

  absl::StatusOr<plan::NodePlan> Expand() {
    BRAID_RETURN_IF_ERROR(edges_.Number());
    plan_.job = graph_.job;
    plan_.node = static_cast<uint32_t>(node_);
    plan_.seed = graph_.seed;
    size_t num_tasks = 0;
    for (const TaskGroup& group : graph_.groups()) {
      num_tasks += group.placement.RanksOn(node_).size();
    }
    plan_.tasks.reserve(num_tasks);
    MeasureArenas();
    for (const TaskGroup& group : graph_.groups()) {
      std::visit([&](const auto& work) { Emit(group, work); }, group.work);
    }
    for (auto& [device, arena] : arenas_) plan_.arenas.push_back(std::move(arena));
    plan_.peers.assign(peers_.begin(), peers_.end());
    plan_.links.assign(link_bytes_.begin(), link_bytes_.end());
    return std::move(plan_);
  }

 private:
  static plan::Memory MemoryOf(const Register& reg, int device) {
    CHECK_GE(reg.offset, 0) << "register " << reg.name << " has no place in the arena";
    return {.device = static_cast<uint32_t>(device),
            .kind = reg.memory,
            .offset = static_cast<uint64_t>(reg.offset),
            .bytes = static_cast<uint64_t>(reg.slot_bytes),
            .stride = static_cast<uint64_t>(reg.stride)};
  }

  void AddInput(const Register& reg, const PlanEdges::Source& source, int period, int device,
                plan::Task& task) {
    plan::Input& input = task.inputs.emplace_back();
    input.reg = source.reg;
    input.producer = edges_.IdOf(source.producer);
    input.slots = static_cast<uint32_t>(reg.slots);
    input.period = static_cast<uint32_t>(period);
    input.initial_tokens = static_cast<uint32_t>(reg.initial_tokens);
    if (reg.has_memory()) input.memory = MemoryOf(reg, device);
  }

  plan::Output& AddOutput(const Register& reg, const TaskKey& key, plan::Task& task) {
    plan::Output& output = task.outputs.emplace_back();
    output.reg = edges_.RegisterId(reg.id, key.number);
    output.slots = static_cast<uint32_t>(reg.slots);
    output.period = static_cast<uint32_t>(reg.period);
    output.initial_tokens = static_cast<uint32_t>(reg.initial_tokens);
    if (reg.has_memory()) output.memory = MemoryOf(reg, edges_.DeviceOf(key).device);
    return output;
  }

  void AddConsumers(const std::vector<TaskKey>& keys, plan::Output& output) {
    output.consumers.reserve(keys.size());
    for (const TaskKey& key : keys) output.consumers.push_back(edges_.IdOf(key));
  }

  // ---- operands --------------------------------------------------------------------------------

  // One end of a task: its number among the task's inputs or outputs, and whose memory it is.
  struct End {
    bool is_input = true;
    uint32_t index = 0;
    int device = 0;
  };

  static void SetPart(const Part& part, const End& end, plan::Operand& operand) {
    if (!part.variable.empty()) {
      operand.source = plan::Operand::Source::kVariable;
      operand.variable = part.variable;
      operand.index = static_cast<uint32_t>(end.device);
      return;
    }
    operand.source = end.is_input ? plan::Operand::Source::kInput : plan::Operand::Source::kOutput;
    operand.index = end.index;
    operand.offset = static_cast<uint64_t>(part.offset);
  }

  // ---- tasks -----------------------------------------------------------------------------------

  // Everything but an exchange is one task per rank.
  template <typename Work>
  void Emit(const TaskGroup& group, const Work& work) {
    for (int rank : group.placement.RanksOn(node_)) {
      plan::Task& task = StartTask(group, {group.id, rank});
      coordinate_ = group.placement.CoordinateOf(rank);
      input_index_.assign(group.inputs.size(), 0);
      for (size_t i = 0; i < group.inputs.size(); ++i) {
        const Register& reg = graph_.reg(group.inputs[i].reg);
        input_index_[i] = static_cast<uint32_t>(task.inputs.size());
        for (const PlanEdges::Source& source : edges_.SourcesOf(reg, group, rank)) {
          AddInput(reg, source, group.inputs[i].period, group.placement.device(rank).device, task);
        }
      }
      for (GroupRegisterId id : group.outputs) {
        const Register& reg = graph_.reg(id);
        AddConsumers(edges_.ConsumersOf(reg, rank), AddOutput(reg, {group.id, rank}, task));
      }
      SetWork(group, work, rank, task);
    }
  }

  plan::Task& StartTask(const TaskGroup& group, const TaskKey& key) {
    plan::Task& task = plan_.tasks.emplace_back();
    task.id = edges_.IdOf(key);
    task.name = group.name;
    task.device = static_cast<uint32_t>(edges_.DeviceOf(key).device);
    task.stream = group.stream;
    task.acts_per_step = static_cast<uint32_t>(group.acts_per_step);
    task.is_deferrable = group.is_deferrable;
    return task;
  }

  void SetWork(const TaskGroup& group, const Compute& work, int rank, plan::Task& task) {
    auto& compute = task.work.emplace<plan::Compute>();
    compute.turns = work.turns;
    std::vector<plan::Kernel>& kernels = compute.kernels;
    kernels.reserve(work.kernels.size());
    for (const KernelCall& call : work.kernels) {
      plan::Kernel& kernel = kernels.emplace_back();
      kernel.call = &call;
      kernel.contributes = Contributes(call, coordinate_);
      SetPlace(call, group.placement.hierarchy(), kernel);
      kernel.inputs.resize(call.inputs.size());
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        SetOperand(group, rank, call.inputs[i], call.input_layouts[i], kernel.inputs[i]);
      }
      kernel.outputs.resize(call.outputs.size());
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        SetOperand(group, rank, call.outputs[i], call.output_layouts[i], kernel.outputs[i]);
      }
    }
  }

  // Which of the ranks that are given the same: of the dimensions in which all inputs are B. And
  // which of those that have values of their own.
  void SetPlace(const KernelCall& call, const std::vector<int64_t>& hierarchy,
                plan::Kernel& kernel) const {
    for (int dim = 0; dim < static_cast<int>(coordinate_.size()); ++dim) {
      const auto is_broadcast = [dim](const auto& some) { return some.sbp[dim].is_broadcast(); };
      const auto is_mirrored = [dim](const auto& some) { return some.sbp[dim].is_mirrored(); };
      if (std::ranges::any_of(call.output_layouts, is_mirrored)) {
        kernel.mirror = kernel.mirror * hierarchy[dim] + coordinate_[dim];
      }
      if (!std::ranges::all_of(call.input_layouts, is_broadcast)) continue;
      kernel.replica = kernel.replica * hierarchy[dim] + coordinate_[dim];
      kernel.replicas *= hierarchy[dim];
    }
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
    operand.shard = {&layout, RegionOf(layout, group.placement, coordinate_)};
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
      case OperandRef::Source::kScratch: {
        const int64_t offset = std::get<Compute>(group.work).scratch[ref.index].offset;
        CHECK_GE(offset, 0) << group.name << " has unplanned scratch";
        operand.source = plan::Operand::Source::kScratch;
        operand.index = static_cast<uint32_t>(ref.index);
        operand.offset = static_cast<uint64_t>(offset);
        break;
      }
    }
  }

  void SetWork(const TaskGroup& group, const VariableOwner& work, int rank, plan::Task& task) {
    auto& owner = task.work.emplace<plan::VariableOwner>();
    for (const Part& part : graph_.reg(group.outputs[0]).parts) {
      plan::Variable& variable = owner.variables.emplace_back();
      variable.name = part.variable;
      variable.shard = {&part.layout, RegionOf(part.layout, group.placement, coordinate_)};
      for (const KernelCall& call : work.kernels) {
        if (call.name == part.variable) variable.init = &call.attrs;
      }
      arenas_[group.placement.device(rank).device].variable_bytes +=
          static_cast<uint64_t>(BytesOf(part.layout, group.placement, rank));
    }
  }

  void SetWork(const TaskGroup& group, const Staging&, int rank, plan::Task& task) {
    auto& staging = task.work.emplace<plan::Staging>();
    const Register& from = graph_.reg(group.inputs[0].reg);
    const Register& to = graph_.reg(group.outputs[0]);
    const int device = group.placement.device(rank).device;
    for (size_t i = 0; i < from.parts.size(); ++i) {
      plan::Staging::Part& part = staging.parts.emplace_back();
      SetPart(from.parts[i], {true, input_index_[0], device}, part.from);
      SetPart(to.parts[i], {false, 0, device}, part.to);
      const Region region = RegionOf(from.parts[i].layout, from.placement, rank);
      part.from.shard = {&from.parts[i].layout, region};
      part.to.shard = {&to.parts[i].layout, region};
    }
  }

  // The members of a collective, whose lowest rank is `lowest`.
  struct MemberList {
    uint32_t number = 0;     // in the plan
    std::vector<int> ranks;  // of the placement
    std::set<int> nodes;
  };
  const MemberList& MembersOf(const Placement& placement, int dim, int lowest) {
    const auto [found, is_new] = member_lists_.try_emplace({lowest, dim, placement});
    MemberList& list = found->second;
    if (!is_new) return list;
    list.number = static_cast<uint32_t>(plan_.members.size());
    if (dim < 0) {
      list.ranks.resize(placement.size());
      std::iota(list.ranks.begin(), list.ranks.end(), 0);
    } else {
      std::vector<int64_t> coordinate = placement.CoordinateOf(lowest);
      for (int64_t i = 0; i < placement.hierarchy()[dim]; ++i) {
        coordinate[dim] = i;
        list.ranks.push_back(placement.RankOf(coordinate));
      }
    }
    plan::Members& members = plan_.members.emplace_back();
    for (int member : list.ranks) {
      const DeviceId& device = placement.device(member);
      members.nodes.push_back(static_cast<uint32_t>(device.node));
      members.devices.push_back(static_cast<uint32_t>(device.device));
      list.nodes.insert(device.node);
    }
    for (int node : list.nodes) {
      if (node != node_) peers_.insert(static_cast<uint32_t>(node));
    }
    return list;
  }

  void SetWork(const TaskGroup& group, const Collective& work, int rank, plan::Task& task) {
    auto& collective = task.work.emplace<plan::Collective>();
    int my_rank = rank, lowest = 0;
    if (work.hierarchy_dim >= 0) {
      std::vector<int64_t> coordinate = coordinate_;
      my_rank = static_cast<int>(std::exchange(coordinate[work.hierarchy_dim], 0));
      lowest = group.placement.RankOf(coordinate);
    }
    const MemberList& list = MembersOf(group.placement, work.hierarchy_dim, lowest);
    const std::vector<int>& members = list.ranks;
    collective.id = static_cast<uint32_t>(edges_.first_collective(group.id) + lowest);
    collective.kind = work.kind;
    const CollectiveMethod& method = list.nodes.size() == 1 ? work.on_one_node : work.between_nodes;
    collective.algorithm = method.algorithm;
    collective.chunk_bytes = static_cast<uint64_t>(method.chunk_bytes);
    collective.members = list.number;
    collective.rank = static_cast<uint32_t>(my_rank);
    collective.dtype = work.movement.source.type.dtype;
    collective.reduction = work.movement.reduction;
    Count(group, members, rank, collective);
    SetVector(group, rank, true, collective.input);
    SetVector(group, rank, false, collective.output);
    CountRingBytes(group, members, my_rank, collective.counts);
  }

  void Count(const TaskGroup& group, const std::vector<int>& members, int rank,
             plan::Collective& collective) {
    const Movement& movement = *group.movement();
    const auto source = [&](int member) {
      return RegionOf(movement.source, group.placement, member);
    };
    const auto destination = [&](int member) {
      return RegionOf(movement.destination, group.placement, member);
    };
    std::vector<int64_t>& counts = collective.counts;
    switch (collective.kind) {
      case CollectiveKind::kAllReduce:
        // A bucket is one vector: all of its parts, with the gaps between them.
        counts.push_back(IsBucket(group) ? graph_.reg(group.outputs[0]).slot_bytes /
                                               static_cast<int64_t>(SizeOf(collective.dtype))
                                         : source(rank).size.num_elements());
        break;
      case CollectiveKind::kAllGather:
        for (int member : members) counts.push_back(source(member).size.num_elements());
        break;
      case CollectiveKind::kReduceScatter:
        for (int member : members) counts.push_back(destination(member).size.num_elements());
        break;
      case CollectiveKind::kAllToAll: {
        const Region held = source(rank), wanted = destination(rank);
        for (int member : members) {
          counts.push_back(Intersect(held, destination(member)).size.num_elements());
          collective.receives.push_back(Intersect(source(member), wanted).size.num_elements());
        }
        break;
      }
      case CollectiveKind::kBroadcast:
        LOG(FATAL) << "the compiler makes no broadcast: " << group.name;
    }
  }

  bool IsBucket(const TaskGroup& group) const {
    return graph_.reg(group.outputs[0]).parts.size() > 1;
  }

  void SetVector(const TaskGroup& group, int rank, bool is_input, plan::Operand& operand) {
    const Register& reg = graph_.reg(is_input ? group.inputs[0].reg : group.outputs[0]);
    const Movement& movement = *group.movement();
    const int part = is_input && !IsBucket(group) ? movement.part : 0;
    SetPart(reg.parts[part],
            {is_input, is_input ? input_index_[0] : 0, group.placement.device(rank).device},
            operand);
    const TensorLayout& layout = is_input ? movement.source : movement.destination;
    operand.shard = {&layout, RegionOf(layout, group.placement, coordinate_)};
  }

  // What this member sends to the next one in the ring, or to every peer in an all_to_all.
  void CountRingBytes(const TaskGroup& group, const std::vector<int>& members, int my_rank,
                      const std::vector<int64_t>& counts) {
    const auto& work = std::get<Collective>(group.work);
    const auto size = static_cast<int>(members.size());
    const auto element = static_cast<int64_t>(SizeOf(work.movement.source.type.dtype));
    const auto node_of = [&](int index) { return group.placement.device(members[index]).node; };
    const auto add = [&](int node, int64_t elements) {
      if (node != node_) {
        link_bytes_[static_cast<uint32_t>(node)] +=
            static_cast<uint64_t>(elements * element * group.acts_per_step);
      }
    };
    if (work.kind == CollectiveKind::kAllToAll) {
      for (int to = 0; to < size; ++to) add(node_of(to), counts[to]);
      return;
    }
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const auto block = [&](int index) {
      return work.kind == CollectiveKind::kAllReduce ? SplitEvenly(all, size, index).size
                                                     : counts[index];
    };
    const int next = (my_rank + 1) % size;
    // A block passes every hop but the one into where it starts (gathering) or out of where it ends
    // (reducing).
    const int64_t gathered = all - block(next);
    const int64_t reduced = all - block(my_rank);
    if (work.kind != CollectiveKind::kReduceScatter) add(node_of(next), gathered);
    if (work.kind != CollectiveKind::kAllGather) add(node_of(next), reduced);
  }

  void Emit(const TaskGroup& group, const Exchange&) {
    ExchangeTasks& exchange = edges_.ExchangeOf(group);
    for (int rank : exchange.destination().RanksOn(node_)) {
      if (exchange.IsDirect(rank)) {
        InsertPeer(exchange, exchange.PiecesOf(rank)[0].move.source_rank);
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

  void InsertPeer(const ExchangeTasks& exchange, int source_rank) {
    peers_.insert(static_cast<uint32_t>(exchange.source().device(source_rank).node));
  }

  // Memory of the landing slots of a transfer to this node, made when first asked for.
  plan::Memory LandingOf(const TaskGroup& group, const ExchangeTasks::Piece& piece, uint32_t id) {
    const Register& out = graph_.reg(group.outputs[0]);
    const int device = group.placement.device(piece.owner).device;
    if (piece.is_direct) return MemoryOf(out, device);
    const uint64_t stride = Aligned(edges_.ExchangeOf(group).BytesOf(piece.move.region));
    auto found = landings_.find(id);
    if (found == landings_.end()) {
      const plan::Memory memory =
          TakeMemory(device, out.memory, stride * static_cast<uint64_t>(out.slots));
      found = landings_.emplace(id, memory.offset).first;
    }
    return {.device = static_cast<uint32_t>(device),
            .kind = out.memory,
            .offset = found->second,
            .bytes = stride,
            .stride = stride};
  }

  void EmitCopy(const TaskGroup& group, ExchangeTasks& exchange, int rank) {
    const Movement& movement = *group.movement();
    const Register& in = graph_.reg(group.inputs[0].reg);
    const Register& out = graph_.reg(group.outputs[0]);
    const TaskKey key{group.id, exchange.CopyTask(rank)};
    plan::Task& task = StartTask(group, key);
    auto& copy = task.work.emplace<plan::Copy>();
    std::map<uint32_t, uint32_t> index_of;  // register -> input
    int64_t covered = 0;
    for (const auto& piece : exchange.PiecesOf(rank)) {
      plan::Copy::Move& move = copy.moves.emplace_back();
      const int source_rank = piece.move.source_rank;
      plan::Operand& operand = move.source;
      if (piece.owner < 0) {
        const PlanEdges::Source source = edges_.SourceAt(in, source_rank);
        const uint32_t reg = source.reg;
        const auto [it, is_new] =
            index_of.try_emplace(reg, static_cast<uint32_t>(task.inputs.size()));
        if (is_new) {
          AddInput(in, source, group.inputs[0].period, exchange.source().device(source_rank).device,
                   task);
        }
        SetPart(in.parts[movement.part],
                {true, it->second, exchange.source().device(source_rank).device}, operand);
        operand.shard = {&movement.source,
                         RegionOf(movement.source, exchange.source(), source_rank)};
      } else {
        const TaskKey from{group.id, exchange.TransferTask(source_rank, piece.owner)};
        const uint32_t reg = edges_.LandingId(group, from.number);
        InsertPeer(exchange, source_rank);
        const auto [it, is_new] =
            index_of.try_emplace(reg, static_cast<uint32_t>(task.inputs.size()));
        if (is_new) {
          plan::Input& input = task.inputs.emplace_back();
          input.reg = reg;
          input.producer = edges_.IdOf(from);
          input.slots = static_cast<uint32_t>(out.slots);
          input.period = 1;
          input.memory = LandingOf(group, piece, reg);
        }
        operand.source = plan::Operand::Source::kInput;
        operand.index = it->second;
        operand.shard = {&movement.source, piece.move.region};
      }
      move.box = piece.move.region;
      move.add = piece.move.add;
      if (!piece.move.add) covered += piece.move.region.size.num_elements();
    }
    const Region whole = RegionOf(movement.destination, group.placement, rank);
    const int task_device = group.placement.device(rank).device;
    SetPart(out.parts[0], {false, 0, task_device}, copy.destination);
    copy.destination.shard = {&movement.destination, whole};
    copy.zero_first = covered < whole.size.num_elements();
    copy.reduction = movement.reduction;
    for (GroupRegisterId id : group.outputs) {
      const Register& reg = graph_.reg(id);
      AddConsumers(edges_.ConsumersOf(reg, key.number), AddOutput(reg, key, task));
    }
  }

  void EmitTransfer(const TaskGroup& group, ExchangeTasks& exchange,
                    const ExchangeTasks::Transfer& transfer) {
    const Movement& movement = *group.movement();
    const Register& in = graph_.reg(group.inputs[0].reg);
    const Register& out = graph_.reg(group.outputs[0]);
    const int source_rank = transfer.source_rank;
    const TaskKey key{group.id, exchange.TransferTask(source_rank, transfer.owner)};
    const int device = exchange.source().device(source_rank).device;
    const int peer = exchange.destination().device(transfer.owner).node;
    plan::Task& task = StartTask(group, key);
    AddInput(in, edges_.SourceAt(in, source_rank), group.inputs[0].period, device, task);

    auto& work = task.work.emplace<plan::Transfer>();
    SetPart(in.parts[movement.part], {true, 0, device}, work.source);
    work.source.shard = {&movement.source,
                         RegionOf(movement.source, exchange.source(), source_rank)};
    work.box = transfer.region;
    work.bytes = static_cast<uint64_t>(exchange.BytesOf(transfer.region));
    work.peer = static_cast<uint32_t>(peer);
    if (!IsOneRun(work.box, work.source.shard.region)) {
      work.staging = TakeMemory(device, in.memory, Aligned(work.bytes));
    }
    peers_.insert(static_cast<uint32_t>(peer));
    link_bytes_[work.peer] += work.bytes * static_cast<uint64_t>(group.acts_per_step);

    plan::Output& landing = task.outputs.emplace_back();
    landing.reg = edges_.LandingId(group, key.number);
    landing.slots = static_cast<uint32_t>(out.slots);
    landing.period = 1;
    plan::Memory& memory = landing.memory.emplace();
    memory.bytes = memory.stride =
        transfer.is_direct ? static_cast<uint64_t>(out.slot_bytes) : Aligned(work.bytes);
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

  static uint64_t& BytesIn(plan::Arena& arena, MemoryKind kind) {
    return kind == MemoryKind::kPinned ? arena.pinned_bytes : arena.bytes;
  }

  // At the end of what was taken so far.
  plan::Memory TakeMemory(int device, MemoryKind kind, uint64_t bytes) {
    uint64_t& end = BytesIn(arenas_[device], kind);
    const plan::Memory memory{.device = static_cast<uint32_t>(device), .kind = kind, .offset = end};
    end += bytes;
    return memory;
  }

  void MeasureArenas() {
    const auto arena_of = [&](const Placement& placement, int rank) -> plan::Arena& {
      const int device = placement.device(rank).device;
      plan::Arena& arena = arenas_[device];
      arena.device = static_cast<uint32_t>(device);
      arena.device_type = graph_.kinds.of(node_).name;
      return arena;
    };
    for (const TaskGroup& group : graph_.groups()) {
      const auto scratch = static_cast<uint64_t>(EndOfScratch(group));
      const auto stream = static_cast<size_t>(group.stream);
      for (int rank : group.placement.RanksOn(node_)) {
        uint64_t& area = arena_of(group.placement, rank).scratch_bytes[stream];
        area = std::max(area, Aligned(scratch));
      }
    }
    for (const Register& reg : graph_.registers()) {
      if (!reg.has_memory()) continue;
      const auto end = static_cast<uint64_t>(reg.offset + reg.span_bytes());
      for (int rank : reg.placement.RanksOn(node_)) {
        uint64_t& bytes = BytesIn(arena_of(reg.placement, rank), reg.memory);
        bytes = std::max(bytes, Aligned(end));
      }
    }
  }

  const PhysicalGraph& graph_;
  const int node_;
  PlanEdges edges_;
  // Of the task being made: its rank's coordinate; group input -> task input.
  std::vector<int64_t> coordinate_;
  std::vector<uint32_t> input_index_;
  std::map<int, plan::Arena> arenas_;      // by device
  std::map<uint32_t, uint64_t> landings_;  // landing register -> arena offset
  // By lowest rank, dimension of the hierarchy and placement, which takes longest to compare.
  std::map<std::tuple<int, int, Placement>, MemberList> member_lists_;
  std::set<uint32_t> peers_;
  std::map<uint32_t, uint64_t> link_bytes_;
  plan::NodePlan plan_;
};

}  // namespace

absl::StatusOr<plan::NodePlan> ExpandPlan(const PhysicalGraph& graph, int node) {
  return Expander(graph, node).Expand();
}

int64_t NumCollectiveIds(const PhysicalGraph& graph) {
  int64_t ids = 0;
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Collective>()) ids += group.placement.size();
  }
  return ids;
}

}  // namespace braid::compiler
