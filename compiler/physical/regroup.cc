#include "compiler/physical/regroup.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// What is left of a group's work when its kernels have gone to another group.
using Work = decltype(TaskGroup::work);
Work WithoutKernels(const Compute&) { return Compute{}; }
Work WithoutKernels(const VariableOwner&) { return VariableOwner{}; }
template <typename Other>
Work WithoutKernels(const Other& work) {
  return work;
}

// Where an old register's parts went.
struct Place {
  GroupRegisterId reg = kNone;  // kNone: to scratch, or nowhere (a control edge that is gone)
  int first = 0;                // part of `reg`, or scratch of the group
};

class Rewriter {
 public:
  Rewriter(PhysicalGraph graph, const Regrouping& regrouping)
      : old_(std::move(graph)), regrouping_(regrouping), consumers_(old_.Consumers()) {}

  absl::StatusOr<PhysicalGraph> Run() {
    BRAID_ASSIGN_OR_RETURN(const std::vector<GroupId> order, old_.TopologicalOrder());
    NumberGroups(order);
    PlaceRegisters();
    result_.job = old_.job;
    result_.num_nodes = old_.num_nodes;
    result_.kinds = old_.kinds;
    result_.hosts = old_.hosts;
    result_.micro_batches = old_.micro_batches;
    result_.seed = old_.seed;
    result_.writes_variables = old_.writes_variables;
    result_.notes = std::move(old_.notes);
    for (const std::vector<GroupId>& members : members_) result_.AddGroup(Merge(members));
    result_.LayOutParts();
    BRAID_RETURN_IF_ERROR(result_.TopologicalOrder().status());
    return std::move(result_);
  }

 private:
  void NumberGroups(const std::vector<GroupId>& order) {
    std::vector<GroupId> number(old_.groups().size(), kNone);
    new_group_.resize(old_.groups().size());
    for (GroupId id : order) {
      GroupId& merged = number[regrouping_.group_of[id]];
      if (merged == kNone) {
        merged = static_cast<GroupId>(members_.size());
        members_.emplace_back();
      }
      new_group_[id] = merged;
      members_[merged].push_back(id);
    }
  }

  // Whether an edge is of no concern outside of one group.
  bool IsInternal(const Register& reg) const {
    const TaskGroup& producer = old_.group(reg.producer);
    const auto& consumers = consumers_[reg.id];
    const bool stays = std::all_of(consumers.begin(), consumers.end(), [&](const auto& consumer) {
      return new_group_[consumer.first] == new_group_[reg.producer];
    });
    if (!stays) return false;
    // A group's own next act follows anyway.
    if (reg.is_control()) return reg.initial_tokens > 0 || !consumers.empty();
    return producer.is<Compute>() && producer.stream != StreamKind::kInput &&
           reg.initial_tokens == 0 && reg.period == 1;
  }

  void PlaceRegisters() {
    places_.resize(old_.registers().size());
    scratch_.resize(members_.size());
    std::vector<int> list_of(old_.registers().size(), kNone);
    for (size_t list = 0; list < regrouping_.merged_registers.size(); ++list) {
      for (GroupRegisterId id : regrouping_.merged_registers[list]) {
        list_of[id] = static_cast<int>(list);
      }
    }
    std::vector<bool> is_placed(regrouping_.merged_registers.size(), false);
    for (size_t group = 0; group < members_.size(); ++group) {
      for (GroupId member : members_[group]) {
        for (GroupRegisterId id : old_.group(member).outputs) {
          if (list_of[id] == kNone) {
            PlaceAlone(id, scratch_[group]);
          } else if (!is_placed[list_of[id]]) {
            is_placed[list_of[id]] = true;
            AddRegister(regrouping_.merged_registers[list_of[id]]);
          }
        }
      }
    }
  }

  void PlaceAlone(GroupRegisterId id, std::vector<Scratch>& scratch) {
    Register& reg = old_.reg(id);
    if (reg.is_control() && regrouping_.dropped[id]) return;
    if (!IsInternal(reg)) {
      AddRegister({id});
      return;
    }
    places_[id].first = static_cast<int>(scratch.size());
    for (Part& part : reg.parts) scratch.push_back({.layout = std::move(part.layout)});
  }

  void AddRegister(const std::vector<GroupRegisterId>& ids) {
    Register reg = std::move(old_.reg(ids[0]));
    old_.reg(ids[0]).producer = reg.producer;
    const GroupId producer = new_group_[reg.producer];
    const auto number = static_cast<GroupRegisterId>(result_.registers().size());
    places_[ids[0]] = {number, 0};
    for (size_t i = 1; i < ids.size(); ++i) {
      Register& other = old_.reg(ids[i]);
      CHECK_EQ(new_group_[other.producer], producer) << reg.name << " and " << other.name;
      CHECK_EQ(other.period, reg.period) << reg.name << " and " << other.name;
      CHECK_EQ(other.initial_tokens, reg.initial_tokens) << reg.name << " and " << other.name;
      CHECK_EQ(other.is_control(), reg.is_control()) << reg.name << " and " << other.name;
      CHECK_EQ(other.is_by_lane, reg.is_by_lane) << reg.name << " and " << other.name;
      reg.slots = std::max(reg.slots, other.slots);
      reg.least_slots = std::max(reg.least_slots, other.least_slots);
      places_[ids[i]] = {number, static_cast<int>(reg.parts.size())};
      std::move(other.parts.begin(), other.parts.end(), std::back_inserter(reg.parts));
      if (i + 1 == ids.size() && !reg.is_control()) {
        absl::StrAppend(&reg.name, "..", other.name, " (", reg.parts.size(), " tensors)");
      }
    }
    reg.producer = producer;
    result_.AddRegister(std::move(reg));
  }

  TaskGroup Merge(const std::vector<GroupId>& ids) {
    const std::string last_name = old_.group(ids.back()).name;
    const GroupId number = new_group_[ids[0]];
    TaskGroup merged = std::move(old_.group(ids[0]));
    // The members' own ends are still needed to follow their operands.
    std::vector<TaskGroup> members;
    members.push_back({.inputs = std::exchange(merged.inputs, {}),
                       .outputs = std::exchange(merged.outputs, {}),
                       .work = std::move(merged.work)});
    merged.work =
        std::visit([](const auto& work) { return WithoutKernels(work); }, members[0].work);
    Movement* const movement = merged.movement();
    for (size_t i = 1; i < ids.size(); ++i) {
      TaskGroup& member = old_.group(ids[i]);
      CHECK(member.work.index() == merged.work.index() && member.stream == merged.stream &&
            member.acts_per_step == merged.acts_per_step)
          << merged.name << " and " << member.name;
      // Several together take all parts of their common registers; they describe the first.
      if (movement != nullptr && places_[member.outputs.at(0)].first == 0) {
        movement->source = member.movement()->source;
        movement->destination = member.movement()->destination;
      }
      members.push_back(std::move(member));
    }
    if (movement != nullptr) {
      movement->part =
          ids.size() > 1 ? 0 : movement->part + places_[members[0].inputs.at(0).reg].first;
    }
    if (auto* const compute = std::get_if<Compute>(&merged.work)) {
      compute->scratch = std::move(scratch_[number]);
    }
    for (const TaskGroup& member : members) AddEnds(member, number, merged);
    for (TaskGroup& member : members) AddKernels(member, number, merged);
    if (ids.size() > 1) Name(last_name, merged);
    return merged;
  }

  void AddEnds(const TaskGroup& member, GroupId number, TaskGroup& merged) {
    index_.resize(result_.registers().size());
    for (GroupRegisterId id : member.outputs) {
      const GroupRegisterId reg = places_[id].reg;
      if (reg == kNone || index_[reg].output_of == number) continue;
      index_[reg].output_of = number;
      index_[reg].output = static_cast<int>(merged.outputs.size());
      merged.outputs.push_back(reg);
    }
    for (const GroupInput& input : member.inputs) {
      const GroupRegisterId reg = places_[input.reg].reg;
      if (reg == kNone) continue;
      const Register& of = result_.reg(reg);
      if (of.producer == number && of.initial_tokens == 0) {
        CHECK_EQ(of.period, input.period) << merged.name << " reads its own " << of.name;
        continue;
      }
      if (index_[reg].input_of == number) {
        CHECK_EQ(merged.inputs[index_[reg].input].period, input.period)
            << merged.name << " reads " << of.name;
        continue;
      }
      index_[reg].input_of = number;
      index_[reg].input = static_cast<int>(merged.inputs.size());
      merged.inputs.push_back({.reg = reg, .period = input.period});
    }
  }

  void AddKernels(TaskGroup& member, GroupId number, TaskGroup& merged) {
    if (auto* const compute = std::get_if<Compute>(&merged.work)) {
      auto& from = std::get<Compute>(member.work);
      const auto first_scratch = static_cast<int>(compute->scratch.size());
      std::move(from.scratch.begin(), from.scratch.end(), std::back_inserter(compute->scratch));
      MoveOperands(member, number, first_scratch);
      std::move(from.kernels.begin(), from.kernels.end(), std::back_inserter(compute->kernels));
      if (from.lanes > 0) {  // it is alone
        compute->served = std::move(from.served);
        compute->lanes = from.lanes;
      }
    } else if (auto* const variable = std::get_if<VariableOwner>(&merged.work)) {
      MoveOperands(member, number, 0);
      const std::span<KernelCall> kernels = member.kernels();
      std::move(kernels.begin(), kernels.end(), std::back_inserter(variable->kernels));
    }
  }

  // The operands of the member's kernels become those of the group `number`, whose scratch holds
  // the member's from `first_scratch` on.
  void MoveOperands(TaskGroup& member, GroupId number, int first_scratch) {
    const auto move_ref = [&](OperandRef& ref) {
      if (ref.source == OperandRef::Source::kScratch) {
        ref.index += first_scratch;
        return;
      }
      if (ref.source == OperandRef::Source::kServed) return;
      const GroupRegisterId old = ref.source == OperandRef::Source::kInput
                                      ? member.inputs[ref.index].reg
                                      : member.outputs[ref.index];
      const Place& place = places_[old];
      ref.part += place.first;
      if (place.reg == kNone) {
        ref = {OperandRef::Source::kScratch, ref.part, 0};
      } else if (index_[place.reg].output_of == number) {
        ref.source = OperandRef::Source::kOutput;
        ref.index = index_[place.reg].output;
      } else {
        ref.source = OperandRef::Source::kInput;
        ref.index = index_[place.reg].input;
      }
    };
    for (KernelCall& kernel : member.kernels()) {
      for (OperandRef& ref : kernel.inputs) move_ref(ref);
      for (OperandRef& ref : kernel.outputs) move_ref(ref);
    }
  }

  void Name(const std::string& last, TaskGroup& merged) const {
    const std::span<const KernelCall> kernels = std::as_const(merged).kernels();
    if (merged.is<Compute>()) {
      merged.name = absl::StrCat("chain ", kernels.front().name, "..", kernels.back().name, " (",
                                 kernels.size(), " ops)");
    } else if (merged.is<VariableOwner>()) {
      absl::StrAppend(&merged.name, "..", last, " (", kernels.size(), " variables)");
    } else {
      merged.name = result_.reg(merged.outputs.at(0)).name;
    }
  }

  // A new register's position among the ends of the group that was built last with it.
  struct Index {
    GroupId input_of = kNone, output_of = kNone;
    int input = 0, output = 0;
  };

  PhysicalGraph old_;
  const Regrouping& regrouping_;
  const std::vector<std::vector<std::pair<GroupId, int>>> consumers_;
  std::vector<GroupId> new_group_;             // by old group
  std::vector<std::vector<GroupId>> members_;  // by new group, in topological order
  std::vector<Place> places_;                  // by old register
  std::vector<std::vector<Scratch>> scratch_;  // by new group
  std::vector<Index> index_;                   // by new register
  PhysicalGraph result_;
};

}  // namespace

Regrouping::Regrouping(const PhysicalGraph& graph)
    : group_of(graph.groups().size()), dropped(graph.registers().size(), false) {
  std::iota(group_of.begin(), group_of.end(), 0);
}

absl::StatusOr<PhysicalGraph> Regroup(PhysicalGraph graph, const Regrouping& regrouping) {
  return Rewriter(std::move(graph), regrouping).Run();
}

}  // namespace braid::compiler
