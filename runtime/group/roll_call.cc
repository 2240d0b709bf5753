#include "runtime/group/roll_call.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace braid::dist {
namespace {

// Ranks in the order of the list are in the call with these answers.
absl::Status FindDifference(const control::RollCall& call, const RollAnswers& answers,
                            const std::function<std::string(int)>& name_of) {
  const auto name = [&](int rank) { return name_of(static_cast<int>(call.members(rank))); };
  for (auto first = answers.begin(); first != answers.end(); ++first) {
    if (!first->second.has_call()) continue;
    const control::GroupCall& a = first->second.call();
    for (auto other = std::next(first); other != answers.end(); ++other) {
      if (!other->second.has_call()) continue;
      const control::GroupCall& b = other->second.call();
      if (a.signature() != b.signature()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: call %d is not the same on all ranks: %s is in %s, and %s in %s; every rank makes "
            "the same calls in the same order, with the same type, operation, counts and root",
            call.group_name(), call.number(), name(first->first), a.text(), name(other->first),
            b.text()));
      }
      for (const bool is_back : {false, true}) {
        const auto& [from, to] = is_back ? std::pair(other, first) : std::pair(first, other);
        const control::GroupCall& sender = from->second.call();
        const control::GroupCall& receiver = to->second.call();
        if (to->first >= sender.sends_size() || from->first >= receiver.receives_size()) continue;
        const int64_t sent = sender.sends(to->first), expected = receiver.receives(from->first);
        if (sent == expected) continue;
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: call %d: %s sends %s %d elements in %s, which expects %d in %s; what one sends "
            "must be what the other receives",
            call.group_name(), call.number(), name(from->first), name(to->first), sent,
            sender.text(), expected, receiver.text()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerdictOf(const control::RollCall& call, const RollAnswers& answers,
                       const std::function<std::string(int node)>& name_of) {
  if (absl::Status different = FindDifference(call, answers, name_of); !different.ok()) {
    return different;
  }
  std::string waiting;  // the asker's call
  std::vector<std::string> missing;
  for (const auto& [rank, answer] : answers) {
    if (call.members(rank) == call.asker()) waiting = answer.call().text();
  }
  for (const auto& [rank, answer] : answers) {
    if (answer.has_call()) continue;
    const std::string last = answer.has_last()
                                 ? absl::StrFormat("its last call here was call %d, %s",
                                                   answer.last().number(), answer.last().text())
                                 : "it has made no call here";
    const std::string name = name_of(static_cast<int>(call.members(rank)));
    if (answer.has_ended()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: %s has ended its part, and %s waits for it in call %d, %s; %s", call.group_name(),
          name, name_of(static_cast<int>(call.asker())), call.number(), waiting, last));
    }
    missing.push_back(absl::StrFormat("%s (%s)", name, last));
  }
  if (!call.evidence().empty()) {
    return absl::InternalError(
        absl::StrFormat("%s, in call %d, %s", call.evidence(), call.number(), waiting));
  }
  if (call.overdue() == 0) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrFormat(
      "%s: call %d, %s, of %s was not done within %.1f s: %s", call.group_name(), call.number(),
      waiting, name_of(static_cast<int>(call.asker())), Seconds(call.overdue()),
      missing.empty() ? "all ranks are in it; give it a longer timeout if it needs one"
                      : absl::StrFormat("waited for %s", absl::StrJoin(missing, ", "))));
}

void RollCalls::OnAsked(const control::RollCall& call) {
  const auto [found, is_new] = inquiries_.try_emplace(call.group());
  Inquiry& inquiry = found->second;
  if (!is_new) return;  // who still waits afterwards asks again
  inquiry.call = call;
  control::ControlMessage message;
  *message.mutable_roll_call() = call;
  for (const uint32_t node : call.members()) {
    options_.send(static_cast<uint16_t>(node), message);
  }
}

void RollCalls::OnAnswer(uint16_t node, const control::RollAnswer& answer) {
  const auto found = inquiries_.find(answer.group());
  if (found == inquiries_.end()) return;
  Inquiry& inquiry = found->second;
  for (int rank = 0; rank < inquiry.call.members_size(); ++rank) {
    if (inquiry.call.members(rank) == node) inquiry.answers[rank] = answer;
  }
  if (static_cast<int>(inquiry.answers.size()) < inquiry.call.members_size()) return;
  const auto ended = inquiries_.extract(found);
  const absl::Status verdict =
      VerdictOf(ended.mapped().call, ended.mapped().answers, options_.name_of);
  if (!verdict.ok()) options_.fail(verdict);
}

}  // namespace braid::dist
