#include "runtime/node_states.h"

#include <algorithm>
#include <initializer_list>

namespace braid {
namespace {

using enum NodeState;
using enum NodeEvent;
using enum NodeAction;

constexpr NodeTransition To(NodeState next, std::initializer_list<NodeAction> actions = {}) {
  NodeTransition transition;
  std::copy(actions.begin(), actions.end(), transition.actions.begin());
  transition.num_actions = static_cast<uint8_t>(actions.size());
  transition.next = next;
  return transition;
}

// A row a state, with the events in the order of NodeEvent. A row that repeats its own state
// without an action says that what happens makes no difference any more.
constexpr NodeTransition kTable[kNumNodeStates][kNumNodeEvents] = {
    // kServing
    {
        /* kOrder */ To(kServing, {kObey}),
        /* kQuestion */ To(kServing, {kObey}),
        /* kFailure */ To(kFailing, {kTellMaster, kWarn, kAwaitCause}),
        /* kLinkFailure */ To(kFailing, {kTellMaster, kAwaitInquiry}),
        /* kCause */ To(kClosingFailed, {kTakeCause, kCloseAll}),
        /* kClose */ To(kClosingWell, {kCloseAll}),
        /* kMasterLost */ To(kClosingFailed, {kTakeCause, kCloseAll}),
        /* kOverdue */ To(kServing, {kCannotBe}),
        /* kIdle */ To(kServing, {kCannotBe}),
        /* kEnded */ To(kServing, {kRefuse}),
        /* kDestroyed */ To(kLeaving, {kCloseAll}),
    },
    // kFailing: the master goes on until the failure reaches it.
    {
        /* kOrder */ To(kFailing, {kObey}),
        /* kQuestion */ To(kFailing, {kObey}),
        /* kFailure */ To(kFailing, {kTellMaster}),
        /* kLinkFailure */ To(kFailing, {kTellMaster}),
        /* kCause */ To(kClosingFailed, {kTakeCause, kCloseAll}),
        /* kClose */ To(kClosingWell, {kCloseAll}),
        /* kMasterLost */ To(kClosingFailed, {kTakeCause, kCloseAll}),
        /* kOverdue */ To(kClosingFailed, {kTakeCause, kCloseAll}),
        /* kIdle */ To(kFailing, {kCannotBe}),
        /* kEnded */ To(kFailing, {kRefuse}),
        /* kDestroyed */ To(kLeaving, {kCloseAll}),
    },
    // kClosingWell: acts and links end in the middle of what they do, which is no failure.
    {
        /* kOrder */ To(kClosingWell),
        /* kQuestion */ To(kClosingWell, {kObey}),
        /* kFailure */ To(kClosingWell),
        /* kLinkFailure */ To(kClosingWell),
        /* kCause */ To(kClosingFailed, {kTakeCause}),
        /* kClose */ To(kClosingWell),
        /* kMasterLost */ To(kClosingFailed, {kTakeCause}),
        /* kOverdue */ To(kClosingWell),
        /* kIdle */ To(kAwaitingEnd, {kSayClosed}),
        /* kEnded */ To(kClosingWell),
        /* kDestroyed */ To(kLeaving),
    },
    // kClosingFailed
    {
        /* kOrder */ To(kClosingFailed),
        /* kQuestion */ To(kClosingFailed, {kObey}),
        /* kFailure */ To(kClosingFailed),
        /* kLinkFailure */ To(kClosingFailed),
        /* kCause */ To(kClosingFailed),
        /* kClose */ To(kClosingFailed),
        /* kMasterLost */ To(kClosingFailed),
        /* kOverdue */ To(kClosingFailed),
        /* kIdle */ To(kOver, {kSayClosed, kTellOwner}),
        /* kEnded */ To(kClosingFailed),
        /* kDestroyed */ To(kLeaving),
    },
    // kLeaving
    {
        /* kOrder */ To(kLeaving),
        /* kQuestion */ To(kLeaving),
        /* kFailure */ To(kLeaving),
        /* kLinkFailure */ To(kLeaving),
        /* kCause */ To(kLeaving),
        /* kClose */ To(kLeaving),
        /* kMasterLost */ To(kLeaving),
        /* kOverdue */ To(kLeaving),
        /* kIdle */ To(kOver),
        /* kEnded */ To(kLeaving),
        /* kDestroyed */ To(kLeaving),
    },
    // kAwaitingEnd
    {
        /* kOrder */ To(kAwaitingEnd),
        /* kQuestion */ To(kAwaitingEnd, {kObey}),
        /* kFailure */ To(kAwaitingEnd),
        /* kLinkFailure */ To(kAwaitingEnd),
        /* kCause */ To(kOver, {kTakeCause, kTellOwner}),
        /* kClose */ To(kAwaitingEnd),
        /* kMasterLost */ To(kOver, {kTakeCause, kTellOwner}),
        /* kOverdue */ To(kAwaitingEnd),
        /* kIdle */ To(kAwaitingEnd, {kCannotBe}),
        /* kEnded */ To(kOver, {kTellOwner}),
        /* kDestroyed */ To(kOver),
    },
    // kOver
    {
        /* kOrder */ To(kOver),
        /* kQuestion */ To(kOver),
        /* kFailure */ To(kOver),
        /* kLinkFailure */ To(kOver),
        /* kCause */ To(kOver),
        /* kClose */ To(kOver),
        /* kMasterLost */ To(kOver),
        /* kOverdue */ To(kOver),
        /* kIdle */ To(kOver, {kCannotBe}),
        /* kEnded */ To(kOver),
        /* kDestroyed */ To(kOver),
    },
};

}  // namespace

const NodeTransition& TransitionOf(NodeState state, NodeEvent event) {
  return kTable[static_cast<int>(state)][static_cast<int>(event)];
}

std::string_view NameOf(NodeState state) {
  constexpr std::string_view kNames[kNumNodeStates] = {
      "serving", "failing",          "closing well", "closing, failed",
      "leaving", "awaiting the end", "over"};
  return kNames[static_cast<int>(state)];
}

std::string_view NameOf(NodeEvent event) {
  constexpr std::string_view kNames[kNumNodeEvents] = {
      "an order",  "a question", "a failure",         "a broken link",
      "the cause", "Close",      "the master's loss", "an overdue cause",
      "idleness",  "Ended",      "the owner's leave"};
  return kNames[static_cast<int>(event)];
}

}  // namespace braid
