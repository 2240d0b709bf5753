#include "compiler/plan/expand_exchange.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace braid::compiler {

void ExchangeWriter::Write(const TaskGroup& group) {
  ExchangeTasks& exchange = writer_.edges.ExchangeOf(group);
  for (int rank : exchange.destination().RanksOn(writer_.node)) {
    if (exchange.IsAssembled(rank)) {
      WriteCopy(group, exchange, rank);
      continue;
    }
    for (const auto& piece : exchange.PiecesOf(rank)) {
      InsertPeer(exchange, piece.move.source_rank);
    }
  }
  for (int rank : exchange.source().RanksOn(writer_.node)) {
    for (const auto& transfer : exchange.TransfersFrom(rank)) {
      WriteTransfer(group, exchange, transfer);
    }
  }
}

void ExchangeWriter::InsertPeer(const ExchangeTasks& exchange, int source_rank) {
  const int node = exchange.source().device(source_rank).node;
  if (node != writer_.node) writer_.peers.insert(static_cast<uint32_t>(node));
}

void ExchangeWriter::AddPushes(const TaskGroup& push, int rank, plan::Task& task) {
  ExchangeTasks& exchange = writer_.edges.ExchangeOf(push);
  const Register& out = writer_.graph.reg(push.outputs[0]);
  for (const auto& piece : exchange.PiecesOf(rank)) {
    const TaskKey from{push.id, exchange.TransferTask(piece.move.source_rank, rank)};
    plan::Input& input = task.inputs.emplace_back();
    input.reg = writer_.edges.LandingId(push, from.number);
    input.producer = writer_.edges.IdOf(from);
    input.slots = static_cast<uint32_t>(out.slots);
    input.period = 1;
    input.lane = piece.move.source_rank;
    input.memory = LandingOf(push, piece, input.reg);
  }
  // Kernels name the first; an act for another lane finds that lane's in its place.
  std::sort(task.inputs.end() - static_cast<int64_t>(exchange.PiecesOf(rank).size()),
            task.inputs.end(),
            [](const plan::Input& a, const plan::Input& b) { return a.lane < b.lane; });
}

// Memory of the landing slots of a transfer to this node, made when first asked for.
plan::Memory ExchangeWriter::LandingOf(const TaskGroup& group, const ExchangeTasks::Piece& piece,
                                       uint32_t id) {
  const Register& out = writer_.graph.reg(group.outputs[0]);
  const int device = group.placement.device(piece.owner).device;
  if (piece.is_direct) return writer_.MemoryOf(out, device);
  const uint64_t stride = AlignedBytes(writer_.edges.ExchangeOf(group).BytesOf(piece.move.region));
  auto found = landings_.find(id);
  if (found == landings_.end()) {
    const plan::Memory memory =
        writer_.TakeMemory(device, out.memory, stride * static_cast<uint64_t>(out.slots));
    found = landings_.emplace(id, memory.offset).first;
  }
  return {.device = static_cast<uint32_t>(device),
          .kind = out.memory,
          .offset = found->second,
          .bytes = stride,
          .stride = stride};
}

void ExchangeWriter::WriteCopy(const TaskGroup& group, ExchangeTasks& exchange, int rank) {
  const Movement& movement = *group.movement();
  const Register& in = writer_.graph.reg(group.inputs[0].reg);
  const Register& out = writer_.graph.reg(group.outputs[0]);
  const TaskKey key{group.id, exchange.CopyTask(rank)};
  plan::Task& task = writer_.StartTask(group, key);
  auto& copy = task.work.emplace<plan::Copy>();
  std::map<uint32_t, uint32_t> index_of;  // register -> input
  int64_t covered = 0;
  for (const auto& piece : exchange.PiecesOf(rank)) {
    plan::Copy::Move& move = copy.moves.emplace_back();
    const int source_rank = piece.move.source_rank;
    plan::Operand& operand = move.source;
    if (piece.owner < 0) {
      const PlanEdges::Source source = writer_.edges.SourceAt(in, source_rank);
      const uint32_t reg = source.reg;
      const auto [it, is_new] =
          index_of.try_emplace(reg, static_cast<uint32_t>(task.inputs.size()));
      if (is_new) {
        writer_.AddInput(in, source, group.inputs[0].period,
                         exchange.source().device(source_rank).device, task);
      }
      writer_.SetPart(in.parts[movement.part],
                      {true, it->second, exchange.source().device(source_rank).device}, operand);
      operand.shard = {&movement.source, RegionOf(movement.source, exchange.source(), source_rank)};
    } else {
      const TaskKey from{group.id, exchange.TransferTask(source_rank, piece.owner)};
      const uint32_t reg = writer_.edges.LandingId(group, from.number);
      InsertPeer(exchange, source_rank);
      const auto [it, is_new] =
          index_of.try_emplace(reg, static_cast<uint32_t>(task.inputs.size()));
      if (is_new) {
        plan::Input& input = task.inputs.emplace_back();
        input.reg = reg;
        input.producer = writer_.edges.IdOf(from);
        input.slots = static_cast<uint32_t>(out.slots);
        input.period = 1;
        input.memory = LandingOf(group, piece, reg);
      }
      operand.source = plan::Operand::Source::kInput;
      operand.index = it->second;
      operand.shard = {&movement.source, piece.move.region};
    }
    move.box = piece.move.region;
    move.add = piece.move.add;
    if (!piece.move.add) covered += piece.move.region.size.num_elements();
  }
  const Region whole = RegionOf(movement.destination, group.placement, rank);
  const int task_device = group.placement.device(rank).device;
  writer_.SetPart(out.parts[0], {false, 0, task_device}, copy.destination);
  copy.destination.shard = {&movement.destination, whole};
  copy.zero_first = covered < whole.size.num_elements();
  copy.reduction = movement.reduction;
  for (GroupRegisterId id : group.outputs) {
    const Register& reg = writer_.graph.reg(id);
    writer_.AddConsumers(writer_.edges.ConsumersOf(reg, key.number),
                         writer_.AddOutput(reg, key, task));
  }
}

void ExchangeWriter::WriteTransfer(const TaskGroup& group, ExchangeTasks& exchange,
                                   const ExchangeTasks::Transfer& transfer) {
  const Movement& movement = *group.movement();
  const Register& in = writer_.graph.reg(group.inputs[0].reg);
  const Register& out = writer_.graph.reg(group.outputs[0]);
  const int source_rank = transfer.source_rank;
  const TaskKey key{group.id, exchange.TransferTask(source_rank, transfer.owner)};
  const int device = exchange.source().device(source_rank).device;
  const int peer = exchange.destination().device(transfer.owner).node;
  plan::Task& task = writer_.StartTask(group, key);
  writer_.AddInput(in, writer_.edges.SourceAt(in, source_rank), group.inputs[0].period, device,
                   task);
  for (size_t i = 1; i < group.inputs.size(); ++i) {
    AddTurn(writer_.graph.reg(group.inputs[i].reg), exchange.source().device(source_rank),
            transfer.owner, task);
  }
  plan::Operand source;
  writer_.SetPart(in.parts[movement.part], {true, 0, device}, source);
  source.shard = {&movement.source, RegionOf(movement.source, exchange.source(), source_rank)};
  const auto bytes = static_cast<uint64_t>(exchange.BytesOf(transfer.region));

  plan::Output& landing = task.outputs.emplace_back();
  landing.reg = writer_.edges.LandingId(group, key.number);
  landing.slots = static_cast<uint32_t>(out.slots);
  landing.period = 1;
  if (peer == writer_.node) {
    SetLocalCopy(group, transfer, std::move(source), task);
  } else {
    plan::Memory& memory = landing.memory.emplace();
    memory.bytes = memory.stride =
        transfer.is_direct ? static_cast<uint64_t>(out.slot_bytes) : AlignedBytes(bytes);
    auto& work = task.work.emplace<plan::Transfer>();
    work.box = transfer.region;
    work.bytes = bytes;
    work.peer = static_cast<uint32_t>(peer);
    // What is pulled may be overwritten before it has gone.
    if (group.exchange_lanes() == Exchange::Lanes::kPull ||
        !IsOneRun(work.box, source.shard.region)) {
      work.staging = writer_.TakeMemory(device, in.memory, AlignedBytes(work.bytes));
    }
    work.source = std::move(source);
    writer_.peers.insert(static_cast<uint32_t>(peer));
    writer_.link_bytes[work.peer] += work.bytes * static_cast<uint64_t>(group.acts_per_step);
  }
  std::vector<TaskKey> readers;
  const bool has_reader_behind =
      transfer.is_direct || group.exchange_lanes() == Exchange::Lanes::kPush;
  if (has_reader_behind) readers = writer_.edges.ConsumersOf(out, transfer.owner);
  for (int reader : transfer.readers) readers.push_back({group.id, exchange.CopyTask(reader)});
  writer_.AddConsumers(readers, landing);
  for (GroupRegisterId id : group.outputs) {
    const Register& reg = writer_.graph.reg(id);
    if (reg.is_control())
      writer_.AddConsumers(writer_.edges.ConsumersOf(reg, key.number),
                           writer_.AddOutput(reg, key, task));
  }
}

// A pull waits until what its worker pushed before is in.
void ExchangeWriter::AddTurn(const Register& reg, const DeviceId& device, int lane,
                             plan::Task& task) {
  const TaskGroup& server = writer_.graph.group(reg.producer);
  const int rank = server.placement.rank_of(device);
  if (rank < 0) return;
  plan::Input& input = task.inputs.emplace_back();
  input.reg = writer_.edges.RegisterId(reg.id, rank, lane);
  input.producer = writer_.edges.IdOf({server.id, rank});
  input.slots = static_cast<uint32_t>(reg.slots);
  input.period = 1;
  input.initial_tokens = static_cast<uint32_t>(reg.initial_tokens);
}

// What goes by lanes inside a node.
void ExchangeWriter::SetLocalCopy(const TaskGroup& group, const ExchangeTasks::Transfer& transfer,
                                  plan::Operand source, plan::Task& task) {
  const Movement& movement = *group.movement();
  const ExchangeTasks::Piece piece{.move = {.source_rank = transfer.source_rank,
                                            .destination_rank = transfer.owner,
                                            .region = transfer.region},
                                   .owner = transfer.owner,
                                   .is_direct = transfer.is_direct};
  task.outputs[0].memory = LandingOf(group, piece, task.outputs[0].reg);
  auto& copy = task.work.emplace<plan::Copy>();
  copy.destination.source = plan::Operand::Source::kOutput;
  copy.destination.shard = {&movement.source, transfer.region};
  copy.moves.push_back({.source = std::move(source), .box = transfer.region});
}

}  // namespace braid::compiler
