// Launches that copy and combine boxes of dense tensors (runtime/device/box.h).
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

struct BoxLaunch {
  Walk walk;                  // operand 0: to; operand 1: from
  int64_t element_bytes = 0;  // where elements are only moved
  DType dtype = DType::kF32;  // where they are combined
  int32_t kind = 0;           // 0: sum, 1: max, 2: min
  const void* from = nullptr;
  void* to = nullptr;
};

struct BoxTable {
  Error (*copy)(const Queue&, const BoxLaunch&);
  Error (*combine)(const Queue&, const BoxLaunch&);
};
BoxTable MakeBoxTable();

}  // namespace braid::cuda
