#include "runtime/group/stored_keys.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "runtime/control.pb.h"
#include "runtime/reports/control_status.h"

namespace braid::dist {
namespace {

using control::StoreAnswer;
using control::StoreRequest;

// In messages.
constexpr size_t kMostShownBytes = 64;
constexpr size_t kMostShownKeys = 8;

// Any bytes, as a message can have them.
std::string Shown(const std::string& bytes) {
  std::string text = "'" + absl::CHexEscape(bytes.substr(0, kMostShownBytes)) + "'";
  if (bytes.size() > kMostShownBytes) text += absl::StrFormat("... of %d bytes", bytes.size());
  return text;
}

std::string TimeText(Nanoseconds time) { return absl::FormatDuration(absl::Nanoseconds(time)); }

std::optional<int64_t> NumberIn(const std::string& value) {
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [parsed, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return number;
}

absl::Status CheckValue(const char* what, const std::string& value) {
  const auto bytes = static_cast<int64_t>(value.size());
  if (bytes <= kMostStoreValueBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the %s has %d bytes; at most %d are taken: broadcast what is larger, or divide it", what,
      bytes, kMostStoreValueBytes));
}

absl::Status CheckNumberOfKeys(const StoreRequest& request) {
  const int keys = request.keys_size();
  switch (request.kind()) {
    case StoreRequest::SET:
    case StoreRequest::GET:
    case StoreRequest::ADD:
    case StoreRequest::DELETE:
    case StoreRequest::COMPARE_SET:
      if (keys == 1) return absl::OkStatus();
      break;
    case StoreRequest::WAIT:
      return absl::OkStatus();
    case StoreRequest::NUM_KEYS:
      if (keys == 0) return absl::OkStatus();
      break;
    default:
      break;
  }
  return absl::InvalidArgumentError(absl::StrFormat("there is none of kind %d with %d keys",
                                                    static_cast<int>(request.kind()), keys));
}

}  // namespace

absl::Status CheckStoreRequest(const StoreRequest& request) {
  if (const absl::Status status = CheckNumberOfKeys(request); !status.ok()) return status;
  int64_t all = 0;
  for (const std::string& key : request.keys()) {
    const auto bytes = static_cast<int64_t>(key.size());
    if (bytes == 0) {
      return absl::InvalidArgumentError("the key is empty; give it at least one byte");
    }
    if (bytes > kMostStoreKeyBytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the key %s has %d bytes; at most %d are taken", Shown(key), bytes, kMostStoreKeyBytes));
    }
    all += bytes;
  }
  if (all > kMostStoreValueBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the %d keys have %d bytes together; at most %d are taken: wait for some after the others",
        request.keys_size(), all, kMostStoreValueBytes));
  }
  if (const absl::Status status = CheckValue("value", request.value()); !status.ok()) return status;
  const bool waits = request.kind() == StoreRequest::GET || request.kind() == StoreRequest::WAIT;
  if (waits && request.timeout() <= 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the timeout is %s; more than zero was expected", TimeText(request.timeout())));
  }
  return CheckValue("expected value", request.expected());
}

absl::Status StoredKeys::OnRequest(uint16_t node, StoreRequest* request) {
  if (is_closed_) return absl::OkStatus();
  if (absl::Status status = CheckStoreRequest(*request); !status.ok()) return status;
  const Asker asker{node, request->number()};
  if (waiting_.contains(asker)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("number %d of it comes again before it is answered", asker.number));
  }
  StoreAnswer answer;
  switch (request->kind()) {
    case StoreRequest::SET:
      Put(request->keys(0), std::move(*request->mutable_value()));
      break;
    case StoreRequest::ADD:
      Add(asker, request->keys(0), request->amount());
      return absl::OkStatus();
    case StoreRequest::DELETE:
      answer.set_count(static_cast<int64_t>(values_.erase(request->keys(0))));
      break;
    case StoreRequest::COMPARE_SET:
      CompareSet(asker, request);
      return absl::OkStatus();
    case StoreRequest::NUM_KEYS:
      answer.set_count(static_cast<int64_t>(values_.size()));
      break;
    default:
      Await(asker, *request);
      return absl::OkStatus();
  }
  Answer(asker, std::move(answer));
  return absl::OkStatus();
}

void StoredKeys::Put(const std::string& key, std::string value) {
  std::string& stored = values_[key];
  stored = std::move(value);
  const auto askers = askers_.extract(key);
  if (askers.empty()) return;
  for (const Asker& asker : askers.mapped()) {
    const auto waiting = waiting_.find(asker);
    waiting->second.missing.erase(key);
    if (!waiting->second.missing.empty()) continue;
    options_.reactor->CancelTimer(waiting->second.timer);
    StoreAnswer answer;
    if (waiting->second.wants_value) answer.set_value(stored);
    waiting_.erase(waiting);
    Answer(asker, std::move(answer));
  }
}

void StoredKeys::Add(const Asker& asker, const std::string& key, int64_t amount) {
  int64_t sum = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    const std::optional<int64_t> number = NumberIn(found->second);
    if (!number.has_value()) {
      return Refuse(asker, absl::FailedPreconditionError(absl::StrFormat(
                               "the key %s holds %s, which is no decimal number of 64 bits; Add "
                               "counts from one, or from a key that is not there",
                               Shown(key), Shown(found->second))));
    }
    sum = *number;
  }
  const int64_t before = sum;
  if (__builtin_add_overflow(before, amount, &sum)) {
    return Refuse(asker, absl::OutOfRangeError(absl::StrFormat(
                             "the key %s holds %d; with %d more it does not fit into 64 bits",
                             Shown(key), before, amount)));
  }
  Put(key, absl::StrFormat("%d", sum));
  StoreAnswer answer;
  answer.set_count(sum);
  Answer(asker, std::move(answer));
}

void StoredKeys::CompareSet(const Asker& asker, StoreRequest* request) {
  const std::string& key = request->keys(0);
  const auto found = values_.find(key);
  if (found == values_.end() && !request->expected().empty()) {
    return Refuse(asker,
                  absl::NotFoundError(absl::StrFormat(
                      "the key %s is not there and holds no %s; an empty expected value sets "
                      "a key that is not there",
                      Shown(key), Shown(request->expected()))));
  }
  StoreAnswer answer;
  if (found == values_.end() || found->second == request->expected()) {
    answer.set_value(request->value());
    Put(key, std::move(*request->mutable_value()));
  } else {
    answer.set_value(found->second);
  }
  Answer(asker, std::move(answer));
}

void StoredKeys::Await(const Asker& asker, const StoreRequest& request) {
  Waiting waiting;
  for (const std::string& key : request.keys()) {
    if (!values_.contains(key)) waiting.missing.insert(key);
  }
  waiting.wants_value = request.kind() == StoreRequest::GET;
  if (waiting.missing.empty()) {
    StoreAnswer answer;
    if (waiting.wants_value) answer.set_value(values_.at(request.keys(0)));
    return Answer(asker, std::move(answer));
  }
  for (const std::string& key : waiting.missing) askers_[key].insert(asker);
  waiting.keys = static_cast<size_t>(request.keys_size());
  waiting.timeout = request.timeout();
  waiting.timer = options_.reactor->RunAfter(std::min(waiting.timeout, kForever),
                                             [this, asker] { OnOverdue(asker); });
  waiting_.emplace(asker, std::move(waiting));
}

void StoredKeys::OnOverdue(const Asker& asker) {
  const Waiting waiting = std::move(waiting_.extract(asker).mapped());
  std::vector<std::string> names;
  for (const std::string& key : waiting.missing) {
    const auto askers = askers_.find(key);
    askers->second.erase(asker);
    if (askers->second.empty()) askers_.erase(askers);
    if (names.size() < kMostShownKeys) names.push_back(Shown(key));
  }
  if (waiting.missing.size() > names.size()) {
    names.push_back(absl::StrFormat("%d more", waiting.missing.size() - names.size()));
  }
  const std::string list = absl::StrJoin(names, ", "), time = TimeText(waiting.timeout);
  Refuse(asker,
         absl::DeadlineExceededError(
             waiting.keys == 1 ? absl::StrFormat("no rank has set the key %s within %s", list, time)
                               : absl::StrFormat("of %d keys, no rank has set %s within %s",
                                                 waiting.keys, list, time)));
}

void StoredKeys::Answer(const Asker& asker, StoreAnswer answer) {
  control::ControlMessage message;
  answer.set_number(asker.number);
  *message.mutable_store_answer() = std::move(answer);
  options_.send(asker.node, message);
}

void StoredKeys::Refuse(const Asker& asker, const absl::Status& error) {
  StoreAnswer answer;
  *answer.mutable_error() = CauseOf(error, 0);
  Answer(asker, std::move(answer));
}

void StoredKeys::Close() {
  is_closed_ = true;
  for (const auto& [asker, waiting] : waiting_) options_.reactor->CancelTimer(waiting.timer);
  waiting_.clear();
  askers_.clear();
  values_.clear();
}

}  // namespace braid::dist
