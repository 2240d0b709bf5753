// Numbers that kernels of several families use.
#pragma once

namespace braid::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

}  // namespace braid::cuda
