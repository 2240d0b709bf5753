// Boxes of dense tensors: copying and combining the part that two regions share. Readers, boxing
// and checkpoints move data with these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/dtype.h"
#include "graph/sbp.h"

namespace braid {

// A box inside two dense row-major buffers that hold `source` and `destination` of the same logical
// tensor, as runs of adjacent elements: run i is `run` elements at from[i] and to[i].
struct BoxRuns {
  int64_t run = 0;  // elements
  std::vector<int64_t> from, to;
  // The same as a nest of loops over the runs, outermost first: its strides are in elements.
  struct Axis {
    int64_t size, from, to;
  };
  std::vector<Axis> axes;
};

// `box` must lie inside both regions.
BoxRuns RunsOf(const Region& source, const Region& destination, const Region& box);

void CopyRuns(const BoxRuns& runs, size_t element_size, const void* source, void* destination);
// destination = destination (+, max, min) source, by the kind of a partial Sbp. bf16 and f16 are
// added in f32.
void CombineRuns(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const void* source,
                 void* destination);

// dst[i] = a[i] (+, max, min) b[i], i < n; dst may be a or b.
using CombineFn = void (*)(void* dst, const void* a, const void* b, int64_t n);
CombineFn CombineFunction(DType dtype, Sbp::Kind kind);  // nullptr for bool and unsupported pairs

}  // namespace braid
