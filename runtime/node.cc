#include "runtime/node.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/network/this_machine.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/shared_heap.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/host_memory.h"
#include "runtime/reports/control_status.h"

namespace braid {

using control::ControlMessage;

namespace {

// For the arenas of so many devices and for collectives. Not where address space is limited, of
// which each peer's heap takes as much.
absl::StatusOr<std::unique_ptr<SharedHeap>> MakeSharedHeap(int devices) {
  if (ReadMemoryLimits().process != 0) {
    return absl::ResourceExhaustedError("its address space is limited (ulimit -v)");
  }
  constexpr uint64_t kMostBytes = uint64_t{4} << 40;
  return SharedHeap::Make(
      std::min(kMostBytes, SystemMemory() * static_cast<uint64_t>(1 + devices)));
}

}  // namespace

Node::Node(const NodeOptions& options)
    : options_(options),
      variables_(&devices_),
      collectives_(options.node),
      plans_({.node = options.node,
              .on_taken =
                  [this](JobId job) {
                    ControlMessage message;
                    message.mutable_plan_taken()->set_job(job);
                    agent_->Send(message);
                  },
              .on_plan =
                  [this](JobId job, std::shared_ptr<const std::string> plan) {
                    OnPlan(job, std::move(plan));
                  }}),
      reactor_(options.environment->StartReactor(absl::StrFormat("node %d", options.node))) {
  if (options.has_peers && UsesSharedHeap(ForTransports())) {
    if (auto heap = MakeSharedHeap(options.devices); heap.ok()) {
      shared_heap_ = *std::move(heap);
    } else {
      heap_refused_ = heap.status();
    }
  }
  for (int i = 0; i < options.devices; ++i) {
    const DeviceRequest request{.index = i,
                                .devices = options.devices,
                                .node = options.node,
                                .environment = options.environment,
                                .cpu_kernels = options.kernels,
                                .simulation_seed = options.simulation_seed,
                                .shared_heap = shared_heap_.get()};
    devices_.push_back(options.device_kind == nullptr ? MakeCpuDevice(request)
                                                      : options.device_kind->make(request));
  }
  if (options.device_kind != nullptr && options.device_kind->make_group) {
    device_group_ = options.device_kind->make_group(devices_);
  }
  jobs_ = std::make_unique<NodeJobs>(NodeJobs::Options{
      .node = options.node,
      .threads_per_device = options.threads_per_device,
      .simulation_seed = options.simulation_seed,
      .environment = options.environment,
      .control = reactor_.get(),
      .devices = &devices_,
      .device_group = device_group_.get(),
      .variables = &variables_,
      .datasets = &datasets_,
      .collectives = &collectives_,
      .on_loaded =
          [this](JobId job, const absl::Status& status, const std::optional<NodeSummary>& summary) {
            OnLoaded(job, status, summary);
          },
      .on_run_done = [this](JobId job) { OnRunDone(job); },
      .on_saved = [this](int64_t save, const absl::Status& status) { OnSaved(save, status); },
      .on_failure = [this](const absl::Status& cause) { OnFailure(cause); }});
  groups_ = std::make_unique<dist::Groups>(dist::Groups::Options{
      .node = options.node,
      .reactor = reactor_.get(),
      .allocate = MemoryForPeers(shared_heap_.get()),
      .send = [this](const ControlMessage& message) { agent_->Send(message); },
      .fail = [this](const absl::Status& cause) { OnFailure(cause); },
      .waits = [this] { return store_->Waits(); }});
  store_ = std::make_unique<dist::StoreEnd>(
      [this](const ControlMessage& message) { agent_->Send(message); });
  agent_ = std::make_unique<ControlAgent>(ControlAgent::Options{
      .node = options.node,
      .reactor = reactor_.get(),
      .obey = [this](ControlMessage& message) { Obey(message); },
      .on_failure = options.on_failure,
      .annotate = [this](const absl::Status& cause) { return WithEvents(cause); },
      .close_all = [this](const absl::Status& reason) { CloseAll(reason); }});
}

absl::StatusOr<Memory> Node::AllocateForPeers(uint64_t bytes) const {
  // The system would lend more, and end the process when it is used.
  if (const uint64_t most = ReadMemoryLimits().least(); bytes > most) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%d bytes of memory are asked for, and this process may have %d in all: ask for less, or "
        "raise its limit (ulimit -v, the control group)",
        bytes, most));
  }
  BRAID_ASSIGN_OR_RETURN(Memory memory, MemoryForPeers(shared_heap_.get())(bytes));
  const MemoryKind kind = memory.kind();
  const std::span<std::byte> all(memory.data(), memory.size());
  // First the block is given back, then the heap.
  struct Held {
    std::shared_ptr<SharedHeap> heap;
    Memory memory;
  };
  const auto held = std::make_shared<Held>(Held{shared_heap_, std::move(memory)});
  return Memory(kind, all, [held](std::span<std::byte>) { held->memory.Reset(); });
}

Node::~Node() {
  // What uses the reactor dies on it, and a job only when nothing of it runs any more: whoever ends
  // the node may not have waited for that.
  const std::unique_ptr<Event> is_over = options_.environment->MakeEvent();
  reactor_->Post([this, &is_over] {
    agent_->Leave([this, &is_over] {
      if (next_look_.has_value()) reactor_->CancelTimer(*next_look_);
      is_over->Set();
    });
  });
  absl::Status waited = options_.environment->Await(*is_over, kForever);
  // Killed in a simulation, where dead processes end in order, too.
  if (absl::IsAborted(waited)) waited = options_.environment->Await(*is_over, kForever);
  CHECK(waited.ok()) << "node " << options_.node << ": " << waited.message();
  jobs_->StopLoading();
}

void Node::Serve(std::unique_ptr<ControlChannel> master, std::function<void(absl::Status)> closed) {
  // Posted functions need not be copied.
  reactor_->Post([this, master = std::move(master), closed = std::move(closed)]() mutable {
    if (!agent_->is_serving()) return;  // given up before it began
    MakePeers();
    control::Hello hello;
    hello.set_protocol(kControlProtocol);
    hello.set_node(options_.node);
    hello.set_devices(options_.devices);
    hello.set_machine(options_.machine.empty() ? ThisMachine() : options_.machine);
    for (TransportAddress& address : OpenTransports()) {
      hello.add_transports(std::move(address.transport));
      hello.add_addresses(std::move(address.address));
    }
    agent_->Serve(std::move(master), hello, std::move(closed));
    WatchForStall();
  });
}

void Node::MakePeers() {
  peers_ = std::make_unique<Peers>(
      Peers::Options{.node = options_.node,
                     .reactor = reactor_.get(),
                     .on_link = [this](Link& link) { collectives_.AddLink(link.peer(), &link); },
                     .on_loss = [this](const LinkLoss& loss) { OnLoss(loss); }});
  peers_->SetReceiver(Channel::kCollective,
                      [this](uint16_t peer, std::span<const std::byte> frame) {
                        return collectives_.HandleFrame(peer, frame);
                      });
  jobs_->SetPeers(peers_.get());
  plans_.SetPeers(peers_.get());
  groups_->SetPeers(peers_.get());
  for (Channel channel : {Channel::kActor, Channel::kLandingKey}) {
    peers_->SetReceiver(channel, [this](uint16_t peer, std::span<const std::byte> frame) {
      return jobs_->OnFrame(peer, frame);
    });
  }
}

TransportOptions Node::ForTransports() const {
  TransportOptions transports;
  transports.node = options_.node;
  transports.loopback = options_.loopback;
  // Nodes of one process need no port that others could reach.
  if (options_.loopback == nullptr) transports.reactor = reactor_.get();
  transports.interface = options_.interface;
  transports.host = options_.host;
  transports.only = options_.transport;
  transports.rdma = options_.rdma;
  transports.network = options_.network;
  transports.shared_heap = shared_heap_.get();
  return transports;
}

std::vector<TransportAddress> Node::OpenTransports() {
  const TransportOptions transports = ForTransports();
  return peers_->Open(options_.make_transports ? options_.make_transports(transports)
                                               : MakeTransports(transports));
}

void Node::Obey(ControlMessage& message) {
  switch (message.kind_case()) {
    case ControlMessage::kPeers:
      return OnPeers(message.peers());
    case ControlMessage::kLoad:
      return OnLoad(*message.mutable_load());
    case ControlMessage::kRun:
      return OnRun(message.run());
    case ControlMessage::kPlanChunk: {
      const control::PlanChunk& chunk = message.plan_chunk();
      const absl::Status status = plans_.OnChunk(chunk.job(), chunk.offset(), chunk.bytes());
      return status.ok() ? void() : agent_->Fail(status);
    }
    case ControlMessage::kUnload:
      coming_.erase(message.unload().job());
      plans_.Drop(message.unload().job());
      return jobs_->Unload(message.unload().job());
    case ControlMessage::kStatus:
      return SendStatus(message.status());
    case ControlMessage::kRollCall:
      return groups_->OnRollCall(message.roll_call());
    case ControlMessage::kDial:
      return OnDial(static_cast<uint16_t>(message.dial().from()));
    case ControlMessage::kStoreAnswer: {
      const absl::Status status = store_->OnAnswer(message.mutable_store_answer());
      if (status.ok()) return;
      return agent_->Fail(Prefixed(absl::StrFormat("node %d", options_.node), status));
    }
    case ControlMessage::kStallNoted:
      is_stall_noted_ = true;
      return;
    default:
      LOG(FATAL) << "no order of a master: " << message.ShortDebugString();
  }
}

void Node::OnPeers(const control::Peers& peers) {
  std::map<uint16_t, std::string> machines;
  for (const control::Hello& hello : peers.nodes()) {
    if (hello.transports_size() != hello.addresses_size()) {
      return agent_->Fail(absl::InvalidArgumentError(absl::StrFormat(
          "node %d: the master says %d transports and %d addresses of node %d", options_.node,
          hello.transports_size(), hello.addresses_size(), hello.node())));
    }
    std::vector<TransportAddress> addresses;
    for (int i = 0; i < hello.transports_size(); ++i) {
      addresses.push_back({hello.transports(i), hello.addresses(i)});
    }
    peers_->SetAddresses(static_cast<uint16_t>(hello.node()), std::move(addresses));
    machines.emplace(static_cast<uint16_t>(hello.node()), hello.machine());
  }
  LookAtHeap();
  groups_->SetMachines(machines);
  agent_->SetPhase(kProgramPhase);
  is_introduced_ = true;
  for (const uint16_t node : std::exchange(early_dials_, {})) groups_->OnDial(node);
  if (options_.on_introduced) options_.on_introduced(*this);
}

// Before anything lies in it. What other machines send comes to memory of this process alone.
void Node::LookAtHeap() {
  const bool is_mapped = NamesTransport(options_.transport, "rdma") || peers_->HasNear();
  if (shared_heap_ != nullptr && !is_mapped) shared_heap_->Retire();
  LOG_IF(WARNING, is_mapped && !heap_refused_.ok())
      << "node " << options_.node << " shares no memory for what others send, which is copied "
      << "once more: " << heap_refused_.message();
}

void Node::OnDial(uint16_t node) {
  if (is_introduced_) return groups_->OnDial(node);
  early_dials_.push_back(node);
}

void Node::OnLoad(control::Load& load) {
  PlanRelay::Request plan;
  plan.job = load.job();
  plan.bytes = load.plan_bytes() == 0 ? load.plan().size() : load.plan_bytes();
  plan.first = std::move(*load.mutable_plan());
  if (load.has_plan_parent()) plan.parent = static_cast<uint16_t>(load.plan_parent());
  for (uint32_t child : load.plan_children()) {
    plan.children.push_back(static_cast<uint16_t>(child));
  }
  coming_[load.job()] = {.job = load.job(),
                         .fingerprint = load.fingerprint(),
                         .first_collective = load.first_collective(),
                         .wants_summary = load.wants_summary()};
  agent_->SetPhase(load.phase());
  if (const absl::Status status = plans_.Begin(std::move(plan)); !status.ok()) {
    coming_.erase(load.job());
    agent_->Fail(status);
  }
}

void Node::OnPlan(JobId job, std::shared_ptr<const std::string> plan) {
  auto request = coming_.extract(job);
  request.mapped().plan = std::move(plan);
  const absl::Status status = jobs_->Load(std::move(request.mapped()));
  if (!status.ok()) agent_->Fail(status);
}

void Node::OnRun(const control::Run& run) {
  const absl::Status status = jobs_->Run(run.job(), run.first_step(), run.steps());
  if (!status.ok()) return agent_->Fail(status);
  agent_->SetPhase(run.phase());
  advanced_ = reactor_->Now();
}

void Node::OnLoaded(JobId job, const absl::Status& status,
                    const std::optional<NodeSummary>& summary) {
  ControlMessage message;
  message.mutable_loaded()->set_job(job);
  if (!status.ok()) *message.mutable_loaded()->mutable_error() = CauseOf(status, options_.node);
  if (summary.has_value()) Encode(*summary, *message.mutable_loaded()->mutable_summary());
  agent_->Send(message);
}

void Node::OnRunDone(JobId job) {
  ControlMessage message;
  message.mutable_run_done()->set_job(job);
  // A run that is part of something, of saving, is not the program's.
  if (agent_->Phase().starts_with("stepping ")) agent_->SetPhase(kProgramPhase);
  agent_->Send(message);
  if (run_wait_.has_value() && run_wait_->job == job) FinishRunWait(absl::OkStatus());
}

void Node::AwaitRun(JobId job, std::function<void(const absl::Status&)> done) {
  reactor_->Post([this, job, done = std::move(done)]() mutable {
    if (run_wait_.has_value()) FinishRunWait(absl::CancelledError("another run is waited for"));
    run_wait_ = {job, std::move(done)};
    if (closing_.has_value()) FinishRunWait(*closing_);
  });
}

// A run of the program's own thread says nothing to the agent.
std::string Node::Phase() const {
  const std::string phase = agent_->Phase(), stepping = jobs_->Stepping();
  return phase == kProgramPhase && !stepping.empty() ? stepping : phase;
}

void Node::FinishRunWait(const absl::Status& status) {
  const RunWait wait = *std::exchange(run_wait_, std::nullopt);
  wait.done(status);
}

void Node::OnSaved(int64_t save, const absl::Status& status) {
  ControlMessage message;
  message.mutable_saved()->set_save(save);
  if (!status.ok()) *message.mutable_saved()->mutable_error() = CauseOf(status, options_.node);
  agent_->Send(message);
}

void Node::OnFailure(const absl::Status& cause) {
  const absl::Status failure =
      Prefixed(absl::StrFormat("node %d failed while %s", options_.node, Phase()), cause);
  // Acts and calls fail as unavailable when the link under them breaks.
  return absl::IsUnavailable(cause) ? agent_->FailLink(failure) : agent_->Fail(failure);
}

void Node::OnLoss(const LinkLoss& loss) {
  const std::string link =
      loss.was_linked ? absl::StrFormat("link %d-%d lost ", options_.node, loss.peer) : "";
  if (loss.was_linked) collectives_.LinkClosed(loss.peer, loss.reason);
  agent_->FailLink(Prefixed(absl::StrFormat("%swhile %s", link, Phase()), loss.reason));
}

void Node::LeaveGroups() {
  reactor_->Post([this] {
    groups_->Leave([this] {
      ControlMessage message;
      message.mutable_left();
      agent_->Send(message);
    });
  });
}

void Node::Fail(const absl::Status& cause) {
  reactor_->Post([this, cause] { agent_->Fail(cause); });
}

void Node::CloseAll(const absl::Status& reason) {
  closing_ = reason.ok() ? absl::CancelledError("the session was closed") : reason;
  if (run_wait_.has_value()) FinishRunWait(*closing_);
  collectives_.Abort(reason);
  // The links outlive what uses them.
  const auto ends = std::make_shared<int>(2);
  const auto ended = [this, ends] {
    if (--*ends > 0) return;
    peers_.reset();
    agent_->OnIdle();
  };
  store_->Close(reason);
  groups_->Close(reason, ended);
  jobs_->Close(reason, ended);
  // Acts that wait for a peer end when their link does.
  if (peers_ != nullptr) peers_->Close(reason);
}

}  // namespace braid
