#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/cluster/cluster.h"
#include "comm/control/handshake.h"
#include "comm/control/rendezvous.h"
#include "comm/join.pb.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr size_t kMaxStrangers = 256;
constexpr int kLoggedRefusals = 20;
// A process that was greeted says at once what it wants.
constexpr Nanoseconds kOpeningLimit = 5 * kSecond;
// Who was started together with a process that does not fit comes within this time, and is told so
// instead of waiting for a master that has ended.
constexpr Nanoseconds kLatecomers = kSecond / 2;

std::string AnswerOf(const std::function<void(join::Answer&)>& fill) {
  join::Answer answer;
  fill(answer);
  return answer.SerializeAsString();
}

}  // namespace

std::string NodeListDifference(const std::string& master_list, const std::string& node_list) {
  return absl::StrFormat("has another node list: %s; give the same file to every node",
                         DescribeDifference(master_list, node_list));
}

RendezvousServer::RendezvousServer(RendezvousOptions options, std::vector<Socket> listeners)
    : options_(std::move(options)),
      finished_(options_.environment->MakeEvent()),
      flushed_(options_.environment->MakeEvent()),
      reactor_(options_.environment->StartReactor("rendezvous")) {
  reactor_->Post([this, listeners = std::move(listeners)]() mutable {
    began_ = reactor_->Now();
    const absl::Status status =
        acceptor_.emplace(*reactor_, "control port")
            .Start(std::move(listeners), [this](Socket socket) { Accept(std::move(socket)); });
    if (!status.ok()) return Finish(status);
    if (options_.self.num_nodes == 1) return Finish(absl::OkStatus());
    reactor_->RunAfter(options_.progress_interval, [this] { Report(); });
    reactor_->RunAfter(options_.join_timeout, [this] {
      if (is_finished_) return;
      Finish(absl::DeadlineExceededError(absl::StrFormat(
          "joining: %s did not join within %.1f s (%s)%s; start the same program there "
          "with the same %s, and let it reach this node's control port",
          absl::StrJoin(Missing(), ", "), Seconds(options_.join_timeout), options_.words.limit,
          last_refusal_.empty() ? "" : "; last refused: " + last_refusal_, options_.words.list)));
    });
  });
}

RendezvousServer::~RendezvousServer() {
  reactor_->Post([this] {
    is_ending_ = true;
    acceptor_->Stop();
    for (auto& [stranger, connection] : strangers_) {
      // Who came too late for a start that failed is told why, as those that had joined.
      if (!status_.ok()) {
        Refuse(*connection, status_);
        continue;
      }
      connection->DropHandlers();
      connection->Close(absl::UnavailableError("the session has ended"));
    }
    strangers_.clear();
    for (auto& [number, node] : nodes_) {
      node.connection->Close(absl::UnavailableError("the session has ended"));
    }
    nodes_.clear();
    for (const auto& asking : asking_) {
      if (const auto connection = asking.lock()) {
        connection->Close(absl::UnavailableError("the session has ended"));
      }
    }
    if (sockets_ == 0) flushed_->Set();
  });
  options_.environment->Await(*flushed_, kFlushLimit).IgnoreError();
}

absl::StatusOr<std::vector<JoinedNode>> RendezvousServer::Join() {
  // The reactor's own timers end it.
  BRAID_RETURN_IF_ERROR(options_.environment->Await(*finished_, kForever));
  BRAID_RETURN_IF_ERROR(status_);
  std::vector<JoinedNode> nodes;
  for (const auto& [number, node] : nodes_) nodes.push_back(node);
  return nodes;
}

void RendezvousServer::Abort(const absl::Status& reason) {
  reactor_->Post([this, reason] { Finish(reason); });
}

void RendezvousServer::SetStatusSource(StatusSource source) {
  const std::shared_ptr<Event> is_set = options_.environment->MakeEvent();
  reactor_->Post([this, is_set, source = std::move(source)] {
    status_source_ = source;
    is_set->Set();
  });
  // Fails only where the process was killed; then the source is not called any more either.
  options_.environment->Await(*is_set, kForever).IgnoreError();
}

void RendezvousServer::Accept(Socket socket) {
  if (strangers_.size() + greeting_ >= kMaxStrangers) {
    VLOG(1) << "control port: " << kMaxStrangers << " strangers already; one more is dropped";
    return;
  }
  const absl::StatusOr<SocketAddress> address = socket.PeerAddress();
  if (!address.ok()) return;  // it has left already
  ++greeting_;
  StartHandshake(std::move(socket),
                 {.reactor = reactor_.get(),
                  .side = HandshakeSide::kListener,
                  .secret = options_.secret,
                  .peer = address->ToString()},
                 [this, address = *address](absl::StatusOr<Socket> greeted) {
                   --greeting_;
                   OnGreeted(address, std::move(greeted));
                 });
}

void RendezvousServer::OnGreeted(const SocketAddress& address, absl::StatusOr<Socket> socket) {
  if (is_ending_) return;
  if (!socket.ok()) {
    last_refusal_ = std::string(socket.status().message());
    if (options_.nodes_at) {
      for (const int node : options_.nodes_at(address)) {
        refusal_of_[static_cast<uint16_t>(node)] = {last_refusal_, reactor_->Now()};
      }
    }
    // A port scan is not to fill the log.
    if (++refusals_ <= kLoggedRefusals) {
      LOG(WARNING) << "control port: refused: " << last_refusal_
                   << (refusals_ == kLoggedRefusals ? " (more of them are not logged)" : "");
    }
    return;
  }
  absl::Status prepared =
      PrepareConnection(*socket, static_cast<int>(options_.heartbeat_limit / kSecond));
  if (!prepared.ok()) {
    LOG(WARNING) << "control port: " << address.ToString() << ": " << prepared;
    return;
  }
  const uint64_t stranger = next_stranger_++;
  ++sockets_;
  auto connection =
      ControlConnection::Make(*std::move(socket), {.reactor = reactor_.get(),
                                                   .peer = address.ToString(),
                                                   .heartbeat = options_.heartbeat,
                                                   .heartbeat_limit = options_.heartbeat_limit,
                                                   .on_socket_closed = [this] {
                                                     if (--sockets_ == 0 && is_ending_) {
                                                       flushed_->Set();
                                                     }
                                                   }});
  strangers_[stranger] = connection;
  connection->SetHandlers(
      reactor_.get(), [this, stranger](std::string bytes) { OnOpening(stranger, bytes); },
      [this, stranger](absl::Status) { DropStranger(stranger); });
  reactor_->RunAfter(kOpeningLimit, [this, stranger] {
    if (const auto found = strangers_.find(stranger); found != strangers_.end()) {
      Refuse(*found->second,
             absl::DeadlineExceededError(absl::StrFormat(
                 "joining: a process has reached the master, but did not say within %.0f s what it "
                 "wants; was it stopped?",
                 Seconds(kOpeningLimit))));
      DropStranger(stranger);
    }
  });
}

void RendezvousServer::DropStranger(uint64_t stranger) { strangers_.erase(stranger); }

void RendezvousServer::Refuse(ControlConnection& connection, const absl::Status& reason) {
  last_refusal_ = connection.peer() + ": " + std::string(reason.message());
  connection.Send(AnswerOf([&](join::Answer& answer) {
    answer.mutable_refused()->set_code(static_cast<uint32_t>(reason.code()));
    answer.mutable_refused()->set_message(std::string(reason.message()));
  }));
  connection.DropHandlers();
  connection.Close(reason);
}

void RendezvousServer::OnOpening(uint64_t stranger, const std::string& bytes) {
  const auto found = strangers_.find(stranger);
  if (found == strangers_.end()) return;
  const std::shared_ptr<ControlConnection> connection = found->second;
  join::Opening opening;
  if (!opening.ParseFromString(bytes) || opening.kind_case() == join::Opening::KIND_NOT_SET) {
    Refuse(*connection, absl::InvalidArgumentError(absl::StrFormat(
                            "an opening of %d bytes that cannot be read", bytes.size())));
    return DropStranger(stranger);
  }
  if (opening.has_join()) return OnJoinRequest(stranger, opening.join());
  strangers_.erase(stranger);
  std::erase_if(asking_, [](const auto& asking) { return asking.expired(); });
  asking_.push_back(connection);
  const auto answer = [connection](std::string text) {
    connection->Send(
        AnswerOf([&](join::Answer& answer) { answer.mutable_status()->set_text(text); }));
    connection->Close(absl::CancelledError("answered"));
  };
  connection->SetHandlers(
      reactor_.get(), [](std::string) {}, [](absl::Status) {});
  if (status_source_) return status_source_(answer);
  answer(absl::StrFormat("joining since %.1f s; missing: %s\n", Seconds(reactor_->Now() - began_),
                         is_finished_ ? "nobody" : DescribeMissing()));
}

absl::Status RendezvousServer::CheckRequest(const join::JoinRequest& request,
                                            const std::string& who) const {
  const NodeIdentity& self = options_.self;
  if (static_cast<int>(request.num_nodes()) != self.num_nodes) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "joining: %s counts %d %ss and the master %d; give both the same %s or launcher", who,
        request.num_nodes(), options_.words.member, self.num_nodes, options_.words.list));
  }
  if (request.node() < 1 || static_cast<int>(request.node()) >= self.num_nodes) {
    return absl::OutOfRangeError(
        absl::StrFormat("joining: %s asks for %s %d; 1 to %d are there, 0 is the master itself",
                        who, options_.words.what, request.node(), self.num_nodes - 1));
  }
  if (request.build() != self.build) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "joining: %s runs another binary: build %s there, %s on the master; start the same file on "
        "every node",
        who, request.build(), self.build));
  }
  if (request.agreed() != self.agreed) {
    return absl::FailedPreconditionError(
        absl::StrFormat("joining: %s %s", who, options_.difference(self.agreed, request.agreed())));
  }
  if (const auto taken = nodes_.find(request.node()); taken != nodes_.end()) {
    const NodeIdentity& holder = taken->second.identity;
    return absl::AlreadyExistsError(
        absl::StrFormat("joining: %s %d is taken twice: by process %d on %s (%s) and by process %d "
                        "on %s (%s); give "
                        "every process its own %s",
                        options_.words.what, request.node(), holder.pid, holder.host,
                        taken->second.connection->peer(), request.pid(), request.host(), who,
                        options_.words.number));
  }
  return absl::OkStatus();
}

void RendezvousServer::OnJoinRequest(uint64_t stranger, const join::JoinRequest& request) {
  const std::shared_ptr<ControlConnection> connection = strangers_.at(stranger);
  strangers_.erase(stranger);
  const bool all_came = ++came_ + 1 >= options_.self.num_nodes;
  const std::string who = absl::StrFormat("%s %d (%s, %s)", options_.words.member, request.node(),
                                          request.host(), connection->peer());
  if (is_finished_ && !status_.ok()) {
    Refuse(*connection, status_);
    if (all_came) EndJoin();
    return;
  }
  if (absl::Status status = CheckRequest(request, who); !status.ok()) {
    LOG(WARNING) << status.message();
    Refuse(*connection, status);
    // Before the start nobody can say which of two is right; a job that runs is not disturbed.
    if (!is_finished_) Finish(status, all_came ? 0 : kLatecomers);
    return;
  }
  const auto node = static_cast<uint16_t>(request.node());
  JoinedNode& joined = nodes_[node];
  joined.identity = {.node = node,
                     .num_nodes = static_cast<int>(request.num_nodes()),
                     .build = request.build(),
                     .agreed = request.agreed(),
                     .devices = request.devices(),
                     .host = request.host(),
                     .pid = request.pid(),
                     .memory_bytes = request.memory_bytes(),
                     .process_bytes = request.process_bytes(),
                     .rates = request.rates(),
                     .device_library = request.device_library(),
                     .cards = {request.cards().begin(), request.cards().end()}};
  joined.connection = connection;
  connection->SetHandlers(
      reactor_.get(), [](std::string) {},  // nothing is due before everybody is there
      [this, node](absl::Status reason) { OnLost(node, reason); });
  if (nodes_.size() + 1 < static_cast<size_t>(options_.self.num_nodes)) {
    return SayWhoIsMissing();
  }
  Finish(absl::OkStatus());
}

void RendezvousServer::OnLost(uint16_t node, const absl::Status& reason) {
  if (is_finished_) return;
  Finish(absl::UnavailableError(absl::StrFormat("joining: %s lost: %s", options_.name_of(node),
                                                std::string(reason.message()))));
}

std::vector<std::string> RendezvousServer::Missing() const {
  std::vector<std::string> missing;
  for (int node = 1; node < options_.self.num_nodes; ++node) {
    if (!nodes_.contains(static_cast<uint16_t>(node))) missing.push_back(options_.name_of(node));
  }
  return missing;
}

std::string RendezvousServer::DescribeMissing() const {
  std::vector<std::string> missing;
  for (int node = 1; node < options_.self.num_nodes; ++node) {
    if (nodes_.contains(static_cast<uint16_t>(node))) continue;
    const auto refusal = refusal_of_.find(static_cast<uint16_t>(node));
    missing.push_back(refusal == refusal_of_.end()
                          ? options_.name_of(node)
                          : absl::StrFormat("%s, refused %.0f s ago: %s", options_.name_of(node),
                                            Seconds(reactor_->Now() - refusal->second.when),
                                            refusal->second.why));
  }
  return absl::StrJoin(missing, "; ");
}

void RendezvousServer::SayWhoIsMissing() {
  const std::vector<std::string> missing = Missing();
  const std::string message = AnswerOf([&](join::Answer& answer) {
    answer.mutable_waiting();
    for (const std::string& name : missing) answer.mutable_waiting()->add_missing(name);
  });
  for (const auto& [number, node] : nodes_) node.connection->Send(message);
}

void RendezvousServer::Report() {
  if (is_finished_) return;
  const std::string others =
      refusal_of_.empty() && !last_refusal_.empty() ? "; last refused: " + last_refusal_ : "";
  LOG(INFO) << absl::StrFormat("joining for %.0f s; missing: %s%s",
                               Seconds(reactor_->Now() - began_), DescribeMissing(), others);
  reactor_->RunAfter(options_.progress_interval, [this] { Report(); });
}

void RendezvousServer::Finish(const absl::Status& status, Nanoseconds delay) {
  if (std::exchange(is_finished_, true)) return;
  status_ = status;
  for (auto& [number, node] : nodes_) {
    if (!status.ok()) {
      Refuse(*node.connection, status);
      continue;
    }
    node.connection->Send(AnswerOf([](join::Answer& answer) { answer.mutable_complete(); }));
    node.connection->AllowPlans();
    // Until its new owner takes it, what it says is kept.
    node.connection->DropHandlers();
  }
  if (delay == 0) return EndJoin();
  reactor_->RunAfter(delay, [this] { EndJoin(); });
}

void RendezvousServer::EndJoin() {
  reactor_->Post([this] { finished_->Set(); });
}

}  // namespace braid
