// The weights' gradient of convolutions in f32 and blocks of channels.
#include <algorithm>
#include <cstring>

#include "runtime/kernels/cpu/convolution.h"
#include "runtime/kernels/cpu/product_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/weight_gradient.h"

namespace braid::cpu {
namespace {

using compiler::kNarrowBlock;

// a and b as they are: for each term a block of channels, or up to kBlocks.
template <int64_t channels>
struct LaneEngine {
  using Element = float;
  static constexpr int64_t kChannels = channels;
  static constexpr int64_t kBlocks = 48 / channels;  // their sums fill the registers of AVX-512
  static constexpr int64_t kTermsAtOnce = 128;       // b stays in the first-level cache
  struct Scope {};

  static void PackA(const WindowRows& rows, const BlockedImages& images, const float* dy,
                    int64_t row, int64_t count, float* to) {
    Pack(rows, {0, 0}, images, dy, row, count, kChannels, to);
  }
  static void PackB(const WindowRows& rows, const BlockedImages& images, const float* x,
                    std::span<const BlockAtTap> blocks, int64_t row, int64_t count, float* to) {
    const auto columns = static_cast<int64_t>(blocks.size()) * kChannels;
    for (const BlockAtTap& block : blocks) {
      Pack(rows, block, images, x, row, count, columns, to);
      to += kChannels;
    }
  }
  static void Multiply(const WeightProduct<float>& p) {
    const auto multiply = simd::BestLoops<simd::ProductLoops<float>>().small_product;
    const int64_t a_step = simd::TilePadded(p.terms) * kChannels;
    for (int64_t block = 0; block < p.out / kChannels; ++block) {
      multiply({.rows = kChannels,
                .n = p.columns,
                .k = p.terms,
                .a = p.a + block * a_step,
                .a_row = 1,
                .a_step = kChannels,
                .b = p.b,
                .b_row = p.columns,
                .c = p.sums + block * kChannels * p.row,
                .c_row = p.row,
                .adds = p.adds});
    }
  }

 private:
  // Rows from `row` on, `to_row` apart.
  static void Pack(const WindowRows& rows, const BlockAtTap& block, const BlockedImages& images,
                   const float* x, int64_t row, int64_t count, int64_t to_row, float* to) {
    const int32_t* const reads = rows.reads_of(block.tap);
    x += block.block * images.pixels * kChannels;
    RowCursor cursor(rows, row);
    for (int64_t i = 0; i < count; ++i, cursor.Next(), to += to_row) {
      const int32_t read = reads[cursor.at()];
      if (read == kNothing) {
        std::fill_n(to, kChannels, 0.0f);
      } else {
        std::memcpy(to, x + cursor.image() * images.step() + read * kChannels,
                    kChannels * sizeof(float));
      }
    }
  }
};

}  // namespace

std::unique_ptr<Convolution> ChooseLaneWeightGradient(const ConvolutionShape& shape) {
  const bool fits = shape.side == ConvolutionSide::kWeights && shape.dtype == DType::kF32 &&
                    shape.groups == 1 && shape.x_is_blocked && shape.y_is_blocked &&
                    shape.channel_block != compiler::kWholeBlock;
  if (!fits) return nullptr;
  if (shape.channel_block == kNarrowBlock) {
    return std::make_unique<WeightGradient<LaneEngine<kNarrowBlock>>>(shape);
  }
  return std::make_unique<WeightGradient<LaneEngine<kWideBlock>>>(shape);
}

}  // namespace braid::cpu
