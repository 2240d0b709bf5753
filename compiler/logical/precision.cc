#include "compiler/logical/precision.h"

#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/logical/cast_copies.h"
#include "compiler/logical/prune.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

class Narrowing {
 public:
  Narrowing(LogicalGraph& graph, DType compute) : graph_(graph), compute_(compute) {}

  void Run(const KeepsNarrow& keeps) {
    const auto count = static_cast<OpId>(graph_.ops().size());  // the casts that follow need none
    for (OpId id = 0; id < count; ++id) {
      const OpDef& def = DefOf(graph_, graph_.op(id));
      if (HasNarrowInside(id) && compute_ == DType::kBF16 && !Keeps(keeps, id)) {
        graph_.mutable_op(id).attrs.Set("compute", compute_);
      }
      const std::vector<int>& narrow = def.narrow_inputs();
      if (!IsCandidate(graph_.op(id), narrow)) continue;
      for (int input : narrow) {
        const TensorId copy = copies_.Of(graph_.op(id).inputs[input], compute_, id);
        graph_.mutable_op(id).inputs[input] = copy;
      }
      graph_.mutable_op(id).attrs.Set("dtype", DType::kF32);
      products_.push_back(id);
    }
    if (keeps) KeepNarrow(graph_, compute_, products_, keeps, copies_);
    // A copy is made beside what it is of, while that is in the cache; one of a variable beside its
    // first reader, for it need not wait there.
    std::vector<OpId> keys(graph_.ops().size());
    std::iota(keys.begin(), keys.end(), OpId{0});
    for (const auto& [copy, reader] : copies_.first_readers()) {
      const Op& source = graph_.producer(graph_.op(copy).inputs[0]);
      keys[copy] = IsVariable(graph_, source) ? reader : source.id;
    }
    graph_.SortTopologically(keys);
  }

 private:
  bool IsF32(TensorId tensor) const { return graph_.type(tensor).dtype == DType::kF32; }
  bool MakesF32(const Op& op) const {
    return std::all_of(op.outputs.begin(), op.outputs.end(),
                       [this](TensorId output) { return IsF32(output); });
  }
  bool IsCandidate(const Op& op, const std::vector<int>& narrow) const {
    return !narrow.empty() && !op.attrs.Has("dtype") && MakesF32(op) &&
           std::all_of(narrow.begin(), narrow.end(),
                       [&](int input) { return IsF32(op.inputs[input]); });
  }

  bool HasNarrowInside(OpId id) const {
    const Op& op = graph_.op(id);
    return DefOf(graph_, op).has_narrow_inside() && MakesF32(op);
  }
  bool Keeps(const KeepsNarrow& keeps, OpId id) const {
    const Op& op = graph_.op(id);
    return keeps && op.placement.has_value() && keeps(*op.placement);
  }

  LogicalGraph& graph_;
  const DType compute_;
  CastCopies copies_{graph_};
  std::vector<OpId> products_;
};

}  // namespace

LogicalGraph NarrowProducts(LogicalGraph graph, DType compute, const KeepsNarrow& keeps) {
  CHECK(IsNarrow(compute)) << ToString(compute);
  Narrowing(graph, compute).Run(keeps);
  return keeps ? Prune(std::move(graph)) : std::move(graph);
}

}  // namespace braid::compiler
