// LogicalGraph -> PhysicalGraph: the passes in order. This file is the compiler's table of
// contents; each pass is a pure function in a file of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/cost.h"
#include "compiler/logical/infer_placement.h"
#include "compiler/machine.h"
#include "compiler/plan/channel_blocks.h"
#include "compiler/plan/physical_graph.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

struct CompileOptions {
  std::string job;
  Placement all_devices;  // where ops go that the user did not place
  // Where a host program is: feeds come from there, fetches go there. Of several devices, each
  // program feeds the whole value and gets it.
  Placement master;
  int num_nodes = 1;
  NodeKinds kinds;                     // of the nodes' devices
  uint64_t seed = 0;                   // of the job's random numbers
  VariableLayouts fixed;               // by jobs before this one
  DType precision = DType::kF32;       // what products compute in: f32, bf16 or f16
  bool winograd = true;                // convolutions may sum by Winograd's algorithm
  int64_t channel_block = kWideBlock;  // most, of tensors in blocks of channels on CPUs
  int64_t device_memory_bytes = 0;     // of a device; 0: not checked
  int64_t kept_bytes = 0;              // of these, what jobs keep that are loaded
  bool explain = false;                // fill Compiled::explanations
  // Layouts are drawn by this seed among all that are legal, instead of the cheapest.
  std::optional<uint64_t> layout_seed = std::nullopt;
  Machine machine;   // whose times decide on layouts and routes
  Machine estimate;  // whose times the estimate is in; its hosts are the machine's
};

struct Compiled {
  LogicalGraph logical;  // after the last logical pass: placements, acts and layouts chosen
  PhysicalGraph physical;
  StepEstimate estimate;
  // By op: what its layout costs, and what it could have chosen at what cost.
  std::map<std::string, std::string> explanations;
};

// Deterministic: two calls give the same text, and so the same plan bytes. Errors name the op, the
// user's line and both values.
absl::StatusOr<Compiled> Compile(LogicalGraph graph, const CompileOptions& options);

}  // namespace braid::compiler
