#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/control/handshake.h"
#include "comm/control/rendezvous.h"
#include "comm/join.pb.h"
#include "glog/logging.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr Nanoseconds kRetryInterval = 50 * kMillisecond;
// For one address; a host that drops packets is silent for longer.
constexpr Nanoseconds kDialLimit = 3 * kSecond;

// Errors that another try does not mend.
bool IsFinal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

RendezvousClient::RendezvousClient(RendezvousOptions options, std::vector<SocketAddress> master,
                                   SocketAddress from)
    : options_(std::move(options)),
      finished_(options_.environment->MakeEvent()),
      flushed_(options_.environment->MakeEvent()),
      master_{.way = {std::move(master), from}, .secret = options_.secret, .is_certain = true},
      reactor_(options_.environment->StartReactor("rendezvous")) {
  CHECK(!master_.way.addresses.empty() || options_.find_master);
}

RendezvousClient::~RendezvousClient() {
  reactor_->Post([this] {
    is_ending_ = true;
    Finish(absl::CancelledError("the process ends"));
    if (connection_ != nullptr) {
      connection_->DropHandlers();
      connection_->Close(absl::CancelledError("the process ends"));
      connection_.reset();
    }
    if (const auto connection = given_away_.lock()) {
      connection->Close(absl::CancelledError("the process ends"));
    }
    if (dialing_.is_open()) reactor_->Unwatch(dialing_.descriptor());
    dialing_.Close();
    if (sockets_ == 0) flushed_->Set();
  });
  options_.environment->Await(*flushed_, kFlushLimit).IgnoreError();
}

absl::StatusOr<std::shared_ptr<ControlConnection>> RendezvousClient::Join() {
  StartJoin([this](absl::StatusOr<std::shared_ptr<ControlConnection>> connection) {
    joined_ = std::move(connection);
  });
  BRAID_RETURN_IF_ERROR(AwaitFinished());
  return std::move(joined_);
}

void RendezvousClient::StartJoin(JoinedCallback joined) {
  const NodeIdentity& self = options_.self;
  join::Opening opening;
  join::JoinRequest& request = *opening.mutable_join();
  request.set_node(self.node);
  request.set_num_nodes(self.num_nodes);
  request.set_build(self.build);
  request.set_agreed(self.agreed);
  request.set_devices(self.devices);
  request.set_host(self.host);
  request.set_pid(self.pid);
  request.set_memory_bytes(self.memory_bytes);
  request.set_process_bytes(self.process_bytes);
  request.set_rates(self.rates);
  request.set_device_library(self.device_library);
  for (const std::string& card : self.cards) request.add_cards(card);
  what_ = absl::StrFormat("%s %d: joining", options_.words.member, self.node);
  limit_flag_ = absl::StrFormat(" (%s)", options_.words.limit);
  Open(opening, [this, joined = std::move(joined)](const absl::Status& status) {
    if (!status.ok()) return joined(status);
    given_away_ = connection_;
    joined(std::exchange(connection_, nullptr));
  });
}

absl::StatusOr<std::string> RendezvousClient::AskStatus() {
  join::Opening opening;
  opening.mutable_status();
  what_ = "asking for the status";
  Open(opening, [](const absl::Status&) {});
  BRAID_RETURN_IF_ERROR(AwaitFinished());
  return text_;
}

void RendezvousClient::Open(const join::Opening& opening,
                            std::function<void(const absl::Status&)> opened) {
  reactor_->Post([this, bytes = opening.SerializeAsString(), opened = std::move(opened)] {
    if (is_finished_) return opened(status_);  // it was aborted before
    opening_ = bytes;
    opened_ = opened;
    began_ = reactor_->Now();
    reactor_->RunAfter(options_.progress_interval, [this] { Report(); });
    reactor_->RunAfter(options_.join_timeout, [this] {
      // Once accepted, the master says when it is too late, and who was missing.
      const Nanoseconds grace = connection_ != nullptr ? 2 * kSecond : 0;
      reactor_->RunAfter(grace, [this] {
        Finish(absl::DeadlineExceededError(absl::StrFormat(
            "%s: did not get through to the master within %.1f s%s: %s; is it started, and is "
            "this its address?",
            what_, Seconds(options_.join_timeout), limit_flag_,
            !waiting_for_.empty() ? "it waits for " + waiting_for_
            : last_error_.empty() ? attempt_
                                  : last_error_)));
      });
    });
    Dial();
  });
}

absl::Status RendezvousClient::AwaitFinished() {
  BRAID_RETURN_IF_ERROR(options_.environment->Await(*finished_, kForever));
  return status_;
}

void RendezvousClient::Abort(const absl::Status& reason) {
  reactor_->Post([this, reason] { Finish(reason); });
}

void RendezvousClient::Dial() {
  if (is_finished_ || is_ending_ || !FindMaster()) return;
  const auto& [addresses, from] = master_.way;
  const SocketAddress address = addresses[next_address_++ % addresses.size()];
  attempt_ = address.ToString() + ": no answer yet";
  const bool fits = from.length() > 0 && from.family() == address.family();
  absl::StatusOr<Socket> socket =
      options_.network->StartConnect(address, fits ? from : SocketAddress());
  if (!socket.ok()) return Retry(address, socket.status());
  dialing_ = *std::move(socket);
  dial_timer_ = reactor_->RunAfter(kDialLimit, [this, address] {
    dial_timer_.reset();
    reactor_->Unwatch(dialing_.descriptor());
    dialing_.Close();
    Retry(address, absl::DeadlineExceededError(absl::StrFormat(
                       "no answer within %.1f s: packets are dropped, or the host is down",
                       Seconds(kDialLimit))));
  });
  const absl::Status watched = reactor_->Watch(dialing_.descriptor(), {.writable = true},
                                               [this, address](Reactor::Readiness) {
                                                 reactor_->Unwatch(dialing_.descriptor());
                                                 reactor_->CancelTimer(*dial_timer_);
                                                 dial_timer_.reset();
                                                 OnDialed(std::move(dialing_), address);
                                               });
  if (!watched.ok()) Finish(watched);
}

bool RendezvousClient::FindMaster() {
  const size_t known = master_.way.addresses.size();
  if (!options_.find_master || (known > 0 && next_address_ % known != 0)) return true;
  absl::StatusOr<RendezvousOptions::Master> found = options_.find_master();
  if (found.ok()) {
    master_ = *std::move(found);
    next_address_ = 0;
    return true;
  }
  last_error_ = std::string(found.status().message());
  if (absl::IsUnavailable(found.status())) {
    reactor_->RunAfter(kRetryInterval, [this] { Dial(); });
  } else {
    Finish(Prefixed(what_, found.status()));
  }
  return false;
}

void RendezvousClient::OnDialed(Socket socket, const SocketAddress& address) {
  if (is_finished_) return;
  if (absl::Status status = socket.ConnectResult(); !status.ok()) return Retry(address, status);
  attempt_ = address.ToString() + ": connected, but no greeting yet";
  if (const auto local = socket.LocalAddress(); local.ok()) local_address_ = *local;
  StartHandshake(
      std::move(socket),
      {.reactor = reactor_.get(),
       .side = HandshakeSide::kDialer,
       .secret = master_.secret,
       .peer = "the master at " + address.ToString()},
      [this, address](absl::StatusOr<Socket> greeted) { OnGreeted(address, std::move(greeted)); });
}

void RendezvousClient::Retry(const SocketAddress& address, const absl::Status& reason) {
  last_error_ = absl::StrFormat("%s: %s", address.ToString(), std::string(reason.message()));
  VLOG(1) << "dialing the master: " << last_error_;
  const bool is_round = next_address_ % master_.way.addresses.size() == 0;
  reactor_->RunAfter(is_round ? kRetryInterval : 0, [this] { Dial(); });
}

void RendezvousClient::OnGreeted(const SocketAddress& address, absl::StatusOr<Socket> socket) {
  if (is_finished_ || is_ending_) return;
  if (socket.ok()) {
    const absl::Status prepared =
        PrepareConnection(*socket, static_cast<int>(options_.heartbeat_limit / kSecond));
    if (!prepared.ok()) socket = prepared;
  }
  if (!socket.ok()) {
    if (IsFinal(socket.status()) && master_.is_certain) {
      return Finish(Prefixed(what_, socket.status()));
    }
    return Retry(address, socket.status());
  }
  ++sockets_;
  connection_ =
      ControlConnection::Make(*std::move(socket), {.reactor = reactor_.get(),
                                                   .peer = "the master at " + address.ToString(),
                                                   .heartbeat = options_.heartbeat,
                                                   .heartbeat_limit = options_.heartbeat_limit,
                                                   .on_socket_closed = [this] {
                                                     if (--sockets_ == 0 && is_ending_) {
                                                       flushed_->Set();
                                                     }
                                                   }});
  connection_->SetHandlers(
      reactor_.get(), [this](std::string bytes) { OnAnswer(bytes); },
      [this](absl::Status reason) {
        Finish(absl::UnavailableError(
            absl::StrFormat("%s: master lost: %s", what_, std::string(reason.message()))));
      });
  connection_->AllowPlans();  // they may follow the last answer at once
  connection_->Send(opening_);
}

void RendezvousClient::OnAnswer(const std::string& bytes) {
  join::Answer answer;
  if (!answer.ParseFromString(bytes)) {
    return Finish(absl::InvalidArgumentError(
        absl::StrFormat("%s: an answer of %d bytes that cannot be read", what_, bytes.size())));
  }
  switch (answer.kind_case()) {
    case join::Answer::kRefused:
      return Finish(absl::Status(static_cast<absl::StatusCode>(answer.refused().code()),
                                 answer.refused().message()));
    case join::Answer::kWaiting:
      waiting_for_ = absl::StrJoin(answer.waiting().missing(), ", ");
      return;
    case join::Answer::kComplete:
      connection_->DropHandlers();
      return Finish(absl::OkStatus());
    case join::Answer::kStatus:
      text_ = answer.status().text();
      return Finish(absl::OkStatus());
    default:
      return Finish(absl::InvalidArgumentError(what_ + ": the master gave an unknown answer"));
  }
}

void RendezvousClient::Report() {
  if (is_finished_) return;
  LOG(INFO) << absl::StrFormat(
      "%s for %.0f s; %s", what_, Seconds(reactor_->Now() - began_),
      !waiting_for_.empty() ? "the master waits for " + waiting_for_
      : connection_ != nullptr
          ? "the master has not answered yet"
          : "dialing the master: " + (last_error_.empty() ? attempt_ : last_error_));
  reactor_->RunAfter(options_.progress_interval, [this] { Report(); });
}

void RendezvousClient::Finish(const absl::Status& status) {
  if (std::exchange(is_finished_, true)) return;
  status_ = status;
  if (opened_) std::exchange(opened_, nullptr)(status);
  finished_->Set();
}

}  // namespace braid
