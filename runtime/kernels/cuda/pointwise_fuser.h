// Makes one kernel of pointwise kernels in a row.
#pragma once

#include <vector>

#include "runtime/kernels/call_fuser.h"
#include "runtime/kernels/cuda/programs.h"

namespace braid::cuda {

// Calls join one another if their outputs have as many elements, and each reads what the others
// before it made where it stands itself. A kernel that cannot be compiled, or whose memory turns
// out to overlap in a way that does not show in the plan, runs them one after another.
class PointwiseFuser final : public CallFuser {
 public:
  explicit PointwiseFuser(Programs* programs) : programs_(*programs) {}  // borrowed
  std::vector<FusedCalls> Fuse(std::vector<PlacedCall>& calls) override;
  void Compile() override { programs_.Compile(); }

 private:
  Programs& programs_;
};

}  // namespace braid::cuda
