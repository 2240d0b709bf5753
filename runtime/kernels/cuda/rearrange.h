// Launches of what moves elements: transpose, slice, pad and the like.
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Every element becomes the lowest `element_bytes` of `bits`.
struct FillLaunch {
  void* to;
  int64_t element_bytes, elements;
  uint64_t bits = 0;
};

// A box of elements between two strided layouts: operand 0 of the walk is where they go, operand 1
// where they come from, which may be the same element again and again.
struct CopyLaunch {
  void* to;
  const void* from;
  int64_t element_bytes;
  int64_t to_offset = 0, from_offset = 0;  // in elements
  Walk walk;
};

// One axis of a pad. Sizes and offsets of the parts that are here, in indices of the whole.
struct PadAxis {
  enum class Mode : int32_t {
    kSame,  // element i of the one part is element i of the other
    kConstant,
    kEdge,
    kReflect,
    kWrap
  };
  Mode mode = Mode::kSame;
  int64_t n = 0, before = 0, padded = 0, step = 1;  // step: interior + 1
  int64_t in_offset = 0, in_size = 0;               // of what has no padding
  int64_t out_offset = 0, out_size = 0;             // of what has
};

// Both sides are dense. `bits` as in FillLaunch, where nothing is copied to.
struct PadLaunch {
  void* to;
  const void* from;
  DType dtype;
  int64_t element_bytes;
  uint64_t bits = 0;
  int32_t rank = 0;
  PadAxis axes[kMaxRank];
};

// Of matrices with `rows` and `columns` one after another: upper keeps columns from edge + row on,
// lower those before it.
struct TriangleLaunch {
  void* to;
  const void* from;
  int64_t element_bytes, elements, rows, columns, edge;
  bool upper;
};

struct RearrangeTable {
  Error (*fill)(const Queue&, const FillLaunch&);
  Error (*copy)(const Queue&, const CopyLaunch&);
  Error (*pad)(const Queue&, const PadLaunch&);
  // `from` is the gradient of what pad made, `to` that of what it took.
  Error (*pad_grad)(const Queue&, const PadLaunch&);
  Error (*triangle)(const Queue&, const TriangleLaunch&);
};
RearrangeTable MakeRearrangeTable();

}  // namespace braid::cuda
