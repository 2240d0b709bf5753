// Convolution in bf16 and blocks of channels by the tiles of AMX. One product for the whole batch:
// rows are the windows of all images, terms are what they read, tap by tap, and windows are packed
// where they lie, so that no matrix of them is ever written.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "graph/channel_blocks.h"
#include "runtime/kernels/cpu/convolution.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/tile_panels.h"

namespace braid::cpu {
namespace {

constexpr int32_t kNothing = -1;

// Positions of an image whose result is made of the same taps of the weights, and where each of
// these reads: kNothing in the padding. All windows read all taps; but an element of x is read by
// those windows only that start at a multiple of the strides.
struct Rows {
  std::vector<int32_t> positions, taps;
  std::vector<int32_t> reads;  // [taps, positions]

  int64_t count() const { return static_cast<int64_t>(positions.size()); }
  int64_t num_taps() const { return static_cast<int64_t>(taps.size()); }
  const int32_t* reads_of(int64_t tap) const { return reads.data() + tap * count(); }
};

struct Position {
  int64_t at[kSpatialAxes];
};
Position Unflatten(int64_t index, const int64_t (&sizes)[kSpatialAxes]) {
  Position position;
  for (int i = kSpatialAxes - 1; i >= 0; --i) {
    position.at[i] = index % sizes[i];
    index /= sizes[i];
  }
  return position;
}
// kNothing outside.
int32_t Flatten(const Position& position, const int64_t (&sizes)[kSpatialAxes]) {
  int64_t index = 0;
  for (int i = 0; i < kSpatialAxes; ++i) {
    if (position.at[i] < 0 || position.at[i] >= sizes[i]) return kNothing;
    index = index * sizes[i] + position.at[i];
  }
  return static_cast<int32_t>(index);
}

Position TapOf(const SpatialAxes& axes, int64_t tap) {
  const int64_t kernel[kSpatialAxes] = {axes.axis[0].kernel, axes.axis[1].kernel,
                                        axes.axis[2].kernel};
  return Unflatten(tap, kernel);
}

Rows RowsOfWindows(const SpatialAxes& axes) {
  Rows rows;
  rows.positions.resize(axes.num_windows());
  rows.taps.resize(axes.num_taps());
  std::iota(rows.positions.begin(), rows.positions.end(), 0);
  std::iota(rows.taps.begin(), rows.taps.end(), 0);
  for (int64_t tap = 0; tap < axes.num_taps(); ++tap) {
    const Position shift = TapOf(axes, tap);
    for (int64_t window = 0; window < axes.num_windows(); ++window) {
      Position read = Unflatten(window, axes.windows);
      for (int i = 0; i < kSpatialAxes; ++i) {
        const WindowAxis& axis = axes.axis[i];
        read.at[i] = read.at[i] * axis.stride - axis.pad_begin + shift.at[i] * axis.dilation;
      }
      rows.reads.push_back(Flatten(read, axes.size));
    }
  }
  return rows;
}

// Taps of an element of x: of windows that start where a window may, in the image or not.
std::vector<int32_t> TapsOf(const SpatialAxes& axes, const Position& pixel) {
  std::vector<int32_t> taps;
  for (int64_t tap = 0; tap < axes.num_taps(); ++tap) {
    const Position shift = TapOf(axes, tap);
    bool is_window = true;
    for (int i = 0; i < kSpatialAxes; ++i) {
      const WindowAxis& axis = axes.axis[i];
      const int64_t start = pixel.at[i] + axis.pad_begin - shift.at[i] * axis.dilation;
      is_window = is_window && start % axis.stride == 0;
    }
    if (is_window) taps.push_back(static_cast<int32_t>(tap));
  }
  return taps;
}

std::vector<Rows> RowsOfPixels(const SpatialAxes& axes) {
  std::map<std::vector<int32_t>, std::vector<int32_t>> by_taps;
  for (int64_t pixel = 0; pixel < axes.num_pixels(); ++pixel) {
    by_taps[TapsOf(axes, Unflatten(pixel, axes.size))].push_back(static_cast<int32_t>(pixel));
  }
  std::vector<Rows> all;
  for (const auto& [taps, positions] : by_taps) {
    Rows rows = {positions, taps, {}};
    for (int32_t tap : taps) {
      const Position shift = TapOf(axes, tap);
      for (int32_t pixel : positions) {
        Position read = Unflatten(pixel, axes.size);
        for (int i = 0; i < kSpatialAxes; ++i) {
          const WindowAxis& axis = axes.axis[i];
          const int64_t start = read.at[i] + axis.pad_begin - shift.at[i] * axis.dilation;
          read.at[i] = start < 0 ? kNothing : start / axis.stride;
        }
        rows.reads.push_back(Flatten(read, axes.windows));
      }
    }
    all.push_back(std::move(rows));
  }
  return all;
}

// Images [batch, blocks, pixels, 16].
struct Images {
  int64_t blocks = 0, pixels = 0;
  int64_t step() const { return blocks * pixels * kChannelBlock; }
};

// Where rows from `row` on of a matrix [batch * rows, ...] lie.
class RowCursor {
 public:
  RowCursor(const Rows& rows, int64_t row)
      : count_(rows.count()), image_(row / count_), at_(row % count_) {}

  int64_t image() const { return image_; }
  int64_t at() const { return at_; }  // in the image
  void Next() {
    if (++at_ < count_) return;
    at_ = 0;
    ++image_;
  }

 private:
  int64_t count_, image_, at_;
};

// The next rows of a matrix, and what they read at a tap.
template <int64_t size>
class RowGroup {
 public:
  // `count` of them exist. Moves the cursor behind them.
  RowGroup(RowCursor& cursor, int64_t count, const Images& images, const uint16_t* x)
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
void PackWindows(const Rows& rows, const Images& images, const uint16_t* x, int64_t row,
                 int64_t count, int64_t term, int64_t terms, uint16_t* to) {
  static_assert(simd::kTileTerms == 2 * kChannelBlock);
  const auto gather = simd::CompiledTileProducts()->gather_a;
  const int64_t first = term / kChannelBlock, last = (term + terms) / kChannelBlock;
  const int64_t plane = images.pixels * kChannelBlock;
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
void StoreRows(const Rows& rows, const Images& images, const float* sums, int64_t row,
               int64_t count, const float* bias, float* y) {
  // Some rows at a time: what they write in a block of channels mostly lies side by side.
  constexpr int64_t kGroup = 32;
  const int64_t plane = images.pixels * kChannelBlock, width = images.blocks * kChannelBlock;
  RowCursor cursor(rows, row);
  float* to[kGroup];
  for (int64_t begin = 0; begin < count; begin += kGroup, sums += kGroup * width) {
    const int64_t size = std::min(kGroup, count - begin);
    for (int64_t r = 0; r < size; ++r, cursor.Next()) {
      to[r] = y + cursor.image() * images.step() + rows.positions[cursor.at()] * kChannelBlock;
    }
    for (int64_t block = 0; block < images.blocks; ++block) {
      const float* from = sums + block * kChannelBlock;
      for (int64_t r = 0; r < size; ++r, from += width) {
        float* const pixel = to[r] + block * plane;
        std::memcpy(pixel, from, kChannelBlock * sizeof(float));
        if (bias == nullptr) continue;
        for (int64_t i = 0; i < kChannelBlock; ++i) pixel[i] += bias[block * kChannelBlock + i];
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

// y, or x: rows of windows, or of pixels, by the weights.
class TileConvolution final : public Convolution {
 public:
  explicit TileConvolution(const ConvolutionShape& shape)
      : shape_(shape), all_taps_(SpatialAxes(shape).num_taps()) {
    const SpatialAxes axes(shape);
    const Images x = {shape.in / kChannelBlock, axes.num_pixels()};
    const Images y = {shape.out / kChannelBlock, axes.num_windows()};
    from_ = is_forward() ? x : y;
    to_ = is_forward() ? y : x;
    std::vector<Rows> parts;
    if (is_forward()) {
      parts.push_back(RowsOfWindows(axes));
    } else {
      parts = RowsOfPixels(axes);
    }
    int64_t most_taps = 0;
    for (Rows& rows : parts) {
      const int64_t terms = rows.num_taps() * from_.blocks * kChannelBlock;
      TilePanels panels;
      if (terms > 0) {
        panels = TilePanels(shape.batch * rows.count(), to_.blocks * kChannelBlock, terms,
                            {.threads = shape.threads, .keeps_sums = true});
      }
      most_taps = std::max(most_taps, rows.num_taps());
      parts_.push_back({std::move(rows), std::move(panels)});
    }
    picked_ = simd::TileBuffer<uint16_t>(most_taps * shape.in * shape.out);
  }

  int64_t memory_bytes() const override {
    int64_t bytes = picked_.bytes();
    for (const Part& part : parts_) bytes += part.panels.memory_bytes();
    return bytes;
  }

  void Run(const void* first, const void* second, const void* bias, void* result) override {
    const auto* from = static_cast<const uint16_t*>(first);
    const auto* w = static_cast<const uint16_t*>(second);
    auto* to = static_cast<float*>(result);
    const auto& pack = simd::CompiledTileProducts()->pack_bf16;
    for (auto& [rows, panels] : parts_) {
      const int64_t terms = rows.num_taps() * from_.blocks * kChannelBlock;
      const auto store = [&, &rows = rows](int64_t row, int64_t count, const float* sums) {
        StoreRows(rows, to_, sums, row, count, static_cast<const float*>(bias), to);
      };
      if (terms == 0) {  // strides beyond the window: read by none
        const std::vector<float> zeros(to_.blocks * kChannelBlock);
        for (int64_t row = 0; row < shape_.batch * rows.count(); ++row) store(row, 1, zeros.data());
        continue;
      }
      PickTaps(shape_, w, all_taps_, rows.taps, /*taps_first=*/!is_forward(), picked_.data());
      if (is_forward()) {
        pack.b_transposed(picked_.data(), terms, shape_.out, terms, panels.b());
      } else {
        pack.b(picked_.data(), shape_.in, shape_.in, terms, panels.b());
      }
      panels.MultiplyAndStore(
          [&, &rows = rows](int64_t row, int64_t count, int64_t term, int64_t part, uint16_t* a) {
            PackWindows(rows, from_, from, row, count, term, part, a);
          },
          store);
    }
  }

 private:
  struct Part {
    Rows rows;
    TilePanels panels;
  };

  bool is_forward() const { return shape_.side == ConvolutionSide::kOutput; }

  ConvolutionShape shape_;
  int64_t all_taps_;
  Images from_, to_;
  std::vector<Part> parts_;
  simd::TileBuffer<uint16_t> picked_;  // weights of a part
};

// What rows from `row` on read at a tap, some blocks of it, as tiles of b: rows are terms. `x` is
// where the first block starts in the first image.
void PackChannels(const Rows& rows, int64_t tap, const Images& images, const uint16_t* x,
                  int64_t blocks, int64_t row, int64_t count, uint16_t* to) {
  const auto gather = simd::CompiledTileProducts()->gather_b;
  const int64_t step = simd::TilePadded(count) * kChannelBlock;
  RowCursor cursor(rows, row);
  for (int64_t begin = 0; begin < count; begin += simd::kTileTerms, to += simd::kTileSize) {
    RowGroup<simd::kTileTerms> group(cursor, count - begin, images, x);
    const int32_t* const reads = group.Reads(rows.reads_of(tap));
    for (int64_t block = 0; block < blocks; ++block) {
      gather(group.images(), block * images.pixels * kChannelBlock, reads, to + block * step);
    }
  }
}

// The weights' gradient = dy^T x: terms are the windows of all images. Two blocks of channels of x
// at a time, at all taps, so that their sums [taps, out, 32] stay in the cache until they are
// stored.
class TileWeightGradient final : public Convolution {
 public:
  explicit TileWeightGradient(const ConvolutionShape& shape) : shape_(shape) {
    const SpatialAxes axes(shape);
    windows_ = RowsOfWindows(axes);
    own_ = {.positions = windows_.positions, .taps = {0}, .reads = windows_.positions};
    x_ = {shape.in / kChannelBlock, axes.num_pixels()};
    y_ = {shape.out / kChannelBlock, axes.num_windows()};
    terms_ = shape.batch * windows_.count();
    part_ = std::min(kMaxTerms, simd::TilePadded(terms_));
    a_ = simd::TileBuffer<uint16_t>(simd::TilePadded(shape.out) * part_);
    for (int thread = 0; thread < shape.threads; ++thread) {
      b_.emplace_back(simd::kTileStep * part_);
    }
    const int64_t all = terms_ <= part_ ? shape.threads : num_pairs();
    sums_ = simd::TileBuffer<float>(all * sums_step());
  }

  int64_t memory_bytes() const override {
    int64_t bytes = a_.bytes() + sums_.bytes();
    for (const auto& buffer : b_) bytes += buffer.bytes();
    return bytes;
  }

  void Run(const void* first, const void* second, const void*, void* result) override {
    const auto* x = static_cast<const uint16_t*>(first);
    const auto* dy = static_cast<const uint16_t*>(second);
    const simd::TileProducts& products = *simd::CompiledTileProducts();
    for (int64_t term = 0; term < terms_; term += part_) {
      const int64_t terms = std::min(part_, terms_ - term);
      const int64_t step = simd::TilePadded(terms) * kChannelBlock;
      ForEachItem(y_.blocks, shape_.threads, [&](int64_t block, int) {
        uint16_t* const a = a_.data() + block * step;
        PackChannels(own_, 0, y_, dy + block * y_.pixels * kChannelBlock, 1, term, terms, a);
        products.transpose(a, step / simd::kTileSize);
      });
      ForEachItem(num_pairs(), shape_.threads, [&](int64_t pair, int thread) {
        const int64_t blocks = std::min<int64_t>(2, x_.blocks - 2 * pair);
        const uint16_t* const from = x + 2 * pair * x_.pixels * kChannelBlock;
        uint16_t* const b = b_[thread].data();
        float* const sums = sums_.data() + (terms_ <= part_ ? thread : pair) * sums_step();
        const simd::TileScope tiles(&products);
        for (int64_t tap = 0; tap < windows_.num_taps(); ++tap) {
          PackChannels(windows_, tap, x_, from, blocks, term, terms, b);
          products.multiply({.m = shape_.out,
                             .n = blocks * kChannelBlock,
                             .k = terms,
                             .a = a_.data(),
                             .b = b,
                             .b_terms = terms,
                             .c = sums + tap * shape_.out * simd::kTileStep,
                             .c_row = simd::kTileStep,
                             .adds = term > 0});
        }
        if (term + terms == terms_) {
          Store(sums, blocks * kChannelBlock,
                static_cast<float*>(result) + pair * simd::kTileStep * windows_.num_taps());
        }
      });
    }
  }

 private:
  static constexpr int64_t kMaxTerms = 1024;  // at once: both operands stay in the caches

  int64_t num_pairs() const { return (x_.blocks + 1) / 2; }
  int64_t sums_step() const { return windows_.num_taps() * shape_.out * simd::kTileStep; }

  // From [taps, out, 32] to `channels` of dw [out, in, taps].
  void Store(const float* sums, int64_t channels, float* dw) const {
    const int64_t taps = windows_.num_taps();
    for (int64_t out = 0; out < shape_.out; ++out, sums += simd::kTileStep) {
      float* to = dw + out * shape_.in * taps;
      if (taps == 1) {
        std::copy_n(sums, channels, to);
        continue;
      }
      for (int64_t channel = 0; channel < channels; ++channel) {
        const float* from = sums + channel;
        for (int64_t tap = 0; tap < taps; ++tap, from += shape_.out * simd::kTileStep)
          *to++ = *from;
      }
    }
  }

  ConvolutionShape shape_;
  Rows windows_, own_;  // which read x; and dy, each its own
  Images x_, y_;
  int64_t terms_, part_;
  simd::TileBuffer<uint16_t> a_;               // dy
  std::vector<simd::TileBuffer<uint16_t>> b_;  // of a thread: x at a tap, 32 channels
  simd::TileBuffer<float> sums_;               // of a thread, or where there are parts of a pair
};

}  // namespace

std::unique_ptr<Convolution> MakeTileConvolution(const ConvolutionShape& shape) {
  const bool fits = shape.dtype == DType::kBF16 && shape.wide_result && shape.groups == 1 &&
                    shape.x_is_blocked && shape.y_is_blocked;
  if (!fits || !HasTiles()) return nullptr;
  if (shape.side == ConvolutionSide::kWeights) return std::make_unique<TileWeightGradient>(shape);
  return std::make_unique<TileConvolution>(shape);
}

}  // namespace braid::cpu
