// What a node's part of a session does next, as a table: for each state and each thing that can
// happen, the actions and the state that follows. It decides that a session ends once, with its
// first cause, on every node; ControlAgent carries it out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace braid {

enum class NodeState : uint8_t {
  kServing,        // does what the master says
  kFailing,        // something failed here: the master was told, and says what the first cause is
  kClosingWell,    // jobs and links end, without a cause so far
  kClosingFailed,  // the same, with a cause: no later one counts
  kLeaving,        // the same, and nobody is left to be told
  kAwaitingEnd,    // nothing runs here any more, without a cause so far; other nodes may still fail
  kOver,
};
constexpr int kNumNodeStates = 7;

enum class NodeEvent : uint8_t {
  kOrder,        // the master says something that a node does while it serves
  kQuestion,     // the master asks how the node is
  kFailure,      // something failed here
  kLinkFailure,  // a link broke, which may be the first sign of an end that others know more of
  kCause,        // the master says what the first cause is
  kClose,        // the master closes the session, without a cause
  kMasterLost,   // the master does not say anything any more
  kOverdue,      // it has not said in time what the first cause is
  kIdle,         // jobs and links have ended
  kEnded,        // the master says that they have on every node
  kDestroyed,    // the node's owner gives it up
};
constexpr int kNumNodeEvents = 11;

enum class NodeAction : uint8_t {
  kObey,          // do what the master says
  kRefuse,        // fail here: the master may not say this now
  kTellMaster,    // of the failure
  kWarn,          // this process, of the cause as it is known here
  kAwaitCause,    // for a short while, then kOverdue
  kAwaitInquiry,  // the same for as long as the master needs to ask all nodes
  kTakeCause,     // it is the session's, also for this process
  kCloseAll,      // jobs and links, then kIdle
  kSayClosed,     // to the master
  kTellOwner,     // that it is over, with the cause
  kCannotBe,      // only a mistake of this program's
};

struct NodeTransition {
  std::array<NodeAction, 3> actions{};  // in this order
  uint8_t num_actions = 0;
  NodeState next = NodeState::kOver;

  std::span<const NodeAction> todo() const { return {actions.data(), num_actions}; }
};

const NodeTransition& TransitionOf(NodeState state, NodeEvent event);

std::string_view NameOf(NodeState state);
std::string_view NameOf(NodeEvent event);

}  // namespace braid
