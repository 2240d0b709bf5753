// Which elements of x an element of resize_axis' result is made of, for every kind of device. The
// functions are templates so that they may be constexpr, which a CUDA compiler takes for its
// devices, too, though the standard library's rounding is not constexpr yet.
#pragma once

#include <cmath>
#include <cstdint>

#include "graph/ops/resize_attrs.h"

namespace braid {

// Of one element: the sum over its taps of weight * x[index], or, outside of x, the attribute's
// value. The indices are next to each other, or the same at x's ends.
inline constexpr int kMostResizeTaps = 4;
template <class Real>
struct ResizeTaps {
  int64_t index[kMostResizeTaps] = {};
  Real weight[kMostResizeTaps] = {};
  bool is_outside = false;
};

constexpr int NumResizeTaps(const ResizeAttrs& a) {
  return a.mode == ResizeMode::kNearest ? 1 : a.mode == ResizeMode::kLinear ? 2 : kMostResizeTaps;
}

// Where element `at` of y lies on x's axis; `in` and `out` are the lengths of x and y.
template <class Real>
constexpr Real ResizeCoordinate(const ResizeAttrs& a, Real at, Real in, Real out) {
  // y's length before it was rounded down.
  const Real scaled = a.scale * in;
  const Real wanted = scaled <= 1 || std::abs(scaled - out) < 1e-6 * out ? out : scaled;
  switch (a.coordinates) {
    case ResizeCoordinates::kHalfPixel:
      return (at + 0.5) / a.scale - 0.5;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      const Real adjustment = out / (a.scale * in);
      return in / 2 * (1 - adjustment) + (at + 0.5) / a.scale - 0.5;
    }
    case ResizeCoordinates::kPytorchHalfPixel:
      return out > 1 ? (at + 0.5) / a.scale - 0.5 : 0;
    case ResizeCoordinates::kAlignCorners:
      return out > 1 ? at * (in - 1) / (wanted - 1) : 0;
    case ResizeCoordinates::kAsymmetric:
      return at / a.scale;
    case ResizeCoordinates::kTfHalfPixel:
      return (at + 0.5) / a.scale;
    case ResizeCoordinates::kCrop:
      return out > 1 ? (a.begin + at * (a.end - a.begin) / (wanted - 1)) * (in - 1)
                     : 0.5 * (a.begin + a.end) * (in - 1);
  }
  return 0;
}

template <class Real>
constexpr Real NearestElement(ResizeRounding rounding, Real x) {
  switch (rounding) {
    case ResizeRounding::kFloor:
      return std::floor(x);
    case ResizeRounding::kCeil:
      return std::ceil(x);
    case ResizeRounding::kPreferFloor:
      return std::ceil(x - 0.5);
    case ResizeRounding::kPreferCeil:
      return std::floor(x + 0.5);
  }
  return x;
}

// Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
template <class Real>
constexpr Real CubicWeight(Real a, Real distance) {
  const Real d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

template <class Real>
constexpr ResizeTaps<Real> TapsOfElement(const ResizeAttrs& a, int64_t at, int64_t in,
                                         int64_t out) {
  ResizeTaps<Real> taps;
  const int count = NumResizeTaps(a);
  const Real last = static_cast<Real>(in) - 1;
  Real x =
      ResizeCoordinate(a, static_cast<Real>(at), static_cast<Real>(in), static_cast<Real>(out));
  taps.is_outside = a.coordinates == ResizeCoordinates::kCrop && !(x >= 0 && x <= last);
  // What is farther away sees the same end.
  x = x < -8 ? -8 : (x > last + 8 ? last + 8 : x);
  const Real base = count == 1   ? NearestElement(a.rounding, x)
                    : count == 2 ? std::floor(x)
                                 : std::floor(x) - 1;
  Real total = 0;
  for (int i = 0; i < count; ++i) {
    const Real position = base + i;
    const bool is_beyond = position < 0 || position > last;
    Real weight = 1;
    if (a.mode == ResizeMode::kLinear) weight = 1 - std::abs(x - position);
    if (a.mode == ResizeMode::kCubic) weight = CubicWeight<Real>(a.cubic, x - position);
    if (a.mode == ResizeMode::kCubic && a.excludes_outside && is_beyond) weight = 0;
    if (taps.is_outside) weight = 0;
    total += weight;
    taps.index[i] = static_cast<int64_t>(position < 0 ? 0 : (position > last ? last : position));
    taps.weight[i] = weight;
  }
  if (a.excludes_outside && a.mode == ResizeMode::kCubic && total != 0) {
    for (int i = 0; i < count; ++i) taps.weight[i] /= total;
  }
  return taps;
}

}  // namespace braid
