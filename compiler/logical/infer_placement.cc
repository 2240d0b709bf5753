#include "compiler/logical/infer_placement.h"

#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/logical/placement_table.h"
#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

class PlacementPass {
 public:
  PlacementPass(LogicalGraph& graph, const Placement& all_devices, const Placement& master,
                const VariableLayouts& fixed)
      : graph_(graph),
        fixed_(fixed),
        all_devices_(table_.Id(all_devices)),
        master_(table_.Id(master)),
        place_(graph.ops().size(), kNone),
        by_user_(graph.ops().size(), false) {}

  absl::Status Run() {
    PlaceComputation();
    PlaceSources();
    PlaceUpdates();
    PlaceMirroredFetches();
    BRAID_RETURN_IF_ERROR(ChooseHierarchies());
    for (Op& op : graph_.mutable_ops()) op.placement = hierarchical_[place_[op.id]];
    return absl::OkStatus();
  }

 private:
  void PlaceComputation() {
    for (Op& op : graph_.mutable_ops()) {
      if (IsUpdate(graph_, op)) continue;
      if (HasRole(graph_, op, OpRole::kInput) || HasRole(graph_, op, OpRole::kFetch)) {
        // On one device every hint holds, and boxing distributes from there.
        op.hints.clear();
        const bool is_mirrored = op.placement.has_value() && Mirroring::Of(op.attrs).has_value();
        place_[op.id] = is_mirrored ? table_.Id(*op.placement) : master_;
        continue;
      }
      auto fixed = IsVariable(graph_, op) ? fixed_.find(op.name) : fixed_.end();
      if (fixed != fixed_.end()) {
        place_[op.id] = table_.Id(fixed->second.placement);
      } else if (op.placement.has_value()) {
        place_[op.id] = table_.Id(*op.placement);
        by_user_[op.id] = true;
      } else if (!op.inputs.empty()) {
        const OpId origin = Origin(op);
        place_[op.id] = origin == kNone ? all_devices_ : place_[origin];
        by_user_[op.id] = origin != kNone && by_user_[origin];
      }
    }
  }

  // The op whose place an unplaced op takes; kNone: all devices.
  OpId Origin(const Op& op) const {
    if (op.forward != kNone && place_[op.forward] != kNone) return op.forward;
    for (TensorId input : op.inputs) {
      const Op& producer = graph_.producer(input);
      if (by_user_[producer.id] && !IsVariable(graph_, producer)) return producer.id;
    }
    return kNone;
  }

  void PlaceSources() {
    const auto consumers = graph_.Consumers();
    std::vector<OpId> held_by_update(graph_.ops().size(), kNone);  // no other consumer
    for (const Op& op : graph_.ops()) {
      if (place_[op.id] != kNone || !op.inputs.empty()) continue;
      OpId first = kNone, update = kNone;
      for (TensorId output : op.outputs) {
        for (auto [consumer_id, index] : consumers[output]) {
          const Op& consumer = graph_.op(consumer_id);
          if (HasRole(graph_, consumer, OpRole::kFetch)) continue;
          OpId& slot = IsUpdate(graph_, consumer) ? update : first;
          if (slot == kNone || consumer_id < slot) slot = consumer_id;
        }
      }
      if (first != kNone) {
        place_[op.id] = place_[first];
      } else if (update != kNone && Leader(graph_.op(update)) != op.id) {
        held_by_update[op.id] = update;
      } else {
        place_[op.id] = all_devices_;
      }
    }
    for (const Op& op : graph_.ops()) {
      if (const OpId update = held_by_update[op.id]; update != kNone) {
        place_[op.id] = place_[Leader(graph_.op(update))];
      }
    }
  }

  void PlaceUpdates() {
    for (const Op& op : graph_.ops()) {
      if (!IsUpdate(graph_, op)) continue;
      place_[op.id] = place_[Leader(op)];
      for (int index : DefOf(graph_, op).mutates()) {
        place_[graph_.producer(op.inputs[index]).id] = place_[op.id];
      }
    }
  }

  // What is mirrored goes to the hosts of the devices that have it.
  void PlaceMirroredFetches() {
    for (const Op& op : graph_.ops()) {
      if (HasRole(graph_, op, OpRole::kFetch) && Mirroring::Of(op.attrs).has_value()) {
        place_[op.id] = place_[graph_.producer(op.inputs[0]).id];
      }
    }
  }

  OpId Leader(const Op& update) const {
    return graph_.producer(update.inputs[DefOf(graph_, update).mutates()[0]]).id;
  }

  absl::Status ChooseHierarchies() {
    // A variable that lies flat keeps its layout, whatever hierarchies others have.
    std::set<int> of_variables;
    for (const Op& op : graph_.ops()) {
      if (IsVariable(graph_, op) && fixed_.contains(op.name)) of_variables.insert(place_[op.id]);
    }
    for (int id = 0; id < table_.size(); ++id) {
      hierarchical_.push_back(table_[id]);
      if (table_[id].hierarchy().size() > 1 || of_variables.contains(id)) continue;
      for (const auto& [name, layout] : fixed_) {
        if (layout.placement.devices() == table_[id].devices() &&
            layout.placement.device_type() == table_[id].device_type()) {
          hierarchical_[id] = layout.placement;
          break;
        }
      }
    }
    for (const Op& op : graph_.ops()) {
      for (const auto& hint : op.hints) {
        if (hint.has_value() && hint->rank() > 1) BRAID_RETURN_IF_ERROR(FitHint(op, *hint));
      }
    }
    return absl::OkStatus();
  }

  // Makes the op's placement have as many dimensions as the hint.
  absl::Status FitHint(const Op& op, const NdSbp& hint) {
    Placement& placement = hierarchical_[place_[op.id]];
    const int rank = static_cast<int>(placement.hierarchy().size());
    if (rank == hint.rank()) return absl::OkStatus();
    const std::string what = absl::StrCat(op.type, " '", op.name, "': the hint ", hint.ToString(),
                                          " has ", hint.rank(), " dimensions, but ");
    const std::string where = absl::StrCat(" (", op.location.ToString(), ")");
    if (rank > 1 || hint.rank() > 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, "its placement's hierarchy is [", absl::StrJoin(placement.hierarchy(), ", "),
          "]; give the op a Placement with ", hint.rank(), " dimensions", where));
    }
    std::vector<std::pair<int, int64_t>> counts;  // (node, its devices), in rank order
    for (const DeviceId& device : placement.devices()) {
      if (counts.empty() || counts.back().first != device.node) counts.push_back({device.node, 0});
      ++counts.back().second;
    }
    const bool is_rectangular = std::all_of(counts.begin(), counts.end(), [&](const auto& count) {
      return count.second == counts[0].second;
    });
    if (!is_rectangular || static_cast<int>(counts.size()) != placement.num_nodes()) {
      const auto format = [](std::string* out, const std::pair<int, int64_t>& count) {
        absl::StrAppend(out, "node ", count.first, " has ", count.second);
      };
      return absl::InvalidArgumentError(absl::StrCat(
          what, "its nodes have unequal numbers of devices: ", absl::StrJoin(counts, ", ", format),
          "; use a hint of one dimension or place the op on equal nodes", where));
    }
    BRAID_ASSIGN_OR_RETURN(placement, placement.WithHierarchy(
                                          {static_cast<int64_t>(counts.size()), counts[0].second}));
    return absl::OkStatus();
  }

  LogicalGraph& graph_;
  const VariableLayouts& fixed_;
  PlacementTable table_;
  const int all_devices_, master_;
  std::vector<int> place_;               // per op: an id of table_
  std::vector<bool> by_user_;            // per op: the place comes from the user
  std::vector<Placement> hierarchical_;  // per id: with the hierarchy that its ops get
};

}  // namespace

absl::StatusOr<LogicalGraph> InferPlacement(LogicalGraph graph, const Placement& all_devices,
                                            const Placement& master, const VariableLayouts& fixed) {
  CHECK_GT(all_devices.size(), 0);
  CHECK_GE(master.size(), 1);
  BRAID_RETURN_IF_ERROR(PlacementPass(graph, all_devices, master, fixed).Run());
  return graph;
}

}  // namespace braid::compiler
