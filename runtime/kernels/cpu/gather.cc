// gather, its gradient, one_hot. The gathered axis may be split: rows that are elsewhere count as
// zeros, and a gradient goes to the rows that are here.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/index_error.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/loops.h"

namespace braid::cpu {

absl::Status IndexOutOfRange(const KernelSpec& spec, const char* what, int64_t value,
                             int64_t position, int64_t size) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s '%s': %s %d at position %d is outside [0, %d)", spec.op, spec.name, what,
                      value, position, size));
}

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

KernelOr MakeGather(const KernelSpec& spec) {
  const OperandSpec& table = spec.inputs[0];
  const OperandSpec& indices = spec.inputs[1];
  if (!IsIndexType(indices.dtype) || table.dtype != spec.outputs[0].dtype) {
    return UnsupportedTypes(spec);
  }
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(table.shape(), axis);
  const int64_t count = indices.num_elements();
  const int64_t row_bytes = view.inner * static_cast<int64_t>(SizeOf(table.dtype));
  const int64_t all = table.logical[axis];
  const bool is_i64 = indices.dtype == DType::kI64;
  return MakeKernel([=](const KernelRun& run) {
    const int64_t offset = OffsetAt(table, axis, run.micro_batch);
    const auto* from = Input<char>(run, 0);
    const IndexReader index = {run.inputs[1], is_i64};
    auto* to = Output<char>(run, 0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = index[i];
      if (value < 0 || value >= all) return IndexOutOfRange(spec, "index", value, i, all);
      const int64_t row = value - offset;
      const bool is_here = row >= 0 && row < view.size;
      for (int64_t outer = 0; outer < view.outer; ++outer) {
        char* target = to + (outer * count + i) * row_bytes;
        if (is_here) {
          std::memcpy(target, from + (outer * view.size + row) * row_bytes, row_bytes);
        } else {
          std::memset(target, 0, row_bytes);
        }
      }
    }
    return absl::OkStatus();
  });
}

// Adds in the order of the indices, so that a row's sum does not depend on anything else.
template <class T>
KernelOr MakeGatherGrad(const KernelSpec& spec, ElementType<T>) {
  const OperandSpec& indices = spec.inputs[0];
  const OperandSpec& table = spec.outputs[0];
  if (!IsIndexType(indices.dtype)) return UnsupportedTypes(spec);
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(table.shape(), axis);
  const int64_t count = indices.num_elements(), total = table.num_elements();
  const int64_t all = table.logical[axis];
  const bool is_i64 = indices.dtype == DType::kI64;
  const auto add_scaled = simd::Rows<T>(simd::BestLoops()).add_scaled;
  return MakeKernel([=](const KernelRun& run) {
    const int64_t offset = OffsetAt(table, axis, run.micro_batch);
    const IndexReader index = {run.inputs[0], is_i64};
    const T* dy = Input<T>(run, 1);
    T* gradient = Output<T>(run, 0);
    std::fill_n(gradient, total, T{0});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = index[i];
      if (value < 0 || value >= all) return IndexOutOfRange(spec, "index", value, i, all);
      const int64_t row = value - offset;
      if (row < 0 || row >= view.size) continue;
      for (int64_t outer = 0; outer < view.outer; ++outer) {
        add_scaled(dy + (outer * count + i) * view.inner, T{1},
                   gradient + (outer * view.size + row) * view.inner, view.inner);
      }
    }
    return absl::OkStatus();
  });
}

template <class T>
KernelOr MakeOneHotOf(const KernelSpec& spec, T one) {
  const OperandSpec& out = spec.outputs[0];
  const int last = out.shape().rank() - 1;
  const int64_t depth = out.shape()[last], offset = out.region.offset[last];
  const int64_t all = out.logical[last], count = spec.inputs[0].num_elements();
  const bool is_i64 = spec.inputs[0].dtype == DType::kI64;
  return MakeKernel([=](const KernelRun& run) {
    const IndexReader index = {run.inputs[0], is_i64};
    T* rows = Output<T>(run, 0);
    std::memset(rows, 0, count * depth * sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = index[i];
      if (value < 0 || value >= all) return IndexOutOfRange(spec, "index", value, i, all);
      const int64_t column = value - offset;
      if (column >= 0 && column < depth) rows[i * depth + column] = one;
    }
    return absl::OkStatus();
  });
}

KernelOr MakeOneHot(const KernelSpec& spec) {
  if (!IsIndexType(spec.inputs[0].dtype)) return UnsupportedTypes(spec);
  switch (spec.outputs[0].dtype) {
    case DType::kF32:
      return MakeOneHotOf<float>(spec, 1);
    case DType::kF64:
      return MakeOneHotOf<double>(spec, 1);
    case DType::kBF16:
      return MakeOneHotOf<uint16_t>(spec, BFloat16(1.0f).bits);
    case DType::kF16:
      return MakeOneHotOf<uint16_t>(spec, Float16(1.0f).bits);
    case DType::kI32:
      return MakeOneHotOf<int32_t>(spec, 1);
    case DType::kI64:
      return MakeOneHotOf<int64_t>(spec, 1);
    default:
      return MakeOneHotOf<uint8_t>(spec, 1);
  }
}

}  // namespace

absl::Status RegisterGatherKernels(KernelRegistry& registry) {
  RETURN_IF_ERROR(registry.Register("gather", MakeGather));
  RETURN_IF_ERROR(registry.Register("gather_grad", Widened(ForFloats([](const auto& s, auto type) {
                                      return MakeGatherGrad(s, type);
                                    }))));
  return registry.Register("one_hot", MakeOneHot);
}

}  // namespace braid::cpu
