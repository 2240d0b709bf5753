#include "runtime/node.h"

#include <glog/logging.h>

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/device/cpu_device.h"
#include "runtime/plan_read.h"
#include "runtime/reports/control_status.h"

namespace braid {
namespace {

// How long a node that failed waits for the master to say what the first cause was.
constexpr Nanoseconds kCauseLimit = kSecond;
// The same if a link broke: the master asks all nodes whether they are there.
constexpr Nanoseconds kLinkCauseLimit = 7 * kSecond;
// Landing keys of jobs that a peer was told of earlier; nothing else comes before a job.
constexpr size_t kMaxEarlyFrames = size_t{1} << 20;
constexpr int64_t kMaxStep = int64_t{1} << 32;  // of a job, counted over checkpoints
constexpr size_t kMaxOverheardBytes = size_t{1} << 16;

}  // namespace

using control::ControlMessage;

Node::Node(const NodeOptions& options)
    : options_(options),
      variables_(&devices_),
      collectives_(options.node),
      reactor_(options.environment->StartReactor(absl::StrFormat("node %d", options.node))) {
  for (int i = 0; i < options.devices; ++i) {
    if (options.device_kind == nullptr) {
      devices_.push_back(MakeCpuDevice(i, options.kernels));
    } else {
      devices_.push_back(options.device_kind->make({.index = i,
                                                    .node = options.node,
                                                    .environment = options.environment,
                                                    .cpu_kernels = options.kernels,
                                                    .simulation_seed = options.simulation_seed}));
    }
  }
}

Node::~Node() {
  // What uses the reactor dies on it, and a job only when nothing of it runs any more: whoever ends
  // the node may not have waited for that.
  const std::unique_ptr<Event> is_torn_down = options_.environment->MakeEvent();
  reactor_->Post([this, &is_torn_down] {
    is_over_ = true;  // nobody is left to be told
    master_.reset();
    if (is_torn_down_) return is_torn_down->Set();
    torn_down_ = is_torn_down.get();
    Close(absl::CancelledError("the node was destroyed"));
  });
  constexpr Nanoseconds kForever = std::numeric_limits<Nanoseconds>::max() / 4;
  absl::Status waited = options_.environment->Await(*is_torn_down, kForever);
  // Killed in a simulation, where dead processes end in order, too.
  if (absl::IsAborted(waited)) waited = options_.environment->Await(*is_torn_down, kForever);
  CHECK(waited.ok()) << "node " << options_.node << ": " << waited.message();
  loader_.reset();
}

HostIo& Node::Host(JobId job) {
  MutexLock lock(hosts_mutex_);
  std::unique_ptr<HostIo>& host = hosts_[job];
  if (host == nullptr) host = std::make_unique<HostIo>();
  return *host;
}

void Node::Serve(std::unique_ptr<ControlChannel> master, std::function<void(absl::Status)> closed) {
  master_ = std::move(master);
  closed_ = std::move(closed);
  reactor_->Post([this] {
    MakePeers();
    ControlMessage message;
    control::Hello& hello = *message.mutable_hello();
    hello.set_protocol(kControlProtocol);
    hello.set_node(options_.node);
    hello.set_devices(options_.devices);
    for (TransportAddress& address : OpenTransports()) {
      hello.add_transports(std::move(address.transport));
      hello.add_addresses(std::move(address.address));
    }
    Send(message);
    master_->SetHandlers([this](std::string bytes) { OnMessage(bytes); },
                         [this](absl::Status reason) {
                           const absl::Status cause = WithEvents(MasterLost(reason));
                           if (is_closing_) return FailWhileClosing(cause);
                           if (options_.on_failure) options_.on_failure(cause);
                           Close(cause);
                         });
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
  for (Channel channel : {Channel::kActor, Channel::kLandingKey}) {
    peers_->SetReceiver(channel, [this](uint16_t peer, std::span<const std::byte> frame) {
      return OnJobFrame(peer, frame);
    });
  }
}

std::vector<TransportAddress> Node::OpenTransports() {
  TransportOptions transports;
  transports.node = options_.node;
  transports.loopback = options_.loopback;
  // Nodes of one process need no port that others could reach.
  if (options_.loopback == nullptr) transports.reactor = reactor_.get();
  transports.interface = options_.interface;
  transports.host = options_.host;
  transports.only = options_.transport;
  transports.network = options_.network;
  return peers_->Open(options_.make_transports ? options_.make_transports(transports)
                                               : MakeTransports(transports));
}

absl::Status Node::MasterLost(const absl::Status& reason) const {
  return absl::UnavailableError(
      absl::StrFormat("master lost while %s: %s", Phase(), std::string(reason.message())));
}

void Node::SetPhase(std::string phase) {
  MutexLock lock(phase_mutex_);
  phase_ = std::move(phase);
}

std::string Node::Phase() const {
  MutexLock lock(phase_mutex_);
  return phase_;
}

void Node::Overhear(std::string_view message) {
  ControlMessage parsed;
  if (message.size() > kMaxOverheardBytes || !options_.on_failure ||
      !parsed.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return;
  }
  if (!parsed.has_failure()) return;
  has_overheard_cause_ = true;
  options_.on_failure(FailureOf(parsed.failure()));
}

void Node::OverhearLoss(const absl::Status& reason) {
  // A master that has told the cause may end before this node does.
  if (options_.on_failure && !has_overheard_cause_) options_.on_failure(MasterLost(reason));
}

void Node::Send(const ControlMessage& message) {
  if (master_ != nullptr) master_->Send(message.SerializeAsString());
}

void Node::OnMessage(const std::string& bytes) {
  ControlMessage message;
  if (!message.ParseFromString(bytes)) {
    return FailHere(absl::InvalidArgumentError(absl::StrFormat(
        "node %d: a control message of %d bytes cannot be read", options_.node, bytes.size())));
  }
  if (message.has_failure() && is_closing_) return FailWhileClosing(FailureOf(message.failure()));
  if (message.has_ended() && is_torn_down_) return Finish();
  if (is_closing_) return;
  switch (message.kind_case()) {
    case ControlMessage::kPeers:
      return OnPeers(message.peers());
    case ControlMessage::kLoad:
      return OnLoad(*message.mutable_load());
    case ControlMessage::kRun: {
      const auto it = jobs_.find(message.run().job());
      if (it == jobs_.end()) {
        return FailHere(absl::InternalError(
            absl::StrFormat("node %d: Run of unknown job %d", options_.node, message.run().job())));
      }
      const int64_t first = message.run().first_step(), steps = message.run().steps();
      if (!it->second->is_ready() || it->second->is_running() || first < 0 || first > kMaxStep ||
          steps < 1 || steps > kMaxStep) {
        return FailHere(absl::InvalidArgumentError(
            absl::StrFormat("node %d: Run of %d steps from step %d of job '%s', which is %s",
                            options_.node, steps, first, it->second->job_name(),
                            it->second->is_running() ? "running"
                            : it->second->is_ready() ? "ready"
                                                     : "loading")));
      }
      SetPhase(message.run().phase());
      advanced_ = reactor_->Now();
      return it->second->Run(message.run().first_step(), message.run().steps());
    }
    case ControlMessage::kUnload:
      return Unload(message.unload().job());
    case ControlMessage::kPhase:
      return SetPhase(message.phase().text());
    case ControlMessage::kProbe:
      return Send(message);
    case ControlMessage::kStatus:
      return SendStatus(message.status());
    case ControlMessage::kStallNoted:
      is_stall_noted_ = true;
      return;
    case ControlMessage::kFailure: {
      const absl::Status cause = WithEvents(FailureOf(message.failure()));
      if (options_.on_failure) options_.on_failure(cause);
      return Close(cause);
    }
    case ControlMessage::kClose:
      // After a failure it may overtake the notice.
      return Close(WithEvents(StatusOf(message.close().cause())));
    default:
      return FailHere(absl::InvalidArgumentError(
          absl::StrFormat("node %d: the master sent a control message of kind %d", options_.node,
                          static_cast<int>(message.kind_case()))));
  }
}

void Node::OnPeers(const control::Peers& peers) {
  for (const control::Hello& hello : peers.nodes()) {
    if (hello.transports_size() != hello.addresses_size()) {
      return FailHere(absl::InvalidArgumentError(absl::StrFormat(
          "node %d: the master says %d transports and %d addresses of node %d", options_.node,
          hello.transports_size(), hello.addresses_size(), hello.node())));
    }
    std::vector<TransportAddress> addresses;
    for (int i = 0; i < hello.transports_size(); ++i) {
      addresses.push_back({hello.transports(i), hello.addresses(i)});
    }
    peers_->SetAddresses(static_cast<uint16_t>(hello.node()), std::move(addresses));
  }
  SetPhase(kProgramPhase);
}

void Node::OnLoad(control::Load& load) {
  const JobId job = load.job();
  if (job <= newest_job_) {
    return FailHere(absl::InvalidArgumentError(
        absl::StrFormat("node %d: Load of job %d after job %d; their numbers go up", options_.node,
                        job, newest_job_)));
  }
  newest_job_ = job;
  SetPhase(load.phase());
  LoadingJob& loading = loading_[job];
  loading.first_collective = load.first_collective();
  loading.wants_summary = load.wants_summary();
  if (loader_ == nullptr) {
    loader_ = std::make_unique<JobLoader>(
        JobLoader::Options{.node = options_.node,
                           .environment = options_.environment,
                           .control = reactor_.get(),
                           .kernels = {.devices = &devices_,
                                       .datasets = &datasets_,
                                       .threads_per_device = options_.threads_per_device}});
  }
  loader_->Load(
      {.job = job,
       .plan = std::move(*load.mutable_plan()),
       .fingerprint = load.fingerprint(),
       .host = &Host(job)},
      [this, job](absl::StatusOr<PreparedJob> prepared) { OnPrepared(job, std::move(prepared)); });
}

void Node::OnPrepared(JobId job, absl::StatusOr<PreparedJob> prepared) {
  const auto found = loading_.find(job);
  if (is_closing_ || found == loading_.end()) return;  // unloaded meanwhile
  if (!prepared.ok()) {
    loading_.erase(found);
    return ReportLoaded(job, prepared.status());
  }
  LoadingJob& loading = found->second;
  loading.prepared = *std::move(prepared);
  for (uint32_t peer : loading.prepared->plan.part.peers) {
    if (!peers_->IsReady(static_cast<uint16_t>(peer))) {
      loading.missing.insert(static_cast<uint16_t>(peer));
    }
  }
  const std::set<uint16_t> missing = loading.missing;
  if (missing.empty()) return StartJob(job);
  for (uint16_t peer : missing) {
    // A peer that is not reached ends the session, by OnLoss.
    peers_->Connect(peer, [this, job, peer](const absl::Status& status) {
      if (status.ok()) OnConnected(job, peer);
    });
  }
}

void Node::OnConnected(JobId job, uint16_t peer) {
  const auto found = loading_.find(job);
  if (found == loading_.end()) return;  // unloaded meanwhile
  if (found->second.missing.erase(peer) > 0 && found->second.missing.empty()) StartJob(job);
}

void Node::OnLoss(const LinkLoss& loss) {
  const std::string link =
      loss.was_linked ? absl::StrFormat("link %d-%d lost ", options_.node, loss.peer) : "";
  if (loss.was_linked) collectives_.LinkClosed(loss.peer, loss.reason);
  FailHere(absl::Status(loss.reason.code(), absl::StrFormat("%swhile %s: %s", link, Phase(),
                                                            std::string(loss.reason.message()))),
           /*is_link=*/true);
}

void Node::StartJob(JobId job) {
  auto extracted = loading_.extract(job);
  LoadingJob& loading = extracted.mapped();
  const plan::NodePlan& plan = loading.prepared->plan.part;
  NodeResources resources;
  resources.node = options_.node;
  resources.environment = options_.environment;
  resources.control = reactor_.get();
  resources.devices = &devices_;
  resources.variables = &variables_;
  resources.datasets = &datasets_;
  resources.collectives = &collectives_;
  resources.link_of = [this](uint16_t peer) { return peers_->LinkTo(peer); };
  resources.simulation_seed = options_.simulation_seed;
  ExecutorOptions options;
  options.job = job;
  options.first_collective = loading.first_collective;
  const auto summary = std::make_shared<std::optional<NodeSummary>>();  // known before it is ready
  options.on_ready = [this, job, summary] { ReportLoaded(job, absl::OkStatus(), *summary); };
  options.on_run_done = [this, job] {
    ControlMessage message;
    message.mutable_run_done()->set_job(job);
    // A run that is part of something, of saving, is not the program's.
    if (Phase().starts_with("stepping ")) SetPhase(kProgramPhase);
    Send(message);
  };
  // Acts fail as unavailable when the link under them breaks.
  options.on_failure = [this](absl::Status status) {
    FailHere(
        absl::Status(status.code(), absl::StrFormat("node %d failed while %s: %s", options_.node,
                                                    Phase(), std::string(status.message()))),
        /*is_link=*/absl::IsUnavailable(status));
  };
  auto executor =
      Executor::Make(plan, std::move(loading.prepared->kernels), resources, std::move(options));
  if (!executor.ok()) return ReportLoaded(job, executor.status());
  Executor& made = *(jobs_[job] = *std::move(executor));
  if (loading.wants_summary) *summary = made.Summarize(plan);
  if (absl::Status status = made.Connect(); !status.ok()) return ReportLoaded(job, status);
  const auto early = early_.extract(job);
  if (early.empty()) return;
  num_early_ -= early.mapped().size();
  for (const auto& [peer, frame] : early.mapped()) {
    if (const absl::Status status = made.OnFrame(peer, frame); !status.ok()) {
      peers_->LinkTo(peer)->Close(status);
    }
  }
}

absl::Status Node::OnJobFrame(uint16_t peer, std::span<const std::byte> frame) {
  if (is_closing_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JobId job, JobOfFrame(frame));
  if (const auto it = jobs_.find(job); it != jobs_.end()) return it->second->OnFrame(peer, frame);
  if (job <= newest_job_ && !loading_.contains(job)) return absl::OkStatus();  // unloaded
  if (num_early_ >= kMaxEarlyFrames) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d frames came for jobs that this node does not know yet", num_early_));
  }
  ++num_early_;
  early_[job].emplace_back(peer, std::vector<std::byte>(frame.begin(), frame.end()));
  return absl::OkStatus();
}

void Node::ReportLoaded(JobId job, const absl::Status& status,
                        const std::optional<NodeSummary>& summary) {
  ControlMessage message;
  message.mutable_loaded()->set_job(job);
  if (!status.ok()) *message.mutable_loaded()->mutable_error() = CauseOf(status, options_.node);
  if (summary.has_value()) Encode(*summary, *message.mutable_loaded()->mutable_summary());
  Send(message);
}

void Node::Fail(const absl::Status& cause) {
  reactor_->Post([this, cause] { FailHere(cause); });
}

void Node::FailHere(const absl::Status& cause, bool is_link) {
  if (is_closing_) return;
  ControlMessage message;
  *message.mutable_failure() = CauseOf(cause, options_.node);
  message.mutable_failure()->set_is_link(is_link);
  Send(message);
  if (std::exchange(has_failed_, true)) return;
  // A broken link may be the first sign of an end that is no failure: the master says.
  const absl::Status told = is_link ? cause : WithEvents(cause);
  if (options_.on_failure && !is_link) options_.on_failure(told);
  AwaitCause(cause, is_link ? kLinkCauseLimit : kCauseLimit);
}

void Node::AwaitCause(const absl::Status& cause, Nanoseconds limit) {
  const Nanoseconds due = reactor_->Now() + limit;
  reactor_->RunAfter(limit, [this, cause, due] {
    if (is_closing_) return;
    // This process has not run for a while: what the master said meanwhile is unread.
    if (reactor_->Now() - due >= kSecond) return AwaitCause(cause, kSecond);
    const absl::Status told = WithEvents(cause);
    if (options_.on_failure) options_.on_failure(told);
    Close(told);
  });
}

void Node::Unload(JobId job) {
  loading_.erase(job);
  if (const auto early = early_.extract(job); !early.empty()) num_early_ -= early.mapped().size();
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  it->second->Close(absl::CancelledError("the job was unloaded"), [this, job] {
    jobs_.erase(job);
    MutexLock lock(hosts_mutex_);
    hosts_.erase(job);
  });
}

void Node::Close(absl::Status cause) {
  if (std::exchange(is_closing_, true)) return;
  cause_ = std::move(cause);
  if (cause_.ok()) SetPhase("closing");
  const absl::Status reason = cause_.ok() ? absl::CancelledError("the session was closed") : cause_;
  collectives_.Abort(reason);
  jobs_closing_ = jobs_.size();
  if (jobs_closing_ == 0) return FinishClose();
  for (auto& [job, executor] : jobs_) {
    executor->Close(reason, [this] {
      // Other executors' links must outlive them: all go together.
      if (--jobs_closing_ == 0) reactor_->Post([this] { FinishClose(); });
    });
  }
  // Acts that wait for a peer end when their link does.
  if (peers_ != nullptr) peers_->Close(reason);
}

void Node::FinishClose() {
  jobs_.clear();
  peers_.reset();
  ControlMessage message;
  message.mutable_closed();
  Send(message);
  is_torn_down_ = true;
  if (!cause_.ok()) Finish();
  if (torn_down_ != nullptr) torn_down_->Set();
}

void Node::FailWhileClosing(const absl::Status& cause) {
  if (!cause_.ok()) return;  // the first one counts
  cause_ = cause;
  if (options_.on_failure && !is_over_) options_.on_failure(cause);
  if (is_torn_down_) Finish();
}

void Node::Finish() {
  if (!std::exchange(is_over_, true)) closed_(cause_);
}

}  // namespace braid
