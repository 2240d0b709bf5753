// Products of matrices in bf16 by the tiles of AMX.
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/tile_panels.h"

namespace braid::cpu {
namespace {

class TileGemm final : public Gemm {
 public:
  explicit TileGemm(const GemmShape& shape)
      : shape_(shape),
        panels_(shape.m, shape.n, shape.k,
                {.threads = shape.threads,
                 .keeps_sums = !shape.wide_result,
                 .packs_many = shape.transpose_a,
                 .work = shape.work != nullptr ? shape.work : std::make_shared<WorkMemory>()}) {}

  KernelMemory memory() const override { return panels_.memory(); }
  void Allocate() override { panels_.Allocate(); }

  void Run(const void* a, const void* b, void* c) override {
    const auto& pack = simd::CompiledTileProducts()->pack_bf16;
    PackB(static_cast<const uint16_t*>(b));
    const auto* x = static_cast<const uint16_t*>(a);
    const auto pack_a = [&](int64_t row, int64_t rows, int64_t term, int64_t terms, uint16_t* to) {
      if (shape_.transpose_a) {
        pack.a_transposed(x + term * shape_.m + row, shape_.m, rows, terms, to);
      } else {
        pack.a(x + row * shape_.k + term, shape_.k, rows, terms, to);
      }
    };
    if (shape_.wide_result) {
      panels_.Multiply(static_cast<float*>(c), pack_a);
      return;
    }
    panels_.MultiplyAndStore(pack_a, [&](int64_t row, int64_t rows, const float* sums) {
      simd::BestLoops<simd::ElementwiseLoops>().f32_to_bf16(
          sums, static_cast<uint16_t*>(c) + row * shape_.n, rows * shape_.n);
    });
  }

 private:
  void PackB(const uint16_t* b) {
    const auto& pack = simd::CompiledTileProducts()->pack_bf16;
    const int64_t width = simd::TilePadded((shape_.n + shape_.threads - 1) / shape_.threads);
    ForEachItem((shape_.n + width - 1) / width, shape_.threads, [&](int64_t part, int) {
      const int64_t column = part * width, columns = std::min(width, shape_.n - column);
      uint16_t* const to = panels_.b() + column * simd::TilePadded(shape_.k);
      if (shape_.transpose_b) {
        pack.b_transposed(b + column * shape_.k, shape_.k, columns, shape_.k, to);
      } else {
        pack.b(b + column, shape_.n, columns, shape_.k, to);
      }
    });
  }

  GemmShape shape_;
  TilePanels panels_;
};

}  // namespace

std::unique_ptr<Gemm> ChooseTileGemm(const GemmShape& shape) {
  const bool fills_tiles =
      shape.m >= simd::kTileStep && shape.n >= simd::kTileStep && shape.k >= simd::kTileStep;
  const bool fits = shape.dtype == DType::kBF16 && fills_tiles && HasTiles();
  return fits ? std::make_unique<TileGemm>(shape) : nullptr;
}

}  // namespace braid::cpu
