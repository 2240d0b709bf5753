#include "runtime/coordinator.h"

#include <glog/logging.h>

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/control_status.h"

namespace braid {
namespace {

// A wait that ends by its answers or by a failure notice, which always comes.
constexpr Nanoseconds kNoLimit = std::numeric_limits<Nanoseconds>::max() / 4;
constexpr Nanoseconds kCloseLimit = 10 * kSecond;

}  // namespace

using control::ControlMessage;

Coordinator::Coordinator(Environment* environment)
    : environment_(environment), reactor_(environment->StartReactor("coordinator")) {}

Coordinator::~Coordinator() {
  // The channels' handlers point here and run on the reactor.
  for (Peer& peer : peers_) {
    if (peer.channel != nullptr)
      reactor_->Post([channel = peer.channel.release()] { delete channel; });
  }
  reactor_.reset();
}

absl::Status Coordinator::Join(std::vector<std::unique_ptr<ControlChannel>> channels,
                               Nanoseconds timeout) {
  peers_.resize(channels.size());
  BeginWait(ControlMessage::kHello, 0);
  for (size_t i = 0; i < channels.size(); ++i) {
    const auto node = static_cast<uint16_t>(i);
    peers_[i].channel = std::move(channels[i]);
    peers_[i].channel->SetHandlers(
        [this, node](std::string bytes) { OnMessage(node, bytes); },
        [this, node](absl::Status reason) {
          OnFailure(node, absl::UnavailableError(absl::StrFormat("node %d lost: %s", node,
                                                                 std::string(reason.message()))));
        });
  }
  RETURN_IF_ERROR(FinishWait(timeout).status());
  ControlMessage message;
  for (const Peer& peer : peers_) *message.mutable_peers()->add_nodes() = *peer.hello;
  SendAll(message);
  return absl::OkStatus();
}

void Coordinator::Send(uint16_t node, const ControlMessage& message) {
  peers_[node].channel->Send(message.SerializeAsString());
}

void Coordinator::SendAll(const ControlMessage& message) {
  for (size_t i = 0; i < peers_.size(); ++i) Send(static_cast<uint16_t>(i), message);
}

void Coordinator::BeginWait(int kind, uint16_t job) {
  MutexLock lock(mutex_);
  wait_ = Wait();
  wait_.kind = kind;
  wait_.job = job;
  wait_.event = environment_->MakeEvent();
  for (size_t i = 0; i < peers_.size(); ++i) wait_.nodes.insert(static_cast<uint16_t>(i));
  if (!failure_.ok() && !is_closing_) wait_.event->Set();
}

void Coordinator::Answer(const AnswerFrom& from, const absl::Status& status,
                         std::vector<std::string> lines) {
  MutexLock lock(mutex_);
  if (wait_.kind != from.kind || wait_.job != from.job || wait_.nodes.erase(from.node) == 0) return;
  wait_.status.Update(status);
  for (std::string& line : lines) wait_.lines.push_back(std::move(line));
  // After an error the other nodes may wait for the one that failed.
  if (wait_.nodes.empty() || !status.ok()) wait_.event->Set();
}

absl::StatusOr<std::vector<std::string>> Coordinator::FinishWait(Nanoseconds timeout) {
  Event* event = nullptr;
  {
    MutexLock lock(mutex_);
    event = wait_.event.get();
  }
  const absl::Status waited = environment_->Await(*event, timeout);
  MutexLock lock(mutex_);
  if (!failure_.ok() && !is_closing_) return failure_;
  if (!waited.ok()) {
    return absl::Status(waited.code(),
                        absl::StrFormat("%s; no answer from node %s", std::string(waited.message()),
                                        absl::StrJoin(wait_.nodes, ", ")));
  }
  RETURN_IF_ERROR(wait_.status);
  return std::move(wait_.lines);
}

void Coordinator::OnMessage(uint16_t node, const std::string& bytes) {
  ControlMessage message;
  if (!message.ParseFromString(bytes)) {
    return OnFailure(node, absl::InvalidArgumentError(absl::StrFormat(
                               "node %d sent a control message of %d bytes that cannot be read",
                               node, bytes.size())));
  }
  AnswerFrom from{node, static_cast<int>(message.kind_case()), 0};
  switch (message.kind_case()) {
    case ControlMessage::kHello:
      if (message.hello().protocol() != kControlProtocol) {
        return OnFailure(
            node, absl::FailedPreconditionError(absl::StrFormat(
                      "node %d speaks control protocol %d, the master %d; start the same binary on "
                      "every node",
                      node, message.hello().protocol(), kControlProtocol)));
      }
      peers_[node].hello = std::make_unique<control::Hello>(message.hello());
      return Answer(from, absl::OkStatus());
    case ControlMessage::kLoaded:
      from.job = message.loaded().job();
      return Answer(from, message.loaded().has_error() ? StatusOf(message.loaded().error())
                                                       : absl::OkStatus());
    case ControlMessage::kRunDone:
      from.job = message.run_done().job();
      return Answer(from, absl::OkStatus());
    case ControlMessage::kStatus:
      from.job = message.status().job();
      return Answer(from, absl::OkStatus(),
                    {message.status().lines().begin(), message.status().lines().end()});
    case ControlMessage::kFailure:
      return OnFailure(node, StatusOf(message.failure()));
    case ControlMessage::kClosed: {
      {
        MutexLock lock(mutex_);
        peers_[node].is_closed = true;
      }
      return Answer(from, absl::OkStatus());
    }
    default:
      return OnFailure(node, absl::InvalidArgumentError(
                                 absl::StrFormat("node %d sent a control message of kind %d", node,
                                                 static_cast<int>(message.kind_case()))));
  }
}

void Coordinator::OnFailure(uint16_t node, const absl::Status& cause) {
  {
    MutexLock lock(mutex_);
    if (is_closing_ || !failure_.ok()) return;
    failure_ = cause;
    if (wait_.event != nullptr) wait_.event->Set();
  }
  ControlMessage message;
  *message.mutable_failure() = CauseOf(cause, node);
  SendAll(message);
}

absl::Status Coordinator::Load(LoadRequest request) {
  BeginWait(ControlMessage::kLoaded, request.job);
  for (size_t i = 0; i < peers_.size(); ++i) {
    ControlMessage message;
    control::Load& load = *message.mutable_load();
    load.set_job(request.job);
    load.set_first_collective(request.first_collective);
    *load.mutable_plan() = std::move(request.plans[i]);
    Send(static_cast<uint16_t>(i), message);
  }
  const absl::Status status = FinishWait(kNoLimit).status();
  if (!status.ok()) Unload(request.job);
  return status;
}

absl::Status Coordinator::Run(const RunRequest& request) {
  BeginWait(ControlMessage::kRunDone, request.job);
  ControlMessage message;
  message.mutable_run()->set_job(request.job);
  message.mutable_run()->set_first_step(request.first_step);
  message.mutable_run()->set_steps(request.steps);
  SendAll(message);
  return FinishWait(kNoLimit).status();
}

void Coordinator::Unload(uint16_t job) {
  ControlMessage message;
  message.mutable_unload()->set_job(job);
  SendAll(message);
}

absl::StatusOr<std::vector<std::string>> Coordinator::Describe(uint16_t job) {
  BeginWait(ControlMessage::kStatus, job);
  ControlMessage message;
  message.mutable_status()->set_job(job);
  SendAll(message);
  return FinishWait(kCloseLimit);
}

void Coordinator::Close() {
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
  }
  BeginWait(ControlMessage::kClosed, 0);
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].is_closed) wait_.nodes.erase(static_cast<uint16_t>(i));
    }
    if (wait_.nodes.empty()) wait_.event->Set();
  }
  ControlMessage message;
  *message.mutable_close()->mutable_cause() = CauseOf(absl::OkStatus(), 0);
  SendAll(message);
  if (const auto closed = FinishWait(kCloseLimit); !closed.ok()) {
    LOG(ERROR) << "closing the session: " << closed.status().message();
  }
}

}  // namespace braid
