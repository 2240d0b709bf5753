// The attributes of resize_axis, as its kernels read them too.
#pragma once

#include "absl/status/statusor.h"
#include "graph/attrs.h"

namespace braid {

enum class ResizeMode { kNearest, kLinear, kCubic };
enum class ResizeCoordinates {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixel,
  kCrop,
};
enum class ResizeRounding { kFloor, kCeil, kPreferFloor, kPreferCeil };

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

// INVALID_ARGUMENT for names that do not exist and numbers that cannot be.
absl::StatusOr<ResizeAttrs> ResizeOf(const Attrs& attrs);

}  // namespace braid
