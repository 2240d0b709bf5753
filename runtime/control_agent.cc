#include "runtime/control_agent.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/control.pb.h"
#include "runtime/reports/control_status.h"

namespace braid {
namespace {

// How long a node that failed waits for the master to say what the first cause was.
constexpr Nanoseconds kCauseLimit = kSecond;
// The same if a link broke: the master asks all nodes whether they are there.
constexpr Nanoseconds kNamedCauseLimit = 7 * kSecond;
// In which a reactor has read what lies there.
constexpr Nanoseconds kReadLimit = 20 * kMillisecond;

}  // namespace

using control::ControlMessage;

void ControlAgent::Serve(std::unique_ptr<ControlChannel> master, const control::Hello& hello,
                         std::function<void(absl::Status)> closed) {
  master_ = std::move(master);
  closed_ = std::move(closed);
  ControlMessage message;
  *message.mutable_hello() = hello;
  Send(message);
  master_->SetHandlers([this](const std::string& bytes) { OnMessage(bytes); },
                       [this](const absl::Status& reason) {
                         Handle(NodeEvent::kMasterLost, absl::UnavailableError(absl::StrFormat(
                                                            "master lost while %s: %s", Phase(),
                                                            std::string(reason.message()))));
                       });
}

void ControlAgent::Send(const ControlMessage& message) {
  if (master_ != nullptr) master_->Send(message.SerializeAsString());
}

void ControlAgent::Fail(const absl::Status& cause) { Handle(NodeEvent::kFailure, cause); }

void ControlAgent::FailLink(const absl::Status& cause) { Handle(NodeEvent::kLinkFailure, cause); }

void ControlAgent::OnIdle() { Handle(NodeEvent::kIdle); }

void ControlAgent::Leave(std::function<void()> over) {
  master_.reset();
  over_ = std::move(over);
  Handle(NodeEvent::kDestroyed);
}

void ControlAgent::SetPhase(std::string phase) {
  MutexLock lock(phase_mutex_);
  phase_ = std::move(phase);
}

std::string ControlAgent::Phase() const {
  MutexLock lock(phase_mutex_);
  return phase_;
}

void ControlAgent::OnMessage(const std::string& bytes) {
  ControlMessage message;
  if (!message.ParseFromString(bytes)) {
    return Fail(absl::InvalidArgumentError(absl::StrFormat(
        "node %d: a control message of %d bytes cannot be read", options_.node, bytes.size())));
  }
  switch (message.kind_case()) {
    case ControlMessage::kFailure:
      return Handle(NodeEvent::kCause, FailureOf(message.failure()));
    case ControlMessage::kClose: {
      // After a failure it may overtake the notice.
      const absl::Status cause = StatusOf(message.close().cause());
      return Handle(cause.ok() ? NodeEvent::kClose : NodeEvent::kCause, cause);
    }
    case ControlMessage::kEnded:
    case ControlMessage::kHello:
    case ControlMessage::kLoaded:
    case ControlMessage::kRunDone:
    case ControlMessage::kClosed:
    case ControlMessage::kStalled:
    case ControlMessage::kPlanTaken:
    case ControlMessage::kSaved:
    case ControlMessage::kRollAnswer:
    case ControlMessage::kLeft:
    case ControlMessage::kStoreRequest:
    case ControlMessage::KIND_NOT_SET: {
      const absl::Status refusal = absl::InvalidArgumentError(
          absl::StrFormat("node %d: the master sent a control message of kind %d", options_.node,
                          static_cast<int>(message.kind_case())));
      return Handle(message.has_ended() ? NodeEvent::kEnded : NodeEvent::kFailure, refusal);
    }
    default:
      order_ = &message;
      Handle(message.has_status() || message.has_probe() || message.has_stall_noted()
                 ? NodeEvent::kQuestion
                 : NodeEvent::kOrder);
      order_ = nullptr;
  }
}

void ControlAgent::Handle(NodeEvent event, const absl::Status& status) {
  const NodeTransition& transition = TransitionOf(state_, event);
  VLOG(2) << "node " << options_.node << ", " << NameOf(state_) << ": " << NameOf(event);
  state_ = transition.next;
  for (NodeAction action : transition.todo()) {
    CHECK(action != NodeAction::kCannotBe)
        << "node " << options_.node << " while " << NameOf(state_) << ": " << NameOf(event);
    Do(action, status, event == NodeEvent::kLinkFailure);
  }
  if (state_ == NodeState::kOver && over_) std::exchange(over_, nullptr)();
}

void ControlAgent::Do(NodeAction action, const absl::Status& status, bool is_link) {
  ControlMessage message;
  switch (action) {
    case NodeAction::kObey:
      if (order_->has_phase()) return SetPhase(order_->phase().text());
      if (order_->has_probe()) return Send(*order_);
      return options_.obey(*order_);
    case NodeAction::kRefuse:
      return Fail(status);
    case NodeAction::kTellMaster:
      *message.mutable_failure() = CauseOf(status, options_.node);
      message.mutable_failure()->set_is_link(is_link);
      return Send(message);
    case NodeAction::kWarn:
      if (options_.on_failure) options_.on_failure(options_.annotate(status));
      return;
    case NodeAction::kAwaitCause:
      return AwaitCause(status, kCauseLimit);
    case NodeAction::kAwaitInquiry:
      return AwaitCause(status, kNamedCauseLimit);
    case NodeAction::kTakeCause:
      cause_ = options_.annotate(status);
      if (options_.on_failure) options_.on_failure(cause_);
      return;
    case NodeAction::kCloseAll:
      if (state_ == NodeState::kLeaving) {
        return options_.close_all(absl::CancelledError("the node was destroyed"));
      }
      if (cause_.ok()) SetPhase("closing");
      return options_.close_all(cause_.ok() ? absl::CancelledError("the session was closed")
                                            : cause_);
    case NodeAction::kSayClosed:
      message.mutable_closed();
      return Send(message);
    case NodeAction::kTellOwner:
      return closed_(cause_);
    case NodeAction::kCannotBe:
      return;
  }
}

void ControlAgent::AwaitCause(const absl::Status& cause, Nanoseconds limit, bool is_last) {
  const Nanoseconds due = options_.reactor->Now() + limit;
  options_.reactor->RunAfter(limit, [this, cause, due, is_last] {
    const Nanoseconds late = options_.reactor->Now() - due;
    // What the master said while this process did not run is unread, and read before the last wait
    // ends; the master may need as long again.
    if (is_serving() && (!is_last || late >= kSecond)) {
      return AwaitCause(cause, late >= kSecond ? kSecond : kReadLimit, /*is_last=*/true);
    }
    Handle(NodeEvent::kOverdue, cause);
  });
}

}  // namespace braid
