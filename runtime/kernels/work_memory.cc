#include "runtime/kernels/work_memory.h"

#include "runtime/base/status.h"

namespace braid {

absl::Status WorkMemory::Reserve(int64_t bytes) {
  if (static_cast<uint64_t>(bytes) <= memory_.size()) return absl::OkStatus();
  memory_.Reset();  // first: the two need not fit together
  BRAID_ASSIGN_OR_RETURN(memory_, allocate_(static_cast<uint64_t>(bytes)));
  return absl::OkStatus();
}

}  // namespace braid
