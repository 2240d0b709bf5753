// How a family makes its kernels: a factory reads the spec once and returns a function object that
// only launches.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status.h"
#include "runtime/device/stream.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/kernel.h"
#include "runtime/kernels/spec_views.h"

namespace braid::cuda {

// What a CUDA device's streams are for kernels.
class QueueStream : public Stream {
 public:
  // Of what is launched now, on this thread.
  virtual const Queue& queue() = 0;
  // What a launch that failed says: the error may be that of something which was queued before.
  virtual absl::Status Failed(Error error) = 0;
};

// Of the run's stream; without one, that of kernels which were compiled for the host.
Queue QueueOf(const KernelRun& run);

// Of a launch of the run.
absl::Status LaunchStatus(const KernelRun& run, Error error);

// What a launch hangs on beside its addresses and the micro-batch.
enum class HangsOn { kNothing, kStep, kRun };

// F: Error (const Queue&, const KernelRun&).
template <class F, HangsOn what>
class LaunchingKernel final : public Kernel {
 public:
  explicit LaunchingKernel(F launch) : launch_(std::move(launch)) {}
  absl::Status Run(const KernelRun& run) override {
    if (what == HangsOn::kStep && run.stream != nullptr) run.stream->SetStep(run.step);
    return LaunchStatus(run, launch_(QueueOf(run), run));
  }
  bool is_repeatable() const override { return what != HangsOn::kRun; }
  bool reads_step() const override { return what == HangsOn::kStep; }

 private:
  F launch_;
};

// Of a launch that hangs on addresses and the micro-batch, but not on the step.
template <class F>
std::unique_ptr<Kernel> MakeKernel(F launch) {
  return std::make_unique<LaunchingKernel<F, HangsOn::kNothing>>(std::move(launch));
}
// Of one that reads the step: from Queue::step, if that is not null.
template <class F>
std::unique_ptr<Kernel> MakeStepKernel(F launch) {
  return std::make_unique<LaunchingKernel<F, HangsOn::kStep>>(std::move(launch));
}
// Of one that is another one in each run.
template <class F>
std::unique_ptr<Kernel> MakeChangingKernel(F launch) {
  return std::make_unique<LaunchingKernel<F, HangsOn::kRun>>(std::move(launch));
}

// With memory that it takes turns in (KernelSpec::work, which is the device's): `bytes` of it.
// F: Error (const Queue&, const KernelRun&, std::byte* work).
template <class F>
PlannedKernel PlanWithWork(const KernelSpec& spec, int64_t bytes, F launch) {
  return {.memory = {.shared = bytes},
          .make = [=, work = spec.work]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
            const auto memory = work != nullptr ? work : std::make_shared<WorkMemory>();
            BRAID_RETURN_IF_ERROR(memory->Reserve(bytes));
            return MakeKernel([=](const Queue& queue, const KernelRun& run) {
              return launch(queue, run, memory->data());
            });
          }};
}

// As NoKernelForTypes says.
inline absl::Status UnsupportedTypes(const KernelSpec& spec) {
  return NoKernelForTypes("cuda", spec);
}

// Of a walk over `sizes`; strides[k] are operand k's, in elements. UNIMPLEMENTED where more than
// kMaxRank dimensions are left when those that are one are merged.
absl::StatusOr<Walk> WalkOf(const std::vector<int64_t>& sizes,
                            const std::vector<std::vector<int64_t>>& strides);
// Dense output (operand 0) and inputs of broadcastable shapes (operands 1, ...).
absl::StatusOr<Walk> BroadcastWalk(const Shape& out, const std::vector<Shape>& inputs);

// Operand 0 of the walk over the operand's region is the place in the whole tensor, dense, when
// `first` is added. It moves by `micro_batch_stride` from act to act.
struct LogicalWalk {
  Walk walk;
  int64_t first = 0, micro_batch_stride = 0;
};
absl::StatusOr<LogicalWalk> LogicalWalkOf(const OperandSpec& operand);

}  // namespace braid::cuda
