// Launches of matmul, matmul_add and tensordot.
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/product_shape.h"

namespace braid::cuda {

// c = op(a) op(b) + row + addend, dense and row-major, for each product of a batch.
struct MatmulLaunch {
  const void* a = nullptr;
  const void* b = nullptr;
  // Of c's type, of products that are no batch; null: there is none. A row is added to all rows;
  // the addend is as large as c, and lies elsewhere.
  const void* row = nullptr;
  const void* addend = nullptr;
  void* c = nullptr;
  void* work = nullptr;       // WorkBytes()
  DType dtype = DType::kF32;  // of a and b: floating
  bool wide_result = false;   // c is f32 though a and b are narrow
  bool transpose_a = false, transpose_b = false;
  ProductShape shape;
  Walk batch;  // of a, b and c, in elements

  // What cuBLASLt's products may use; as much as its documentation proposes for recent cards.
  static constexpr int64_t kLibraryBytes = int64_t{32} << 20;
  int64_t WorkBytes() const {
    const int64_t bytes = SplitBytes(shape, dtype == DType::kF64 ? 8 : 4);
    return bytes > kLibraryBytes ? bytes : kLibraryBytes;
  }
};

struct MatmulTable {
  Error (*multiply)(const Queue&, const MatmulLaunch&);
};
MatmulTable MakeMatmulTable();

}  // namespace braid::cuda
