#include "runtime/host_io.h"

#include <utility>

#include "runtime/box.h"

namespace braid {
namespace {

// Joins pieces along `axis`.
Array Concatenate(const std::vector<Array>& pieces, int axis) {
  Shape shape = pieces[0].shape();
  shape[axis] = 0;
  for (const Array& piece : pieces) shape[axis] += piece.shape()[axis];
  Array whole(pieces[0].dtype(), shape);
  Region at = Region::Whole(pieces[0].shape());
  for (const Array& piece : pieces) {
    at.size = piece.shape();
    CopyRuns(RunsOf(at, Region::Whole(shape), at), SizeOf(whole.dtype()), piece.bytes(),
             whole.mutable_bytes());
    at.offset[axis] += piece.shape()[axis];
  }
  return whole;
}

}  // namespace

void HostIo::Feed(std::string name, Array value) {
  MutexLock lock(mutex_);
  feeds_.insert_or_assign(std::move(name), std::move(value));
}

void HostIo::SetFetchHandler(FetchHandler handler) {
  MutexLock lock(mutex_);
  handler_ = std::move(handler);
}

const Array* HostIo::Fed(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto it = feeds_.find(name);
  return it == feeds_.end() ? nullptr : &it->second;
}

void HostIo::Fetched(std::string_view name, int64_t step, Array piece, int64_t pieces, int axis) {
  MutexLock lock(mutex_);
  if (pieces > 1) {
    std::vector<Array>& collected = pieces_[std::string(name)];
    collected.push_back(std::move(piece));
    if (static_cast<int64_t>(collected.size()) < pieces) return;
    piece = Concatenate(collected, axis);
    collected.clear();
  }
  if (handler_) handler_(name, step, std::move(piece));
}

}  // namespace braid
