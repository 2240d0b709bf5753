// A plan as the master's message brings it, up to where a node's actors could run: reading,
// expanding, checking, variables, kernels, actions, actors, the resolving of edges, the keys. The
// first byte says which node reads it.
#include <glog/logging.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/plan/expand.h"
#include "compiler/plan/plan.pb.h"
#include "compiler/plan/plan_codec.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device_kinds.h"
#include "runtime/executor.h"
#include "tests/fuzz/input_reader.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/plan_size.h"
#include "tests/fuzz/silent_link.h"

namespace braid::fuzz {
namespace {

constexpr int kDevices = 2;
constexpr uint16_t kPeers = 4;

// One thread, and yet as on a node that no simulation watches: what is checked here is checked
// always.
class OneThread final : public Environment {
 public:
  Nanoseconds Now() const override { return simulated_->Now(); }
  std::unique_ptr<Reactor> StartReactor(std::string_view name) override {
    return simulated_->StartReactor(name);
  }
  std::unique_ptr<Event> MakeEvent() override { return simulated_->MakeEvent(); }
  absl::Status Await(Event& event, Nanoseconds timeout) override {
    return simulated_->Await(event, timeout);
  }
  bool is_simulated() const override { return false; }

 private:
  const std::unique_ptr<Environment> simulated_ = MakeSimulatedEnvironment(1);
};

const KernelRegistry& Kernels() {
  static const KernelRegistry& kernels = *new KernelRegistry(CpuKernels());
  return kernels;
}

void Run(Bytes input) {
  if (input.empty()) return;
  const int reader = input[0] % kPeers;
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  if (IsTooLargeToExpand(bytes)) return;
  const auto graph = compiler::DecodePlan(bytes);
  VLOG(1) << "decoded: " << graph.status();
  if (!graph.ok()) return;
  const auto expanded = compiler::ExpandPlan(*graph, reader);
  VLOG(1) << "expanded: " << expanded.status();
  if (!expanded.ok()) return;
  const plan::NodePlan& plan = *expanded;
  if (IsTooLargeToTry(plan)) {
    VLOG(1) << "too large to try";
    return;
  }
  OneThread environment;
  std::unique_ptr<Reactor> control = environment.StartReactor("control");
  const auto node = static_cast<uint16_t>(plan.node);
  Devices devices;
  for (int i = 0; i < kDevices; ++i)
    devices.push_back(MakeCpuDevice({.index = i, .cpu_kernels = &Kernels()}));
  VariableStore variables(&devices);
  DatasetCache datasets;
  CollectiveHub collectives(node);
  std::map<uint16_t, SilentLink> links;
  for (uint16_t peer = 0; peer < kPeers; ++peer) {
    if (peer == node) continue;
    collectives.AddLink(peer, &links.try_emplace(peer, peer, control.get()).first->second);
  }
  HostIo host;
  NodeResources resources;
  resources.node = node;
  resources.environment = &environment;
  resources.control = control.get();
  auto threads = std::make_unique<StreamThreads>(&environment, node);
  resources.threads = threads.get();
  resources.devices = &devices;
  resources.variables = &variables;
  resources.datasets = &datasets;
  resources.collectives = &collectives;
  resources.link_of = [&](uint16_t peer) -> Link* {
    const auto found = links.find(peer);
    return found == links.end() ? nullptr : &found->second;
  };
  ExecutorOptions options;
  options.on_ready = [] {};
  options.on_run_done = [] {};
  options.on_failure = [](absl::Status) {};
  auto kernels = PrepareKernels(plan, {.devices = &devices, .datasets = &datasets, .host = &host},
                                [](const compiler::KernelCall*) {});
  VLOG(1) << "prepared: " << kernels.status();
  if (!kernels.ok()) return;
  auto executor = std::make_unique<Executor>(resources, std::move(options));
  const absl::Status loaded = executor->Load(plan, *kernels);
  VLOG(1) << "loaded: " << loaded;
  if (loaded.ok()) {
    const absl::Status connected = executor->Connect();
    VLOG(1) << "connected: " << connected;
  }
  const std::unique_ptr<Event> closed = environment.MakeEvent();
  control->Post([&] {
    collectives.Abort(absl::CancelledError("over"));
    executor->Close(absl::CancelledError("over"), [&] { closed->Set(); });
  });
  CHECK(environment.Await(*closed, kSecond).ok());
  executor.reset();
  threads.reset();
  control.reset();
}

size_t Mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  plan::Plan plan;
  if (size == 0 || !plan.ParseFromArray(data + 1, static_cast<int>(size - 1))) return 0;
  Random random(seed);
  MutateMessage(plan, random);
  const std::string bytes = std::string(1, static_cast<char>(data[0])) + plan.SerializeAsString();
  if (bytes.size() > max_size) return 0;
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

bool IsCurrent(Bytes seed) {
  plan::Plan plan;
  return seed.size() > 1 &&
         plan.ParseFromArray(seed.data() + 1, static_cast<int>(seed.size() - 1)) &&
         plan.version() == compiler::kPlanVersion;
}

}  // namespace

Target PlanTarget() {
  return {.name = "plan", .run = Run, .mutate = Mutate, .is_current = IsCurrent};
}

}  // namespace braid::fuzz
