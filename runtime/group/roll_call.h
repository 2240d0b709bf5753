// The master's part when a call of a process group does not come further: asks every member which
// call it is in, and finds out who makes another one, who has left, and who does not come.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"
#include "runtime/control.pb.h"

namespace braid::dist {

// By rank: what each member answered.
using RollAnswers = std::map<int, control::RollAnswer>;

// What is wrong, in the users' words; OK if nothing is but that somebody has not come yet.
// `name_of` a node: "rank 1 (10.0.0.2)".
absl::Status VerdictOf(const control::RollCall& call, const RollAnswers& answers,
                       const std::function<std::string(int node)>& name_of);

// On the coordinator's thread.
class RollCalls {
 public:
  struct Options {
    std::function<void(uint16_t node, const control::ControlMessage&)> send;
    std::function<void(const absl::Status& cause)> fail;  // the session
    std::function<std::string(int node)> name_of;
  };
  explicit RollCalls(Options options) : options_(std::move(options)) {}

  // One at a time for each group: who asks meanwhile is answered by it.
  void OnAsked(const control::RollCall& call);
  void OnAnswer(uint16_t node, const control::RollAnswer& answer);

 private:
  struct Inquiry {
    control::RollCall call;
    RollAnswers answers;
  };

  const Options options_;
  std::map<uint64_t, Inquiry> inquiries_;  // by group
};

}  // namespace braid::dist
