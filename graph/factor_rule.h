// What of one use of an operator is split together: its factors, and through which inputs addends
// pass. The SBP signatures follow from it. The idea is Shardy's (OpShardingRuleAttr of
// https://openxla.org/shardy).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/attrs.h"
#include "graph/logical_graph.h"
#include "graph/sbp.h"

namespace braid {

// On one dimension of a hierarchy: one Sbp per input and per output.
struct SbpSignature {
  std::vector<Sbp> inputs;
  std::vector<Sbp> outputs;
  std::string ToString() const;  // "(S(0), B)->(S(0))"
  friend bool operator==(const SbpSignature&, const SbpSignature&) = default;
};

// What shape and signature functions see of a use of the operator.
struct OpContext {
  const Attrs& attrs;
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs = {};  // empty while they are inferred
};

// What is split in every operand that has it. An input without it is whole on each device; an
// output without it is then a partial result.
struct Factor {
  static constexpr int kAbsent = -1;
  static constexpr int64_t kWholeAxis = -1;
  // Per operand the axis that it is, or whose major part it is; kAbsent: the operand does not have
  // it.
  std::vector<int> inputs, outputs;
  // Its length, if it may be a part of an axis. It is split where that cuts every axis at the same
  // places: into equal parts, or if it is whole axes only.
  int64_t size = kWholeAxis;
  Sbp partial = sbp::P;  // of outputs without it
};

// Partial values of exactly these inputs give partial outputs, with the others whole.
struct Passage {
  std::vector<int> inputs;  // empty: all inputs together; one that is not given: no passage
  Sbp partial = sbp::P;
};

struct FactorRule {
  std::vector<Factor> factors;  // the earlier one is chosen where costs are equal
  std::vector<Passage> passages;
  // Inputs that are added to the result: partial, unless split, wherever an output is.
  std::vector<int> addends;

  // Without all-B. Addends of bools mean nothing, so what would leave them is not split.
  std::vector<SbpSignature> Signatures(const OpContext& context, int64_t parts) const;
};

}  // namespace braid
