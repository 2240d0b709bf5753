#include "runtime/group/store_end.h"

#include "absl/strings/str_format.h"
#include "runtime/control.pb.h"

namespace braid::dist {

void StoreEnd::Ask(control::StoreRequest request, std::string call, Done done) {
  if (!closed_.ok()) return done(closed_);
  request.set_number(++last_);
  const bool waits =
      request.kind() == control::StoreRequest::GET || request.kind() == control::StoreRequest::WAIT;
  open_.emplace(last_, Open{std::move(done), waits ? std::move(call) : ""});
  control::ControlMessage message;
  *message.mutable_store_request() = std::move(request);
  send_(message);
}

std::vector<std::string> StoreEnd::Waits() const {
  std::vector<std::string> calls;
  for (const auto& [number, open] : open_) {
    if (!open.waits.empty()) calls.push_back(open.waits);
  }
  return calls;
}

absl::Status StoreEnd::OnAnswer(control::StoreAnswer* answer) {
  const auto open = open_.extract(answer->number());
  if (open.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the master answers request %d of the store; of the %d that were made, %d have no answer, "
        "and this is none of them",
        answer->number(), last_, open_.size()));
  }
  open.mapped().done(std::move(*answer));
  return absl::OkStatus();
}

void StoreEnd::Close(const absl::Status& reason) {
  if (closed_.ok()) closed_ = reason;
  for (const auto& [number, open] : std::exchange(open_, {})) open.done(closed_);
}

}  // namespace braid::dist
