#include "tests/runtime/probe_plan.h"

#include <glog/logging.h>

#include <cstring>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "graph/functional.h"
#include "graph/op_registry.h"

namespace braid {
namespace {

constexpr int64_t kRows = 8;
constexpr int64_t kColumns = 16;

class ProbeKernel final : public Kernel {
 public:
  ProbeKernel(const Probe* probe, int64_t elements)
      : probe_(probe), bytes_(static_cast<size_t>(elements) * sizeof(float)) {}
  ~ProbeKernel() override {
    if (probe_->end) probe_->end();
  }
  absl::Status Run(const KernelRun& run) override {
    std::memcpy(run.outputs[0], run.inputs[0], bytes_);
    return probe_->run ? probe_->run() : absl::OkStatus();
  }

 private:
  const Probe* const probe_;
  const size_t bytes_;
};

const OpRegistry& Operators() {
  static const OpRegistry& operators = *[] {
    auto* registry = new OpRegistry(BuiltinOps());
    const absl::Status status = registry->Register(
        OpDef("probe").Rule("...->...").NoGradient().Sample({.inputs = {{DType::kF32, {3, 4}}}}));
    CHECK(status.ok()) << status;
    return registry;
  }();
  return operators;
}

}  // namespace

KernelRegistry ProbeKernels(const Probe* probe) {
  KernelRegistry kernels = CpuKernels();
  const absl::Status status = kernels.Register(
      "probe", [probe](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        if (const absl::Status made = probe->make ? probe->make() : absl::OkStatus(); !made.ok()) {
          return made;
        }
        return std::make_unique<ProbeKernel>(probe, spec.outputs[0].num_elements());
      });
  CHECK(status.ok()) << status;
  return kernels;
}

compiler::PhysicalGraph ProbeGraph(int nodes) {
  std::vector<DeviceId> devices;
  for (int node = 0; node < nodes; ++node) devices.push_back({node, 0});
  LogicalGraph graph(&Operators());
  const Tensor x = RandomNormal(graph, {kRows, kColumns});
  Tensor y = Apply("probe", {x});
  if (nodes > 1) y = ToSbp(y, {sbp::S(0)});
  Fetch(y, "y");
  compiler::CompileOptions options;
  options.job = kProbeJob;
  options.all_devices = Placement("cpu", devices);
  options.master = options.all_devices.Slice(0, 1);
  options.num_nodes = nodes;
  auto compiled = compiler::Compile(std::move(graph), options);
  CHECK(compiled.ok()) << compiled.status();
  return std::move(compiled->physical);
}

}  // namespace braid
