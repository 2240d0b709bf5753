// What a kernel that was made of several is given. Nothing here needs more than the language.
#pragma once

namespace braid::cuda {

inline constexpr int kMostFusedOperands = 24;

struct FusedOperands {
  void* at[kMostFusedOperands];  // what it reads, then what it writes
};

}  // namespace braid::cuda
