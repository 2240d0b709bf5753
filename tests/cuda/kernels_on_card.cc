// Each run of a kernel takes its operands to card 0 and what it wrote back.
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "glog/logging.h"
#include "graph/op_registry.h"
#include "runtime/base/reactor.h"
#include "runtime/base/status.h"
#include "runtime/cuda/cuda_kind.h"
#include "runtime/device/device.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/kernel.h"
#include "runtime/kernels/work_memory.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{256} << 20;  // for the operands of one run
constexpr uint64_t kAligned = 256;

// One card as a device, made when it is first used.
class Card {
 public:
  Card() : kind_(cuda::CudaKind(std::make_shared<cuda::CudaOptions>())) {
    if (const char* device = std::getenv("BRAID_TEST_DEVICE");
        device == nullptr || std::string(device).substr(0, 4) != "cuda") {
      status_ = absl::FailedPreconditionError("BRAID_TEST_DEVICE=cuda:1 is not set");
      return;
    }
    status_ = kind_.open(1);
    if (!status_.ok()) return;
    device_ = kind_.make({.environment = environment_.get(), .cpu_kernels = &cpu_kernels_});
    status_ = device_->GrowArena(MemoryKind::kOwn, kArenaBytes);
    work_ = std::make_shared<WorkMemory>(MemoryOf(*device_, MemoryKind::kOwn));
  }

  const absl::Status& status() const { return status_; }
  Device& device() { return *device_; }
  const std::shared_ptr<WorkMemory>& work() const { return work_; }

  absl::Status Wait() {
    const std::unique_ptr<Event> reached = environment_->MakeEvent();
    absl::Status status;
    device_->stream(StreamKind::kCompute).Notify([&](const absl::Status& at) {
      status = at;
      reached->Set();
    });
    BRAID_RETURN_IF_ERROR(environment_->Await(*reached, 60 * kSecond));
    return status;
  }

 private:
  const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  const KernelRegistry cpu_kernels_;
  DeviceKinds::Kind kind_;
  absl::Status status_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<WorkMemory> work_;
};

Card& TheCard() {
  static auto* const card = new Card;
  return *card;
}

class KernelOnCard final : public Kernel {
 public:
  KernelOnCard(const KernelSpec& spec, std::unique_ptr<Kernel> kernel)
      : spec_(spec), kernel_(std::move(kernel)) {}

  absl::Status Run(const KernelRun& run) override {
    Stream& stream = TheCard().device().stream(StreamKind::kCompute);
    const size_t inputs = spec_.inputs.size(), outputs = spec_.outputs.size();
    std::vector<void*> host(run.inputs, run.inputs + inputs);
    host.insert(host.end(), run.outputs, run.outputs + outputs);
    std::vector<int64_t> bytes;
    for (const auto* operands : {&spec_.inputs, &spec_.outputs}) {
      for (const OperandSpec& operand : *operands) {
        bytes.push_back(operand.num_elements() * static_cast<int64_t>(SizeOf(operand.dtype)));
      }
    }
    const std::span<std::byte> arena = TheCard().device().arena(MemoryKind::kOwn);
    uint64_t taken = 0;
    std::vector<void*> card(host.size(), nullptr);
    for (size_t i = 0; i < host.size(); ++i) {
      // What shares bytes there shares them here.
      for (size_t k = 0; k < i && card[i] == nullptr; ++k) {
        if (host[i] == host[k] && bytes[i] == bytes[k]) card[i] = card[k];
      }
      if (card[i] != nullptr) continue;
      CHECK_LE(taken + bytes[i], arena.size());
      card[i] = arena.data() + taken;
      taken += (bytes[i] + kAligned) / kAligned * kAligned;
      stream.Copy(static_cast<std::byte*>(card[i]), static_cast<const std::byte*>(host[i]),
                  bytes[i]);
    }
    KernelRun there = run;
    there.stream = &stream;
    there.inputs = card.data();
    there.outputs = card.data() + inputs;
    const WorkName name = {.what = spec_.op + " '" + spec_.name + "'", .location = "test"};
    stream.SetName(&name);
    BRAID_RETURN_IF_ERROR(kernel_->Run(there));
    for (size_t i = 0; i < host.size(); ++i) {
      stream.Copy(static_cast<std::byte*>(host[i]), static_cast<const std::byte*>(card[i]),
                  bytes[i]);
    }
    const absl::Status status = TheCard().Wait();
    stream.SetName(nullptr);
    return status;
  }

 private:
  const KernelSpec spec_;
  const std::unique_ptr<Kernel> kernel_;
};

KernelRegistry MakeKernels() {
  KernelRegistry registry(std::make_shared<const OpRegistry>(BuiltinOps()));
  if (!TheCard().status().ok()) return registry;
  const KernelRegistry& kernels = TheCard().device().kernels();
  const OpRegistry ops = BuiltinOps();
  for (const auto& [op, def] : ops.ops()) {
    if (!kernels.Has(op)) continue;
    const auto plan = [&kernels](const KernelSpec& given) -> absl::StatusOr<PlannedKernel> {
      KernelSpec spec = given;
      spec.work = TheCard().work();
      BRAID_ASSIGN_OR_RETURN(const PlannedKernel planned, kernels.Plan(spec));
      return PlannedKernel{
          .memory = planned.memory,
          .make = [spec, make = planned.make]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
            BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, make());
            return std::make_unique<KernelOnCard>(spec, std::move(kernel));
          }};
    };
    CHECK(registry.Register(op, KernelFactory(plan)).ok());
  }
  return registry;
}

}  // namespace

const KernelRegistry& KernelsUnderTest() {
  static const auto* const kernels = new KernelRegistry(MakeKernels());
  return *kernels;
}

std::string WhyNotHere() { return std::string(TheCard().status().message()); }

}  // namespace braid
