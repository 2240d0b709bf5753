#include "runtime/group/store_end.h"

#include "absl/strings/str_format.h"
#include "runtime/control.pb.h"

namespace braid::dist {

void StoreEnd::Ask(control::StoreRequest request, Done done) {
  if (!closed_.ok()) return done(closed_);
  request.set_number(++last_);
  open_.emplace(last_, std::move(done));
  control::ControlMessage message;
  *message.mutable_store_request() = std::move(request);
  send_(message);
}

absl::Status StoreEnd::OnAnswer(control::StoreAnswer* answer) {
  const auto open = open_.extract(answer->number());
  if (open.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the master answers request %d of the store; of the %d that were made, %d have no answer, "
        "and this is none of them",
        answer->number(), last_, open_.size()));
  }
  open.mapped()(std::move(*answer));
  return absl::OkStatus();
}

void StoreEnd::Close(const absl::Status& reason) {
  if (closed_.ok()) closed_ = reason;
  for (const auto& [number, done] : std::exchange(open_, {})) done(closed_);
}

}  // namespace braid::dist
