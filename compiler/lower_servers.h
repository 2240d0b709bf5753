// The part of lowering that asynchronous servers take: ops with a bound (MaxStaleness), which
// update variables while workers hold older values of them.
//
// A variable's owner counts the steps: its register has as many slots as workers may be steps
// apart, all of the same bytes, and a slot is free when every worker has pulled. A worker pulls
// when it has used up what it pulled before and its last push is in. So when a worker pulls for
// step t, each other has pulled for step t - max_staleness and what it pushed before that is in.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/boxing/boxing.h"
#include "compiler/plan/physical_graph.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

class ServerLowering {
 public:
  // Both borrowed.
  ServerLowering(const LogicalGraph* graph, PhysicalGraph* result);

  // Whether the op overwrites it with a bound.
  bool IsServed(OpId variable) const { return bounds_.contains(variable); }
  // Of a served variable: how many steps workers may be apart, its register's slots.
  int BoundOf(OpId variable) const { return bounds_.at(variable); }

  // A tensor in a register.
  struct Source {
    GroupRegisterId reg = kNone;
    int part = 0;
    TensorLayout layout;
  };
  // The register in which a reader finds a variable's value as `wanted`, which must be B.
  absl::StatusOr<GroupRegisterId> Pull(const Op& reader, TensorId variable, const Source& source,
                                       const NdSbp& wanted);
  // The register of `op`'s pushed input, of which every worker has an addend in `source`.
  absl::StatusOr<GroupRegisterId> Push(const Op& op, int input, const Source& source,
                                       const TensorLayout& wanted);
  // The group reads what was pushed of the tensor; returns how many workers push.
  int AddServer(TensorId tensor, GroupRegisterId pushed, GroupId group);

  // Whether it leads from workers to others or back: no route with others than the exchange itself,
  // for which workers would meet.
  bool GoesDirectly(const BoxingEdge& edge) const;

  // Once all ops are lowered: what orders pulls and pushes, and slots for workers that are steps
  // apart. INVALID_ARGUMENT naming what makes workers wait for each other.
  absl::Status Finish();

 private:
  struct Pushed {
    GroupRegisterId reg = kNone;
    std::vector<GroupId> servers;  // that read it
  };

  GroupRegisterId AddExchange(const Op& producer, Exchange::Lanes lanes, const Source& source,
                              const Placement& placement, const TensorLayout& wanted);
  absl::Status CheckWorkers(const Op& op, const Placement& workers) const;
  absl::Status CheckIsNoMeeting(const TaskGroup& group) const;
  // Whether `group` is done before `later` begins, by data.
  bool IsBefore(GroupId group, GroupId later) const;
  // A worker makes what it pushes for `variable` after it has pulled that.
  void OrderPush(OpId variable, const Pushed& push);

  const LogicalGraph& graph_;
  PhysicalGraph& result_;
  // By variable: its bound, its gradient, and who pulls it.
  std::map<OpId, int> bounds_;
  std::map<OpId, TensorId> gradients_;
  std::map<OpId, std::vector<GroupId>> pulls_;
  std::map<TensorId, std::vector<Pushed>> pushes_;  // by what is pushed
  std::optional<Placement> workers_;
  int most_apart_ = 0;
};

// UNIMPLEMENTED if an asynchronous server or one of its workers is no CPU.
absl::Status CheckServersAreHosts(const PhysicalGraph& graph);

}  // namespace braid::compiler
