// One matrix product of fixed shape: chooses the library that is best for it, takes memory, and
// then only runs. The choice depends on shapes and the machine's instruction set, never on timing.
#pragma once

#include <cstdint>
#include <memory>

#include "graph/dtype.h"
#include "runtime/kernels/kernel_memory.h"
#include "runtime/kernels/work_memory.h"

namespace braid::cpu {

// c [m, n] = op(a) op(b), dense and row-major; a is [m, k], or [k, m] if transpose_a.
struct GemmShape {
  DType dtype = DType::kF32;  // of a and b: f32, f64, or bf16 where HasBFloat16Gemm
  bool wide_result = false;   // c is f32 though a and b are bf16
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int threads = 1;
  std::shared_ptr<WorkMemory> work = nullptr;  // null: the product's own
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Of its own, and of the shape's WorkMemory; nothing is taken before Allocate.
  virtual KernelMemory memory() const { return {}; }
  // Once, before it runs.
  virtual void Allocate() {}
  // On one thread at a time. a or b may be null if the product is empty.
  virtual void Run(const void* a, const void* b, void* c) = 0;
};

std::unique_ptr<Gemm> ChooseGemm(const GemmShape& shape);
// bf16 on the tiles of AMX; null for others, and for products that would leave tiles empty.
std::unique_ptr<Gemm> ChooseTileGemm(const GemmShape& shape);

// A product of tiles that lie in larger matrices, of a shape that is known only when it runs:
// c = op(a) op(b), or c += if `adds`. A stride is how far rows lie apart, in elements.
struct TileProduct {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool transpose_a = false, transpose_b = false;
  bool adds = false;
};

// On the calling thread alone.
void MultiplyTiles(const TileProduct& product, const float* a, const float* b, float* c);
void MultiplyTiles(const TileProduct& product, const double* a, const double* b, double* c);

// Whether oneDNN has vectors of 64 bytes here (AVX-512).
bool HasWideVectors();
// Whether bf16 products run faster than f32 ones here (otherwise widen to f32).
bool HasBFloat16Gemm();
// Whether bytes are multiplied exactly: their products are added up in 32 bits.
bool HasByteProducts();
// Whether this process may use the tiles of AMX, for bf16.
bool HasTiles();

}  // namespace braid::cpu
