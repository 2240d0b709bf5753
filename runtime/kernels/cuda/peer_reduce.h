// Launches that reduce what several devices of a process have, in their own memory.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

inline constexpr int kMaxPeers = 32;

// outputs[k][i] = inputs[0][i] op inputs[1][i] op ..., for each k. Numbers of 16 bits are added in
// f32 and rounded once. An output may be an input.
struct PeerReduceLaunch {
  DType dtype = DType::kF32;
  int32_t kind = 0;  // 0: sum, 1: max, 2: min
  int32_t num_inputs = 0, num_outputs = 0;
  const void* inputs[kMaxPeers] = {};
  void* outputs[kMaxPeers] = {};
  int64_t elements = 0;
};

struct PeerReduceTable {
  Error (*reduce)(const Queue&, const PeerReduceLaunch&);
};
PeerReduceTable MakePeerReduceTable();

}  // namespace braid::cuda
