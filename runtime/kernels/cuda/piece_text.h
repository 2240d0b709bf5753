// The functions of pointwise.cc as text, for PointwisePiece.
#pragma once

#include <string>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/pointwise.h"
#include "runtime/kernels/functions/op_lists.h"

namespace braid::cuda {

// Of elements that are computed with as `type`: f32, f64, i32, i64 or u8.
std::string UnaryText(simd::UnaryOp op, DType type, double parameter);
std::string BinaryText(simd::BinaryOp op);
std::string CompareText(simd::CompareOp op);
std::string ActivationText(simd::ActivationOp op, DType type,
                           const simd::ActivationParameters& parameters);
std::string ActivationGradText(simd::ActivationOp op, DType type,
                               const simd::ActivationParameters& parameters);
std::string LogicText(LogicOp op);
std::string TestText(TestOp op, DType type, const simd::ActivationParameters& infinities);
// Between types that are stored so. "": none.
std::string CastText(DType from, DType to);

// What elements that are stored so are computed with; kBool of what programs that are compiled at
// run time do not compute with.
DType FusedType(DType stored);
// "float", "int64_t", "braid::BFloat16".
std::string TypeText(DType type);

}  // namespace braid::cuda
