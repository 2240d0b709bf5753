#include "compiler/logical/precision.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

class Narrowing {
 public:
  Narrowing(LogicalGraph& graph, DType compute) : graph_(graph), compute_(compute) {}

  void Run() {
    const auto count = static_cast<OpId>(graph_.ops().size());  // the casts that follow need none
    for (OpId id = 0; id < count; ++id) {
      const OpDef& def = DefOf(graph_, graph_.op(id));
      const bool is_inside = def.is_narrow_inside() && compute_ == DType::kBF16;
      if (is_inside && MakesF32(graph_.op(id))) {
        graph_.mutable_op(id).attrs.Set("compute", compute_);
      }
      const std::vector<int>& narrow = def.narrow_inputs();
      if (!IsCandidate(graph_.op(id), narrow)) continue;
      for (int input : narrow) {
        const TensorId copy = NarrowCopy(graph_.op(id).inputs[input], id);
        graph_.mutable_op(id).inputs[input] = copy;
      }
      graph_.mutable_op(id).attrs.Set("dtype", DType::kF32);
    }
    // A copy is made beside what it is of, while that is in the cache; one of a variable beside its
    // first reader, for it need not wait there.
    std::vector<OpId> keys(graph_.ops().size());
    std::iota(keys.begin(), keys.end(), OpId{0});
    for (const auto& [copy, reader] : first_reader_) {
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

  TensorId NarrowCopy(TensorId tensor, OpId reader) {
    const Op& consumer = graph_.op(reader);  // until the graph gets another op
    const auto [found, is_new] = copies_.try_emplace(
        {tensor, consumer.placement.has_value() ? consumer.placement->ToString() : ""}, kNone);
    if (is_new) {
      const Tensor wide(&graph_, tensor);
      const Tensor copy = graph_.Append1(
          "cast", {&wide, 1},
          {.name = absl::StrCat(graph_.producer(tensor).name, ".", std::string(ToString(compute_))),
           .attrs = {{"dtype", compute_}},
           .location = consumer.location,
           .placement = consumer.placement});
      CHECK(copy.valid()) << graph_.status();
      found->second = copy.id();
      first_reader_.emplace_back(graph_.producer(copy.id()).id, reader);
    }
    return found->second;
  }

  LogicalGraph& graph_;
  const DType compute_;
  std::map<std::pair<TensorId, std::string>, TensorId> copies_;  // by source and placement
  std::vector<std::pair<OpId, OpId>> first_reader_;              // of each copy
};

}  // namespace

LogicalGraph NarrowProducts(LogicalGraph graph, DType compute) {
  CHECK(compute == DType::kBF16 || compute == DType::kF16) << ToString(compute);
  Narrowing(graph, compute).Run();
  return graph;
}

}  // namespace braid::compiler
