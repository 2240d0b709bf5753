#include "runtime/kernels/spec_views.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_format.h"
#include "runtime/base/half.h"

namespace braid {

absl::Status NoKernelForTypes(std::string_view device_kind, const KernelSpec& spec) {
  std::string types;
  for (const OperandSpec& input : spec.inputs) {
    absl::StrAppendFormat(&types, "%s%s", types.empty() ? "" : ", ", ToString(input.dtype));
  }
  types += " -> ";
  const char* separator = "";
  for (const OperandSpec& output : spec.outputs) {
    absl::StrAppendFormat(&types, "%s%s", separator, ToString(output.dtype));
    separator = ", ";
  }
  return absl::UnimplementedError(
      absl::StrFormat("no %s kernel for %s '%s' (%s)", device_kind, spec.op, spec.name, types));
}

AxisView ViewAround(const Shape& shape, int axis) {
  AxisView view;
  for (int i = 0; i < axis; ++i) view.outer *= shape[i];
  view.size = shape[axis];
  for (int i = axis + 1; i < shape.rank(); ++i) view.inner *= shape[i];
  return view;
}

std::vector<int64_t> DenseStrides(const Shape& shape) {
  std::vector<int64_t> strides(shape.rank());
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

uint64_t BitsOf(DType dtype, double value) {
  if (value != value && !IsFloating(dtype)) value = 0;
  uint64_t bits = 0;
  const auto store = [&](auto number) { std::memcpy(&bits, &number, sizeof(number)); };
  switch (dtype) {
    case DType::kF32:
      store(static_cast<float>(value));
      break;
    case DType::kF64:
      store(value);
      break;
    case DType::kBF16:
      store(FloatToBFloat16Bits(static_cast<float>(value)));
      break;
    case DType::kF16:
      store(FloatToFloat16Bits(static_cast<float>(value)));
      break;
    case DType::kI32:
      store(static_cast<int32_t>(std::clamp(value, -2147483648.0, 2147483647.0)));
      break;
    case DType::kI64:
      store(static_cast<int64_t>(std::clamp(value, -9.2e18, 9.2e18)));
      break;
    case DType::kU8:
      store(static_cast<uint8_t>(std::clamp(value, 0.0, 255.0)));
      break;
    case DType::kBool:
      store(static_cast<uint8_t>(value != 0));
      break;
  }
  return bits;
}

}  // namespace braid
