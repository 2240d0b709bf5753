// Runs a LogicalGraph on whole tensors, op by op with one device's kernels: what any compiled and
// distributed run of the same graph must agree with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/logical_graph.h"
#include "runtime/array.h"
#include "runtime/kernels/kernel.h"

namespace braid {

class GraphInterpreter {
 public:
  // Makes every kernel, and gives variables the values that their `init` says. Only `variable`,
  // `input` and `fetch` need no kernel in the registry, which must outlive the interpreter.
  // INVALID_ARGUMENT or NOT_FOUND if a kernel cannot be made.
  static absl::StatusOr<GraphInterpreter> Make(const LogicalGraph& graph,
                                               const KernelRegistry& kernels, uint64_t seed = 1);

  // The value of an `input` or a `variable` from the next Run on (CHECK: there is one of that
  // type).
  void Set(std::string_view name, Array value);
  // One step. Ops that overwrite variables come last; every other op sees the values from before.
  absl::Status Run(int64_t step = 0);

  // Of the last Run. A variable's tensor has the value that the step began with.
  const Array& value(TensorId id) const { return values_[id]; }
  const Array& value(Tensor tensor) const { return values_[tensor.id()]; }
  const std::map<std::string, Array>& fetched() const { return fetched_; }  // by the fetch's name
  // What variables hold now, by op name.
  const std::map<std::string, Array, std::less<>>& variables() const { return variables_; }

 private:
  struct Step {
    OpId op;
    std::vector<int> mutates;
    std::unique_ptr<Kernel> kernel;
  };

  explicit GraphInterpreter(const LogicalGraph& graph) : graph_(graph) {}
  absl::Status MakeKernels(const KernelRegistry& kernels, uint64_t seed);
  absl::Status RunStep(const Step& step, int64_t number);

  LogicalGraph graph_;
  std::vector<Step> steps_;    // those that mutate come last
  std::vector<Array> values_;  // by tensor
  std::map<std::string, Array, std::less<>> inputs_, variables_;
  std::map<std::string, Array> fetched_;
};

}  // namespace braid
