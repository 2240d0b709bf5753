// How the kernels of an operator can work in parts: some elements at a time, so that what one
// kernel makes of a part the next finds in the cache. A definition says it (OpDef::Parts), for the
// compiler decides which kernels take turns; kernels keep to it (Kernel::RunPart).
#pragma once

#include <cstdint>

#include "graph/shape.h"

namespace braid {

struct OpContext;

// A part uses the same elements of all operands that have `elements`, and all of smaller ones;
// outputs that are smaller are made when the last part is. The parts of a run come in order.
struct OpParts {
  int64_t elements = 0;  // 0: as a whole only
  int64_t step = 1;      // a part begins and ends at multiples of it, or at the end
  friend bool operator==(const OpParts&, const OpParts&) = default;
};

// Parts of multiples of so many elements, too, give the same bits as the whole: no vector is cut.
inline constexpr int64_t kPartVectors = 64;

// For definitions; operands are those of one device.

// Each element of output 0 comes of the elements at its place, where inputs may be broadcast: along
// all axes, or along the outer or the inner ones. Whole for bf16 and f16, which are widened.
OpParts BroadcastParts(const OpContext& context);
// Output 0 is input 0's bytes.
OpParts CopyParts(const OpContext& context);
// Row by row of the last axis of input 0; whole for bf16 and f16.
OpParts RowParts(const OpContext& context);

}  // namespace braid
