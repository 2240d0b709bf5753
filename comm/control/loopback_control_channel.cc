#include <deque>
#include <optional>

#include "comm/control/control_channel.h"
#include "runtime/base/mutex.h"

namespace braid {
namespace {

// One direction: what one end sent and the other has not read. Shared by both ends, which die in
// any order.
class LoopbackPipe : public std::enable_shared_from_this<LoopbackPipe> {
 public:
  explicit LoopbackPipe(Reactor* reader) : reader_(reader) {}

  void SetHandlers(ControlChannel::MessageHandler on_message,
                   ControlChannel::ClosedHandler on_closed) {
    {
      MutexLock lock(mutex_);
      on_message_ = std::move(on_message);
      on_closed_ = std::move(on_closed);
      has_handlers_ = true;
      if (messages_.empty() && !closed_.has_value()) return;
    }
    Schedule();
  }

  void Push(std::string message) {
    {
      MutexLock lock(mutex_);
      if (closed_.has_value() || is_detached_) return;
      messages_.push_back(std::move(message));
      if (!has_handlers_) return;
    }
    Schedule();
  }

  void Close(absl::Status reason) {
    {
      MutexLock lock(mutex_);
      if (closed_.has_value() || is_detached_) return;
      closed_ = std::move(reason);
      if (!has_handlers_) return;
    }
    Schedule();
  }

  // The reading end is gone: its handlers are not called any more.
  void Detach() {
    MutexLock lock(mutex_);
    is_detached_ = true;
    messages_.clear();
  }

 private:
  void Schedule() {
    MutexLock lock(mutex_);
    if (is_detached_) return;
    reader_->Post([self = shared_from_this()] { self->Drain(); });
  }

  void Drain() {
    for (;;) {
      std::optional<std::string> message;
      std::optional<absl::Status> closed;
      {
        MutexLock lock(mutex_);
        if (is_detached_) return;
        if (!messages_.empty()) {
          message = std::move(messages_.front());
          messages_.pop_front();
        } else if (closed_.has_value() && !is_close_told_) {
          is_close_told_ = true;
          closed = *closed_;
        } else {
          return;
        }
      }
      if (message.has_value()) {
        on_message_(*std::move(message));
      } else {
        on_closed_(*std::move(closed));
      }
    }
  }

  Reactor* const reader_;
  Mutex mutex_;
  std::deque<std::string> messages_ BRAID_GUARDED_BY(mutex_);
  std::optional<absl::Status> closed_ BRAID_GUARDED_BY(mutex_);
  bool is_close_told_ BRAID_GUARDED_BY(mutex_) = false;
  bool has_handlers_ BRAID_GUARDED_BY(mutex_) = false;
  bool is_detached_ BRAID_GUARDED_BY(mutex_) = false;
  ControlChannel::MessageHandler on_message_;  // set once, before the first Drain
  ControlChannel::ClosedHandler on_closed_;
};

class LoopbackControlChannel final : public ControlChannel {
 public:
  LoopbackControlChannel(std::shared_ptr<LoopbackPipe> in, std::shared_ptr<LoopbackPipe> out)
      : in_(std::move(in)), out_(std::move(out)) {}
  ~LoopbackControlChannel() override {
    in_->Detach();
    out_->Close(absl::UnavailableError("the other end of the control channel was destroyed"));
  }

  void SetHandlers(MessageHandler on_message, ClosedHandler on_closed) override {
    in_->SetHandlers(std::move(on_message), std::move(on_closed));
  }
  void Send(std::string message) override { out_->Push(std::move(message)); }
  void Close(absl::Status reason) override {
    out_->Close(reason);
    in_->Close(std::move(reason));
  }

 private:
  std::shared_ptr<LoopbackPipe> in_;
  std::shared_ptr<LoopbackPipe> out_;
};

}  // namespace

std::pair<std::unique_ptr<ControlChannel>, std::unique_ptr<ControlChannel>> MakeLoopbackControlPair(
    Reactor* first, Reactor* second) {
  auto to_first = std::make_shared<LoopbackPipe>(first);
  auto to_second = std::make_shared<LoopbackPipe>(second);
  return {std::make_unique<LoopbackControlChannel>(to_first, to_second),
          std::make_unique<LoopbackControlChannel>(to_second, to_first)};
}

}  // namespace braid
