#include "runtime/kernels/spec_views.h"

#include <string>

#include "absl/strings/str_format.h"

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

}  // namespace braid
