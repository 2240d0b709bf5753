// What the edges of a graph say about time: which group is done on a device before another begins
// there, within a step and into the next. Memory planning asks where bytes may be shared and which
// edges are missing; verification asks whether they are all there.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Everything is decided from groups; ranks come in by three relations between group u and a later
// v:
// - rank: rank r of v begins after rank r of u (data and control edges inside one list of devices);
// - all: every rank of v begins after every rank of u (an all_reduce, a box gathered from
// everyone);
// - gather: only once all ranks of v are done is any one rank of u (a box that went elsewhere).
// And acts, where groups act several times a step. Act i of a group that acts n times stands for
// the i-th n-th of the step, and an edge of p pieces makes v's acts in a piece wait for u's acts in
// it:
// - any path: the act of v in which an act of u ends, as parts of the step, begins after that; of
//   groups that act equally often, act i after act i;
// - full: the last act of u is over before the first of v. A path is full if one of its edges
//   carries one piece a step;
// - next act: act i + n of v begins after act i of u, n asked for: 1 where both hold one piece at a
//   time. Somewhere the path goes from a piece to at most the n-th after it, of as many pieces as
//   any group of the graph has acts.
// An exchange is two nodes: as the reader of its source (done at rank r when all its tasks that
// read rank r are done) and as the writer of its output.
class StepOrder {
 public:
  // INTERNAL if groups wait for each other within a step. The graph is borrowed; edges that are
  // added to it later are not seen.
  static absl::StatusOr<StepOrder> Make(const PhysicalGraph& graph);

  // `reader` (as a reader) has to be done before `writer` (as a writer) begins on the devices that
  // they share.
  enum class When : uint8_t {
    kStep,      // all its acts of a step before the first of the step
    kNextStep,  // before the first of the next step
    kAct,       // act i before act i; both act equally often
    kNextAct,   // act i before act i + `acts`, also from step to step; both act equally often
  };
  struct Constraint {
    GroupId reader = kNone;
    GroupId writer = kNone;
    When when = When::kStep;
    int acts = 1;  // kNextAct: not more than they have in a step
    bool is_next() const { return when == When::kNextStep || when == When::kNextAct; }
    // Of the control edge with which it holds.
    int initial_tokens() const { return when == When::kNextAct ? acts : is_next() ? 1 : 0; }
    bool is_of_acts() const { return when == When::kAct || when == When::kNextAct; }
    friend auto operator<=>(const Constraint&, const Constraint&) = default;
  };
  // Which constraints hold already.
  std::vector<bool> Holds(const std::vector<Constraint>& constraints) const;
  // The same for many questions about few readers, on which memory is spent: readers x groups.
  // Next acts are `acts` acts later.
  class Table;
  Table TableOf(const std::vector<GroupId>& readers, int acts = 1) const;
  // A small set of control edges with which all the constraints hold. Every reader stands before
  // its writer in position() unless the constraint is of the next step or act.
  std::vector<Constraint> Missing(const std::vector<Constraint>& constraints) const;

  // In a topological order.
  int position(GroupId group) const { return node_[group].writer; }

 private:
  enum class Relation : uint8_t { kGather, kRank, kAll };
  struct Edge {
    int from = 0;  // node
    Relation relation = Relation::kRank;
    bool is_full = true;
    bool is_next = false;  // from one step to the next
    int next_acts = 0;     // then also from each act to so many acts later; 0: it does not
  };
  struct GroupNodes {
    int reader = 0, writer = 0;  // the same but for exchanges
  };
  struct Rows;

  explicit StepOrder(const PhysicalGraph* graph) : graph_(graph) {}
  void AddEdges();
  void AddRegisterEdges(const Register& reg, GroupId consumer, int input);
  void AddExchangeEdges(const TaskGroup& group);
  void AddEdge(int to, Edge edge) { edges_[to].push_back(edge); }
  Relation RelationInto(const TaskGroup& group) const;  // a collective
  int DevicesOf(const Placement& placement);

  // Fills rows for the readers of the constraints, whose next acts are those of the rows; with
  // `added`, inserts edges on the way.
  void Propagate(const std::vector<Constraint>& constraints, Rows& rows,
                 std::vector<Constraint>* added) const;
  Edge EdgeOf(const Constraint& constraint) const;
  bool IsOrdered(const Rows& rows, int column, const Constraint& constraint) const;

  const PhysicalGraph* graph_;        // never null
  int most_acts_ = 1;                 // of a group in a step
  std::vector<GroupNodes> node_;      // by group
  std::vector<int> devices_;          // by node: the list of its devices in rank order
  std::vector<bool> reads_exchange_;  // by node: the reader of an exchange's source
  std::map<Placement, int, Placement::DevicesLess> device_lists_;
  std::vector<std::vector<Edge>> edges_;  // by node: into it
  // What is known of an exchange between two placements: (all, rank, gather, one to one).
  struct Reach {
    bool all = false, rank = false, gather = false, is_one_to_one = false;
  };
  Reach ReachOf(const TaskGroup& exchange);
  std::map<std::tuple<std::string, std::string, int, int>, Reach> reaches_;
};

// Borrows the StepOrder.
class StepOrder::Table {
 public:
  Table(Table&&);
  ~Table();
  const std::vector<GroupId>& readers() const { return readers_; }  // each once
  // The reader is one of them, and next acts are as many acts later as was said.
  bool Holds(const Constraint& constraint) const;

 private:
  friend class StepOrder;
  Table(const StepOrder* order, const std::vector<GroupId>& readers, int acts);
  const StepOrder* order_;
  std::vector<GroupId> readers_;
  std::vector<int> column_;  // by group
  std::unique_ptr<Rows> rows_;
};

}  // namespace braid::compiler
