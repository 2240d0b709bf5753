// What goes between a running job and the host program: arrays fed to it, arrays fetched from it.
// One per job, on the node where its feeds and fetches sit (the master).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/array.h"
#include "runtime/base/mutex.h"

namespace braid {

class HostIo {
 public:
  // A fetched value of one step, whole and logical, on a stream thread.
  using FetchHandler = std::function<void(std::string_view name, int64_t step, Array value)>;

  // Between Runs. Inputs keep their array until it is replaced.
  void Feed(std::string name, Array value);
  void SetFetchHandler(FetchHandler handler);

  // By kernels. The array fed under `name`; nullptr if none was. Valid until the next Feed.
  const Array* Fed(std::string_view name) const;
  // Micro-batch pieces of one step come in order along `axis` (-1: one piece is the whole);
  // `pieces` of them make the value.
  void Fetched(std::string_view name, int64_t step, Array piece, int64_t pieces, int axis);

 private:
  mutable Mutex mutex_;
  std::map<std::string, Array, std::less<>> feeds_ GUARDED_BY(mutex_);
  std::map<std::string, std::vector<Array>, std::less<>> pieces_ GUARDED_BY(mutex_);
  FetchHandler handler_ GUARDED_BY(mutex_);
};

}  // namespace braid
