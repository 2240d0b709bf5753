// A stream of a card, and its marks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/memory.h"
#include "runtime/base/mutex.h"
#include "runtime/cuda/module_table.h"
#include "runtime/device/stream.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {

class CudaDevice;

class CudaEvent final : public StreamEvent {
 public:
  CudaEvent(const ModuleTable& module, int card) : module_(module), card_(card) {}
  ~CudaEvent() override {
    if (event_ != nullptr) module_.destroy_event(card_, event_);
  }

 private:
  friend class CudaStream;

  const ModuleTable& module_;
  const int card_;
  void* event_ = nullptr;  // made when it is first recorded
};

// What was queued between two notices of a stream, for what is said of a failure.
struct WorkRange {
  const WorkName* first = nullptr;
  const WorkName* last = nullptr;
};

// The number by which launches that combine know what a partial value's kind does.
int32_t CombineNumber(Sbp::Kind kind);

class CudaStream final : public QueueStream {
 public:
  // `captures`: CanCapture.
  CudaStream(CudaDevice* device, const Queue& common, bool captures);
  ~CudaStream() override;

  void Copy(std::byte* to, const std::byte* from, uint64_t bytes) override;
  void Clear(std::byte* to, uint64_t bytes) override;
  void CopyBox(const BoxRuns& runs, size_t element_size, const std::byte* from,
               std::byte* to) override;
  void CombineBox(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const std::byte* from,
                  std::byte* to) override;
  void Record(StreamEvent& event) override;
  void Wait(const StreamEvent& event) override;
  bool CanCapture() const override { return capturing_ != nullptr; }
  bool BeginCapture() override;
  std::unique_ptr<CapturedWork> EndCapture() override;
  void Launch(const CapturedWork& work) override;
  void SetStep(int64_t step) override;
  void Notify(Notice notice) override;
  void SetName(const WorkName* name) override;

  // Between the devices' own memory; this stream's device receives.
  void CopyFrom(const CudaDevice& other, std::byte* to, const std::byte* from, uint64_t bytes);
  void Reduce(const PeerReduceLaunch& launch);

  const Queue& queue() override;
  absl::Status Failed(Error error) override;

  // Any thread.
  Error state() const;

 private:
  // Ends the device's work with the error, if it is one.
  void Check(Error error);
  // Of what goes to queue_: while this stream captures, the error is the capture's.
  void CheckQueued(Error error);
  void WarnOfCapture() const;
  // What the box takes from memory that this card's kernels cannot use, run by run, as dense memory
  // of this one; null after a failure.
  const std::byte* Land(const CudaDevice& other, const BoxRuns& runs, size_t element_size,
                        const std::byte* from);

  CudaDevice& device_;
  void* stream_ = nullptr;
  // Nothing is ever queued here: other threads look at the stream while this one captures.
  void* capturing_ = nullptr;
  Queue queue_;             // of either
  int64_t step_ = -1;       // what *queue_.step will be when all that is queued is done
  Error captured_ = kDone;  // the first error since BeginCapture
  // For Land: each larger than the one before, which queued work may still use.
  std::vector<Memory> landings_;
  // Only notices are queued here, each behind a mark in the stream: the work never waits for what
  // the host does with one.
  void* notices_ = nullptr;
  // Each of the device's threads drains all of its streams.
  Mutex notice_mutex_;
  CudaEvent mark_ BRAID_GUARDED_BY(notice_mutex_);
  WorkRange since_notice_ BRAID_GUARDED_BY(notice_mutex_);
};

}  // namespace braid::cuda
