// Launches of cells of recurrent networks. Gates stand side by side: [rows, gates, units], states
// are [rows, units].
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

struct CellLaunch {
  DType dtype = DType::kF32;
  int64_t rows = 0, units = 0;
  const void* inputs[6] = {};  // as the operator has them
  void* outputs[3] = {};
};

struct RecurrentTable {
  Error (*lstm_cell)(const Queue&, const CellLaunch&);
  Error (*lstm_cell_grad)(const Queue&, const CellLaunch&);
  Error (*gru_cell)(const Queue&, const CellLaunch&);
  Error (*gru_cell_grad)(const Queue&, const CellLaunch&);
};
RecurrentTable MakeRecurrentTable();

}  // namespace braid::cuda
