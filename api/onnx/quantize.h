// Linear quantization: real numbers as whole ones, or floats of few bits, of a scale and a zero
// point. https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "api/onnx/node_view.h"
#include "graph/functions/integers.h"

namespace braid::onnx {

// What numbers of a type stand for.
struct Quantization {
  Tensor scale;       // floating; a scalar, or one that broadcasts onto the numbers
  Tensor zero_point;  // of the numbers' type, as large; invalid: 0
};

// numbers -> reals of the scale's type.
Tensor Dequantized(Tensor numbers, const Quantization& of);

// Reals that Dequantized made of bytes; nothing: others.
struct DequantizedBytes {
  Tensor numbers;
  Quantization of;
  // One scale, and one zero point or none, for all.
  bool are_alike() const;
};
std::optional<DequantizedBytes> BytesOf(Tensor reals);

// Two of these whose product can be one of bytes: b has one scale and zero point, or one for each
// index of its axis of outputs. Times the scale it is the product of the reals.
struct ByteFactors {
  ByteOperand a, b;
  std::optional<float> one_scale = {};  // if it is known
  Tensor scale = {};                    // else: [] or [outputs]
};
std::optional<ByteFactors> FactorsOf(Tensor a, Tensor b, int axis);
// Of the product of bytes: that of reals. Behind the axis of its outputs it has so many others.
Tensor RealsOf(Tensor sum, const ByteFactors& factors, int axes_behind = 0);
// a op(b) of reals, as a product of bytes where it can be.
Tensor ProductOfReals(Tensor a, Tensor b, bool transpose_b = false);

// Inputs of a node as an operand: INVALID_ARGUMENT if they are no bytes.
absl::StatusOr<ByteOperand> ByteOperandOf(const NodeView& n, int numbers, int zero_point);
// The product of inputs less their zero points (absent: 0): exact in i32, or in f64 of those that
// are no bytes, or batches.
struct IntegerFactors {
  int a, zero_of_a, b, zero_of_b;
};
absl::StatusOr<Tensor> IntegerMatMul(const NodeView& n, const IntegerFactors& inputs,
                                     bool transpose_b = false);

struct QuantizeOptions {
  DType dtype = DType::kU8;  // of the numbers
  bool saturate = true;      // of floats of 8 bits
};
// `quotient`: the reals by the scale. Whole numbers are the nearest, halves the even ones, within
// their type's range.
Tensor QuantizedQuotient(Tensor quotient, Tensor zero_point, const QuantizeOptions& options);
// Reals as u8 of the scale that just holds them and zero: DynamicQuantizeLinear.
struct QuantizedReals {
  Tensor numbers;
  Quantization of;
};
QuantizedReals QuantizedByRange(Tensor reals);
// Of a sum of products of whole numbers, which is exact, and a scale in f32. It is rounded as the
// standard's reference and ONNX Runtime round it, so that the numbers are theirs.
Tensor QuotientOf(Tensor sum, Tensor scale);
// UNIMPLEMENTED if numbers cannot be quantized to that type.
absl::Status CheckQuantized(DType dtype);

// Inputs `scale` and `zero_point` (that may be absent) of a node, as scalars. INVALID_ARGUMENT if
// they have several elements.
absl::StatusOr<Quantization> ScalarQuantization(const NodeView& n, int scale, int zero_point);
// Likewise, or one element for each index of `axis` of `rank` axes.
absl::StatusOr<Quantization> QuantizationAlong(const NodeView& n, int scale, int zero_point,
                                               int axis, int rank);

}  // namespace braid::onnx
