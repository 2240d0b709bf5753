// The test cases of the ONNX standard: directories with a model, and what it makes of given inputs.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/logical_graph.h"
#include "graph/op_registry.h"
#include "runtime/array.h"

namespace braid::conformance {

struct OnnxCase {
  LogicalGraph graph;
  std::map<std::string, Array> feeds;  // of ops `input` and `variable`
  std::vector<std::pair<TensorId, Array>> expected;
};

// UNIMPLEMENTED, with the reason in few words, if the model needs what Braid does not have; other
// errors are faults, of the files or of the operators.
absl::StatusOr<OnnxCase> ReadOnnxCase(const std::string& directory, const OpRegistry& ops);

}  // namespace braid::conformance
