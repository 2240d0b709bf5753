// How many axes of space convolutions and pooling have at most.
#pragma once

namespace braid {

inline constexpr int kSpatialAxes = 3;

}  // namespace braid
