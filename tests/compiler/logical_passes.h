// What the tests of the logical passes share: operators, devices, the passes in order.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/boxing/boxing.h"
#include "compiler/logical/infer_placement.h"
#include "compiler/logical/infer_sbp.h"
#include "compiler/logical/micro_batch.h"
#include "graph/op_registry.h"
#include "runtime/base/status.h"

namespace braid::compiler {

inline const OpRegistry& Registry() {
  static const OpRegistry& registry = *new OpRegistry(BuiltinOps());
  return registry;
}

inline Placement Devices(int nodes, int per_node) {
  std::vector<DeviceId> devices;
  for (int n = 0; n < nodes; ++n) {
    for (int d = 0; d < per_node; ++d) devices.push_back({n, d});
  }
  return Placement("cpu", devices);
}

inline absl::StatusOr<LogicalGraph> RunPasses(LogicalGraph graph, const Placement& devices,
                                              const InferSbpOptions& options = {}) {
  BRAID_ASSIGN_OR_RETURN(
      graph, InferPlacement(std::move(graph), devices, devices.Slice(0, 1), options.fixed));
  BRAID_ASSIGN_OR_RETURN(graph, MicroBatch(std::move(graph)));
  BoxingPlanner planner;
  return InferSbp(std::move(graph), planner, options);
}

inline absl::StatusOr<LogicalGraph> RunPasses(const std::string& text, const Placement& devices,
                                              const InferSbpOptions& options = {}) {
  BRAID_ASSIGN_OR_RETURN(LogicalGraph graph, LogicalGraph::Parse(text, &Registry()));
  return RunPasses(std::move(graph), devices, options);
}

// The graph of `text` after one pass, as text that begins with a new line, or what Parse says.
template <class Pass>
std::string Rewritten(const std::string& text, Pass pass) {
  const auto graph = LogicalGraph::Parse(text, &Registry());
  if (!graph.ok()) return std::string(graph.status().message());
  return absl::StrCat("\n", pass(*graph).ToString());
}

}  // namespace braid::compiler
