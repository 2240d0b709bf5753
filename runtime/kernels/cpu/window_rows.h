// Which elements of images in blocks of channels the rows of a matrix read: convolution as a
// product whose rows, or terms, are the windows of a whole batch, tap by tap.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan/channel_blocks.h"
#include "runtime/kernels/cpu/convolution.h"

namespace braid::cpu {

using compiler::kWideBlock;

inline constexpr int32_t kNothing = -1;

// Positions of an image whose result is made of the same taps of the weights, and where each of
// these reads: kNothing in the padding. All windows read all taps; but an element of x is read by
// those windows only that start at a multiple of the strides.
struct WindowRows {
  std::vector<int32_t> positions, taps;
  std::vector<int32_t> reads;  // [taps, positions]

  int64_t count() const { return static_cast<int64_t>(positions.size()); }
  int64_t num_taps() const { return static_cast<int64_t>(taps.size()); }
  const int32_t* reads_of(int64_t tap) const { return reads.data() + tap * count(); }
};

// All windows of an image.
WindowRows RowsOfWindows(const SpatialAxes& axes);
// All its elements, in parts of equal taps.
std::vector<WindowRows> RowsOfPixels(const SpatialAxes& axes);

// Images [batch, blocks, pixels, channels].
struct BlockedImages {
  int64_t blocks = 0, pixels = 0, channels = kWideBlock;
  int64_t step() const { return blocks * pixels * channels; }
};

// Where rows from `row` on of a matrix [batch * rows, ...] lie.
class RowCursor {
 public:
  RowCursor(const WindowRows& rows, int64_t row)
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

}  // namespace braid::cpu
