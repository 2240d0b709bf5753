// Convolution in bf16 and blocks of channels by the tiles of AMX. One product for the whole batch:
// rows are the windows of all images, terms are what they read, tap by tap, and windows are packed
// where they lie, so that no matrix of them is ever written.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/kernels/cpu/convolution.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/tile_panels.h"
#include "runtime/kernels/cpu/weight_gradient.h"
#include "runtime/kernels/cpu/window_rows.h"

namespace braid::cpu {
namespace {

// The next rows of a matrix, and what they read at a tap.
template <int64_t size>
class RowGroup {
 public:
  // `count` of them exist. Moves the cursor behind them.
  RowGroup(RowCursor& cursor, int64_t count, const BlockedImages& images, const uint16_t* x)
      : count_(std::min(count, size)) {
    for (int64_t r = 0; r < size; ++r) {
      images_[r] = x + cursor.image() * images.step();
      at_[r] = cursor.at();
      if (r < count_) cursor.Next();
    }
    std::fill_n(reads_, size, kNothing);
  }

  const uint16_t* const* images() const { return images_; }
  const int32_t* Reads(const int32_t* all) {
    for (int64_t r = 0; r < count_; ++r) reads_[r] = all[at_[r]];
    return reads_;
  }

 private:
  int64_t count_;
  const uint16_t* images_[size];
  int64_t at_[size];
  int32_t reads_[size];
};

// Rows from `row` on of a matrix [batch * rows, taps * channels] as a panel of a. `term` is a
// multiple of kTileTerms.
void PackWindows(const WindowRows& rows, const BlockedImages& images, const uint16_t* x,
                 int64_t row, int64_t count, int64_t term, int64_t terms, uint16_t* to) {
  static_assert(simd::kTileTerms == 2 * kWideBlock);
  const auto gather = simd::CompiledTileProducts()->gather_a;
  const int64_t first = term / kWideBlock, last = (term + terms) / kWideBlock;
  const int64_t plane = images.pixels * kWideBlock;
  RowCursor cursor(rows, row);
  for (int64_t begin = 0; begin < count; begin += simd::kTileRows) {
    RowGroup<simd::kTileRows> group(cursor, count - begin, images, x);
    int64_t tap = first / images.blocks, block = first % images.blocks;
    for (int64_t next = first; next < last; ++tap) {
      const int64_t halves = std::min(last - next, images.blocks - block);
      gather(group.images(), block * plane, group.Reads(rows.reads_of(tap)), plane, halves,
             next - first, to);
      next += halves;
      block = 0;
    }
    if ((last - first) % 2 != 0) {
      int32_t nothing[simd::kTileRows];
      std::fill_n(nothing, simd::kTileRows, kNothing);
      gather(group.images(), 0, nothing, plane, 1, last - first, to);
    }
    to += simd::TilePadded(terms) * simd::kTileRows;
  }
}

// Sums [rows, channels] from `row` on to where they belong in y, with the bias.
void StoreRows(const WindowRows& rows, const BlockedImages& images, const float* sums, int64_t row,
               int64_t count, const float* bias, float* y) {
  // Some rows at a time: what they write in a block of channels mostly lies side by side.
  constexpr int64_t kGroup = 32;
  const int64_t plane = images.pixels * kWideBlock, width = images.blocks * kWideBlock;
  RowCursor cursor(rows, row);
  float* to[kGroup];
  for (int64_t begin = 0; begin < count; begin += kGroup, sums += kGroup * width) {
    const int64_t size = std::min(kGroup, count - begin);
    for (int64_t r = 0; r < size; ++r, cursor.Next()) {
      to[r] = y + cursor.image() * images.step() + rows.positions[cursor.at()] * kWideBlock;
    }
    for (int64_t block = 0; block < images.blocks; ++block) {
      const float* from = sums + block * kWideBlock;
      for (int64_t r = 0; r < size; ++r, from += width) {
        float* const pixel = to[r] + block * plane;
        std::memcpy(pixel, from, kWideBlock * sizeof(float));
        if (bias == nullptr) continue;
        for (int64_t i = 0; i < kWideBlock; ++i) pixel[i] += bias[block * kWideBlock + i];
      }
    }
  }
}

// w [out, in, taps] with only some taps, in two orders: [out, taps, in], or [taps, out, in].
void PickTaps(const ConvolutionShape& shape, const uint16_t* w, int64_t all_taps,
              const std::vector<int32_t>& taps, bool taps_first, uint16_t* to) {
  const auto pick = simd::CompiledTileProducts()->pick_tap;
  const auto count = static_cast<int64_t>(taps.size());
  for (int64_t out = 0; out < shape.out; ++out) {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t* row = to + (taps_first ? i * shape.out + out : out * count + i) * shape.in;
      pick(w + out * shape.in * all_taps, all_taps, taps[i], shape.in, row);
    }
  }
}

// y, or x: rows of windows, or of pixels, by the weights. The rows' tables, which do not grow with
// the batch, are there from the start: how much memory is needed follows from them.
class TileConvolution final : public Convolution {
 public:
  explicit TileConvolution(const ConvolutionShape& shape)
      : shape_(shape), all_taps_(SpatialAxes(shape).num_taps()) {
    const SpatialAxes axes(shape);
    const BlockedImages x = {shape.in / kWideBlock, axes.num_pixels()};
    const BlockedImages y = {shape.out / kWideBlock, axes.num_windows()};
    from_ = is_forward() ? x : y;
    to_ = is_forward() ? y : x;
    std::vector<WindowRows> parts;
    if (is_forward()) {
      parts.push_back(RowsOfWindows(axes));
    } else {
      parts = RowsOfPixels(axes);
    }
    for (WindowRows& rows : parts) {
      const int64_t terms = rows.num_taps() * from_.blocks * kWideBlock;
      std::optional<TilePanels> panels;
      if (terms > 0) {
        panels.emplace(shape.batch * rows.count(), to_.blocks * kWideBlock, terms,
                       TilePanels::Options{.threads = shape.threads, .keeps_sums = true});
      }
      most_taps_ = std::max(most_taps_, rows.num_taps());
      parts_.push_back({std::move(rows), std::move(panels)});
    }
  }

  KernelMemory memory() const override {
    KernelMemory all = {.own = simd::TileBuffer<uint16_t>::BytesOf(picked_size())};
    for (const Part& part : parts_) {
      if (part.panels) all.Add(part.panels->memory());
    }
    return all;
  }
  void Allocate() override {
    picked_ = simd::TileBuffer<uint16_t>(picked_size());
    for (Part& part : parts_) {
      if (part.panels) part.panels->Allocate();
    }
  }

  void Run(const Operands& operands) override {
    const auto* from = static_cast<const uint16_t*>(operands.first);
    const auto* w = static_cast<const uint16_t*>(operands.second);
    auto* to = static_cast<float*>(operands.result);
    const auto& pack = simd::CompiledTileProducts()->pack_bf16;
    for (auto& [rows, panels] : parts_) {
      const int64_t terms = rows.num_taps() * from_.blocks * kWideBlock;
      const auto store = [&, &rows = rows](int64_t row, int64_t count, const float* sums) {
        StoreRows(rows, to_, sums, row, count, static_cast<const float*>(operands.bias), to);
      };
      if (terms == 0) {  // strides beyond the window: read by none
        const std::vector<float> zeros(to_.blocks * kWideBlock);
        for (int64_t row = 0; row < shape_.batch * rows.count(); ++row) store(row, 1, zeros.data());
        continue;
      }
      if (!operands.has_same_second || !is_packed_) {
        PickTaps(shape_, w, all_taps_, rows.taps, /*taps_first=*/!is_forward(), picked_.data());
        if (is_forward()) {
          pack.b_transposed(picked_.data(), terms, shape_.out, terms, panels->b());
        } else {
          pack.b(picked_.data(), shape_.in, shape_.in, terms, panels->b());
        }
      }
      panels->MultiplyAndStore(
          [&, &rows = rows](int64_t row, int64_t count, int64_t term, int64_t part, uint16_t* a) {
            PackWindows(rows, from_, from, row, count, term, part, a);
          },
          store);
    }
    is_packed_ = true;
  }

 private:
  struct Part {
    WindowRows rows;
    std::optional<TilePanels> panels;  // none where no tap reads
  };

  int64_t picked_size() const { return most_taps_ * shape_.in * shape_.out; }
  bool is_forward() const { return shape_.side == ConvolutionSide::kOutput; }

  ConvolutionShape shape_;
  int64_t all_taps_, most_taps_ = 0;
  BlockedImages from_, to_;
  std::vector<Part> parts_;
  simd::TileBuffer<uint16_t> picked_;  // weights of a part
  bool is_packed_ = false;             // the panels hold the weights of the last run
};

// Products of a weights' gradient; see weight_gradient.h.
struct TileEngine {
  using Element = uint16_t;
  static constexpr int64_t kChannels = kWideBlock, kBlocks = 2;
  static constexpr int64_t kTermsAtOnce = 1024;
  class Scope {
   public:
    Scope() : tiles_(simd::CompiledTileProducts()) {}

   private:
    simd::TileScope tiles_;
  };

  static void PackA(const WindowRows& rows, const BlockedImages& images, const uint16_t* dy,
                    int64_t row, int64_t count, uint16_t* to) {
    const BlockAtTap block = {0, 0};
    PackB(rows, images, dy, {&block, 1}, row, count, to);
    simd::CompiledTileProducts()->transpose(to,
                                            simd::TilePadded(count) * kWideBlock / simd::kTileSize);
  }
  // Rows are terms.
  static void PackB(const WindowRows& rows, const BlockedImages& images, const uint16_t* x,
                    std::span<const BlockAtTap> blocks, int64_t row, int64_t count, uint16_t* to) {
    const auto gather = simd::CompiledTileProducts()->gather_b;
    const int64_t step = simd::TilePadded(count) * kWideBlock;
    RowCursor cursor(rows, row);
    for (int64_t begin = 0; begin < count; begin += simd::kTileTerms, to += simd::kTileSize) {
      RowGroup<simd::kTileTerms> group(cursor, count - begin, images, x);
      uint16_t* tile = to;
      for (const BlockAtTap& block : blocks) {
        gather(group.images(), block.block * images.pixels * kWideBlock,
               group.Reads(rows.reads_of(block.tap)), tile);
        tile += step;
      }
    }
  }
  static void Multiply(const WeightProduct<uint16_t>& p) {
    simd::CompiledTileProducts()->multiply({.m = p.out,
                                            .n = p.columns,
                                            .k = p.terms,
                                            .a = p.a,
                                            .b = p.b,
                                            .b_terms = p.terms,
                                            .c = p.sums,
                                            .c_row = p.row,
                                            .adds = p.adds});
  }
};

}  // namespace

std::unique_ptr<Convolution> ChooseTileConvolution(const ConvolutionShape& shape) {
  const bool fits = shape.dtype == DType::kBF16 && shape.wide_result && shape.groups == 1 &&
                    shape.x_is_blocked && shape.y_is_blocked && shape.channel_block == kWideBlock;
  if (!fits || !HasTiles()) return nullptr;
  if (shape.side == ConvolutionSide::kWeights) {
    return std::make_unique<WeightGradient<TileEngine>>(shape);
  }
  return std::make_unique<TileConvolution>(shape);
}

}  // namespace braid::cpu
