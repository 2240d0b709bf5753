#include "tests/simulation/sim_machines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/seeded_choice.h"

namespace braid {
namespace {

constexpr uint16_t kControlPort = 9988;
// Detection of silence (a heartbeat limit, one more beat, and what TCP itself waits), the end
// within three seconds, and the dials that were under way.
constexpr Nanoseconds kEndBound = 12 * kSecond;

std::string HostOf(int node) { return absl::StrFormat("10.0.0.%d", node + 1); }

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

SimFault DrawFault(uint64_t seed, int num_nodes, Nanoseconds horizon, SimFault::Kind last) {
  SeededChoice choice(seed * 0x9e3779b97f4a7c15ull + 1);
  SimFault fault;
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

SimMachines::SimMachines(uint64_t seed, int count, std::function<void(const SimFault&)> begin)
    : begin_(std::move(begin)), world_(MakeSimulation(seed)), network_(world_.get()) {
  cluster_.origin = "the simulation";
  cluster_.knows_all_hosts = true;
  for (int node = 0; node < count; ++node) {
    Environment& environment = world_->AddProcess(absl::StrFormat("node %d", node));
    CHECK(&environment == &world_->process(node));
    sockets_.push_back(
        network_.AddMachine(node, {SocketAddress::Parse(HostOf(node) + ":0").value()}));
    cluster_.nodes.push_back({.host = HostOf(node),
                              .port = kControlPort,
                              .devices = DeviceSpec{.type = "cpu", .count = 1}});
  }
  observer_ = &world_->AddProcess("observer");
  all_ended_ = observer_->MakeEvent();
  outcome_.nodes.resize(count);
}

NetworkOptions SimMachines::NetworkOf(int node, Nanoseconds join_timeout, int hosts) {
  NetworkOptions network;
  network.cluster = cluster_;
  network.cluster.rank = node;
  network.secret = "secret";
  if (hosts > 0) network.machine = absl::StrFormat("machine %d", node % hosts);
  network.join_timeout = join_timeout;
  network.environment = &world_->process(node);
  network.sockets = sockets_[node];
  return network;
}

void SimMachines::Expect(const SimFault& fault) {
  if (fault.at_event > 0) {
    world_->RunAfterEvents(fault.at_event, [this, fault] { Begin(fault); });
  } else {
    world_->RunAfter(fault.at, [this, fault] { Begin(fault); });
  }
}

void SimMachines::Ended(int node, const absl::Status& status) {
  if (!world_->is_alive(node)) return;  // taken down after it was killed
  SimNodeOutcome& outcome = outcome_.nodes[node];
  CHECK(!outcome.has_ended) << "node " << node << " ends twice";
  outcome.status = status;
  outcome.has_ended = true;
  outcome.ended = world_->Now();
  if (have_all_ended()) all_ended_->Set();
}

bool SimMachines::have_all_ended() const {
  return std::all_of(outcome_.nodes.begin(), outcome_.nodes.end(),
                     [](const auto& node) { return node.was_killed || node.has_ended; });
}

void SimMachines::AwaitEnds(Nanoseconds limit) {
  observer_->Await(*all_ended_, limit).IgnoreError();
}

void SimMachines::Kill(int node) {
  if (outcome_.nodes[node].has_ended) return;
  outcome_.nodes[node].was_killed = true;
  world_->Kill(node);
  if (have_all_ended()) all_ended_->Set();
}

void SimMachines::Begin(const SimFault& fault) {
  const auto after = [&](auto act) { world_->RunAfter(fault.lasts, act); };
  switch (fault.kind) {
    case SimFault::Kind::kCrash:
      return Kill(fault.node);
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
    case SimFault::Kind::kSlowDisk:
      world_->HoldPosts(fault.node, "saver");
      return after([this, node = fault.node] { world_->ReleasePosts(node); });
    case SimFault::Kind::kNoMemory:
    case SimFault::Kind::kOtherFiles:
      return begin_(fault);
  }
}

void SimMachines::Release() {
  for (int node = 0; node < count(); ++node) {  // a host thread that stands ends nothing
    if (world_->is_paused(node)) world_->Resume(node);
    world_->ReleasePosts(node);
  }
}

SimOutcome SimMachines::Finish() {
  outcome_.end = world_->Now();
  outcome_.num_events = world_->num_events();
  outcome_.digest = world_->digest();
  for (int node = 0; node < count(); ++node) {
    const Simulation::Use use = world_->UseOf(node);
    if (use.reactors + use.descriptors + use.timers == 0) continue;
    absl::StrAppendFormat(&outcome_.left_over, "node %d: %d reactors, %d descriptors, %d timers; ",
                          node, use.reactors, use.descriptors, use.timers);
  }
  return std::move(outcome_);
}

std::string CheckEnds(const std::vector<SimFault>& faults, Nanoseconds join_timeout,
                      const SimOutcome& outcome) {
  const auto wrong = [&](const std::string& what) { return what + "\n" + outcome.ToString(); };
  if (!outcome.left_over.empty()) return wrong("left over: " + outcome.left_over);
  Nanoseconds last = 0;  // when the last fault shows at the latest
  bool is_master_hit = false;
  for (const SimFault& fault : faults) {
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
  if (is_ok) return "";
  if (faults.empty()) return wrong("a failure without a fault");
  if (faults.size() == 1) {
    const std::string cause = CheckCause(faults[0], outcome.nodes[0].status);
    if (!cause.empty()) return wrong(cause);
  }
  for (size_t n = 0; n < outcome.nodes.size(); ++n) {
    const SimNodeOutcome& node = outcome.nodes[n];
    if (node.was_killed) continue;
    if (node.ended > last + std::max(kEndBound, join_timeout + 5 * kSecond)) {
      return wrong(absl::StrFormat("node %d ends too late", n));
    }
    const bool is_apart =
        is_master_hit || std::any_of(faults.begin(), faults.end(), [&](const SimFault& fault) {
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
