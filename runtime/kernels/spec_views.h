// What kernels of every kind of device read out of a KernelSpec.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// UNIMPLEMENTED with op, name and dtypes: "no cpu kernel for pow 'p' (i32, u8 -> i32)".
absl::Status NoKernelForTypes(std::string_view device_kind, const KernelSpec& spec);

// Attributes that may be left out.
inline bool Flag(const Attrs& attrs, std::string_view name) {
  return attrs.Has(name) && attrs.Bool(name);
}
inline double Number(const Attrs& attrs, std::string_view name, double otherwise) {
  return attrs.Has(name) ? attrs.Double(name) : otherwise;
}

// Where the operand's region starts on `axis` in act `micro_batch` of a step.
inline int64_t OffsetAt(const OperandSpec& operand, int axis, int64_t micro_batch) {
  return operand.region.offset[axis] +
         (axis == operand.micro_batch_axis ? micro_batch * operand.micro_batch_stride : 0);
}

// `shape` seen as [outer, size, inner] around `axis`.
struct AxisView {
  int64_t outer = 1, size = 1, inner = 1;
};
AxisView ViewAround(const Shape& shape, int axis);

// Of a dense tensor, in elements.
std::vector<int64_t> DenseStrides(const Shape& shape);

inline bool IsIndexType(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

// The value as one element is stored, in the lowest bytes: rounded or cut to what the type holds,
// and 0 where integers have no NaN.
uint64_t BitsOf(DType dtype, double value);

}  // namespace braid
