// Computes graphs whose sources are all known: what a model computes from shapes and constants is
// numbers before the job is compiled.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/logical_graph.h"
#include "runtime/array.h"
#include "runtime/kernels/kernel.h"

namespace braid::onnx {

struct FoldOptions {
  int64_t max_bytes = 4 << 20;  // of all tensors together
};

// The values of `outputs`, computed op by op with whole tensors. `fed` has those of `input` ops.
// None if the graph has ops whose value is not known before a job runs (variables, random numbers)
// or is larger than allowed.
absl::StatusOr<std::optional<std::vector<Array>>> Fold(
    const LogicalGraph& graph, const std::map<TensorId, std::shared_ptr<const Array>>& fed,
    const std::vector<Tensor>& outputs, const KernelRegistry& kernels, FoldOptions options = {});

}  // namespace braid::onnx
