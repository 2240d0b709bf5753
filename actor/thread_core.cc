#include "actor/thread_core.h"

#include <optional>
#include <utility>

namespace braid {

void ThreadCore::Push(const Message& message) {
  Mail* const mail = mails_.Take();
  mail->message = message;
  Push(mail);
}

Message ThreadCore::Unpack(Mail* mail) {
  const Message message = mail->message;
  mails_.Give(mail);
  return message;
}

void ThreadCore::ReportRuns() {
  while (const std::optional<int64_t> steps = runs_.TakeDone()) {
    if (options_.on_run_done) options_.on_run_done(*steps);
  }
}

void ThreadCore::Fail(absl::Status status) {
  if (has_stopped_) return;
  Stop(std::move(status));
  if (options_.on_failure) options_.on_failure(cause_);
}

void ThreadCore::Stop(absl::Status cause) {
  has_stopped_ = true;
  Halt();
  cause_ = std::move(cause);
  fireable_.Clear();
}

void ThreadCore::Close(absl::Status cause) {
  if (!has_stopped_) Stop(std::move(cause));
  is_closing_ = true;
  Wake();  // a Poll may have left mails when it saw the halt
  CloseIfQuiet();
}

void ThreadCore::CloseIfQuiet() {
  if (!is_closing_ || is_closed_ || late_acts_ > 0) return;
  is_closed_ = true;
  if (options_.on_closed) options_.on_closed();
}

}  // namespace braid
