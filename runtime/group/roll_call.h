// The master's part when a call of a process group does not come further: asks every member which
// calls it is in, and finds out who makes another one, who has left, who does not come, and which
// ranks wait for each other. What was found last is there for reports, too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"
#include "runtime/control.pb.h"

namespace braid::dist {

// By rank: what each member answered.
using RollAnswers = std::map<int, control::RollAnswer>;

struct Verdict {
  // What is wrong, in the users' words; OK if nothing is but that somebody has not come yet.
  absl::Status cause;
  // Ranks seem to wait for each other, which one look cannot tell: members answer at different
  // times.
  bool needs_another_look = false;
};
// `before`: what they answered at the first look; null: this is it. `name_of` a node: "rank 1
// (10.0.0.2)".
Verdict VerdictOf(const control::RollCall& call, const RollAnswers& answers,
                  const RollAnswers* before, const std::function<std::string(int node)>& name_of);

// "barrier (train.cc:12), of group 1 of ranks 0, 1".
std::string CallOf(const std::string& text, const std::string& group_name);

// On the coordinator's thread.
class RollCalls {
 public:
  struct Options {
    std::function<void(uint16_t node, const control::ControlMessage&)> send;
    std::function<void(const absl::Status& cause)> fail;  // the session
    std::function<std::string(int node)> name_of;
    std::function<Nanoseconds()> now;
    // A call that has waited for so long is told of, with all others that wait, and again after as
    // long; 0: never.
    Nanoseconds stall_timeout = 0;
  };
  explicit RollCalls(Options options) : options_(std::move(options)) {}

  // One at a time for each group: who asks meanwhile is answered by it.
  void OnAsked(const control::RollCall& call);
  void OnAnswer(uint16_t node, const control::RollAnswer& answer);

  // What calls have just been waiting for, a sentence each; before these, the ranks that wait for
  // each other in several groups, if there are such. Bounded: what is left out is counted.
  std::vector<std::string> Waits() const;

 private:
  struct Inquiry {
    control::RollCall call;
    RollAnswers answers;
    std::optional<RollAnswers> before;  // of the first look, if this is another
  };

  // What the members of a group had answered.
  struct Look {
    control::RollCall call;
    RollAnswers answers;
    Nanoseconds at = 0;
  };

  void Send(const control::RollCall& call);
  static int NodeOf(const Look& look, int rank) {
    return static_cast<int>(look.call.members(rank));
  }
  bool IsNew(const Look& look) const;
  void Keep(uint64_t group, Inquiry inquiry);
  void TellOfStall(Nanoseconds waited);
  // "" if there is none. A program whose threads have groups of their own may have one and go on.
  std::string FindCircleOfGroups() const;

  const Options options_;
  std::map<uint64_t, Inquiry> inquiries_;  // by group
  std::map<uint64_t, Look> looks_;         // by group: the last
  std::string circle_;                     // of several groups, as found at the last look
  Nanoseconds circle_since_ = 0;
  bool is_circle_told_ = false;
  std::optional<Nanoseconds> stall_told_;  // when
};

}  // namespace braid::dist
