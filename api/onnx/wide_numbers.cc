#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// The type that is computed with instead; none: this one is.
std::optional<DType> WideType(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kI16:
    case DType::kU16:
      return DType::kI32;
    case DType::kU32:
    case DType::kU64:
      return DType::kI64;
    default:
      return std::nullopt;
  }
}

// Numbers of 64 bits without sign, in i64 and in their order: 0 becomes the smallest. And back.
Tensor Turned(Tensor x) {
  constexpr auto kSmallestWhole = static_cast<double>(std::numeric_limits<int64_t>::min());
  return BitwiseXor(x, Constant(*x.graph(), kSmallestWhole, {.dtype = DType::kI64}));
}

}  // namespace

TranslateFunction OnWideNumbers(TranslateFunction f, U64 u64, std::vector<int> narrowed) {
  return [f = std::move(f), u64,
          narrowed = std::move(narrowed)](const NodeView& n) -> absl::StatusOr<Tensors> {
    std::vector<Value> inputs;
    const DType first = n.dtype();
    const bool is_turned = first == DType::kU64 && u64 == U64::kOrder;
    bool has_wide = false;
    for (int i = 0; i < n.num_inputs(); ++i) {
      Value input = n.value(i);
      const std::optional<DType> wide = input.is_tensor() ? WideType(n.dtype(i)) : std::nullopt;
      if (wide) {
        has_wide = true;
        input.tensor = Cast(n.in(i), *wide);
        if (is_turned && n.dtype(i) == DType::kU64) input.tensor = Turned(input.tensor);
        if (!input.tensor.valid()) return n.graph().status();
        input.is_weight = false;
      }
      inputs.push_back(std::move(input));
    }
    if (!has_wide) return f(n);
    BRAID_ASSIGN_OR_RETURN(Tensors outputs, f(n.With(std::move(inputs))));
    for (int i : narrowed) {
      if (i >= static_cast<int>(outputs.size()) || !outputs[i].valid()) continue;
      if (is_turned) outputs[i] = Turned(outputs[i]);
      outputs[i] = Cast(outputs[i], first);
    }
    return outputs;
  };
}

}  // namespace braid::onnx
