// Real numbers for PhysicalGraphs without a runtime: cuts a logical tensor into what each rank
// holds, runs boxing groups on it, counts the bytes that cross devices, and joins the result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

using Numbers = std::vector<double>;  // dense and row-major
using PerRank = std::vector<Numbers>;

// Small integers, so that sums are exact in any order.
Numbers TestValues(const Shape& shape);
// What every rank holds of micro-batch 0. Partial values are made up so that their sum (or largest,
// or smallest) is right.
PerRank Cut(const Numbers& logical, const TensorLayout& layout, const Placement& placement);
// "" if the ranks' values mean `logical`, else what is wrong.
std::string Compare(const PerRank& values, const Numbers& logical, const TensorLayout& layout,
                    const Placement& placement);

class Interpreter {
 public:
  explicit Interpreter(const PhysicalGraph& graph) : graph_(graph) {}
  void Set(GroupRegisterId reg, PerRank values) { values_[reg] = std::move(values); }
  const PerRank& Get(GroupRegisterId reg) const { return values_.at(reg); }
  // Runs one act of an exchange, a collective, or a compute group of boxing kernels.
  void Run(const TaskGroup& group);

  int64_t total_bytes() const;
  int64_t busiest_bytes() const;  // sent or received

 private:
  void RunExchange(const TaskGroup& group);
  void RunCollective(const TaskGroup& group);
  // Of ranks that act together.
  void RunTeam(const TaskGroup& group, const std::vector<int>& team, PerRank& output);
  void RunKernel(const TaskGroup& group);
  void Count(const DeviceId& from, const DeviceId& to, int64_t elements, DType dtype);

  const PhysicalGraph& graph_;
  std::map<GroupRegisterId, PerRank> values_;
  std::map<DeviceId, int64_t> sent_, received_;
};

}  // namespace braid::compiler
