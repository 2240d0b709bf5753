#include "runtime/node.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/control_status.h"

namespace braid {

using control::ControlMessage;

Node::Node(const NodeOptions& options)
    : options_(options),
      reactor_(options.environment->StartReactor(absl::StrFormat("node %d", options.node))),
      variables_(options.kernels, options.seed),
      collectives_(options.node) {
  for (int i = 0; i < options.devices; ++i) arenas_.push_back(std::make_unique<Arena>());
}

Node::~Node() { reactor_.reset(); }

HostIo& Node::Host(uint16_t job) {
  MutexLock lock(hosts_mutex_);
  std::unique_ptr<HostIo>& host = hosts_[job];
  if (host == nullptr) host = std::make_unique<HostIo>();
  return *host;
}

void Node::Serve(std::unique_ptr<ControlChannel> master, std::function<void(absl::Status)> closed) {
  master_ = std::move(master);
  closed_ = std::move(closed);
  reactor_->Post([this] {
    ControlMessage message;
    control::Hello& hello = *message.mutable_hello();
    hello.set_protocol(kControlProtocol);
    hello.set_node(options_.node);
    hello.set_devices(options_.devices);
    for (auto& transport : MakeTransports({options_.node, options_.loopback})) {
      auto address = transport->Open();
      if (!address.ok()) {
        VLOG(1) << "transport " << transport->name() << ": " << address.status();
        continue;
      }
      hello.add_transports(std::string(transport->name()));
      hello.add_addresses(*address);
      transports_.push_back(std::move(transport));
    }
    Send(message);
    master_->SetHandlers([this](std::string bytes) { OnMessage(bytes); },
                         [this](absl::Status reason) {
                           Close(absl::UnavailableError(
                               absl::StrFormat("master lost: %s", std::string(reason.message()))));
                         });
  });
}

void Node::Send(const ControlMessage& message) { master_->Send(message.SerializeAsString()); }

void Node::OnMessage(const std::string& bytes) {
  if (is_closing_) return;
  ControlMessage message;
  if (!message.ParseFromString(bytes)) {
    return Fail(absl::InvalidArgumentError(absl::StrFormat(
        "node %d: a control message of %d bytes cannot be read", options_.node, bytes.size())));
  }
  switch (message.kind_case()) {
    case ControlMessage::kPeers:
      return OnPeers(message.peers());
    case ControlMessage::kLoad:
      return OnLoad(message.load());
    case ControlMessage::kRun: {
      const auto it = jobs_.find(static_cast<uint16_t>(message.run().job()));
      if (it == jobs_.end()) {
        return Fail(absl::InternalError(
            absl::StrFormat("node %d: Run of unknown job %d", options_.node, message.run().job())));
      }
      return it->second->Run(message.run().first_step(), message.run().steps());
    }
    case ControlMessage::kUnload:
      return Unload(static_cast<uint16_t>(message.unload().job()));
    case ControlMessage::kStatus:
      return SendStatus(static_cast<uint16_t>(message.status().job()));
    case ControlMessage::kFailure:
      return Close(StatusOf(message.failure()));
    case ControlMessage::kClose:
      return Close(StatusOf(message.close().cause()));
    default:
      return Fail(absl::InvalidArgumentError(
          absl::StrFormat("node %d: the master sent a control message of kind %d", options_.node,
                          static_cast<int>(message.kind_case()))));
  }
}

void Node::OnPeers(const control::Peers& peers) {
  addresses_ = std::make_unique<control::Peers>(peers);
}

Link* Node::LinkTo(uint16_t peer) {
  const auto it = peers_.find(peer);
  return it == peers_.end() ? nullptr : it->second.link.get();
}

void Node::OnLoad(const control::Load& load) {
  const auto job = static_cast<uint16_t>(load.job());
  LoadingJob& loading = loading_[job];
  loading.load = std::make_unique<control::Load>(load);
  for (uint32_t peer : load.plan().peers()) {
    if (LinkTo(static_cast<uint16_t>(peer)) == nullptr) {
      loading.missing.insert(static_cast<uint16_t>(peer));
    }
  }
  const std::set<uint16_t> missing = loading.missing;
  if (missing.empty()) return StartJob(job);
  for (uint16_t peer : missing) Connect(peer);
}

void Node::Connect(uint16_t peer) {
  Peer& entry = peers_[peer];
  if (std::exchange(entry.is_connecting, true)) return;
  if (addresses_ != nullptr) {
    for (const control::Hello& hello : addresses_->nodes()) {
      if (hello.node() != peer) continue;
      for (const auto& transport : transports_) {
        for (int i = 0; i < hello.transports_size(); ++i) {
          if (hello.transports(i) != transport->name() || !transport->Reaches(hello.addresses(i))) {
            continue;
          }
          LinkRequest request;
          request.peer = peer;
          request.peer_address = hello.addresses(i);
          request.reactor = reactor_.get();
          return transport->Connect(std::move(request),
                                    [this, peer](absl::StatusOr<std::unique_ptr<Link>> link) {
                                      OnLink(peer, std::move(link));
                                    });
        }
      }
    }
  }
  OnLink(peer, absl::UnavailableError(
                   absl::StrFormat("node %d: no transport reaches node %d", options_.node, peer)));
}

void Node::OnLink(uint16_t peer, absl::StatusOr<std::unique_ptr<Link>> link) {
  if (is_closing_) return;
  if (!link.ok()) return Fail(link.status());
  Peer& entry = peers_[peer];
  entry.link = *std::move(link);
  VLOG(1) << entry.link->Describe();
  collectives_.AddLink(peer, entry.link.get());
  entry.link->OnClosed([this, peer](absl::Status status) {
    collectives_.LinkClosed(peer, status);
    if (is_closing_) return;
    Fail(absl::Status(status.code(), absl::StrFormat("link %d-%d lost: %s", options_.node, peer,
                                                     std::string(status.message()))));
  });
  entry.link->SetHandler(
      [this, peer](std::span<const std::byte> frame) { OnLinkFrame(peer, frame); });
  std::vector<uint16_t> complete;
  for (auto& [job, loading] : loading_) {
    if (loading.missing.erase(peer) > 0 && loading.missing.empty()) complete.push_back(job);
  }
  for (uint16_t job : complete) StartJob(job);
}

void Node::StartJob(uint16_t job) {
  const auto loading = loading_.extract(job);
  const control::Load& load = *loading.mapped().load;
  NodeResources resources;
  resources.node = options_.node;
  resources.environment = options_.environment;
  resources.control = reactor_.get();
  resources.kernels = options_.kernels;
  resources.variables = &variables_;
  resources.datasets = &datasets_;
  resources.arenas = &arenas_;
  resources.collectives = &collectives_;
  resources.link_of = [this](uint16_t peer) { return LinkTo(peer); };
  resources.threads_per_device = options_.threads_per_device;
  resources.simulation_seed = options_.simulation_seed;
  ExecutorOptions options;
  options.job = job;
  options.first_collective = load.first_collective();
  options.host = &Host(job);
  options.on_ready = [this, job] { ReportLoaded(job, absl::OkStatus()); };
  options.on_run_done = [this, job] {
    ControlMessage message;
    message.mutable_run_done()->set_job(job);
    Send(message);
  };
  options.on_failure = [this](absl::Status status) { Fail(status); };
  auto executor = Executor::Make(load.plan(), resources, std::move(options));
  if (!executor.ok()) return ReportLoaded(job, executor.status());
  Executor& made = *(jobs_[job] = *std::move(executor));
  if (absl::Status status = made.Connect(); !status.ok()) return ReportLoaded(job, status);
  const auto early = early_.extract(job);
  if (early.empty()) return;
  for (const auto& [peer, frame] : early.mapped()) OnLinkFrame(peer, frame);
}

void Node::OnLinkFrame(uint16_t peer, std::span<const std::byte> frame) {
  if (is_closing_) return;
  absl::Status status;
  switch (static_cast<Channel>(frame[0])) {
    case Channel::kPayload:
      break;
    case Channel::kCollective:
      status = collectives_.HandleFrame(peer, frame);
      break;
    case Channel::kActor:
    case Channel::kLandingKey: {
      const auto job = JobOfFrame(frame);
      if (!job.ok()) {
        status = job.status();
      } else if (const auto it = jobs_.find(*job); it != jobs_.end()) {
        status = it->second->OnFrame(peer, frame);
      } else if (!retired_.contains(*job)) {
        early_[*job].emplace_back(peer, std::vector<std::byte>(frame.begin(), frame.end()));
      }
      break;
    }
    default:
      status = absl::InvalidArgumentError(absl::StrFormat(
          "a frame of unknown channel %d, %d bytes", static_cast<int>(frame[0]), frame.size()));
  }
  if (!status.ok()) LinkTo(peer)->Close(status);
}

void Node::ReportLoaded(uint16_t job, const absl::Status& status) {
  ControlMessage message;
  message.mutable_loaded()->set_job(job);
  if (!status.ok()) *message.mutable_loaded()->mutable_error() = CauseOf(status, options_.node);
  Send(message);
}

void Node::Fail(const absl::Status& cause) {
  if (is_closing_) return;
  ControlMessage message;
  *message.mutable_failure() = CauseOf(cause, options_.node);
  Send(message);
}

void Node::Unload(uint16_t job) {
  retired_.insert(job);
  loading_.erase(job);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  it->second->Close(absl::CancelledError("the job was unloaded"), [this, job] {
    jobs_.erase(job);
    MutexLock lock(hosts_mutex_);
    hosts_.erase(job);
  });
}

void Node::SendStatus(uint16_t job) {
  const auto it = jobs_.find(job);
  const auto send = [this, job](std::vector<std::string> lines) {
    ControlMessage message;
    message.mutable_status()->set_job(job);
    for (std::string& line : lines) message.mutable_status()->add_lines(std::move(line));
    Send(message);
  };
  if (it == jobs_.end()) return send({});
  it->second->Describe(send);
}

void Node::Close(absl::Status cause) {
  if (std::exchange(is_closing_, true)) return;
  cause_ = std::move(cause);
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
  for (auto& [peer, entry] : peers_) {
    if (entry.link != nullptr) entry.link->Close(reason);
  }
}

void Node::FinishClose() {
  jobs_.clear();
  peers_.clear();
  transports_.clear();
  ControlMessage message;
  message.mutable_closed();
  Send(message);
  closed_(cause_);
}

}  // namespace braid
