#include "runtime/kernels/cpu/window_rows.h"

#include <map>
#include <numeric>
#include <utility>

namespace braid::cpu {
namespace {

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

}  // namespace

WindowRows RowsOfWindows(const SpatialAxes& axes) {
  WindowRows rows;
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

std::vector<WindowRows> RowsOfPixels(const SpatialAxes& axes) {
  std::map<std::vector<int32_t>, std::vector<int32_t>> by_taps;
  for (int64_t pixel = 0; pixel < axes.num_pixels(); ++pixel) {
    by_taps[TapsOf(axes, Unflatten(pixel, axes.size))].push_back(static_cast<int32_t>(pixel));
  }
  std::vector<WindowRows> all;
  for (const auto& [taps, positions] : by_taps) {
    WindowRows rows = {positions, taps, {}};
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

}  // namespace braid::cpu
