// A kernel: one op's work on one device's shard, prepared once from the Plan and then run act by
// act. Kernels know logical shapes and the region they hold, so that random numbers, indices and
// means are those of the whole tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "graph/dtype.h"
#include "graph/op_parts.h"
#include "graph/sbp.h"
#include "graph/shape.h"
#include "runtime/base/ids.h"
#include "runtime/kernels/kernel_memory.h"
#include "runtime/kernels/work_memory.h"

namespace braid {

// One operand of a kernel. Memory is dense and row-major in `region.size`.
struct OperandSpec {
  DType dtype = DType::kF32;
  Shape logical;  // of the whole tensor, whole batch
  Region region;  // what this device holds, in act 0 of a step
  // The axis that micro-batches split, -1 if none is: in act t of a step
  // region.offset[micro_batch_axis] is larger by t * micro_batch_stride.
  int micro_batch_axis = -1;
  int64_t micro_batch_stride = 0;
  bool partial = false;  // an addend (P) of the logical value

  const Shape& shape() const { return region.size; }
  int64_t num_elements() const { return region.size.num_elements(); }
};

struct KernelSpec {
  std::string op;    // OpDef name: selects the kernel
  std::string name;  // the op's unique name: key of random numbers, shown in errors
  Attrs attrs;       // shapes in attributes are logical ones: use the operands' regions instead
  std::vector<OperandSpec> inputs, outputs;
  uint64_t seed = 0;                           // the session's
  int threads = 1;                             // a device's own threads
  std::shared_ptr<WorkMemory> work = nullptr;  // of the thread that runs it; null: the kernel's own
  // This rank is the first one among those that hold the same: an op that makes P out of B adds its
  // B terms here only.
  bool contributes = true;
  // Which it is of the ranks that are given the same inputs, and how many they are: they may share
  // what is to be done once.
  int64_t replica = 0;
  int64_t replicas = 1;
  // Which of the devices it is that have values of their own (M); random numbers hang on it.
  int64_t mirror = 0;
};

class Stream;

struct KernelRun {
  Stream* stream = nullptr;  // of the device, in which the work is queued; null: the host's
  int64_t step = 0;          // of the job, counted over checkpoints
  int64_t micro_batch = 0;   // act within the step, 0 .. micro_batches - 1
  int32_t lane = kNoLane;    // the worker for which an asynchronous server acts
  // Bit i: input i is a variable, or made of variables alone, and holds what it held in this
  // kernel's Run before, so what was made of it can be used again.
  uint64_t unchanged_inputs = 0;
  void* const* inputs = nullptr;   // written only where the OpDef says Mutates
  void* const* outputs = nullptr;  // may equal an input where the OpDef says Inplace
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // On the thread that feeds the stream, which a CPU's kernel does its work on. OK unless the
  // outside (a file, a feed) failed.
  virtual absl::Status Run(const KernelRun& run) = 0;

  // Whether each Run with the same addresses and micro-batch queues the same work, whatever the
  // step: then what one queued may be queued again without a Run.
  virtual bool is_repeatable() const { return false; }
  // Whether that work reads the step where its stream keeps it (Stream::SetStep).
  virtual bool reads_step() const { return false; }

  // Whether its Run may be one with that of the next call's kernel, in whatever order: they are of
  // one kind, and neither reads what the other one writes.
  virtual bool joins(const Kernel& /*next*/) const { return false; }
  // The runs of kernels each of which joins the next one, the first of which this is.
  virtual absl::Status RunTogether(std::span<Kernel* const> kernels,
                                   std::span<const KernelRun> runs) {
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (absl::Status status = kernels[i]->Run(runs[i]); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // How it can work in parts (graph/op_parts.h): at least as its operator's definition says.
  virtual OpParts parts() const { return {}; }
  // Run's work for the elements [begin, begin + size) of such operands, of a kernel that has parts.
  virtual void RunPart(const KernelRun& /*run*/, int64_t /*begin*/, int64_t /*size*/) {}
};

// A kernel that is chosen but not made.
struct PlannedKernel {
  KernelMemory memory;  // what it will need
  // Makes it, once.
  std::function<absl::StatusOr<std::unique_ptr<Kernel>>()> make;
};

// How the kernels of an op come to be: they are planned wherever their memory is to be known, and
// made only where they run.
class KernelFactory {
 public:
  using Memory = std::function<KernelMemory(const KernelSpec&)>;
  using Plan = std::function<absl::StatusOr<PlannedKernel>(const KernelSpec&)>;

  // `make`: absl::StatusOr<std::unique_ptr<Kernel>>(const KernelSpec&), which is called only where
  // the kernel will run. `memory` says what it keeps, from the spec alone; nullptr: nothing.
  template <class Make>
  requires std::is_invocable_v<const Make&, const KernelSpec&> KernelFactory(
      Make make, Memory memory)  // NOLINT(google-explicit-constructor)
      : plan_([make = std::move(make), memory = std::move(memory)](
                  const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
          return PlannedKernel{.memory = memory ? memory(spec) : KernelMemory(),
                               .make = [make, spec] { return Made(make(spec)); }};
        }) {}
  // Of kernels that keep nothing; or of a Plan, which says the memory with the choice that it makes
  // from the spec. It allocates nothing that grows with the operands.
  template <class Function>
  requires(!std::is_same_v<Function, KernelFactory> &&
           std::is_invocable_v<const Function&, const KernelSpec&>)
      KernelFactory(Function function)  // NOLINT(google-explicit-constructor)
      : KernelFactory(OfFunction(std::move(function))) {}

  absl::StatusOr<PlannedKernel> PlanKernel(const KernelSpec& spec) const { return plan_(spec); }

 private:
  struct FromPlan {
    Plan plan;
  };
  explicit KernelFactory(FromPlan from) : plan_(std::move(from.plan)) {}

  template <class Function>
  static KernelFactory OfFunction(Function function) {
    using Result = std::invoke_result_t<const Function&, const KernelSpec&>;
    if constexpr (std::is_same_v<Result, absl::StatusOr<PlannedKernel>>) {
      return KernelFactory(FromPlan{std::move(function)});
    } else {
      return KernelFactory(std::move(function), nullptr);
    }
  }
  static absl::StatusOr<std::unique_ptr<Kernel>> Made(
      absl::StatusOr<std::unique_ptr<Kernel>> kernel) {
    return kernel;
  }

  Plan plan_;
};

class OpRegistry;

// The kernels of one kind of device. An object: users and the runtime add to it.
class KernelRegistry {
 public:
  KernelRegistry() = default;
  // What Check knows. Shared with copies of this object.
  explicit KernelRegistry(std::shared_ptr<const OpRegistry> operators)
      : operators_(std::move(operators)) {}
  // `wrap` is given every kernel that is made, and returns what is used instead: one that
  // measures it, say.
  using Wrapper =
      std::function<std::unique_ptr<Kernel>(const KernelSpec&, std::unique_ptr<Kernel>)>;
  // Has the kernels of `base` (borrowed), also those that it gets later, as `wrap` returns them;
  // they need what those of `base` need, so what wraps one keeps no memory that counts.
  KernelRegistry(const KernelRegistry* base, Wrapper wrap) : base_(base), wrap_(std::move(wrap)) {}

  // ALREADY_EXISTS if taken. A kernel that keeps memory says so: Register(op, {make, memory}).
  absl::Status Register(std::string op, KernelFactory factory);
  // Whether a spec that came from outside is a use of its operator (check_spec.h), on which
  // factories rely; INVALID_ARGUMENT if not. OK for operators that are unknown here.
  absl::Status Check(const KernelSpec& spec) const;
  // NOT_FOUND or UNIMPLEMENTED with op, name and dtypes if there is no kernel for them; some find
  // that out only when they are made.
  absl::StatusOr<PlannedKernel> Plan(const KernelSpec& spec) const;
  // Plans and makes it.
  absl::StatusOr<std::unique_ptr<Kernel>> Create(const KernelSpec& spec) const;
  bool Has(std::string_view op) const;
  // Whether a kernel of `op` may write to that input; of operators that are unknown here, any may.
  bool MayWrite(std::string_view op, int input) const;

  // Of what is planned from now on.
  void WrapAll(Wrapper wrap) { wrap_ = std::move(wrap); }

 private:
  const KernelRegistry* base_ = nullptr;
  std::map<std::string, KernelFactory, std::less<>> factories_;
  Wrapper wrap_;
  std::shared_ptr<const OpRegistry> operators_;  // null: unknown
};

// Every CPU kernel that needs nothing but its operands: the list is runtime/kernels/cpu/all.cc.
KernelRegistry CpuKernels();
// Channels of the blocks (compiler/plan/channel_blocks.h) that convolutions on this machine's CPUs
// take as they are.
int64_t CpuChannelBlock();

}  // namespace braid
