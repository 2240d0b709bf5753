// Casts that the passes of --precision add: one for each tensor, type and placement.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/logical_graph.h"

namespace braid::compiler {

class CastCopies {
 public:
  explicit CastCopies(LogicalGraph& graph) : graph_(graph) {}

  // "<producer>.<dtype>", where the op that reads it is.
  TensorId Of(TensorId tensor, DType dtype, OpId reader);
  // The casts, each with the op that it was made for.
  const std::vector<std::pair<OpId, OpId>>& first_readers() const { return first_readers_; }

 private:
  LogicalGraph& graph_;
  std::map<std::tuple<TensorId, DType, std::string>, TensorId> copies_;
  std::vector<std::pair<OpId, OpId>> first_readers_;
};

}  // namespace braid::compiler
