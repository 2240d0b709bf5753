// What a device does in order: kernels, copies, and marks by which its streams wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "graph/dtype.h"
#include "graph/sbp.h"
#include "runtime/device/box.h"

namespace braid {

// A mark that a stream leaves behind all that was queued in it before. Made by a device, used with
// its own streams and those of other devices of its kind in the process.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
};

// Work that a stream has captured and can be told to do as a whole, again and again. Ends before
// its stream does.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

// For messages about queued work, which may fail long after it was queued: "matmul 'fc1'" and
// "train.cc:12".
struct WorkName {
  std::string what;
  std::string location;
};

// "matmul 'fc1': k differs (train.cc:12)", of the same kind as `status`.
absl::Status NameFailure(const WorkName& name, const absl::Status& status);

// Called when everything before it in a stream has been done, with the device's first failure;
// once, on any thread.
using Notice = std::function<void(absl::Status)>;

// One thread queues. Work is done in the order in which it was queued, later, or, on a host stream,
// before the call returns; what it reads and writes, and `runs`, stay until then.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual void Copy(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  virtual void Clear(std::byte* to, uint64_t bytes) = 0;
  virtual void CopyBox(const BoxRuns& runs, size_t element_size, const std::byte* from,
                       std::byte* to) = 0;
  virtual void CombineBox(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const std::byte* from,
                          std::byte* to) = 0;

  // The event now marks this place.
  virtual void Record(StreamEvent& event) = 0;
  // What is queued after this is done after the place that the event marks now; at once if it marks
  // none.
  virtual void Wait(const StreamEvent& event) = 0;

  // Whether queueing what was captured may cost less than queueing its parts.
  virtual bool CanCapture() const { return false; }
  // Copies and kernels that are queued from now on are not done, but captured. False: it does not
  // begin...
  virtual bool BeginCapture() { return false; }
  // ...and now it ends. Null if the stream cannot do them.
  virtual std::unique_ptr<CapturedWork> EndCapture() { return nullptr; }
  // Queues all of it.
  virtual void Launch(const CapturedWork& /*work*/) {}

  // The step, counted over checkpoints, of what is queued from now on. A stream that captures keeps
  // it where the device's kernels read it, so that work which hangs on the step is the same work in
  // each. Not while it captures, unless that is the step already.
  virtual void SetStep(int64_t /*step*/) {}

  virtual void Notify(Notice notice) = 0;
  // What is queued from now on belongs to this; null: to nothing with a name. Borrowed as long as
  // the work.
  virtual void SetName(const WorkName* name) = 0;
};

}  // namespace braid
