// What resize_axis' attributes say, for its definition and its kernels.
#pragma once

#include <cstdint>

namespace braid {

enum class ResizeMode : int32_t { kNearest, kLinear, kCubic };
enum class ResizeCoordinates : int32_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixel,
  kCrop,
};
enum class ResizeRounding : int32_t { kFloor, kCeil, kPreferFloor, kPreferCeil };

struct ResizeAttrs {
  ResizeMode mode = ResizeMode::kNearest;
  ResizeCoordinates coordinates = ResizeCoordinates::kHalfPixel;
  ResizeRounding rounding = ResizeRounding::kFloor;  // nearest only
  double scale = 1;                                  // of the axis
  double cubic = -0.75;                              // Keys' parameter a
  double begin = 0, end = 1;                         // kCrop: the region, in lengths of the axis
  double outside = 0;                                // kCrop: the value outside of x
  bool excludes_outside = false;  // cubic: elements beyond the ends have no weight
};

}  // namespace braid
