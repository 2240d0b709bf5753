#include "graph/op_parts.h"

#include <algorithm>
#include <span>

#include "graph/op_def.h"

namespace braid {
namespace {

bool HasNarrow(const OpContext& context) {
  const auto is_narrow = [](const TensorType& type) { return IsNarrow(type.dtype); };
  return std::any_of(context.inputs.begin(), context.inputs.end(), is_narrow) ||
         std::any_of(context.outputs.begin(), context.outputs.end(), is_narrow);
}

// Which inputs, as bits, have elements of their own along the axis that is `from_end` before the
// last one.
unsigned OwnElements(std::span<const TensorType> inputs, int from_end) {
  unsigned own = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape;
    const bool is_own = from_end < shape.rank() && shape[shape.rank() - 1 - from_end] != 1;
    own |= (is_own ? 1u : 0u) << i;
  }
  return own;
}

}  // namespace

OpParts BroadcastParts(const OpContext& context) {
  const Shape& out = context.outputs[0].shape;
  const int64_t elements = out.num_elements();
  if (HasNarrow(context) || elements == 0) return {};
  // Neighbouring axes along which the same inputs are broadcast are one.
  int runs = 0;
  int64_t inner = 1;
  unsigned last = 0, innermost = 0;
  for (int i = 0; i < out.rank(); ++i) {
    const int64_t size = out[out.rank() - 1 - i];
    if (size == 1) continue;
    const unsigned own = OwnElements(context.inputs, i);
    if (runs == 0) innermost = own;
    if (runs == 0 || own != last) ++runs;
    if (runs == 1) inner *= size;
    last = own;
  }
  if (runs > 0 && innermost == 0) return {};  // one result, repeated
  if (runs > 2) return {};
  return {.elements = elements, .step = runs == 2 ? inner : 1};
}

OpParts CopyParts(const OpContext& context) {
  return {.elements = context.outputs[0].shape.num_elements()};
}

OpParts RowParts(const OpContext& context) {
  const Shape& shape = context.inputs[0].shape;
  const int64_t elements = shape.num_elements();
  if (HasNarrow(context) || elements == 0) return {};
  return {.elements = elements, .step = shape[shape.rank() - 1]};
}

}  // namespace braid
