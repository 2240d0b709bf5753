#include "tests/simulation/sim_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/loopback_transport.h"
#include "compiler/compile.h"
#include "compiler/plan/plan_codec.h"
#include "glog/logging.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/coordinator.h"
#include "runtime/node.h"

namespace braid {
namespace {

constexpr JobId kJob = 1;
constexpr Nanoseconds kLimit = 60 * kSecond;

Placement AllDevices(const std::vector<int>& devices) {
  std::vector<DeviceId> ids;
  for (int node = 0; node < static_cast<int>(devices.size()); ++node) {
    for (int device = 0; device < devices[node]; ++device) ids.push_back({node, device});
  }
  return Placement("cpu", std::move(ids));
}

// The losses of a run, in order.
class LossReceiver final : public FetchReceiver {
 public:
  explicit LossReceiver(std::vector<double>* losses) : losses_(*losses) {}
  Array& Place(std::string_view, int64_t, DType dtype, const Shape& shape) override {
    if (value_.dtype() != dtype || value_.shape() != shape) value_ = Array(dtype, shape);
    return value_;
  }
  absl::Status OnFetched(std::string_view name, int64_t, const Array& value) override {
    if (name == "loss") losses_.push_back(value.As(DType::kF64).data<double>()[0]);
    return absl::OkStatus();
  }

 private:
  std::vector<double>& losses_;
  Array value_;
};

// The master's end of a node's channel, which changes the plans on their way.
class ChangingChannel final : public ControlChannel {
 public:
  ChangingChannel(std::unique_ptr<ControlChannel> channel, std::string plan)
      : channel_(std::move(channel)), plan_(std::move(plan)) {}
  void SetHandlers(MessageHandler on_message, ClosedHandler on_closed) override {
    channel_->SetHandlers(std::move(on_message), std::move(on_closed));
  }
  void Send(std::string bytes) override {
    control::ControlMessage message;
    CHECK(message.ParseFromString(bytes));
    if (!message.has_load()) return channel_->Send(std::move(bytes));
    message.mutable_load()->set_plan(plan_);
    message.mutable_load()->set_plan_bytes(plan_.size());
    message.mutable_load()->set_fingerprint(compiler::PlanFingerprint(plan_));
    channel_->Send(message.SerializeAsString());
  }
  void Close(absl::Status reason) override { channel_->Close(std::move(reason)); }

 private:
  const std::unique_ptr<ControlChannel> channel_;
  const std::string plan_;
};

// One seed's cluster.
class LoopbackCluster {
 public:
  LoopbackCluster(const LoopbackRunnerOptions& options, uint64_t seed)
      : options_(options),
        plan_(*options.plan),
        environment_(MakeSimulatedEnvironment(seed)),
        coordinator_(std::make_unique<Coordinator>(CoordinatorOptions{
            .environment = environment_.get(),
            .name_of = {},
            .on_failure = {},
            // Each node passes it on to the next, where all get the same.
            .plan_fan_out = plan_.other.empty() ? 1 : static_cast<int>(plan_.devices.size())})) {
    ends_.resize(plan_.devices.size());
    nodes_left_ = plan_.devices.size();
    for (size_t node = 0; node < plan_.devices.size(); ++node) StartNode(node, seed);
  }

  ~LoopbackCluster() {
    coordinator_.reset();
    nodes_.clear();
  }

  absl::StatusOr<std::vector<double>> Run() {
    absl::Status status = RunJob();
    std::string waits;
    if (absl::IsInternal(status)) waits = DescribeWaits();
    status.Update(coordinator_->Close());
    status.Update(environment_->Await(*all_ended_, kLimit));
    if (!status.ok()) {
      return absl::Status(status.code(), std::string(status.message()) + waits);
    }
    for (size_t node = 0; node < ends_.size(); ++node) {
      if (ends_[node].size() != 1 || !ends_[node][0].ok()) {
        return absl::InternalError(absl::StrFormat(
            "node %d ended %d times, which must be once and well: %s", node, ends_[node].size(),
            ends_[node].empty() ? "" : ends_[node][0].ToString()));
      }
    }
    return losses_;
  }

 private:
  void StartNode(size_t number, uint64_t seed) {
    NodeOptions node;
    node.node = static_cast<uint16_t>(number);
    node.devices = plan_.devices[number];
    node.device_kind = *plan_.device_kinds.Find(plan_.kinds[number]);  // CompileSimPlan looked
    node.simulation_seed = seed;
    node.environment = environment_.get();
    node.loopback = &network_;
    node.make_transports = options_.make_transports;
    node.kernels = &plan_.kernels;
    nodes_.push_back(std::make_unique<Node>(node));
    auto [master_end, node_end] =
        MakeLoopbackControlPair(&coordinator_->reactor(), &nodes_.back()->reactor());
    nodes_.back()->Serve(std::move(node_end), [this, number](absl::Status cause) {
      ends_[number].push_back(std::move(cause));
      if (--nodes_left_ == 0) all_ended_->Set();
    });
    if (const auto other = plan_.other.find(static_cast<int>(number)); other != plan_.other.end()) {
      master_end = std::make_unique<ChangingChannel>(std::move(master_end),
                                                     compiler::EncodePlan(other->second));
    }
    channels_.push_back(std::move(master_end));
  }

  absl::Status RunJob() {
    BRAID_RETURN_IF_ERROR(coordinator_->Join(std::move(channels_), kLimit));
    const std::string name = plan_.physical.job;
    BRAID_RETURN_IF_ERROR(
        coordinator_
            ->Load({.job = kJob, .name = name, .plan = compiler::EncodePlan(plan_.physical)})
            .status());
    HostIo& host = nodes_[0]->Host(kJob);
    LossReceiver receiver(&losses_);
    host.SetReceiver(&receiver);
    int64_t step = 0;
    for (const int64_t steps : options_.runs) {
      BRAID_RETURN_IF_ERROR(coordinator_->Run({kJob, name, step, steps}));
      step += steps;
      if (losses_.size() == static_cast<size_t>(step)) continue;
      return absl::InternalError(
          absl::StrFormat("%d losses came in %d steps", losses_.size(), step));
    }
    host.SetReceiver(nullptr);
    return absl::OkStatus();
  }

  // What everything waits for, as the nodes say it.
  std::string DescribeWaits() {
    const std::unique_ptr<Event> is_described = environment_->MakeEvent();
    std::string text;
    coordinator_->Describe([&](std::string described) {
      text = std::move(described);
      is_described->Set();
    });
    if (!environment_->Await(*is_described, kLimit).ok()) return "; the nodes do not say why";
    return "; " + text;
  }

  const LoopbackRunnerOptions& options_;
  const CompiledSimPlan& plan_;
  std::vector<double> losses_;
  std::vector<std::vector<absl::Status>> ends_;  // of each node's Serve
  size_t nodes_left_ = 0;
  const std::unique_ptr<Environment> environment_;
  const std::unique_ptr<Event> all_ended_ = environment_->MakeEvent();
  LoopbackNetwork network_;
  std::vector<std::unique_ptr<ControlChannel>> channels_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<Coordinator> coordinator_;
};

class LoopbackRunner final : public SimRunner {
 public:
  explicit LoopbackRunner(LoopbackRunnerOptions options) : options_(std::move(options)) {}
  absl::StatusOr<std::vector<double>> Run(uint64_t seed) override {
    return LoopbackCluster(options_, seed).Run();
  }

 private:
  const LoopbackRunnerOptions options_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledSimPlan>> CompileSimPlan(const SimPlan& plan,
                                                                      LaggingFault fault) {
  auto result = std::make_shared<CompiledSimPlan>();
  result->devices = plan.devices;
  result->kinds = plan.kinds;
  if (plan.kinds.empty()) result->kinds.assign(plan.devices.size(), "cpu");
  result->device_kinds = KindsWithLagging(
      fault, nullptr, plan.collects_between_nodes ? MakeLaggingNetwork() : nullptr);
  std::vector<compiler::DeviceKind> kinds;
  for (const std::string& name : result->kinds) {
    BRAID_ASSIGN_OR_RETURN(const DeviceKinds::Kind* const kind, result->device_kinds.Find(name));
    kinds.push_back({.name = name,
                     .is_host = kind->is_host,
                     .does_collectives = kind->make_group != nullptr,
                     .collects_in_any_order = kind->collects_in_any_order,
                     .collects_between_nodes = kind->between_nodes != nullptr});
  }
  result->operators = BuiltinOps();
  result->kernels = CpuKernels();
  if (plan.extend) BRAID_RETURN_IF_ERROR(plan.extend(result->operators, result->kernels));
  const Placement devices = AllDevices(plan.devices);
  DatasetCache datasets;
  LogicalGraph graph(&result->operators);
  Job job(&graph, devices, &datasets);
  plan.record(job);
  BRAID_RETURN_IF_ERROR(graph.status());
  graph.training = true;
  compiler::CompileOptions options;
  options.job = plan.name;
  options.all_devices = devices;
  options.master = devices.Slice(0, 1);
  options.num_nodes = static_cast<int>(plan.devices.size());
  options.kinds = compiler::NodeKinds(std::move(kinds));
  options.seed = kSimProgramSeed;
  BRAID_ASSIGN_OR_RETURN(compiler::Compiled compiled, compiler::Compile(std::move(graph), options));
  result->physical = std::move(compiled.physical);
  return result;
}

std::unique_ptr<SimRunner> MakeLoopbackRunner(LoopbackRunnerOptions options) {
  return std::make_unique<LoopbackRunner>(std::move(options));
}

}  // namespace braid
