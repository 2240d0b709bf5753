#include "runtime/base/mistakes.h"

#include <glog/logging.h>

#include <utility>

namespace braid {

void Mistakes::Report(const absl::Status& mistake) {
  if (reader_ == Reader::kNobodyYet) LOG(ERROR) << mistake.message();
  const MutexLock lock(mutex_);
  if (first_.ok()) first_ = mistake;
}

absl::Status Mistakes::first() const {
  const MutexLock lock(mutex_);
  return first_;
}

absl::Status Mistakes::Take() {
  const MutexLock lock(mutex_);
  return std::exchange(first_, absl::OkStatus());
}

std::byte* Mistakes::Zeros(size_t bytes) {
  const MutexLock lock(mutex_);
  std::vector<double>& zeros = zeros_[bytes];
  zeros.resize(bytes / sizeof(double) + 1);
  return reinterpret_cast<std::byte*>(zeros.data());
}

}  // namespace braid
