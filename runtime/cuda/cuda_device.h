// A card, or a part of one, as a device.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/cuda/card_programs.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/cuda/module_table.h"
#include "runtime/device/device.h"
#include "runtime/device/device_kinds.h"
#include "runtime/device/host_arena.h"
#include "runtime/kernels/call_fuser.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

class CudaDevice;

// A notice that a stream of CUDA's is to give.
struct DueNotice {
  CudaDevice* device = nullptr;
  uint64_t number = 0;
  Notice notice;
  WorkRange work;
};

class CudaDevice final : public Device {
 public:
  struct Options {
    const ModuleTable* module = nullptr;  // borrowed
    int card = 0;
    absl::Status status;  // a failure before it was made
    std::shared_ptr<const KernelRegistry> kernels;
    std::string libraries;  // CudaOptions::libraries
    bool rounds_to_tf32 = false, sums_by_winograd = true, uses_graphs = true;  // CudaOptions'
    std::shared_ptr<ProgramCompiler> compiler;  // null: kernels run one by one
  };
  // What goes wrong here, the first use of its memory says.
  CudaDevice(const DeviceRequest& request, const Options& options);
  ~CudaDevice() override;

  const KernelRegistry& kernels() const override { return *kernels_; }
  bool is_host() const override { return false; }
  absl::StatusOr<Memory> Allocate(MemoryKind kind, uint64_t bytes) override;
  std::span<std::byte> arena(MemoryKind kind) const override;
  absl::Status GrowArena(MemoryKind kind, uint64_t bytes) override;
  Stream& stream(StreamKind kind) override;
  std::unique_ptr<StreamEvent> MakeEvent() override;
  void Drain(Notice drained) override;
  CallFuser* call_fuser() override { return fuser_.get(); }

  // For its streams.
  const ModuleTable& module() const { return module_; }
  int card() const { return card_; }
  // Work of several devices together is queued here, by whichever of their threads.
  CudaStream* together() { return streams_.empty() ? nullptr : streams_.back().get(); }
  // Before its arena grows: this device's kernels use the memory of the other one from now on. What
  // CUDA says if the cards cannot.
  Error Reach(CudaDevice& other);
  // The device whose memory this is, if this one's kernels cannot use it; null if they can.
  const CudaDevice* UnseenOwner(const std::byte* address) const;
  // Called once with its first failure, on any thread.
  void SetOnFailure(std::function<void(const absl::Status&)> on_failure);
  // Asked for an error, while notices are due, as CUDA's streams are.
  void SetLook(std::function<absl::Status()> look);
  DueNotice* Expect(Notice notice, const WorkRange& work);
  // A DueNotice's stream has come to it.
  static void OnReached(void* due);
  // Ends all that is under way: the notices that are due come with the first failure.
  void Fail(const absl::Status& status);
  // Bytes from here on that were pinned in one piece, as far as the pinned arena is concerned.
  uint64_t PinnedTogether(const std::byte* from) const;
  // "cuda 0 (card 0): cudaError...; the work is between a 'x' (line) and b 'y' (line)".
  absl::Status Failure(Error error, const WorkRange& work) const;

 private:
  absl::Status Start(const DeviceRequest& request, const Options& options);
  // What the device has noted of wrong indices, in the words of the kernel that met it.
  void ReadNoteLocked() BRAID_REQUIRES(mutex_);
  // Looks at the streams as long as notices are due: CUDA calls nobody after an error.
  void Watch();
  absl::Status OutOfMemory(Error error, const char* what, uint64_t bytes) const;
  absl::Status PinArena(uint64_t bytes);

  const ModuleTable& module_;
  const int card_;
  const std::shared_ptr<const KernelRegistry> kernels_;
  Range own_;
  uint64_t own_bytes_ = 0;  // of it, that plans asked for
  HostArena pinned_;
  Memory note_memory_;   // of the host
  Memory noted_memory_;  // of the card
  Memory step_memory_;   // of the card: Queue::step
  Queue queue_;
  HostStream host_;
  // Compute, copy in, copy out, collective, together.
  std::vector<std::unique_ptr<CudaStream>> streams_;
  std::vector<const CudaDevice*> unseen_;   // whose memory it cannot reach
  std::unique_ptr<CardPrograms> programs_;  // null: it has no compiler
  std::unique_ptr<CallFuser> fuser_;        // null: the same

  mutable Mutex mutex_;
  absl::Status failure_ BRAID_GUARDED_BY(mutex_);  // the first
  std::function<void(const absl::Status&)> on_failure_ BRAID_GUARDED_BY(mutex_);
  std::function<absl::Status()> look_ BRAID_GUARDED_BY(mutex_);
  // Of the pinned arena, each pinned when it grew.
  std::vector<std::span<std::byte>> pinned_parts_ BRAID_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<DueNotice>> due_ BRAID_GUARDED_BY(mutex_);
  // CUDA may still know them.
  std::vector<std::unique_ptr<DueNotice>> given_up_ BRAID_GUARDED_BY(mutex_);
  uint64_t next_number_ BRAID_GUARDED_BY(mutex_) = 0;
  bool is_watched_ BRAID_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace braid::cuda
