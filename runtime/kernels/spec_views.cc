#include "runtime/kernels/spec_views.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "runtime/coded_elements.h"
#include "runtime/dtype_traits.h"

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
  if (IsCoded(dtype)) return EncodeElement(dtype, static_cast<float>(value));
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    uint64_t bits = 0;
    const auto store = [&](auto number) { std::memcpy(&bits, &number, sizeof(number)); };
    if constexpr (std::is_same_v<T, bool>) {
      store(static_cast<uint8_t>(value != 0 && value == value));
    } else if constexpr (std::is_integral_v<T>) {
      // The upper end itself may not be a double.
      constexpr T kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
      if (value <= static_cast<double>(kLow)) {
        store(kLow);
      } else if (value >= static_cast<double>(kHigh)) {
        store(kHigh);
      } else {
        store(static_cast<T>(value == value ? value : 0));
      }
    } else if constexpr (std::is_same_v<T, double>) {
      store(value);
    } else {
      store(T(static_cast<float>(value)));
    }
    return bits;
  });
}

}  // namespace braid
