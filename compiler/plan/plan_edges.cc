#include "compiler/plan/plan_edges.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace braid::compiler {

PlanEdges::PlanEdges(const PhysicalGraph& graph) : graph_(graph), consumers_(graph.Consumers()) {}

int64_t PlanEdges::NumTasks(const TaskGroup& group) {
  return group.is<Exchange>() ? ExchangeOf(group).num_tasks() : group.placement.size();
}

absl::Status PlanEdges::Number() {
  int64_t task = 0, reg = 0, collective = 0;
  for (const TaskGroup& group : graph_.groups()) {
    first_task_.push_back(task);
    first_landing_.push_back(reg);
    first_collective_.push_back(collective);
    const int64_t tasks = NumTasks(group);
    task += tasks;
    if (group.is<Exchange>()) reg += tasks;
    if (group.is<Collective>()) collective += group.placement.size();
  }
  for (const Register& r : graph_.registers()) {
    first_register_.push_back(reg);
    if (r.producer == kNone) {
      ++reg;
    } else {
      const TaskGroup& producer = graph_.group(r.producer);
      reg += NumTasks(producer) * (r.is_by_lane ? std::max(producer.lanes(), 1) : 1);
    }
  }
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  if (task >= kMost || reg >= kMost) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "job '%s' has %d tasks and %d registers over all nodes; a plan numbers at most %d",
        graph_.job, task, reg, kMost));
  }
  return absl::OkStatus();
}

ExchangeTasks& PlanEdges::ExchangeOf(const TaskGroup& group) {
  std::unique_ptr<ExchangeTasks>& tasks = exchanges_[group.id];
  if (tasks == nullptr) {
    tasks = std::make_unique<ExchangeTasks>(&group, &graph_.reg(group.inputs[0].reg).placement);
  }
  return *tasks;
}

// Where a task runs: transfers at their source, everything else at its rank's device.
DeviceId PlanEdges::DeviceOf(const TaskKey& key) {
  const TaskGroup& group = graph_.group(key.group);
  if (key.number < group.placement.size()) {
    return group.placement.device(static_cast<int>(key.number));
  }
  const int source = static_cast<int>(key.number / group.placement.size()) - 1;
  return ExchangeOf(group).source().device(source);
}

plan::ActorId PlanEdges::IdOf(const TaskKey& key) {
  const DeviceId device = DeviceOf(key);
  return {.node = static_cast<uint32_t>(device.node),
          .thread = ThreadOf(static_cast<uint32_t>(device.device), graph_.group(key.group).stream),
          .task = static_cast<uint32_t>(first_task_[key.group] + key.number)};
}

uint32_t PlanEdges::RegisterId(GroupRegisterId reg, int64_t number, int64_t lane) const {
  const Register& r = graph_.reg(reg);
  const int lanes = r.is_by_lane ? std::max(graph_.group(r.producer).lanes(), 1) : 1;
  return static_cast<uint32_t>(first_register_[reg] + number * lanes + lane);
}
uint32_t PlanEdges::LandingId(const TaskGroup& group, int64_t number) const {
  return static_cast<uint32_t>(first_landing_[group.id] + number);
}

// Tasks of an exchange that read the source register of `rank`.
std::vector<TaskKey> PlanEdges::ExchangeReaders(const TaskGroup& group, int rank) {
  ExchangeTasks& exchange = ExchangeOf(group);
  std::vector<TaskKey> readers;
  for (int destination : exchange.LocalReadersOf(rank)) {
    readers.push_back({group.id, exchange.CopyTask(destination)});
  }
  for (const auto& transfer : exchange.TransfersFrom(rank)) {
    readers.push_back({group.id, exchange.TransferTask(rank, transfer.owner)});
  }
  return readers;
}

// Source ranks that a task of an exchange reads in place.
std::vector<int> PlanEdges::SourceRanksOf(const TaskGroup& group, int64_t number) {
  ExchangeTasks& exchange = ExchangeOf(group);
  if (number >= exchange.destination().size()) {
    return {static_cast<int>(number / exchange.destination().size()) - 1};
  }
  std::set<int> ranks;
  for (const auto& piece : exchange.PiecesOf(static_cast<int>(number))) {
    if (piece.owner < 0) ranks.insert(piece.move.source_rank);
  }
  return {ranks.begin(), ranks.end()};
}

// The consumers of the register that task `number` of the producer fills.
std::vector<TaskKey> PlanEdges::ConsumersOf(const Register& reg, int64_t number) {
  const TaskGroup& producer = graph_.group(reg.producer);
  std::vector<TaskKey> result;
  for (const auto& [id, input] : consumers_[reg.id]) {
    const TaskGroup& consumer = graph_.group(id);
    if (reg.is_control()) {
      // A control edge orders work on the same memory: it joins tasks of the same device.
      CHECK(!consumer.is<Exchange>()) << "a control edge ends at exchange " << consumer.name;
      if (producer.is<Exchange>()) {
        for (int rank : SourceRanksOf(producer, number)) {
          const int at = consumer.placement.rank_of(ExchangeOf(producer).source().device(rank));
          if (at >= 0) result.push_back({id, at});
        }
      } else {
        const int at = consumer.placement.rank_of(DeviceOf({producer.id, number}));
        if (at >= 0) result.push_back({id, at});
      }
    } else if (consumer.is<Exchange>()) {
      for (const TaskKey& reader : ExchangeReaders(consumer, static_cast<int>(number))) {
        result.push_back(reader);
      }
    } else {
      result.push_back({id, number});
    }
  }
  // A group that reads several parts of a register names it once.
  std::vector<TaskKey> unique;
  for (const TaskKey& key : result) {
    const bool is_known = std::any_of(unique.begin(), unique.end(), [&](const TaskKey& other) {
      return other.group == key.group && other.number == key.number;
    });
    if (!is_known) unique.push_back(key);
  }
  return unique;
}

std::vector<TaskKey> PlanEdges::PullsOf(const Register& reg, int rank, int lane) {
  std::vector<TaskKey> pulls;
  for (const auto& [id, input] : consumers_[reg.id]) {
    ExchangeTasks& exchange = ExchangeOf(graph_.group(id));
    const DeviceId device = graph_.group(reg.producer).placement.device(rank);
    const int source = exchange.source().rank_of(device);
    if (source < 0) continue;
    for (const auto& transfer : exchange.TransfersFrom(source)) {
      if (transfer.owner == lane) pulls.push_back({id, exchange.TransferTask(source, lane)});
    }
  }
  return pulls;
}

std::vector<PlanEdges::Source> PlanEdges::SourcesOf(const Register& reg, const TaskGroup& consumer,
                                                    int rank) {
  const TaskGroup& producer = graph_.group(reg.producer);
  std::vector<Source> sources;
  if (!reg.is_control()) return {SourceAt(reg, rank)};
  const DeviceId device = consumer.placement.device(rank);
  if (producer.is<Exchange>()) {
    const int source_rank = ExchangeOf(producer).source().rank_of(device);
    if (source_rank < 0) return {};
    for (const TaskKey& reader : ExchangeReaders(producer, source_rank)) {
      sources.push_back({reader, RegisterId(reg.id, reader.number)});
    }
    return sources;
  }
  const int at = producer.placement.rank_of(device);
  if (at >= 0) sources.push_back({{producer.id, at}, RegisterId(reg.id, at)});
  return sources;
}

PlanEdges::Source PlanEdges::SourceAt(const Register& reg, int rank) {
  const TaskGroup& producer = graph_.group(reg.producer);
  if (producer.is<Exchange>() && ExchangeOf(producer).IsDirect(rank)) {
    ExchangeTasks& exchange = ExchangeOf(producer);
    const int64_t number = exchange.TransferTask(exchange.PiecesOf(rank)[0].move.source_rank, rank);
    return {{producer.id, number}, LandingId(producer, number)};
  }
  return {{producer.id, rank}, RegisterId(reg.id, rank)};
}

}  // namespace braid::compiler
