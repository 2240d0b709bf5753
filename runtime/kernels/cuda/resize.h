// Launches of resize_axis and its gradient.
#pragma once

#include "graph/dtype.h"
#include "graph/ops/resize_attrs.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/functions/resize_taps.h"

namespace braid::cuda {

// x [outer, in, inner], y [outer, out, inner].
struct ResizeLaunch {
  DType dtype = DType::kF32;  // any if it only copies, else floating
  int64_t element_bytes = 4;
  ResizeAttrs attrs;
  const void* from = nullptr;  // x; of the gradient, y's
  void* to = nullptr;          // y; of the gradient, x's
  void* work = nullptr;        // WorkBytes()
  int64_t outer = 0, in = 0, out = 0, inner = 0;

  // Nothing but copies of elements, of any type.
  bool only_copies() const {
    return attrs.mode == ResizeMode::kNearest && attrs.coordinates != ResizeCoordinates::kCrop;
  }
  // A weight and an index for each tap, and two numbers for each element of x.
  int64_t num_taps() const { return out * NumResizeTaps(attrs); }
  int64_t WorkBytes() const { return num_taps() * 12 + in * 8; }
};

struct ResizeTable {
  Error (*resize)(const Queue&, const ResizeLaunch&);
  Error (*gradient)(const Queue&, const ResizeLaunch&);
};
ResizeTable MakeResizeTable();

}  // namespace braid::cuda
