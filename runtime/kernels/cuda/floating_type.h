// The one floating type of a kernel's operands.
#pragma once

#include <optional>

#include "graph/dtype.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

// That all floating operands have; nullopt if they differ, or if there is none.
inline std::optional<DType> FloatingTypeOf(const KernelSpec& spec) {
  std::optional<DType> type;
  for (const auto* operands : {&spec.inputs, &spec.outputs}) {
    for (const OperandSpec& operand : *operands) {
      if (!IsFloating(operand.dtype)) continue;
      if (type.has_value() && *type != operand.dtype) return std::nullopt;
      type = operand.dtype;
    }
  }
  return type;
}

}  // namespace braid::cuda
