// The cases of the operators' conformance suite: each sample of each OpDef, at its own sizes and at
// others, with values drawn for its operands.
#pragma once

#include <string>
#include <vector>

#include "graph/op_def.h"
#include "runtime/array.h"

namespace braid::conformance {

struct OpCase {
  const OpDef* def = nullptr;
  std::string label;  // "softmax, sample 1, prime sizes, f64"
  Attrs attrs;
  std::vector<TensorType> inputs, outputs;
  double low = -1, high = 1;
  int64_t int_high = 4;
  bool check_gradient = true;
  bool has_wide_numbers = false;  // the case before it, with f32 where that need not be narrow

  OpContext context() const { return {.attrs = attrs, .inputs = inputs, .outputs = outputs}; }
};

// How a sample's sizes are changed; the operator must accept the result, else there is no such
// case.
enum class Sizes {
  kAsGiven,
  kPrime,  // no two parts alike
  kTiny,   // fewer elements than devices
  kEven,   // whole micro-batches
};

// `floating` stands in for the floating types of the samples.
std::vector<OpCase> CasesOf(const OpDef& def, DType floating, Sizes sizes);

// The inputs' values. The same numbers for every floating type, but for their rounding.
std::vector<Array> DrawInputs(const OpCase& c);

// Numbers of an array, and back.
std::vector<double> Numbers(const Array& array);
Array FromNumbers(DType dtype, const Shape& shape, const std::vector<double>& numbers);

}  // namespace braid::conformance
