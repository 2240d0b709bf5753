#include "runtime/kernels/cpu/weight_blocks.h"

#include "runtime/kernels/cpu/dnnl_call.h"
#include "runtime/kernels/cpu/dnnl_version.h"
#include "runtime/kernels/cpu/fetch_ahead.h"
#include "runtime/kernels/cpu/for_each_item.h"

namespace braid::cpu {
namespace {

using dnnl::memory;

struct BlockOrder {
  memory::format_tag tag;
  int axes;  // of the weights
  bool has_groups, has_outputs_last;
  int64_t block;
};

constexpr BlockOrder kBlockOrders[] = {
    {memory::format_tag::OIw16i16o, 3, false, true, 16},
    {memory::format_tag::OIw16o16i, 3, false, false, 16},
    {memory::format_tag::OIhw16i16o, 4, false, true, 16},
    {memory::format_tag::OIhw16o16i, 4, false, false, 16},
    {memory::format_tag::OIdhw16i16o, 5, false, true, 16},
    {memory::format_tag::OIdhw16o16i, 5, false, false, 16},
    {memory::format_tag::gOIhw16i16o, 5, true, true, 16},
    {memory::format_tag::gOIhw16o16i, 5, true, false, 16},
    {memory::format_tag::OIhw8i8o, 4, false, true, 8},
    {memory::format_tag::OIhw8o8i, 4, false, false, 8},
    {memory::format_tag::gOIhw8i8o, 5, true, true, 8},
    {memory::format_tag::gOIhw8o8i, 5, true, false, 8},
};

// A block of outputs by one of inputs, and so many taps.
struct WeightTile {
  const float* from;
  float* to;
  int64_t row, taps;  // plain: [outputs, inputs, taps], the outputs `row` apart
};

// In blocks it is [taps, inputs, outputs] if outputs come last, else [taps, outputs, inputs].
template <int64_t block, bool has_outputs_last, bool to_blocks>
void MoveTile(const WeightTile& tile) {
  const int64_t outer_step = has_outputs_last ? tile.taps : tile.row;
  const int64_t inner_step = has_outputs_last ? tile.row : tile.taps;
  const float* __restrict from = tile.from;
  float* __restrict to = tile.to;
  for (int64_t tap = 0; tap < tile.taps; ++tap) {
    for (int64_t i = 0; i < block; ++i) {
      const int64_t plain = tap + i * outer_step, blocked = (tap * block + i) * block;
      for (int64_t j = 0; j < block; ++j) {
        if constexpr (to_blocks) {
          to[blocked + j] = from[plain + j * inner_step];
        } else {
          to[plain + j * inner_step] = from[blocked + j];
        }
      }
    }
  }
}

using MoveTileFn = void (*)(const WeightTile& tile);

template <bool to_blocks>
MoveTileFn MoveTileOf(int64_t block, bool has_outputs_last) {
  if (block == 16) {
    return has_outputs_last ? MoveTile<16, true, to_blocks> : MoveTile<16, false, to_blocks>;
  }
  return has_outputs_last ? MoveTile<8, true, to_blocks> : MoveTile<8, false, to_blocks>;
}

// Perhaps behind the end.
void PrefetchRun(const float* weights, int64_t at, int64_t count) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  Prefetch(reinterpret_cast<const char*>(weights) + at * kBytes, count * kBytes);
}

}  // namespace

std::optional<WeightBlocks> WeightBlocks::Of(const memory::desc& plain,
                                             const memory::desc& blocked) {
  const memory::dims dims = DimsOf(plain);
  if (dims.size() < 3 || plain != DenseDesc(dims, memory::data_type::f32)) return std::nullopt;
  for (const BlockOrder& layout : kBlockOrders) {
    if (layout.axes != static_cast<int>(dims.size())) continue;
    const size_t first = layout.has_groups ? 1 : 0;
    if (dims[first] % layout.block != 0 || dims[first + 1] % layout.block != 0) continue;
    if (blocked != memory::desc(dims, memory::data_type::f32, layout.tag)) continue;
    WeightBlocks blocks;
    if (layout.has_groups) blocks.groups_ = dims[0];
    blocks.out_ = dims[first];
    blocks.in_ = dims[first + 1];
    for (size_t i = first + 2; i < dims.size(); ++i) blocks.taps_ *= dims[i];
    blocks.block_ = layout.block;
    blocks.has_outputs_last_ = layout.has_outputs_last;
    return blocks;
  }
  return std::nullopt;
}

// f(where a tile begins in the plain weights, and in blocks).
template <class F>
void WeightBlocks::ForEachTile(int threads, F f) const {
  const int64_t rows = groups_ * out_ / block_, columns = in_ / block_;
  ForEachItem(rows, threads, [&](int64_t row, int) {
    for (int64_t column = 0; column < columns; ++column) {
      f((row * in_ + column) * block_ * taps_, (row * columns + column) * block_ * block_ * taps_);
    }
  });
}

void WeightBlocks::Block(const float* plain, float* blocked, int threads) const {
  const MoveTileFn move = MoveTileOf</*to_blocks=*/true>(block_, has_outputs_last_);
  const int64_t run = block_ * taps_;
  ForEachTile(threads, [&](int64_t from, int64_t to) {
    // What the next tile reads and writes: its rows are too short for the processor to look ahead.
    for (int64_t i = 0; i < block_; ++i) {
      PrefetchRun(plain, from + run + i * in_ * taps_, run);
      PrefetchRun(blocked, to + (block_ + i) * run, run);
    }
    move({.from = plain + from, .to = blocked + to, .row = in_ * taps_, .taps = taps_});
  });
}

void WeightBlocks::Unblock(const float* blocked, float* plain, int threads) const {
  const MoveTileFn move = MoveTileOf</*to_blocks=*/false>(block_, has_outputs_last_);
  ForEachTile(threads, [&](int64_t to, int64_t from) {
    move({.from = blocked + from, .to = plain + to, .row = in_ * taps_, .taps = taps_});
  });
}

}  // namespace braid::cpu
