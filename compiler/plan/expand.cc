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
#include "compiler/plan/collective_traffic.h"
#include "compiler/plan/expand_exchange.h"
#include "compiler/plan/plan_edges.h"
#include "compiler/plan/task_writer.h"
#include "glog/logging.h"
#include "runtime/base/members_by_host.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

class Expander {
 public:
  Expander(const PhysicalGraph& graph, int node) : writer_(graph, node), exchanges_(&writer_) {}

  absl::StatusOr<plan::NodePlan> Expand() {
    BRAID_RETURN_IF_ERROR(writer_.edges.Number());
    writer_.node_plan.job = writer_.graph.job;
    writer_.node_plan.node = static_cast<uint32_t>(writer_.node);
    writer_.node_plan.seed = writer_.graph.seed;
    size_t num_tasks = 0;
    for (const TaskGroup& group : writer_.graph.groups()) {
      num_tasks += group.placement.RanksOn(writer_.node).size();
    }
    writer_.node_plan.tasks.reserve(num_tasks);
    MeasureArenas();
    for (const TaskGroup& group : writer_.graph.groups()) {
      std::visit([&](const auto& work) { Emit(group, work); }, group.work);
    }
    for (auto& [device, arena] : writer_.arenas)
      writer_.node_plan.arenas.push_back(std::move(arena));
    writer_.node_plan.peers.assign(writer_.peers.begin(), writer_.peers.end());
    writer_.node_plan.links.assign(writer_.link_bytes.begin(), writer_.link_bytes.end());
    return std::move(writer_.node_plan);
  }

 private:
  // ---- tasks -----------------------------------------------------------------------------------

  // Everything but an exchange is one task per rank.
  template <typename Work>
  void Emit(const TaskGroup& group, const Work& work) {
    for (int rank : group.placement.RanksOn(writer_.node)) {
      plan::Task& task = writer_.StartTask(group, {group.id, rank});
      coordinate_ = group.placement.CoordinateOf(rank);
      input_index_.assign(group.inputs.size(), 0);
      for (size_t i = 0; i < group.inputs.size(); ++i) {
        const Register& reg = writer_.graph.reg(group.inputs[i].reg);
        input_index_[i] = static_cast<uint32_t>(task.inputs.size());
        if (reg.is_by_lane) {
          exchanges_.AddPushes(writer_.graph.group(reg.producer), rank, task);
          continue;
        }
        for (const PlanEdges::Source& source : writer_.edges.SourcesOf(reg, group, rank)) {
          writer_.AddInput(reg, source, group.inputs[i].period, group.placement.device(rank).device,
                           task);
        }
      }
      for (GroupRegisterId id : group.outputs) {
        const Register& reg = writer_.graph.reg(id);
        if (!reg.is_by_lane) {
          writer_.AddConsumers(writer_.edges.ConsumersOf(reg, rank),
                               writer_.AddOutput(reg, {group.id, rank}, task));
          continue;
        }
        for (int lane = 0; lane < group.lanes(); ++lane) {
          writer_.AddConsumers(writer_.edges.PullsOf(reg, rank, lane),
                               writer_.AddOutput(reg, {group.id, rank}, task, lane));
        }
      }
      SetWork(group, work, rank, task);
    }
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
        writer_.SetPart(writer_.graph.reg(group.inputs[ref.index].reg).parts[ref.part],
                        {true, input_index_[ref.index], group.placement.device(rank).device},
                        operand);
        break;
      case OperandRef::Source::kOutput:
        writer_.SetPart(
            writer_.graph.reg(group.outputs[ref.index]).parts[ref.part],
            {false, static_cast<uint32_t>(ref.index), group.placement.device(rank).device},
            operand);
        break;
      case OperandRef::Source::kScratch: {
        const Scratch& scratch = std::get<Compute>(group.work).scratch[ref.index];
        CHECK_GE(scratch.offset, 0) << group.name << " has unplanned scratch";
        operand.source =
            scratch.is_kept ? plan::Operand::Source::kKept : plan::Operand::Source::kScratch;
        operand.index = static_cast<uint32_t>(ref.index);
        operand.offset = static_cast<uint64_t>(scratch.offset);
        break;
      }
      case OperandRef::Source::kServed:
        operand.source = plan::Operand::Source::kVariable;
        operand.variable = std::get<Compute>(group.work).served[ref.index].name;
        operand.index = static_cast<uint32_t>(group.placement.device(rank).device);
        break;
    }
  }

  void SetWork(const TaskGroup& group, const VariableOwner& work, int rank, plan::Task& task) {
    auto& owner = task.work.emplace<plan::VariableOwner>();
    for (const Part& part : writer_.graph.reg(group.outputs[0]).parts) {
      plan::Variable& variable = owner.variables.emplace_back();
      variable.name = part.variable;
      variable.shard = {&part.layout, RegionOf(part.layout, group.placement, coordinate_)};
      for (const KernelCall& call : work.kernels) {
        if (call.name == part.variable) variable.init = &call.attrs;
      }
      writer_.arenas[group.placement.device(rank).device].variable_bytes +=
          static_cast<uint64_t>(BytesOf(part.layout, group.placement, rank));
    }
  }

  void SetWork(const TaskGroup& group, const Staging&, int rank, plan::Task& task) {
    auto& staging = task.work.emplace<plan::Staging>();
    const Register& from = writer_.graph.reg(group.inputs[0].reg);
    const Register& to = writer_.graph.reg(group.outputs[0]);
    const int device = group.placement.device(rank).device;
    for (size_t i = 0; i < from.parts.size(); ++i) {
      plan::Staging::Part& part = staging.parts.emplace_back();
      writer_.SetPart(from.parts[i], {true, input_index_[0], device}, part.from);
      writer_.SetPart(to.parts[i], {false, 0, device}, part.to);
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
    int64_t hosts = 1;  // NumHostsAlike
  };
  const MemberList& MembersOf(const Placement& placement, int dim, int lowest) {
    const auto [found, is_new] = member_lists_.try_emplace({lowest, dim, placement});
    MemberList& list = found->second;
    if (!is_new) return list;
    list.number = static_cast<uint32_t>(writer_.node_plan.members.size());
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
    plan::Members& members = writer_.node_plan.members.emplace_back();
    for (int member : list.ranks) {
      const DeviceId& device = placement.device(member);
      members.nodes.push_back(static_cast<uint32_t>(device.node));
      members.devices.push_back(static_cast<uint32_t>(device.device));
      members.hosts.push_back(writer_.graph.HostOf(device.node));
      list.nodes.insert(device.node);
    }
    list.hosts = NumHostsAlike(members.hosts);
    for (int node : list.nodes) {
      if (node != writer_.node) writer_.peers.insert(static_cast<uint32_t>(node));
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
    collective.id = static_cast<uint32_t>(writer_.edges.first_collective(group.id) + lowest);
    collective.kind = work.kind;
    const CollectiveMethod& method = list.nodes.size() == 1 ? work.on_one_node
                                     : list.hosts > 1       ? work.between_hosts
                                                            : work.between_nodes;
    collective.algorithm = method.algorithm;
    collective.chunk_bytes = static_cast<uint64_t>(method.chunk_bytes);
    collective.members = list.number;
    collective.rank = static_cast<uint32_t>(my_rank);
    collective.dtype = work.movement.source.type.dtype;
    collective.reduction = work.movement.reduction;
    Count(group, members, rank, collective);
    SetVector(group, rank, true, collective.input);
    SetVector(group, rank, false, collective.output);
    // What devices move by themselves no link does.
    if (collective.algorithm != CollectiveAlgorithm::kDevice) CountBytes(group, list, collective);
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
        counts.push_back(IsBucket(group) ? writer_.graph.reg(group.outputs[0]).slot_bytes /
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
    return writer_.graph.reg(group.outputs[0]).parts.size() > 1;
  }

  void SetVector(const TaskGroup& group, int rank, bool is_input, plan::Operand& operand) {
    const Register& reg = writer_.graph.reg(is_input ? group.inputs[0].reg : group.outputs[0]);
    const Movement& movement = *group.movement();
    const int part = is_input && !IsBucket(group) ? movement.part : 0;
    writer_.SetPart(reg.parts[part],
                    {is_input, is_input ? input_index_[0] : 0, group.placement.device(rank).device},
                    operand);
    const TensorLayout& layout = is_input ? movement.source : movement.destination;
    operand.shard = {&layout, RegionOf(layout, group.placement, coordinate_)};
  }

  // What this member sends to members of other nodes.
  void CountBytes(const TaskGroup& group, const MemberList& list,
                  const plan::Collective& collective) {
    const auto [found, is_new] = sent_.try_emplace(collective.shape());
    std::map<uint32_t, int64_t>& elements = found->second;
    if (is_new) {
      const std::vector<int64_t> sent =
          ElementsSent(collective, writer_.node_plan.members[list.number].hosts);
      for (size_t to = 0; to < sent.size(); ++to) {
        if (sent[to] == 0) continue;  // of most: a ring sends to one
        const int node = group.placement.device(list.ranks[to]).node;
        if (node != writer_.node) elements[static_cast<uint32_t>(node)] += sent[to];
      }
    }
    const auto element = static_cast<int64_t>(SizeOf(collective.dtype));
    for (const auto& [node, count] : elements) {
      writer_.link_bytes[node] += static_cast<uint64_t>(count * element * group.acts_per_step);
    }
  }

  // All exchanges.
  void Emit(const TaskGroup& group, const Exchange&) { exchanges_.Write(group); }

  // ---- memory ----------------------------------------------------------------------------------

  void MeasureArenas() {
    const auto arena_of = [&](const Placement& placement, int rank) -> plan::Arena& {
      const int device = placement.device(rank).device;
      plan::Arena& arena = writer_.arenas[device];
      arena.device = static_cast<uint32_t>(device);
      arena.device_type = writer_.graph.kinds.of(writer_.node).name;
      return arena;
    };
    for (const TaskGroup& group : writer_.graph.groups()) {
      const auto scratch = static_cast<uint64_t>(EndOfScratch(group));
      const auto kept = static_cast<uint64_t>(EndOfKept(group));
      const auto stream = static_cast<size_t>(group.stream);
      for (int rank : group.placement.RanksOn(writer_.node)) {
        plan::Arena& arena = arena_of(group.placement, rank);
        arena.scratch_bytes[stream] = std::max(arena.scratch_bytes[stream], AlignedBytes(scratch));
        arena.kept_bytes = std::max(arena.kept_bytes, AlignedBytes(kept));
      }
    }
    for (const Register& reg : writer_.graph.registers()) {
      if (!reg.has_memory()) continue;
      const auto end = static_cast<uint64_t>(reg.offset + reg.span_bytes());
      for (int rank : reg.placement.RanksOn(writer_.node)) {
        uint64_t& bytes = writer_.BytesIn(arena_of(reg.placement, rank), reg.memory);
        bytes = std::max(bytes, AlignedBytes(end));
      }
    }
  }

  TaskWriter writer_;
  ExchangeWriter exchanges_;
  // Of the task being made: its rank's coordinate; group input -> task input.
  std::vector<int64_t> coordinate_;
  std::vector<uint32_t> input_index_;
  // By lowest rank, dimension of the hierarchy and placement, which takes longest to compare.
  std::map<std::tuple<int, int, Placement>, MemberList> member_lists_;
  std::map<plan::Collective::Shape, std::map<uint32_t, int64_t>> sent_;  // elements to other nodes
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
