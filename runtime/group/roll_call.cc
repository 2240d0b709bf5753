#include "runtime/group/roll_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "runtime/base/reactor.h"

namespace braid::dist {
namespace {

// What was answered so long ago says nothing of now: who waits has the master ask more often.
constexpr Nanoseconds kLookLasts = kSecond;
// A circle of several groups may be of looks at different moments; one that stays is told.
constexpr Nanoseconds kCircleStays = 600 * kMillisecond;
// Of what reports say: calls that wait, and ranks that one of them waits for.
constexpr size_t kMostWaits = 20;
constexpr size_t kMostMissing = 8;

// What the members answered, and how they are called.
class Members {
 public:
  Members(const control::RollCall& call, const RollAnswers& answers,
          const std::function<std::string(int)>& name_of)
      : call_(call), answers_(answers), name_of_(name_of) {}

  const control::RollCall& call() const { return call_; }
  const RollAnswers& answers() const { return answers_; }
  std::string Name(int rank) const { return name_of_(static_cast<int>(call_.members(rank))); }
  std::string AskerName() const { return name_of_(static_cast<int>(call_.asker())); }
  bool IsAsker(int rank) const { return call_.members(rank) == call_.asker(); }
  // "its last call here was call 3, barrier (train.cc:12)", without its transfers.
  std::string LastOf(int rank) const {
    const control::RollAnswer& answer = answers_.at(rank);
    if (answer.has_last()) {
      return absl::StrFormat("its last call here was call %d, %s", answer.last().number(),
                             answer.last().text());
    }
    return answer.calls() > 0 ? "it has made no call of all ranks here"
                              : "it has made no call here";
  }
  // Where a rank is that is waited for: "it is in barrier (train.cc:12), of group 1 of ranks 0, 1".
  std::string PlaceOf(int rank) const {
    const control::RollAnswer& answer = answers_.at(rank);
    if (answer.has_ended()) return "it has ended its part";
    if (!answer.blocked_in().empty()) return "it is in " + answer.blocked_in();
    if (answer.elsewhere_size() == 0) return LastOf(rank);
    return "it is in " + absl::StrJoin(answer.elsewhere(), " and in ");
  }

 private:
  const control::RollCall& call_;
  const RollAnswers& answers_;
  const std::function<std::string(int)>& name_of_;
};

// Sends and receives, by pairs of ranks.
class TransferCheck {
 public:
  explicit TransferCheck(const Members& members) : members_(members) {}

  absl::Status FindDifference() const {
    for (const auto& [rank, answer] : members_.answers()) {
      for (const control::GroupTransfer& send : answer.transfers()) {
        if (!send.is_send() || send.number() < 0) continue;
        const auto other = members_.answers().find(static_cast<int>(send.peer()));
        if (other == members_.answers().end()) continue;
        for (const control::GroupTransfer& receive : other->second.transfers()) {
          if (receive.is_send() || static_cast<int>(receive.peer()) != rank ||
              receive.number() != send.number() || receive.signature() == send.signature()) {
            continue;
          }
          return absl::InvalidArgumentError(absl::StrFormat(
              "%s: %s is in %s, and %s in %s; what one sends must be what the other receives",
              members_.call().group_name(), members_.Name(rank), send.text(),
              members_.Name(other->first), receive.text()));
        }
      }
    }
    return absl::OkStatus();
  }

  // A transfer that waits for a call of a rank that makes none any more, and made none at the look
  // before, if there was one.
  absl::Status FindEnded(const RollAnswers* before) const {
    for (const auto& [rank, answer] : members_.answers()) {
      for (const control::GroupTransfer& transfer : answer.transfers()) {
        const auto peer = static_cast<int>(transfer.peer());
        if (!Waits(rank, transfer) || !members_.answers().at(peer).has_ended()) continue;
        if (before != nullptr && !before->at(peer).has_ended()) continue;
        return absl::FailedPreconditionError(
            absl::StrFormat("%s: %s has ended its part, and %s waits for it in %s; %s",
                            members_.call().group_name(), members_.Name(peer), members_.Name(rank),
                            transfer.text(), members_.LastOf(peer)));
      }
    }
    return absl::OkStatus();
  }

  // Whether the rank's transfer waits for a call that its peer has not made. False if that is not
  // known.
  bool Waits(int rank, const control::GroupTransfer& transfer) const {
    const auto peer = static_cast<int>(transfer.peer());
    const auto found = members_.answers().find(peer);
    if (found == members_.answers().end() || found->second.is_cut()) return false;
    const control::RollAnswer& other = found->second;
    const auto is_counterpart = [&](const control::GroupTransfer& its) {
      return its.is_send() != transfer.is_send() && static_cast<int>(its.peer()) == rank &&
             its.tag() == transfer.tag();
    };
    // A receive is offered to its sender, which then knows whether it has been matched: what the
    // sender has written may still be on its way.
    if (!transfer.is_send() && peer != rank) {
      return std::ranges::any_of(other.offers(), [&](const control::RollAnswer::Offer& offer) {
        return static_cast<int>(offer.peer()) == rank && offer.number() == transfer.number();
      });
    }
    const bool is_matched = transfer.is_send() && transfer.number() >= 0;
    return !is_matched && std::ranges::none_of(other.transfers(), is_counterpart);
  }

 private:
  const Members& members_;
};

// Whether the transfer, or the wait for a signal, that does not come further is the rank's to end:
// of the others, those that have not raised the signal, or all if each of them has.
bool IsAwaited(const Members& members, int rank) {
  const control::RollCall& call = members.call();
  if (call.raised_size() == 0) return rank == static_cast<int>(call.transfer_peer());
  const auto has_raised = [&](int other) {
    return other < call.raised_size() && call.raised(other) > 0;
  };
  const bool all_have = std::ranges::all_of(members.answers(), [&](const auto& member) {
    return members.IsAsker(member.first) || has_raised(member.first);
  });
  return !members.IsAsker(rank) && (all_have || !has_raised(rank));
}

bool IsTransfer(const control::RollCall& call) { return !call.transfer().empty(); }

// What waits: "call 3, barrier (train.cc:12)".
std::string WaitingOf(const Members& members) {
  const control::RollCall& call = members.call();
  if (IsTransfer(call)) return call.transfer();
  for (const auto& [rank, answer] : members.answers()) {
    if (members.IsAsker(rank)) {
      return absl::StrFormat("call %d, %s", call.number(), answer.call().text());
    }
  }
  return "";
}

bool IsMissing(const Members& members, int rank) {
  return IsTransfer(members.call()) ? IsAwaited(members, rank)
                                    : !members.answers().at(rank).has_call();
}

// "rank 1 (it is in ...), rank 2 (...), and 3 more"; "" if all ranks are in it.
std::string MissingOf(const Members& members, size_t most) {
  std::vector<std::string> missing;
  size_t more = 0;
  for (const auto& [rank, answer] : members.answers()) {
    if (!IsMissing(members, rank)) continue;
    if (missing.size() == most) {
      ++more;
      continue;
    }
    missing.push_back(absl::StrFormat("%s (%s)", members.Name(rank), members.PlaceOf(rank)));
  }
  if (more > 0) missing.push_back(absl::StrFormat("and %d more", more));
  return absl::StrJoin(missing, ", ");
}

// Who has ended without the collective that is waited for, and who has not come in time.
absl::Status FindLate(const Members& members) {
  const control::RollCall& call = members.call();
  const std::string waiting = WaitingOf(members);
  for (const auto& [rank, answer] : members.answers()) {
    if (IsTransfer(call) || answer.has_call() || !answer.has_ended()) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: %s has ended its part, and %s waits for it in %s; %s", call.group_name(),
        members.Name(rank), members.AskerName(), waiting, members.LastOf(rank)));
  }
  if (!call.evidence().empty()) {
    return absl::InternalError(absl::StrFormat("%s, in %s", call.evidence(), waiting));
  }
  if (call.overdue() == 0) return absl::OkStatus();
  const std::string missing = MissingOf(members, members.answers().size());
  return absl::DeadlineExceededError(absl::StrFormat(
      "%s: %s, of %s was not done within %.1f s: %s", call.group_name(), waiting,
      members.AskerName(), Seconds(call.overdue()),
      missing.empty() ? "all ranks are in it; give it a longer timeout if it needs one"
                      : "waited for " + missing));
}

// "the world: call 3, barrier (train.cc:12), of rank 0 has waited 1.4 s for rank 1 (...)".
std::string WaitOf(const Members& members, Nanoseconds waited) {
  const std::string missing = MissingOf(members, kMostMissing);
  return absl::StrFormat("%s: %s, of %s has waited %.1f s%s", members.call().group_name(),
                         WaitingOf(members), members.AskerName(), Seconds(waited),
                         missing.empty() ? "; all ranks are in it" : " for " + missing);
}

// The ranks whose next call of this group the rank's program waits for, all of them, so that it
// makes none itself.
std::vector<int> BlockedOn(const Members& members, const TransferCheck& transfers, int rank) {
  std::vector<int> others;
  const control::RollAnswer& answer = members.answers().at(rank);
  if (answer.blocked_number() >= 0) {
    for (const auto& [other, its] : members.answers()) {
      if (its.collectives() <= answer.blocked_number()) others.push_back(other);
    }
  }
  for (const control::GroupTransfer& transfer : answer.transfers()) {
    if (transfer.is_blocking() && transfers.Waits(rank, transfer)) {
      others.push_back(static_cast<int>(transfer.peer()));
    }
  }
  return others;
}

// A rank that waits for a signal waits for any of the others. False: one of them may raise it yet,
// or has.
bool IsOutOfSignals(const RollAnswers& answers, int rank, absl::FunctionRef<bool(int)> is_stuck) {
  return std::ranges::all_of(answers, [&](const auto& member) {
    const auto& [other, answer] = member;
    const bool makes_none = other == rank || answer.has_ended() || is_stuck(other);
    const auto on_the_way = static_cast<uint32_t>(rank);
    return makes_none && std::ranges::count(answer.signalling(), on_the_way) == 0;
  });
}

// Leaves who waits for others that are left. Who waits only for ranks that are free, or will be, is
// free in the end.
template <typename Waiting, typename IsFree>
void LeaveStuck(std::map<int, Waiting>& blocked_on, const IsFree& is_free) {
  while (std::erase_if(blocked_on, is_free) > 0) {
  }
}

// Each waits for the next, and the last one for the first. `blocked_on` is of those that are stuck;
// `next_of` tells one that a stuck one waits for.
template <typename NextOf>
std::vector<int> FollowCircle(int first, const NextOf& next_of) {
  std::vector<int> path = {first};
  while (true) {
    const int next = next_of(path.back());
    const auto seen = std::ranges::find(path, next);
    if (seen != path.end()) return {seen, path.end()};
    path.push_back(next);
  }
}

// Ranks each of which is blocked in a call that needs the next one's, and the last one the first's;
// or all ranks that have not ended, if one of them waits for a signal that none of them can raise.
std::vector<int> FindCircle(const Members& members, const TransferCheck& transfers) {
  std::map<int, std::vector<int>> blocked_on;
  for (const auto& [rank, answer] : members.answers()) {
    if (answer.blocked_in().empty()) continue;
    std::vector<int> others = BlockedOn(members, transfers, rank);
    if (!others.empty() || answer.awaits_signal()) blocked_on.emplace(rank, std::move(others));
  }
  const auto is_stuck = [&](int rank) { return blocked_on.contains(rank); };
  const auto awaits_signal = [&](int rank) { return members.answers().at(rank).awaits_signal(); };
  LeaveStuck(blocked_on, [&](const auto& waiting) {
    const auto& [rank, others] = waiting;
    return awaits_signal(rank) ? !IsOutOfSignals(members.answers(), rank, is_stuck)
                               : std::ranges::none_of(others, is_stuck);
  });
  if (blocked_on.empty()) return {};
  if (std::ranges::any_of(blocked_on, [&](const auto& of) { return awaits_signal(of.first); })) {
    std::vector<int> all;
    for (const auto& [rank, others] : blocked_on) all.push_back(rank);
    return all;
  }
  return FollowCircle(blocked_on.begin()->first, [&](int rank) {
    return *std::ranges::find_if(blocked_on.at(rank), is_stuck);
  });
}

// Of ranks that have all ended or are blocked.
absl::Status NoSignalStatus(const Members& members) {
  std::vector<std::string> ranks;
  for (const auto& [rank, answer] : members.answers()) {
    ranks.push_back(absl::StrFormat(
        "%s %s", members.Name(rank),
        answer.has_ended() ? "has ended its part" : "is in " + answer.blocked_in()));
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s: nobody is left who could raise a signal that is waited for: %s; no call of these is "
      "ever done",
      members.call().group_name(), absl::StrJoin(ranks, ", ")));
}

absl::Status CircleStatus(const Members& members, const std::vector<int>& circle) {
  const auto awaits_signal = [&](int rank) { return members.answers().at(rank).awaits_signal(); };
  if (std::ranges::any_of(circle, awaits_signal)) return NoSignalStatus(members);
  std::vector<std::string> waits;
  for (size_t i = 0; i < circle.size(); ++i) {
    waits.push_back(absl::StrFormat("%s is in %s and waits for a call of %s",
                                    members.Name(circle[i]),
                                    members.answers().at(circle[i]).blocked_in(),
                                    members.Name(circle[(i + 1) % circle.size()])));
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: %s: %s; no call of these is ever done", members.call().group_name(),
                      circle.size() == 1 ? "a rank waits for itself" : "ranks wait for each other",
                      absl::StrJoin(waits, ", ")));
}

// "; part 3 is A on rank 0 and B on rank 1": the first in which two batches differ; "" if there is
// none, or they are no batches.
std::string DifferentPart(const control::GroupCall& a, const std::string& a_name,
                          const control::GroupCall& b, const std::string& b_name) {
  if (a.num_parts() == 0 || b.num_parts() == 0) return "";
  const auto text = [](const control::GroupCall& call, int part) {
    return part < call.parts_size() ? call.parts(part).text() : "missing";
  };
  for (int i = 0; i < std::max(a.parts_size(), b.parts_size()); ++i) {
    if (i < std::min(a.parts_size(), b.parts_size()) &&
        a.parts(i).signature() == b.parts(i).signature()) {
      continue;
    }
    return absl::StrFormat("; part %d is %s on %s, and %s on %s", i + 1, text(a, i), a_name,
                           text(b, i), b_name);
  }
  if (a.parts_size() == a.num_parts() && b.parts_size() == b.num_parts()) return "";
  return absl::StrFormat("; they differ behind part %d", a.parts_size());
}

// Ranks in the order of the list are in the call with these answers.
absl::Status FindDifference(const Members& members) {
  const control::RollCall& call = members.call();
  const RollAnswers& answers = members.answers();
  const auto name = [&](int rank) { return members.Name(rank); };
  for (auto first = answers.begin(); first != answers.end(); ++first) {
    if (!first->second.has_call()) continue;
    const control::GroupCall& a = first->second.call();
    for (auto other = std::next(first); other != answers.end(); ++other) {
      if (!other->second.has_call()) continue;
      const control::GroupCall& b = other->second.call();
      if (a.signature() != b.signature()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: call %d is not the same on all ranks: %s is in %s, and %s in %s%s; every rank "
            "makes the same calls in the same order, with the same type, operation, counts and "
            "root",
            call.group_name(), call.number(), name(first->first), a.text(), name(other->first),
            b.text(), DifferentPart(a, name(first->first), b, name(other->first))));
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

Verdict VerdictOf(const control::RollCall& call, const RollAnswers& answers,
                  const RollAnswers* before, const std::function<std::string(int node)>& name_of) {
  const Members members(call, answers, name_of);
  if (absl::Status different = FindDifference(members); !different.ok()) {
    return {different};
  }
  const TransferCheck transfers(members);
  if (absl::Status different = transfers.FindDifference(); !different.ok()) return {different};
  if (absl::Status ended = transfers.FindEnded(before); !ended.ok()) {
    // What one rank sent may have come after it had answered and before the other one had.
    if (before == nullptr) return {absl::OkStatus(), true};
    return {ended};
  }
  if (absl::Status late = FindLate(members); !late.ok()) return {late};
  const std::vector<int> circle = FindCircle(members, transfers);
  if (circle.empty()) return {};
  if (before == nullptr) return {absl::OkStatus(), true};
  // A rank that has made no call since the first look was in the same one all the while, so there
  // was a moment at which all of the circle were.
  for (const int rank : circle) {
    const auto first = before->find(rank);
    if (first == before->end() || first->second.blocked_in().empty() ||
        first->second.calls() != answers.at(rank).calls()) {
      return {};
    }
    // Those that had ended make no call either; a signal may have been on its way to this rank.
    const auto had_made_all = [&](int other) { return std::ranges::count(circle, other) > 0; };
    if (answers.at(rank).awaits_signal() && !IsOutOfSignals(*before, rank, had_made_all)) return {};
  }
  return {CircleStatus(members, circle)};
}

std::string CallOf(const std::string& text, const std::string& group_name) {
  return absl::StrCat(text, ", of ", group_name);
}

void RollCalls::Send(const control::RollCall& call) {
  control::ControlMessage message;
  *message.mutable_roll_call() = call;
  for (const uint32_t node : call.members()) {
    options_.send(static_cast<uint16_t>(node), message);
  }
}

void RollCalls::OnAsked(const control::RollCall& call) {
  const auto [found, is_new] = inquiries_.try_emplace(call.group());
  if (!is_new) return;  // who still waits afterwards asks again
  found->second.call = call;
  Send(call);
}

void RollCalls::OnAnswer(uint16_t node, const control::RollAnswer& answer) {
  const auto found = inquiries_.find(answer.group());
  if (found == inquiries_.end()) return;
  Inquiry& inquiry = found->second;
  for (int rank = 0; rank < inquiry.call.members_size(); ++rank) {
    if (inquiry.call.members(rank) == node) inquiry.answers[rank] = answer;
  }
  if (static_cast<int>(inquiry.answers.size()) < inquiry.call.members_size()) return;
  const Verdict verdict =
      VerdictOf(inquiry.call, inquiry.answers,
                inquiry.before.has_value() ? &*inquiry.before : nullptr, options_.name_of);
  if (verdict.needs_another_look) {
    inquiry.before = std::exchange(inquiry.answers, {});
    return Send(inquiry.call);
  }
  const auto done = inquiries_.extract(found);
  Keep(done.key(), std::move(done.mapped()));
  if (verdict.cause.ok()) return;
  const bool is_late = absl::IsDeadlineExceeded(verdict.cause) && !circle_.empty();
  options_.fail(
      is_late ? absl::DeadlineExceededError(absl::StrCat(verdict.cause.message(), "; ", circle_))
              : verdict.cause);
}

bool RollCalls::IsNew(const Look& look) const { return options_.now() - look.at <= kLookLasts; }

void RollCalls::Keep(uint64_t group, Inquiry inquiry) {
  const Nanoseconds now = options_.now();
  std::erase_if(looks_, [&](const auto& look) { return !IsNew(look.second); });
  looks_.insert_or_assign(group, Look{std::move(inquiry.call), std::move(inquiry.answers), now});
  TellOfStall(static_cast<Nanoseconds>(looks_.at(group).call.waited()));
  const std::string circle = FindCircleOfGroups();
  if (circle != circle_) {
    circle_ = circle;
    circle_since_ = now;
    is_circle_told_ = false;
  }
  if (circle_.empty() || is_circle_told_ || now - circle_since_ < kCircleStays) return;
  is_circle_told_ = true;
  LOG(WARNING) << circle_;
}

void RollCalls::TellOfStall(Nanoseconds waited) {
  const Nanoseconds now = options_.now();
  if (options_.stall_timeout == 0 || waited < options_.stall_timeout) return;
  if (stall_told_.has_value() && now - *stall_told_ < options_.stall_timeout) return;
  stall_told_ = now;
  LOG(WARNING) << absl::StrFormat(
      "a call of a process group has waited for %.0f s (--stall_timeout): %s", Seconds(waited),
      absl::StrJoin(Waits(), "\n  "));
}

std::vector<std::string> RollCalls::Waits() const {
  std::vector<std::string> waits;
  if (const std::string circle = FindCircleOfGroups(); !circle.empty()) waits.push_back(circle);
  size_t calls = 0;
  for (const auto& [group, look] : looks_) {
    if (!IsNew(look) || look.call.waited() == 0) continue;  // 0: of a rank that leaves
    if (++calls > kMostWaits) continue;
    const Members members(look.call, look.answers, options_.name_of);
    waits.push_back(WaitOf(members, look.call.waited() + options_.now() - look.at));
  }
  if (calls > kMostWaits) {
    waits.push_back(absl::StrFormat("and %d more calls wait", calls - kMostWaits));
  }
  return waits;
}

std::string RollCalls::FindCircleOfGroups() const {
  if (looks_.size() < 2) return "";
  struct Wait {
    int node;           // whose call is waited for
    const Look* where;  // in a call of this group
    int rank;           // there, of who waits
  };
  // What each node answered last, to whichever group.
  struct Answered {
    const Look* to;
    const control::RollAnswer* answer;
  };
  std::map<int, Answered> last;
  for (const auto& [group, look] : looks_) {
    for (const auto& [rank, answer] : look.answers) {
      Answered& newest =
          last.try_emplace(NodeOf(look, rank), Answered{&look, &answer}).first->second;
      if (look.at > newest.to->at) newest = {&look, &answer};
    }
  }
  const auto call_of = [](const Look& look, int rank) {
    return CallOf(look.answers.at(rank).blocked_in(), look.call.group_name());
  };
  // Whether a rank is in a call of the group, as its node has answered last.
  const auto is_in_call = [&](const Look& look, int rank) {
    if (look.answers.at(rank).blocked_in().empty()) return false;
    const Answered& newest = last.at(NodeOf(look, rank));
    return newest.to == &look ||
           std::ranges::count(newest.answer->elsewhere(), call_of(look, rank)) > 0;
  };
  std::map<int, std::vector<Wait>> blocked_on;  // by node
  for (const auto& [group, look] : looks_) {
    if (!IsNew(look)) continue;
    const Members members(look.call, look.answers, options_.name_of);
    const TransferCheck transfers(members);
    for (const auto& [rank, answer] : look.answers) {
      if (!is_in_call(look, rank)) continue;
      for (const int other : BlockedOn(members, transfers, rank)) {
        blocked_on[NodeOf(look, rank)].push_back({NodeOf(look, other), &look, rank});
      }
    }
  }
  const auto is_stuck = [&](const Wait& wait) { return blocked_on.contains(wait.node); };
  LeaveStuck(blocked_on,
             [&](const auto& waiting) { return std::ranges::none_of(waiting.second, is_stuck); });
  if (blocked_on.empty()) return "";
  const auto wait_of = [&](int node) -> const Wait& {
    return *std::ranges::find_if(blocked_on.at(node), is_stuck);
  };
  const std::vector<int> circle =
      FollowCircle(blocked_on.begin()->first, [&](int node) { return wait_of(node).node; });
  const Look* const first = wait_of(circle.front()).where;
  // That of one group is an error (VerdictOf).
  if (std::ranges::all_of(circle, [&](int node) { return wait_of(node).where == first; })) {
    return "";
  }
  std::vector<std::string> waits;
  for (const int node : circle) {
    const Wait& wait = wait_of(node);
    waits.push_back(absl::StrFormat("%s is in %s, and waits for a call of %s",
                                    options_.name_of(node), call_of(*wait.where, wait.rank),
                                    options_.name_of(wait.node)));
  }
  return absl::StrFormat(
      "ranks wait for each other in several groups: %s; none of these is ever done, unless other "
      "threads of these ranks make the calls",
      absl::StrJoin(waits, "; "));
}

}  // namespace braid::dist
