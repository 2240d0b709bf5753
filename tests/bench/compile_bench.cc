// Compile time, the plan's size and a node's share against ops and devices: an MLP of many layers,
// data parallel over the nodes and model parallel inside one, on clusters that are not there.
//
//   build/release/bin/compile_bench [LAYERS [NODES...]]   default: 1670 (20,000 ops) on 8 and on
//   128

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/layers.h"
#include "api/optimizers.h"
#include "compiler/compile.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan_codec.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "runtime/base/process_usage.h"

namespace {

using namespace braid;

LogicalGraph Record(const OpRegistry& operators, int layers) {
  LogicalGraph graph(&operators);
  Tensor x = Input(graph, "x", {DType::kF32, {4096, 64}});
  for (int i = 0; i < layers; ++i) {
    const NdSbp weight = i % 2 == 0 ? NdSbp{sbp::B, sbp::S(1)} : NdSbp{sbp::B, sbp::S(0)};
    x = Relu(Linear(x, 64, {.name = absl::StrFormat("fc%d", i), .weight = weight}));
  }
  MinimizeRequest request;
  request.loss = Mean(Square(x)).id();
  const OptimizerSpec sgd = Sgd{.lr = 0.1};
  request.optimizer = sgd.update();
  request.attrs = sgd.attrs();
  request.attrs.Set("learning_rate", 0.1);
  graph.minimize().push_back(request);
  graph.training = true;
  return graph;
}

int Failed(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int layers = argc > 1 ? std::atoi(argv[1]) : 1670;
  const OpRegistry operators = BuiltinOps();
  std::vector<int> clusters;
  for (int i = 2; i < argc; ++i) clusters.push_back(std::atoi(argv[i]));
  if (clusters.empty()) clusters = {8, 128};
  for (const int nodes : clusters) {
    constexpr int kDevices = 8;
    std::vector<DeviceId> devices;
    for (int node = 0; node < nodes; ++node) {
      for (int device = 0; device < kDevices; ++device) devices.push_back({node, device});
    }
    compiler::CompileOptions options;
    options.job = "bench";
    options.all_devices = Placement("cpu", devices);
    options.master = options.all_devices.Slice(0, 1);
    options.num_nodes = nodes;
    double begin = CpuSeconds();
    LogicalGraph graph = Record(operators, layers);
    const double record = CpuSeconds() - begin;
    begin = CpuSeconds();
    const auto compiled = compiler::Compile(std::move(graph), options);
    if (!compiled.ok()) return Failed(compiled.status());
    const double compile = CpuSeconds() - begin;
    begin = CpuSeconds();
    const std::string plan = compiler::EncodePlan(compiled->physical);
    const double encode = CpuSeconds() - begin;
    const double master_peak = PeakMiB();
    begin = CpuSeconds();
    const auto decoded = compiler::DecodePlan(plan);
    if (!decoded.ok()) return Failed(decoded.status());
    const double decode = CpuSeconds() - begin;
    begin = CpuSeconds();
    const auto part = compiler::ExpandPlan(*decoded, nodes / 2);
    if (!part.ok()) return Failed(part.status());
    const double expand = CpuSeconds() - begin;
    std::printf(
        "%d devices: %zu ops, record %.2f s, compile %.2f s, encode %.2f s, plan %.2f MiB, peak "
        "memory %.0f MiB; a node decodes it in %.2f s and expands its %zu tasks in %.2f s, then "
        "%.0f "
        "MiB\n",
        nodes * kDevices, compiled->logical.ops().size(), record, compile, encode,
        static_cast<double>(plan.size()) / (1 << 20), master_peak, decode, part->tasks.size(),
        expand, PeakMiB());
  }
  return 0;
}
