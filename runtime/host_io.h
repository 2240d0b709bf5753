// What goes between a running job and the host program: arrays fed to it, arrays fetched from it.
// One per job, on the node where its feeds and fetches sit (the master).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/array.h"
#include "runtime/base/mutex.h"
#include "runtime/device/box.h"

namespace braid {

class LocalRuns;

// Takes what a job fetches, step by step, whole and logical. Called by the thread that drives the
// stream, one call at a time.
class FetchReceiver {
 public:
  virtual ~FetchReceiver() = default;
  // The array for a step's value, which is filled piece by piece: the same one for each of them.
  virtual Array& Place(std::string_view name, int64_t step, DType dtype, const Shape& shape) = 0;
  // It is whole. An error ends the job.
  virtual absl::Status OnFetched(std::string_view name, int64_t step, const Array& value) = 0;
};

// A part of a step's value, of one micro-batch.
struct FetchedPiece {
  DType dtype = DType::kF32;
  const Shape* shape = nullptr;   // of the whole value
  const BoxRuns* runs = nullptr;  // from the piece into the whole value, for the first micro-batch
  int64_t shift = 0;              // elements, of this one's place
  const void* data = nullptr;
  bool is_last = false;
};

class HostIo {
 public:
  // Between Runs. Inputs keep their array until it is replaced.
  void Feed(std::string name, Array value);
  // Between Runs; borrowed. With nullptr, what is fetched is dropped.
  void SetReceiver(FetchReceiver* receiver);

  // Runs of the job by the program's thread, which uses them between the node's; null: the node's
  // alone. Any thread.
  void SetLocalRuns(std::shared_ptr<LocalRuns> runs);
  std::shared_ptr<LocalRuns> local_runs() const;

  // By kernels. The array fed under `name`; nullptr if none was. Valid until the next Feed.
  const Array* Fed(std::string_view name) const;
  // What the receiver says to it.
  absl::Status Fetched(std::string_view name, int64_t step, const FetchedPiece& piece);

 private:
  mutable Mutex mutex_;
  std::map<std::string, Array, std::less<>> feeds_ BRAID_GUARDED_BY(mutex_);
  FetchReceiver* receiver_ BRAID_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<LocalRuns> local_runs_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
