// Launches of what comes out of nothing: constants, random numbers, and dropout.
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Bytes that come along with the launch.
struct LiteralLaunch {
  static constexpr int kMostBytes = 3072;
  void* to;
  int32_t bytes;
  unsigned char data[kMostBytes];
};

// Elements seen as [outer, size, inner]: first, first + 1, .. along `size`.
struct IotaLaunch {
  void* to;
  DType dtype;
  int64_t elements, size, inner, first;
};

// Numbers of the key (runtime/base/philox.h) for the places in the whole tensor: operand 0 of the
// walk, from `first` on.
struct RandomLaunch {
  enum class Kind : int32_t {
    kUniform,  // a + b * [0, 1)
    kNormal,   // a + b * standard normal
    kDropout   // x * b where [0, 1) is at least a, else 0
  };
  Kind kind;
  DType dtype;
  void* to;
  const void* x;  // kDropout's
  uint32_t key[2];
  int64_t step;
  const int64_t* step_now;  // memory of the device that has it instead; null: it is `step`
  Walk walk;
  int64_t first;
  double a, b;
};

struct RandomTable {
  Error (*literal)(const Queue&, const LiteralLaunch&);
  Error (*iota)(const Queue&, const IotaLaunch&);
  Error (*random)(const Queue&, const RandomLaunch&);
};
RandomTable MakeRandomTable();

}  // namespace braid::cuda
