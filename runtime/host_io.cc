#include "runtime/host_io.h"

#include <utility>

namespace braid {

void HostIo::Feed(std::string name, Array value) {
  MutexLock lock(mutex_);
  feeds_.insert_or_assign(std::move(name), std::move(value));
}

void HostIo::SetReceiver(FetchReceiver* receiver) {
  MutexLock lock(mutex_);
  receiver_ = receiver;
}

void HostIo::SetLocalRuns(std::shared_ptr<LocalRuns> runs) {
  MutexLock lock(mutex_);
  local_runs_ = std::move(runs);
}

std::shared_ptr<LocalRuns> HostIo::local_runs() const {
  MutexLock lock(mutex_);
  return local_runs_;
}

const Array* HostIo::Fed(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto it = feeds_.find(name);
  return it == feeds_.end() ? nullptr : &it->second;
}

absl::Status HostIo::Fetched(std::string_view name, int64_t step, const FetchedPiece& piece) {
  MutexLock lock(mutex_);
  if (receiver_ == nullptr) return absl::OkStatus();
  Array& whole = receiver_->Place(name, step, piece.dtype, *piece.shape);
  const size_t element = SizeOf(piece.dtype);
  CopyRuns(*piece.runs, element, piece.data,
           whole.mutable_bytes() + piece.shift * static_cast<int64_t>(element));
  return piece.is_last ? receiver_->OnFetched(name, step, whole) : absl::OkStatus();
}

}  // namespace braid
