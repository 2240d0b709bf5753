#include "runtime/kernels/work_memory.h"

#include <glog/logging.h>

namespace braid {

void WorkMemory::Reserve(int64_t bytes) {
  if (static_cast<uint64_t>(bytes) <= memory_.size()) return;
  memory_.Reset();  // first: the two need not fit together
  absl::StatusOr<Memory> memory = allocate_(static_cast<uint64_t>(bytes));
  CHECK(memory.ok()) << "the kernels' work memory: " << memory.status().message();
  memory_ = *std::move(memory);
}

}  // namespace braid
