#include "tests/simulation/sim_cluster.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"
#include "tests/simulation/scarce_device.h"
#include "tests/simulation/sim_runner.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

class SimCluster {
 public:
  explicit SimCluster(const SimClusterOptions& options)
      : options_(options),
        machines_(options.seed, num_nodes(), [this](const SimFault& fault) { Begin(fault); }),
        device_kinds_(
            KindsWithLagging(LaggingFault::kNone, nullptr,
                             options.collects_between_nodes ? MakeLaggingNetwork() : nullptr)) {
    has_memory_.assign(num_nodes(), true);
    CHECK(
        device_kinds_
            .Register("scarce", ScarceKind([this](uint16_t node) { return !has_memory_.at(node); }))
            .ok());
    OpRegistry operators = BuiltinOps();
    if (options.extend) CHECK(options.extend(operators, kernels_).ok());
  }

  SimOutcome Run() {
    for (const SimFault& fault : options_.faults) machines_.Expect(fault);
    services_.resize(num_nodes());
    for (int node = 1; node < num_nodes(); ++node) StartService(node);
    RunMaster();
    machines_.AwaitEnds(options_.limit);
    machines_.Release();
    for (auto& service : services_) service.reset();
    SimOutcome outcome = machines_.Finish();
    outcome.losses = losses_;
    outcome.repeated = repeated_;
    return outcome;
  }

 private:
  int num_nodes() const { return static_cast<int>(options_.devices.size()); }
  std::string KindOf(int node) const {
    // CPUs whose memory may run out.
    const bool is_cpu = options_.kinds.empty() || options_.kinds[node] == "cpu";
    return is_cpu ? "scarce" : options_.kinds[node];
  }

  NetworkOptions NetworkOf(int node) {
    NetworkOptions network = machines_.NetworkOf(node, options_.join_timeout);
    for (int n = 0; n < num_nodes(); ++n) {
      network.cluster.nodes[n].devices =
          DeviceSpec{.type = KindOf(n), .count = options_.devices[n]};
    }
    return network;
  }

  void StartService(int node) {
    ServiceOptions service;
    service.device_kind = *device_kinds_.Find(KindOf(node));
    service.kernels = &kernels_;
    service.simulation_seed = options_.seed;
    NetworkOptions network = NetworkOf(node);
    if (service.device_kind->between_nodes != nullptr) {
      network.reach = service.device_kind->between_nodes(options_.devices[node]);
    }
    auto started =
        NodeService::Start(std::move(network), service,
                           [this, node](absl::Status status) { machines_.Ended(node, status); });
    if (!started.ok()) return machines_.Ended(node, started.status());
    services_[node] = *std::move(started);
  }

  // The program on the master, as its main function would be.
  void RunMaster() {
    absl::StatusOr<std::unique_ptr<Session>> session = StartSession();
    absl::Status status = session.status();
    if (status.ok()) status = Train(**session);
    if (session.ok()) status.Update((*session)->Close(status));
    // What a closed session has not given back is to be seen, too.
    if (session.ok()) session->reset();
    machines_.Ended(0, status);
  }

  absl::StatusOr<std::unique_ptr<Session>> StartSession() {
    SessionOptions session;
    session.network = NetworkOf(0);
    session.device_kinds = device_kinds_;
    session.simulation_seed = options_.seed;
    session.seed = kSimProgramSeed;
    session.progress = Progress::kOff;
    BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Session> started, Session::Start(std::move(session)));
    if (options_.extend) {
      BRAID_RETURN_IF_ERROR(options_.extend(started->operators(), started->kernels()));
    }
    return started;
  }

  absl::Status Train(Session& session) {
    BRAID_ASSIGN_OR_RETURN(CompiledJob job, session.Compile("train", options_.record));
    std::vector<double> losses;
    const auto run = [&](int64_t steps) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const RunResult result, job.Run({.steps = steps}));
      for (const double loss : result.Scalars("loss")) losses.push_back(loss);
      return absl::OkStatus();
    };
    if (options_.folder.empty()) {
      BRAID_RETURN_IF_ERROR(run(options_.steps));
    } else {
      BRAID_RETURN_IF_ERROR(run(options_.steps - 1));
      BRAID_RETURN_IF_ERROR(session.Save(options_.folder));
      BRAID_RETURN_IF_ERROR(run(1));
      BRAID_RETURN_IF_ERROR(session.Load(options_.folder));
      BRAID_RETURN_IF_ERROR(run(1));
      repeated_ = losses.back();
      losses.pop_back();
      BRAID_RETURN_IF_ERROR(session.FinishSave());
    }
    losses_ = losses;
    return absl::OkStatus();
  }

  void Begin(const SimFault& fault) {
    if (fault.kind == SimFault::Kind::kNoMemory) {
      has_memory_[fault.node] = false;
    } else {
      BringOtherFiles();
    }
  }

  void BringOtherFiles() {
    namespace fs = std::filesystem;
    const fs::path saved =
        fs::path(options_.folder) / absl::StrFormat("step-%d", options_.steps - 1);
    if (options_.folder.empty() || !fs::exists(saved)) return;
    const fs::path copy = options_.folder + ".other";
    fs::copy(options_.other_checkpoint, copy, fs::copy_options::recursive);
    fs::rename(saved, options_.folder + ".gone");
    fs::rename(copy, saved);
  }

  const SimClusterOptions& options_;
  SimMachines machines_;
  KernelRegistry kernels_ = CpuKernels();
  DeviceKinds device_kinds_;
  std::vector<bool> has_memory_;                        // by node
  std::vector<std::unique_ptr<NodeService>> services_;  // by node; none for the master
  std::vector<double> losses_;
  std::optional<double> repeated_;
};

// From the checkpoint comes all that was saved, or all of the other one.
std::string CheckRepeated(const SimClusterOptions& options, const SimOutcome& outcome) {
  if (options.folder.empty()) return "";
  if (!outcome.repeated.has_value()) return outcome.losses.empty() ? "" : "nothing was loaded";
  const std::vector<double>& losses = outcome.losses;
  const bool is_own = *outcome.repeated == losses.back();
  const bool may_be_other =
      std::any_of(options.faults.begin(), options.faults.end(),
                  [](const SimFault& fault) { return fault.kind == SimFault::Kind::kOtherFiles; });
  const bool is_other = may_be_other && *outcome.repeated == losses[losses.size() - 2];
  if (is_own || is_other) return "";
  return absl::StrFormat("the last step has the loss %.17g, and %.17g from the checkpoint",
                         losses.back(), *outcome.repeated);
}

}  // namespace

SimOutcome RunSimCluster(const SimClusterOptions& options) { return SimCluster(options).Run(); }

std::string CheckOutcome(const SimClusterOptions& options, const SimOutcome& outcome) {
  std::string wrong = CheckEnds(options.faults, options.join_timeout, outcome);
  if (!wrong.empty()) return wrong;
  bool misses = false;
  for (const SimNodeOutcome& node : outcome.nodes) {
    if (!node.was_killed && !node.status.ok()) return "";
    misses = misses || node.was_killed;
  }
  if (misses && outcome.losses.empty()) {
    return "a node crashed and nobody noticed\n" + outcome.ToString();
  }
  wrong = CheckRepeated(options, outcome);
  return wrong.empty() ? "" : wrong + "\n" + outcome.ToString();
}

}  // namespace braid
