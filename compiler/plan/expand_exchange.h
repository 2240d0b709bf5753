// The tasks of exchanges on one node: copies that assemble, transfers, and what goes by lanes
// between an asynchronous server and its workers.
#pragma once

#include <cstdint>
#include <map>

#include "compiler/plan/exchange_tasks.h"
#include "compiler/plan/task_writer.h"

namespace braid::compiler {

class ExchangeWriter {
 public:
  explicit ExchangeWriter(TaskWriter* writer) : writer_(*writer) {}

  // All tasks of an exchange.
  void Write(const TaskGroup& group);
  // The inputs of a server's task: the landing slots of what each worker pushes to its `rank`.
  void AddPushes(const TaskGroup& push, int rank, plan::Task& task);

 private:
  void InsertPeer(const ExchangeTasks& exchange, int source_rank);
  plan::Memory LandingOf(const TaskGroup& group, const ExchangeTasks::Piece& piece, uint32_t id);
  void WriteCopy(const TaskGroup& group, ExchangeTasks& exchange, int rank);
  void WriteTransfer(const TaskGroup& group, ExchangeTasks& exchange,
                     const ExchangeTasks::Transfer& transfer);
  void AddTurn(const Register& reg, const DeviceId& device, int lane, plan::Task& task);
  void SetLocalCopy(const TaskGroup& group, const ExchangeTasks::Transfer& transfer,
                    plan::Operand source, plan::Task& task);

  TaskWriter& writer_;
  std::map<uint32_t, uint64_t> landings_;  // landing register -> arena offset
};

}  // namespace braid::compiler
