// Compile time and slice size against ops and devices: an MLP of many layers, data parallel over
// the nodes and model parallel inside one, on clusters that are not there.
//
//   build/release/bin/compile_bench [layers]     default: as many as make 20,000 ops

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_format.h"
#include "api/layers.h"
#include "api/optimizers.h"
#include "compiler/compile.h"
#include "compiler/emit_plan.h"
#include "graph/functional.h"
#include "graph/op_registry.h"

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

double Seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  const int layers = argc > 1 ? std::atoi(argv[1]) : 1670;
  const OpRegistry operators = BuiltinOps();
  for (const int nodes : {8, 128}) {
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
    double begin = Seconds();
    LogicalGraph graph = Record(operators, layers);
    const double record = Seconds() - begin;
    begin = Seconds();
    const auto compiled = compiler::Compile(std::move(graph), options);
    if (!compiled.ok()) {
      std::fprintf(stderr, "%s\n", std::string(compiled.status().message()).c_str());
      return 1;
    }
    const double compile = Seconds() - begin;
    begin = Seconds();
    const auto plan = compiler::EmitPlan(compiled->physical, {.node = nodes / 2});
    if (!plan.ok()) {
      std::fprintf(stderr, "%s\n", std::string(plan.status().message()).c_str());
      return 1;
    }
    std::printf(
        "%d devices: %zu ops, record %.2f s, compile %.2f s, emit one node %.2f s, slice %.2f MiB, "
        "%d tasks\n",
        nodes * kDevices, compiled->logical.ops().size(), record, compile, Seconds() - begin,
        static_cast<double>(plan->ByteSizeLong()) / (1 << 20), plan->tasks_size());
  }
  return 0;
}
