// The whole table of a node's states: what must hold of every state and every event, and the ways
// through it that sessions take.
#include "runtime/node_states.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using enum NodeState;
using enum NodeEvent;
using enum NodeAction;
using ::testing::ElementsAre;

std::vector<NodeState> States() {
  std::vector<NodeState> states;
  for (int i = 0; i < kNumNodeStates; ++i) states.push_back(static_cast<NodeState>(i));
  return states;
}

std::vector<NodeEvent> Events() {
  std::vector<NodeEvent> events;
  for (int i = 0; i < kNumNodeEvents; ++i) events.push_back(static_cast<NodeEvent>(i));
  return events;
}

std::vector<NodeAction> ActionsOf(NodeState state, NodeEvent event) {
  const auto todo = TransitionOf(state, event).todo();
  return {todo.begin(), todo.end()};
}

bool Does(NodeState state, NodeEvent event, NodeAction action) {
  const auto todo = TransitionOf(state, event).todo();
  return std::find(todo.begin(), todo.end(), action) != todo.end();
}

// Where events lead, and all that is done on the way.
struct Walk {
  NodeState state = kServing;
  std::vector<NodeAction> actions = {};
};
Walk Follow(const std::vector<NodeEvent>& events) {
  Walk walk;
  for (NodeEvent event : events) {
    const NodeTransition& transition = TransitionOf(walk.state, event);
    walk.actions.insert(walk.actions.end(), transition.todo().begin(), transition.todo().end());
    walk.state = transition.next;
  }
  return walk;
}

bool IsServing(NodeState state) { return state == kServing || state == kFailing; }
bool IsClosing(NodeState state) {
  return state == kClosingWell || state == kClosingFailed || state == kLeaving;
}

TEST(NodeStates, EveryRowAndColumnHasAName) {
  std::set<std::string> names;
  for (NodeState state : States()) names.emplace(NameOf(state));
  for (NodeEvent event : Events()) names.emplace(NameOf(event));
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumNodeStates + kNumNodeEvents));
}

TEST(NodeStates, NothingLeadsBack) {
  const auto rank = [](NodeState state) {
    return IsServing(state) ? 0 : IsClosing(state) ? 1 : state == kAwaitingEnd ? 2 : 3;
  };
  for (NodeState state : States()) {
    for (NodeEvent event : Events()) {
      const NodeState next = TransitionOf(state, event).next;
      EXPECT_GE(rank(next), rank(state)) << NameOf(state) << ": " << NameOf(event);
      EXPECT_FALSE(state == kFailing && next == kServing) << NameOf(event);
      EXPECT_FALSE(state == kClosingFailed && next == kClosingWell) << NameOf(event);
    }
  }
}

TEST(NodeStates, AllIsClosedOnceAndOnlyOnTheWayOutOfServing) {
  for (NodeState state : States()) {
    for (NodeEvent event : Events()) {
      const NodeState next = TransitionOf(state, event).next;
      EXPECT_EQ(Does(state, event, kCloseAll), IsServing(state) && !IsServing(next))
          << NameOf(state) << ": " << NameOf(event);
    }
  }
}

TEST(NodeStates, TheOwnerIsToldExactlyWhenItIsOverAndNobodyHasLeft) {
  for (NodeState state : States()) {
    for (NodeEvent event : Events()) {
      const bool ends = state != kOver && TransitionOf(state, event).next == kOver;
      EXPECT_EQ(Does(state, event, kTellOwner), ends && state != kLeaving && event != kDestroyed)
          << NameOf(state) << ": " << NameOf(event);
    }
  }
}

TEST(NodeStates, TheFirstCauseIsTakenOnce) {
  for (NodeState state : States()) {
    for (NodeEvent event : Events()) {
      if (!Does(state, event, kTakeCause)) continue;
      const NodeState next = TransitionOf(state, event).next;
      EXPECT_TRUE(next == kClosingFailed || next == kOver) << NameOf(state);
      EXPECT_NE(state, kClosingFailed) << NameOf(event);
      EXPECT_TRUE(event == kCause || event == kMasterLost || event == kOverdue) << NameOf(event);
    }
  }
}

TEST(NodeStates, OrdersAreObeyedWhileTheNodeServesAndQuestionsUntilItIsOver) {
  for (NodeState state : States()) {
    EXPECT_EQ(Does(state, kOrder, kObey), IsServing(state)) << NameOf(state);
    EXPECT_EQ(Does(state, kQuestion, kObey), state != kOver && state != kLeaving) << NameOf(state);
    EXPECT_EQ(TransitionOf(state, kOrder).next, state);
    EXPECT_EQ(TransitionOf(state, kQuestion).next, state);
  }
}

TEST(NodeStates, FailuresAreToldToTheMasterWhileItCanAnswer) {
  for (NodeState state : States()) {
    for (NodeEvent event : {kFailure, kLinkFailure}) {
      EXPECT_EQ(Does(state, event, kTellMaster), IsServing(state)) << NameOf(state);
    }
  }
}

TEST(NodeStates, WhatCannotBeLeadsNowhere) {
  for (NodeState state : States()) {
    EXPECT_EQ(Does(state, kIdle, kCannotBe), !IsClosing(state)) << NameOf(state);
    for (NodeEvent event : Events()) {
      if (!Does(state, event, kCannotBe)) continue;
      EXPECT_EQ(TransitionOf(state, event).next, state);
      EXPECT_THAT(ActionsOf(state, event), ElementsAre(kCannotBe));
    }
  }
}

TEST(NodeStates, AnEndBeforeTheCloseIsRefused) {
  EXPECT_THAT(ActionsOf(kServing, kEnded), ElementsAre(kRefuse));
  EXPECT_THAT(ActionsOf(kFailing, kEnded), ElementsAre(kRefuse));
  EXPECT_TRUE(ActionsOf(kClosingWell, kEnded).empty());
}

TEST(NodeStates, ASessionThatEndsWell) {
  const Walk walk = Follow({kOrder, kClose, kIdle, kEnded});
  EXPECT_EQ(walk.state, kOver);
  EXPECT_THAT(walk.actions, ElementsAre(kObey, kCloseAll, kSayClosed, kTellOwner));
}

TEST(NodeStates, AFailureHereOfWhichTheMasterSaysTheCause) {
  const Walk walk = Follow({kFailure, kFailure, kCause, kCause, kMasterLost, kIdle, kEnded});
  EXPECT_EQ(walk.state, kOver);
  EXPECT_THAT(walk.actions, ElementsAre(kTellMaster, kWarn, kAwaitCause, kTellMaster, kTakeCause,
                                        kCloseAll, kSayClosed, kTellOwner));
}

TEST(NodeStates, AFailureHereOfWhichTheMasterSaysNothing) {
  const Walk walk = Follow({kLinkFailure, kOverdue, kIdle});
  EXPECT_EQ(walk.state, kOver);
  EXPECT_THAT(walk.actions, ElementsAre(kTellMaster, kAwaitInquiry, kTakeCause, kCloseAll,
                                        kSayClosed, kTellOwner));
}

TEST(NodeStates, AnotherNodeFailsWhileThisOneHasClosed) {
  const Walk walk = Follow({kClose, kIdle, kCause});
  EXPECT_EQ(walk.state, kOver);
  EXPECT_THAT(walk.actions, ElementsAre(kCloseAll, kSayClosed, kTakeCause, kTellOwner));
}

TEST(NodeStates, TheMasterIsLostWhileThisNodeCloses) {
  const Walk walk = Follow({kClose, kMasterLost, kIdle});
  EXPECT_EQ(walk.state, kOver);
  EXPECT_THAT(walk.actions, ElementsAre(kCloseAll, kTakeCause, kSayClosed, kTellOwner));
}

TEST(NodeStates, AnOwnerThatLeavesIsToldNothing) {
  EXPECT_EQ(Follow({kDestroyed, kIdle}).state, kOver);
  EXPECT_THAT(Follow({kDestroyed, kCause, kMasterLost, kIdle}).actions, ElementsAre(kCloseAll));
  EXPECT_EQ(Follow({kClose, kIdle, kDestroyed}).state, kOver);
  EXPECT_EQ(Follow({kClose, kDestroyed, kIdle, kEnded}).state, kOver);
}

}  // namespace
}  // namespace braid
