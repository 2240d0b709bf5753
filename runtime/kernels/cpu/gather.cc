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
#include "runtime/kernels/cpu/numbers.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {

absl::Status IndexOutOfRange(const KernelSpec& spec, const WrongIndex& wrong) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s '%s': %s %d at position %d is outside [%d, %d)", spec.op, spec.name,
                      wrong.what, wrong.value, wrong.position, wrong.low, wrong.high));
}

absl::Status IndexOutOfRange(const KernelSpec& spec, const char* what, int64_t value,
                             int64_t position, int64_t size) {
  return IndexOutOfRange(spec, {what, value, position, 0, size});
}

int64_t LogicalPosition(const OperandSpec& operand, int64_t position, int64_t micro_batch) {
  int64_t logical = 0, stride = 1;
  for (int axis = operand.shape().rank() - 1; axis >= 0; --axis) {
    const int64_t size = operand.shape()[axis];
    logical += (position % size + OffsetAt(operand, axis, micro_batch)) * stride;
    position /= size;
    stride *= operand.logical[axis];
  }
  return logical;
}

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// `wrong` with its place in the whole of the indices.
absl::Status WrongRow(const KernelSpec& spec, const OperandSpec& indices, int64_t micro_batch,
                      WrongIndex wrong) {
  wrong.position = LogicalPosition(indices, wrong.position, micro_batch);
  return IndexOutOfRange(spec, wrong);
}

KernelOr MakeGather(const KernelSpec& spec) {
  const OperandSpec table = spec.inputs[0];
  const OperandSpec indices = spec.inputs[1];
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
      if (i + kRowsAhead < count) {
        const int64_t ahead = FromStart(index[i + kRowsAhead], all) - offset;
        if (ahead >= 0 && ahead < view.size) __builtin_prefetch(from + ahead * row_bytes);
      }
      const int64_t at = FromStart(index[i], all);
      if (at < 0)
        return WrongRow(spec, indices, run.micro_batch, {"index", index[i], i, -all, all});
      const int64_t row = at - offset;
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
  const OperandSpec indices = spec.inputs[0];
  const OperandSpec table = spec.outputs[0];
  if (!IsIndexType(indices.dtype)) return UnsupportedTypes(spec);
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(table.shape(), axis);
  const int64_t count = indices.num_elements(), total = table.num_elements();
  const int64_t all = table.logical[axis];
  const bool is_i64 = indices.dtype == DType::kI64;
  using Float = std::conditional_t<std::is_floating_point_v<T>, T, float>;
  [[maybe_unused]] const auto add_scaled = simd::BestLoops<simd::RowLoops<Float>>().add_scaled;
  return MakeKernel([=](const KernelRun& run) {
    const int64_t offset = OffsetAt(table, axis, run.micro_batch);
    const IndexReader index = {run.inputs[0], is_i64};
    const T* dy = Input<T>(run, 1);
    T* gradient = Output<T>(run, 0);
    std::fill_n(gradient, total, T{0});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = FromStart(index[i], all);
      if (at < 0)
        return WrongRow(spec, indices, run.micro_batch, {"index", index[i], i, -all, all});
      const int64_t row = at - offset;
      if (row < 0 || row >= view.size) continue;
      for (int64_t outer = 0; outer < view.outer; ++outer) {
        const T* from = dy + (outer * count + i) * view.inner;
        T* to = gradient + (outer * view.size + row) * view.inner;
        if constexpr (std::is_floating_point_v<T>) {
          add_scaled(from, T{1}, to, view.inner);
        } else {
          for (int64_t k = 0; k < view.inner; ++k) to[k] = AddWrapping(to[k], from[k]);
        }
      }
    }
    return absl::OkStatus();
  });
}

template <class T>
KernelOr MakeOneHotOf(const KernelSpec& spec, T one) {
  const OperandSpec indices = spec.inputs[0], out = spec.outputs[0];
  const int axis =
      spec.attrs.Has("axis") ? static_cast<int>(spec.attrs.Int("axis")) : out.shape().rank() - 1;
  const AxisView view = ViewAround(out.shape(), axis);
  const int64_t all = out.logical[axis], count = indices.num_elements();
  const bool is_i64 = indices.dtype == DType::kI64;
  return MakeKernel([=](const KernelRun& run) {
    const int64_t offset = OffsetAt(out, axis, run.micro_batch);
    const IndexReader index = {run.inputs[0], is_i64};
    T* to = Output<T>(run, 0);
    std::memset(to, 0, count * view.size * sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = FromStart(index[i], all);
      if (at < 0)
        return WrongRow(spec, indices, run.micro_batch, {"index", index[i], i, -all, all});
      const int64_t row = at - offset;
      if (row < 0 || row >= view.size) continue;
      to[(i / view.inner * view.size + row) * view.inner + i % view.inner] = one;
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
  BRAID_RETURN_IF_ERROR(registry.Register("gather", MakeGather));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "gather_grad",
      Widened(ForNumbers([](const auto& s, auto type) { return MakeGatherGrad(s, type); }))));
  return registry.Register("one_hot", MakeOneHot);
}

}  // namespace braid::cpu
