// Tasks of a physical graph, their numbers and who talks to whom: what every node's slice of the
// Plan must say alike, derived rank by rank when asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compiler/plan/exchange_tasks.h"
#include "compiler/plan/node_plan.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// A task: its group and its number inside the group (the rank, but for exchanges; see
// ExchangeTasks).
struct TaskKey {
  GroupId group = kNone;
  int64_t number = 0;
};

class PlanEdges {
 public:
  // Borrows the graph.
  explicit PlanEdges(const PhysicalGraph& graph);

  // First. RESOURCE_EXHAUSTED if the plan has more tasks or registers than ids.
  absl::Status Number();

  ExchangeTasks& ExchangeOf(const TaskGroup& group);
  // Where a task runs: transfers at their source, everything else at its rank's device.
  DeviceId DeviceOf(const TaskKey& key);
  plan::ActorId IdOf(const TaskKey& key);
  // Of what task `number` of the register's producer fills; of a control edge by lanes, in its
  // acts for that lane.
  uint32_t RegisterId(GroupRegisterId reg, int64_t number, int64_t lane = 0) const;
  // Of the landing slots of transfer `number`.
  uint32_t LandingId(const TaskGroup& group, int64_t number) const;
  int64_t first_collective(GroupId group) const { return first_collective_[group]; }

  // The consumers of the register that task `number` of the producer fills, each once.
  std::vector<TaskKey> ConsumersOf(const Register& reg, int64_t number);

  // Of a control edge by lanes: the pulls of a lane's worker from what `rank` of the server has.
  std::vector<TaskKey> PullsOf(const Register& reg, int rank, int lane);

  // A task that fills a register, and the register's number.
  struct Source {
    TaskKey producer;
    uint32_t reg;
  };
  // What `rank` of a group (no exchange) reads from `reg`: one, or, of a control edge, any number.
  std::vector<Source> SourcesOf(const Register& reg, const TaskGroup& consumer, int rank);
  // The producer of `reg` (no control edge) at a rank of its own placement.
  Source SourceAt(const Register& reg, int rank);

 private:
  int64_t NumTasks(const TaskGroup& group);
  std::vector<TaskKey> ExchangeReaders(const TaskGroup& group, int rank);
  std::vector<int> SourceRanksOf(const TaskGroup& group, int64_t number);

  const PhysicalGraph& graph_;
  const std::vector<std::vector<std::pair<GroupId, int>>> consumers_;
  std::vector<int64_t> first_task_, first_landing_, first_collective_, first_register_;
  std::map<GroupId, std::unique_ptr<ExchangeTasks>> exchanges_;
};

}  // namespace braid::compiler
