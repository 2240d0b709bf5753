#include "tests/simulation/sim_cluster.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/network/sim_network.h"
#include "glog/logging.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/simulation.h"
#include "runtime/base/status.h"
#include "tests/simulation/scarce_device.h"
#include "tests/simulation/sim_runner.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

constexpr uint16_t kControlPort = 9988;
// Detection of silence (a heartbeat limit, one more beat, and what TCP itself waits), the end
// within three seconds, and the dials that were under way.
constexpr Nanoseconds kEndBound = 12 * kSecond;

std::string HostOf(int node) { return absl::StrFormat("10.0.0.%d", node + 1); }

class SimCluster {
 public:
  explicit SimCluster(const SimClusterOptions& options)
      : options_(options), world_(MakeSimulation(options.seed)), network_(world_.get()) {
    has_memory_.assign(num_nodes(), true);
    CHECK(
        device_kinds_
            .Register("scarce", ScarceKind([this](uint16_t node) { return !has_memory_.at(node); }))
            .ok());
    OpRegistry operators = BuiltinOps();
    if (options.extend) CHECK(options.extend(operators, kernels_).ok());
    cluster_.origin = "the simulation";
    cluster_.knows_all_hosts = true;
    for (int node = 0; node < num_nodes(); ++node) {
      Environment& environment = world_->AddProcess(absl::StrFormat("node %d", node));
      CHECK(&environment == &world_->process(node));
      sockets_.push_back(
          network_.AddMachine(node, {SocketAddress::Parse(HostOf(node) + ":0").value()}));
      cluster_.nodes.push_back(
          {.host = HostOf(node),
           .port = kControlPort,
           .devices = DeviceSpec{.type = KindOf(node), .count = options.devices[node]}});
    }
    observer_ = &world_->AddProcess("observer");
    all_ended_ = observer_->MakeEvent();
    outcome_.nodes.resize(options.devices.size());
  }

  SimOutcome Run() {
    for (const SimFault& fault : options_.faults) {
      if (fault.at_event > 0) {
        world_->RunAfterEvents(fault.at_event, [this, fault] { Begin(fault); });
      } else {
        world_->RunAfter(fault.at, [this, fault] { Begin(fault); });
      }
    }
    services_.resize(num_nodes());
    for (int node = 1; node < num_nodes(); ++node) StartService(node);
    RunMaster();
    LookWhetherAllEnded();
    observer_->Await(*all_ended_, options_.limit).IgnoreError();
    for (int node = 0; node < num_nodes(); ++node) {  // a host thread that stands ends nothing
      if (world_->is_paused(node)) world_->Resume(node);
      world_->ReleasePosts(node);
    }
    for (auto& service : services_) service.reset();
    outcome_.end = world_->Now();
    outcome_.num_events = world_->num_events();
    outcome_.digest = world_->digest();
    LookWhatIsLeft();
    return std::move(outcome_);
  }

 private:
  int num_nodes() const { return static_cast<int>(options_.devices.size()); }
  std::string KindOf(int node) const {
    // CPUs whose memory may run out.
    const bool is_cpu = options_.kinds.empty() || options_.kinds[node] == "cpu";
    return is_cpu ? "scarce" : options_.kinds[node];
  }

  NetworkOptions NetworkOf(int node) {
    NetworkOptions network;
    network.cluster = cluster_;
    network.cluster.rank = node;
    network.secret = "secret";
    network.join_timeout = options_.join_timeout;
    network.environment = &world_->process(node);
    network.sockets = sockets_[node];
    return network;
  }

  void StartService(int node) {
    ServiceOptions service;
    service.device_kind = *device_kinds_.Find(KindOf(node));
    service.kernels = &kernels_;
    service.simulation_seed = options_.seed;
    auto started = NodeService::Start(NetworkOf(node), service,
                                      [this, node](absl::Status status) { Ended(node, status); });
    if (!started.ok()) return Ended(node, started.status());
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
    Ended(0, status);
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
      outcome_.repeated = losses.back();
      losses.pop_back();
      BRAID_RETURN_IF_ERROR(session.FinishSave());
    }
    outcome_.losses = losses;
    return absl::OkStatus();
  }

  void Ended(int node, const absl::Status& status) {
    if (!world_->is_alive(node)) return;  // taken down after it was killed
    SimNodeOutcome& outcome = outcome_.nodes[node];
    CHECK(!outcome.has_ended) << "node " << node << " ends twice";
    outcome.status = status;
    outcome.has_ended = true;
    outcome.ended = world_->Now();
    LookWhetherAllEnded();
  }

  void LookWhetherAllEnded() {
    if (std::all_of(outcome_.nodes.begin(), outcome_.nodes.end(),
                    [](const auto& node) { return node.was_killed || node.has_ended; })) {
      all_ended_->Set();
    }
  }

  void Begin(const SimFault& fault) {
    const auto after = [&](auto act) { world_->RunAfter(fault.lasts, act); };
    switch (fault.kind) {
      case SimFault::Kind::kCrash:
        if (outcome_.nodes[fault.node].has_ended) return;
        outcome_.nodes[fault.node].was_killed = true;
        world_->Kill(fault.node);
        return LookWhetherAllEnded();
      case SimFault::Kind::kPause:
        world_->Pause(fault.node);
        return after([this, node = fault.node] { world_->Resume(node); });
      case SimFault::Kind::kCut:
        return network_.Cut(fault.node, fault.other);
      case SimFault::Kind::kPartition:
        network_.Partition(fault.node, fault.other);
        return after([this, fault] { network_.Heal(fault.node, fault.other); });
      case SimFault::Kind::kNoDescriptors:
        network_.ExhaustDescriptors(fault.node);
        return after([this, node = fault.node] { network_.FreeDescriptors(node); });
      case SimFault::Kind::kNoMemory:
        has_memory_[fault.node] = false;
        return;
      case SimFault::Kind::kSlowDisk:
        world_->HoldPosts(fault.node, "saver");
        return after([this, node = fault.node] { world_->ReleasePosts(node); });
      case SimFault::Kind::kOtherFiles:
        return BringOtherFiles();
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

  void LookWhatIsLeft() {
    for (int node = 0; node < num_nodes(); ++node) {
      const Simulation::Use use = world_->UseOf(node);
      if (use.reactors + use.descriptors + use.timers == 0) continue;
      absl::StrAppendFormat(&outcome_.left_over,
                            "node %d: %d reactors, %d descriptors, %d timers; ", node, use.reactors,
                            use.descriptors, use.timers);
    }
  }

  const SimClusterOptions& options_;
  const std::unique_ptr<Simulation> world_;
  SimNetwork network_;
  KernelRegistry kernels_ = CpuKernels();
  DeviceKinds device_kinds_ = KindsWithLagging();
  std::vector<bool> has_memory_;  // by node
  Cluster cluster_;
  std::vector<Network*> sockets_;
  Environment* observer_ = nullptr;
  std::unique_ptr<Event> all_ended_;
  std::vector<std::unique_ptr<NodeService>> services_;  // by node; none for the master
  SimOutcome outcome_;
};

bool NamesLossOfMaster(const absl::Status& status) {
  return std::string(status.message()).find("master") != std::string::npos;
}

bool IsOfJoining(const absl::Status& status) {
  return std::string(status.message()).starts_with("joining: ");
}

// What the master says of the only fault.
std::string CheckCause(const SimFault& fault, const absl::Status& status) {
  const std::string text(status.message());
  const auto names = [&](const std::string& what) { return text.find(what) != std::string::npos; };
  const std::string node = absl::StrFormat("node %d (%s)", fault.node, HostOf(fault.node));
  switch (fault.kind) {
    case SimFault::Kind::kCrash:
      // Links to it break, too, but its own connection says more.
      return fault.node == 0 || names(node) ? "" : "the cause does not name " + node;
    case SimFault::Kind::kNoMemory:
      return names(absl::StrFormat("node %d", fault.node)) && names("no memory is left")
                 ? ""
                 : "the cause does not name the memory of " + node;
    case SimFault::Kind::kSlowDisk:
      return "a slow disk is no failure";
    default:
      return "";
  }
}

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

std::string SimFault::ToString() const {
  std::string text = absl::StrFormat("%.3f ms: ", static_cast<double>(at) / kMillisecond);
  switch (kind) {
    case Kind::kCrash:
      return text + absl::StrFormat("crash of node %d", node);
    case Kind::kPause:
      absl::StrAppendFormat(&text, "pause of node %d", node);
      break;
    case Kind::kCut:
      return text + absl::StrFormat("cut between nodes %d and %d", node, other);
    case Kind::kPartition:
      absl::StrAppendFormat(&text, "partition of nodes %d and %d", node, other);
      break;
    case Kind::kNoDescriptors:
      absl::StrAppendFormat(&text, "no descriptors on node %d", node);
      break;
    case Kind::kNoMemory:
      return text + absl::StrFormat("no memory on node %d", node);
    case Kind::kSlowDisk:
      absl::StrAppendFormat(&text, "a disk that stands on node %d", node);
      break;
    case Kind::kOtherFiles:
      return text + "another checkpoint in the place of the one saved";
  }
  return text + absl::StrFormat(" for %.3f s", static_cast<double>(lasts) / kSecond);
}

bool SimFault::touches(int n) const {
  return n == node || (n == other && (kind == Kind::kCut || kind == Kind::kPartition));
}

SimFault DrawFault(uint64_t seed, int num_nodes, Nanoseconds horizon, bool saves) {
  SeededChoice choice(seed * 0x9e3779b97f4a7c15ull + 1);
  SimFault fault;
  const auto last = saves ? SimFault::Kind::kOtherFiles : SimFault::Kind::kNoMemory;
  fault.kind = static_cast<SimFault::Kind>(choice.Below(static_cast<uint64_t>(last) + 1));
  fault.node = static_cast<int>(choice.Below(num_nodes));
  fault.other = static_cast<int>((fault.node + 1 + choice.Below(num_nodes - 1)) % num_nodes);
  // Half of them early: there the phases are short.
  const Nanoseconds latest = choice.Below(2) == 0 ? horizon : horizon / 8;
  fault.at = static_cast<Nanoseconds>(choice.Below(latest));
  fault.lasts = 7 * kSecond + static_cast<Nanoseconds>(choice.Below(8 * kSecond));
  return fault;
}

std::string SimOutcome::ToString() const {
  std::string text;
  for (size_t node = 0; node < nodes.size(); ++node) {
    absl::StrAppendFormat(
        &text, "  node %d: %s\n", node,
        nodes[node].was_killed ? "killed"
        : !nodes[node].has_ended
            ? "has not ended"
            : absl::StrFormat("%.3f s: %s", static_cast<double>(nodes[node].ended) / kSecond,
                              nodes[node].status.ToString()));
  }
  return text;
}

SimOutcome RunSimCluster(const SimClusterOptions& options) { return SimCluster(options).Run(); }

std::string CheckOutcome(const SimClusterOptions& options, const SimOutcome& outcome) {
  const auto wrong = [&](const std::string& what) { return what + "\n" + outcome.ToString(); };
  if (!outcome.left_over.empty()) return wrong("left over: " + outcome.left_over);
  Nanoseconds last = 0;  // when the last fault shows at the latest
  bool is_master_hit = false;
  for (const SimFault& fault : options.faults) {
    const bool is_pause = fault.kind == SimFault::Kind::kPause;
    const bool shows_late = is_pause || fault.kind == SimFault::Kind::kNoDescriptors ||
                            fault.kind == SimFault::Kind::kSlowDisk;
    last = std::max(last, fault.at + (shows_late ? fault.lasts : 0));
    is_master_hit |= fault.node == 0 && (is_pause || fault.kind == SimFault::Kind::kCrash);
  }
  const SimNodeOutcome* told = nullptr;  // the first that shares the master's view
  bool is_ok = true;
  for (size_t n = 0; n < outcome.nodes.size(); ++n) {
    const SimNodeOutcome& node = outcome.nodes[n];
    if (node.was_killed) continue;
    if (!node.has_ended) return wrong(absl::StrFormat("node %d hangs", n));
    is_ok = is_ok && node.status.ok();
  }
  if (is_ok) {
    const bool misses = std::any_of(outcome.nodes.begin(), outcome.nodes.end(),
                                    [](const auto& node) { return node.was_killed; });
    if (misses && outcome.losses.empty()) return wrong("a node crashed and nobody noticed");
    const std::string repeated = CheckRepeated(options, outcome);
    return repeated.empty() ? "" : wrong(repeated);
  }
  if (options.faults.empty()) return wrong("a failure without a fault");
  if (options.faults.size() == 1) {
    const std::string cause = CheckCause(options.faults[0], outcome.nodes[0].status);
    if (!cause.empty()) return wrong(cause);
  }
  for (size_t n = 0; n < outcome.nodes.size(); ++n) {
    const SimNodeOutcome& node = outcome.nodes[n];
    if (node.was_killed) continue;
    if (node.ended > last + std::max(kEndBound, options.join_timeout + 5 * kSecond)) {
      return wrong(absl::StrFormat("node %d ends too late", n));
    }
    const bool is_apart =
        is_master_hit ||
        std::any_of(options.faults.begin(), options.faults.end(), [&](const SimFault& fault) {
          return fault.touches(static_cast<int>(n)) &&
                 (fault.kind == SimFault::Kind::kPause || fault.touches(0));
        });
    if (is_apart && n > 0) {
      // Its session may have ended well before, or it may have been told the cause in time.
      if (node.status.ok() || NamesLossOfMaster(node.status)) continue;
    }
    if (is_master_hit) {
      if (n > 0) return wrong(absl::StrFormat("node %d does not say that the master is lost", n));
      continue;
    }
    // Who had not joined when the start failed knows only that the master has gone.
    if (n > 0 && IsOfJoining(outcome.nodes[0].status) && NamesLossOfMaster(node.status)) continue;
    if (told == nullptr) {
      told = &node;
    } else if (node.status != told->status) {
      return wrong(absl::StrFormat("node %d names another cause", n));
    }
  }
  return "";
}

}  // namespace braid
