// Builders of pointwise operators: every element by itself, binary ones broadcast by numpy's rules.
#pragma once

#include <string>
#include <vector>

#include "graph/op_def.h"
#include "graph/ops/shapes.h"

namespace braid {

// The element types that an operator takes.
enum class Accepts {
  kFloating,
  kNumbers,   // floating, i32, i64
  kIntegers,  // i32, i64, u8
  kAll,       // numbers and u8
};
absl::Status CheckAccepted(const OpContext& ctx, int input, Accepts accepts);

struct PointwiseOptions {
  Accepts accepts = Accepts::kFloating;
  // Of the samples.
  Attrs attrs = {};
  double low = -1, high = 1;
};
// x -> a value of x's type. Signatures: S on any axis.
OpDef Unary(std::string name, PointwiseOptions options = {});
// Two operands of one dtype that broadcast, and a value of that dtype.
OpDef Binary(std::string name, PointwiseOptions options = {});
// The gradient op of an activation: (x or y, dy) -> dx, linear in dy.
OpDef ActivationGradient(std::string name, PointwiseOptions options = {});

// What arrives at output 0.
inline Tensor Dy(const GradientContext& c) { return c.output_gradients[0]; }
// Gradients of a broadcasting binary op, summed back to the operands' shapes. They come as a list,
// because arguments would be evaluated, and so appended, in an order that compilers choose.
std::vector<Tensor> Summed(const GradientContext& c, std::vector<Tensor> gradients);

}  // namespace braid
