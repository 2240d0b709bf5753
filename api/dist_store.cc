#include "api/dist_store.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "api/membership.h"
#include "api/world_error.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/group/store_end.h"
#include "runtime/group/stored_keys.h"
#include "runtime/reports/control_status.h"

namespace braid::dist {
namespace {

using control::StoreAnswer;
using control::StoreRequest;

StoreRequest RequestOf(StoreRequest::Kind kind, std::string_view key) {
  StoreRequest request;
  request.set_kind(kind);
  request.add_keys(std::string(key));
  return request;
}

// What a call waits for. Shared with the node, which may answer after the waiting was given up.
struct OpenRequest {
  std::unique_ptr<Event> is_done;
  absl::StatusOr<StoreAnswer> answer;
};

}  // namespace

class Store::Impl {
 public:
  Impl(std::shared_ptr<Membership> membership, absl::Duration timeout)
      : membership_(std::move(membership)), timeout_(timeout) {}

  // `what` is asked: "Store::Get".
  absl::StatusOr<StoreAnswer> Ask(StoreRequest request, const char* what, SourceLocation where) {
    const std::string call = absl::StrFormat("%s (%s)", what, where.ToString());
    if (const absl::Status status = CheckStoreRequest(request); !status.ok()) {
      return Prefixed(call, status);
    }
    const auto open = std::make_shared<OpenRequest>();
    open->is_done = membership_->environment().MakeEvent();
    Node& node = membership_->node();
    node.reactor().Post([&node, request = std::move(request), call, open]() mutable {
      node.store().Ask(std::move(request), std::move(call),
                       [open](absl::StatusOr<StoreAnswer> answer) {
                         open->answer = std::move(answer);
                         open->is_done->Set();
                       });
    });
    // The master keeps the time, and an end of the world is an answer, too.
    BRAID_RETURN_IF_ERROR(membership_->environment().Await(*open->is_done, kForever));
    if (!open->answer.ok()) return MarkWorldError(open->answer.status());
    if (open->answer->has_error()) {
      return Prefixed(call, FailureOf(open->answer->error()));
    }
    return std::move(open->answer);
  }

  absl::StatusOr<StoreAnswer> AskInTime(StoreRequest request, absl::Duration timeout,
                                        const char* what, SourceLocation where) {
    request.set_timeout(
        absl::ToInt64Nanoseconds(timeout == absl::ZeroDuration() ? timeout_ : timeout));
    return Ask(std::move(request), what, where);
  }

 private:
  const std::shared_ptr<Membership> membership_;  // shared by all that a world has
  const absl::Duration timeout_;
};

Store::Store(std::shared_ptr<Membership> membership, absl::Duration timeout)
    : impl_(std::make_unique<Impl>(std::move(membership), timeout)) {}

Store::~Store() = default;

absl::Status Store::Set(std::string_view key, std::string_view value, SourceLocation where) {
  StoreRequest request = RequestOf(StoreRequest::SET, key);
  request.set_value(std::string(value));
  return impl_->Ask(std::move(request), "Store::Set", where).status();
}

absl::StatusOr<std::string> Store::Get(std::string_view key, absl::Duration timeout,
                                       SourceLocation where) {
  BRAID_ASSIGN_OR_RETURN(StoreAnswer answer, impl_->AskInTime(RequestOf(StoreRequest::GET, key),
                                                              timeout, "Store::Get", where));
  return std::move(*answer.mutable_value());
}

absl::Status Store::Wait(const std::vector<std::string>& keys, absl::Duration timeout,
                         SourceLocation where) {
  StoreRequest request;
  request.set_kind(StoreRequest::WAIT);
  for (const std::string& key : keys) request.add_keys(key);
  return impl_->AskInTime(std::move(request), timeout, "Store::Wait", where).status();
}

absl::StatusOr<int64_t> Store::Add(std::string_view key, int64_t amount, SourceLocation where) {
  StoreRequest request = RequestOf(StoreRequest::ADD, key);
  request.set_amount(amount);
  BRAID_ASSIGN_OR_RETURN(const StoreAnswer answer,
                         impl_->Ask(std::move(request), "Store::Add", where));
  return answer.count();
}

absl::StatusOr<std::string> Store::CompareSet(std::string_view key, std::string_view expected,
                                              std::string_view desired, SourceLocation where) {
  StoreRequest request = RequestOf(StoreRequest::COMPARE_SET, key);
  request.set_expected(std::string(expected));
  request.set_value(std::string(desired));
  BRAID_ASSIGN_OR_RETURN(StoreAnswer answer,
                         impl_->Ask(std::move(request), "Store::CompareSet", where));
  return std::move(*answer.mutable_value());
}

absl::StatusOr<bool> Store::Delete(std::string_view key, SourceLocation where) {
  BRAID_ASSIGN_OR_RETURN(const StoreAnswer answer,
                         impl_->Ask(RequestOf(StoreRequest::DELETE, key), "Store::Delete", where));
  return answer.count() > 0;
}

absl::StatusOr<int64_t> Store::NumKeys(SourceLocation where) {
  StoreRequest request;
  request.set_kind(StoreRequest::NUM_KEYS);
  BRAID_ASSIGN_OR_RETURN(const StoreAnswer answer,
                         impl_->Ask(std::move(request), "Store::NumKeys", where));
  return answer.count();
}

}  // namespace braid::dist
