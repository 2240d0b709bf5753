// The pass that lays every tensor over the devices of its placement: it sets input_sbp and
// output_sbp of every op. It stands last among the logical passes; where producer and consumer
// differ, lower asks boxing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/boxing/boxing.h"
#include "compiler/cost.h"
#include "compiler/logical/infer_placement.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

struct InferSbpOptions {
  VariableLayouts fixed;  // by jobs before this one; as strong as hints
  // Of variables of so many bytes or more, without a hint, each device has a part; 0: of none.
  int64_t split_from = 0;
  // Not null: gets, for every op that had a choice, by its name a line with its alternatives.
  std::map<std::string, std::string>* explanations = nullptr;
  // Layouts are drawn by this seed among all that are legal, instead of the cheapest.
  std::optional<uint64_t> layout_seed = std::nullopt;
};

// Hints hold or are errors. Without them: readers and feeds are S(0), variables B or, by
// `split_from`, split, optimizer states as their variable; then in topological order the legal
// signature with the least cost (see SignatureChooser), where
// - a split variable is used as it is split where a signature can (it may not fit a device whole);
//   ToSbp gathers it;
// - an op of a gradient uses the tensors of its forward op as that op does;
// - an update has variable, gradient and states in the variable's layout; elementwise ops of the
//   optimizer before it (clipping) are drawn to that layout, so that the transfer is shared;
// - a constant or random tensor takes the layout that its first consumer wants.
// Needs the placements of InferPlacement. INVALID_ARGUMENT naming op, line and the legal signatures
// if a hint cannot hold.
absl::StatusOr<LogicalGraph> InferSbp(LogicalGraph graph, BoxingPlanner& planner,
                                      const InferSbpOptions& options = {});

}  // namespace braid::compiler
