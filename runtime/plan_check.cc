#include "runtime/plan_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/collective/collective.h"
#include "graph/dtype.h"
#include "graph/sbp.h"
#include "runtime/base/memory.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/base/stream_kind.h"
#include "runtime/device/box.h"
#include "runtime/device/host_memory.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

constexpr uint32_t kMaxNode = std::numeric_limits<uint16_t>::max();
// Slots of all ends of a slice: each takes some hundred bytes of counters and mails.
constexpr uint64_t kMaxSlots = uint64_t{1} << 22;
// The signatures of an operator are listed axis by axis, and compared.
constexpr int kMaxRank = 64;
// A ring makes a list of its chunks: shorter ones would make it longer than the data.
constexpr uint64_t kMinChunkBytes = 1024;

template <typename... Args>
absl::Status Wrong(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

// Whether [offset, offset + bytes) lies in [0, limit).
bool Fits(uint64_t offset, uint64_t bytes, uint64_t limit) {
  return offset <= limit && bytes <= limit - offset;
}

std::string Text(const std::vector<int64_t>& dims) {
  return absl::StrFormat("[%s]", absl::StrJoin(dims, ", "));
}
std::string Text(const Shape& shape) { return Text(shape.dims()); }

// Elements of a box; absent if that is no number of bytes that a machine could have.
std::optional<int64_t> ElementsOf(const Shape& size) {
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t elements = 1, positive = 1;
  for (int64_t dim : size) {
    if (dim < 0 || dim > kMost) return std::nullopt;
    // Also beside a 0: strides are products of some of the dims.
    if (dim > 0 && __builtin_mul_overflow(positive, dim, &positive)) return std::nullopt;
    if (positive > kMost) return std::nullopt;
    elements *= dim;
  }
  return elements;
}

bool IsOfRank(const Region& box, int rank) {
  return box.size.rank() == rank && box.offset.size() == static_cast<size_t>(rank);
}

absl::Status CheckBox(const Region& box, const Region& whole) {
  bool is_inside = IsOfRank(box, whole.size.rank()) && ElementsOf(box.size).has_value();
  for (int axis = 0; is_inside && axis < box.size.rank(); ++axis) {
    const int64_t from = box.offset[axis] - whole.offset[axis];
    is_inside = box.offset[axis] >= whole.offset[axis] && from <= whole.size[axis] &&
                box.size[axis] <= whole.size[axis] - from;
  }
  if (is_inside) return absl::OkStatus();
  return Wrong("the box of size %s at %s is not inside that of size %s at %s", Text(box.size),
               Text(box.offset), Text(whole.size), Text(whole.offset));
}

int TypeNumber(const plan::Shard& shard) { return static_cast<int>(shard.layout->type.dtype); }

// Bytes of a device's box, whose place in the whole is checked for all acts of a step.
absl::StatusOr<uint64_t> CheckShard(const plan::Shard& shard, uint32_t acts) {
  const compiler::TensorLayout& layout = *shard.layout;
  const Shape& logical = layout.type.shape;
  const Region& box = shard.region;
  if (layout.type.dtype > kLastDType) {
    return Wrong("element type %d; 0 to %d are known", TypeNumber(shard),
                 static_cast<int>(kLastDType));
  }
  const int rank = logical.rank();
  if (rank > kMaxRank || !IsOfRank(box, rank)) {
    return Wrong("a box with %d offsets and %d sizes of a tensor with %d dims, which may have %d",
                 box.offset.size(), box.size.rank(), rank, kMaxRank);
  }
  const std::optional<int64_t> elements = ElementsOf(box.size);
  if (!elements.has_value() || !ElementsOf(logical).has_value()) {
    return Wrong(
        "the box %s of the tensor %s: the sizes must be 0 or more, their product below "
        "2^56",
        Text(box.size), Text(logical));
  }
  const bool is_split = layout.micro_batch_sbp.is_split();
  if (is_split && (layout.micro_batch_sbp.axis < 0 || layout.micro_batch_sbp.axis >= rank ||
                   layout.micro_batches < 1)) {
    return Wrong("%d micro-batches along axis %d of a tensor with %d dims", layout.micro_batches,
                 layout.micro_batch_sbp.axis, rank);
  }
  for (int axis = 0; axis < rank; ++axis) {
    const bool moves = is_split && axis == layout.micro_batch_sbp.axis;
    const int64_t stride = moves ? logical[axis] / layout.micro_batches : 0;
    const __int128 end =
        __int128{box.offset[axis]} + box.size[axis] + __int128{stride} * (acts - 1);
    if (box.offset[axis] < 0 || end > logical[axis]) {
      return Wrong("the box of size %s at %s is not inside the tensor %s in all of its %d acts",
                   Text(box.size), Text(box.offset), layout.ToString(), acts);
    }
  }
  return static_cast<uint64_t>(*elements) * SizeOf(layout.type.dtype);
}

absl::Status CheckActor(const plan::ActorId& id) {
  if (id.node <= kMaxNode && id.thread <= kMaxNode) return absl::OkStatus();
  return Wrong("actor %d/%d/%d: nodes and threads are numbered up to %d", id.node, id.thread,
               id.task, kMaxNode);
}

class Checker {
 public:
  Checker(const plan::NodePlan& plan, const Devices& devices) : plan_(plan), devices_(devices) {}

  absl::Status Check() {
    for (const plan::Arena& arena : plan_.arenas) BRAID_RETURN_IF_ERROR(CheckArena(arena));
    for (uint32_t peer : plan_.peers) {
      if (peer > kMaxNode) return Wrong("peer %d: nodes are numbered up to %d", peer, kMaxNode);
    }
    for (const plan::Task& task : plan_.tasks) {
      BRAID_RETURN_IF_ERROR(Named(task, CheckTask(task)));
      const auto* owner = std::get_if<plan::VariableOwner>(&task.work);
      if (owner == nullptr) continue;
      for (const plan::Variable& variable : owner->variables) {
        BRAID_RETURN_IF_ERROR(Named(task, CheckVariable(task, variable)));
      }
    }
    // Which may read variables of tasks that come later.
    for (const plan::Task& task : plan_.tasks) BRAID_RETURN_IF_ERROR(Named(task, CheckWork(task)));
    return absl::OkStatus();
  }

 private:
  static absl::Status Named(const plan::Task& task, const absl::Status& status) {
    if (status.ok()) return status;
    return Prefixed(absl::StrFormat("task '%s'", task.name), status);
  }

  static bool IsTransfer(const plan::Task& task) {
    return std::holds_alternative<plan::Transfer>(task.work);
  }

  absl::Status CheckDevice(uint32_t device) const {
    if (device < devices_.size()) return absl::OkStatus();
    return Wrong("device %d of node %d, which has %d", device, plan_.node, devices_.size());
  }

  absl::Status CheckArena(const plan::Arena& arena) {
    BRAID_RETURN_IF_ERROR(CheckDevice(arena.device));
    if (const std::string& kind = devices_[arena.device]->kind(); arena.device_type != kind) {
      return Wrong(
          "device %d is a '%s' device by plan and a '%s' device here; start the same "
          "program with the same devices on every node",
          arena.device, arena.device_type, kind);
    }
    if (!arenas_.emplace(arena.device, &arena).second) {
      return Wrong("device %d has two arenas", arena.device);
    }
    const uint64_t most = SystemMemory();
    uint64_t bytes = 0;
    const auto add = [&](uint64_t part) -> absl::Status {
      if (part > most || bytes > most - part) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "device %d's arena needs %d and %d bytes by plan and this machine has %d; take a "
            "smaller batch, more micro-batches or more devices",
            arena.device, bytes, part, most));
      }
      bytes += part;
      if (part % kArenaAlignment == 0) return absl::OkStatus();
      return Wrong("device %d's arena has a part of %d bytes, no multiple of %d", arena.device,
                   part, kArenaAlignment);
    };
    BRAID_RETURN_IF_ERROR(add(arena.bytes));
    BRAID_RETURN_IF_ERROR(add(arena.pinned_bytes));
    BRAID_RETURN_IF_ERROR(add(arena.kept_bytes));
    for (uint64_t scratch : arena.scratch_bytes) BRAID_RETURN_IF_ERROR(add(scratch));
    return absl::OkStatus();
  }

  uint64_t ArenaBytes(uint32_t device, MemoryKind kind) const {
    const auto found = arenas_.find(device);
    if (found == arenas_.end()) return 0;
    return kind == MemoryKind::kPinned ? found->second->pinned_bytes : found->second->bytes;
  }

  absl::Status CheckMemory(const plan::Memory& memory, uint32_t slots) const {
    BRAID_RETURN_IF_ERROR(CheckDevice(memory.device));
    const uint64_t limit = ArenaBytes(memory.device, memory.kind);
    uint64_t span = 0;
    if (memory.bytes <= memory.stride &&
        !__builtin_mul_overflow(memory.stride, uint64_t{slots} - 1, &span) &&
        !__builtin_add_overflow(span, memory.bytes, &span) && Fits(memory.offset, span, limit) &&
        memory.offset % kArenaAlignment == 0 && memory.stride % kArenaAlignment == 0) {
      return absl::OkStatus();
    }
    return Wrong(
        "%d slots of %d bytes, each %d bytes after the other, from byte %d of device %d's arena "
        "on, which has %d bytes and takes multiples of %d",
        slots, memory.bytes, memory.stride, memory.offset, memory.device, limit, kArenaAlignment);
  }

  // A peer writes there.
  absl::Status CheckLanding(const plan::Memory& memory) const {
    if (memory.bytes == memory.stride) return absl::OkStatus();
    return Wrong("landing slots of %d bytes, each %d bytes after the other, have gaps",
                 memory.bytes, memory.stride);
  }

  absl::Status CheckEnd(uint32_t reg, uint32_t slots) {
    slots_ += slots;
    if (slots >= 1 && slots_ <= kMaxSlots) return absl::OkStatus();
    return Wrong("register %d has %d slots; 1 and more are allowed, %d over all registers", reg,
                 slots, kMaxSlots);
  }

  absl::Status CheckTask(const plan::Task& task) {
    BRAID_RETURN_IF_ERROR(CheckDevice(task.device));
    BRAID_RETURN_IF_ERROR(CheckActor(task.id));
    if (static_cast<int>(task.stream) >= kNumStreams ||
        task.id.thread != ThreadOf(task.device, task.stream)) {
      return Wrong("thread %d for stream %d of device %d", task.id.thread,
                   static_cast<int>(task.stream), task.device);
    }
    if (task.acts_per_step == 0) return Wrong("it acts 0 times a step");
    for (const plan::Input& input : task.inputs) {
      BRAID_RETURN_IF_ERROR(CheckActor(input.producer));
      BRAID_RETURN_IF_ERROR(CheckEnd(input.reg, input.slots));
      if (input.memory.has_value()) BRAID_RETURN_IF_ERROR(CheckMemory(*input.memory, input.slots));
      const bool is_landing = input.producer.node != plan_.node && input.memory.has_value();
      if (is_landing) BRAID_RETURN_IF_ERROR(CheckLanding(*input.memory));
    }
    for (const plan::Output& output : task.outputs) {
      for (const plan::ActorId& consumer : output.consumers) {
        BRAID_RETURN_IF_ERROR(CheckActor(consumer));
      }
      BRAID_RETURN_IF_ERROR(CheckEnd(output.reg, output.slots));
      if (!written_.insert(output.reg).second) {
        return Wrong("register %d is written by two tasks", output.reg);
      }
      // A transfer's lies in the peer's arena; the link checks what is written there.
      if (output.memory.has_value() && !IsTransfer(task)) {
        BRAID_RETURN_IF_ERROR(CheckMemory(*output.memory, output.slots));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckVariable(const plan::Task& task, const plan::Variable& variable) {
    const absl::StatusOr<uint64_t> bytes = CheckShard(variable.shard, 1);
    if (!bytes.ok()) {
      return Wrong("variable '%s': %s", variable.name, std::string(bytes.status().message()));
    }
    const uint64_t most = SystemMemory();
    if (*bytes > most || variable_bytes_ > most - *bytes) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "variable '%s' needs %d bytes beside the %d of others and this machine has %d; split it "
          "over more devices",
          variable.name, *bytes, variable_bytes_, most));
    }
    variable_bytes_ += *bytes;
    variables_[{task.device, variable.name}] = {variable.shard.layout->type.dtype, *bytes};
    return absl::OkStatus();
  }

  // Kernels of a device with memory of its own read and write there, the host elsewhere; only
  // staging does both.
  absl::Status CheckSide(const plan::Task& task) const {
    if (devices_[task.device]->is_host() || std::holds_alternative<plan::Staging>(task.work)) {
      return absl::OkStatus();
    }
    const MemoryKind side = IsHostStream(task.stream) ? MemoryKind::kPinned : MemoryKind::kOwn;
    const auto check = [&](const std::optional<plan::Memory>& memory) {
      if (!memory.has_value() || memory->kind == side) return absl::OkStatus();
      return Wrong("on stream %d of a %s device it uses memory of kind %d; %d is what it can touch",
                   static_cast<int>(task.stream), devices_[task.device]->kind(),
                   static_cast<int>(memory->kind), static_cast<int>(side));
    };
    for (const plan::Input& input : task.inputs) BRAID_RETURN_IF_ERROR(check(input.memory));
    if (IsTransfer(task)) return check(std::get<plan::Transfer>(task.work).staging);
    for (const plan::Output& output : task.outputs) BRAID_RETURN_IF_ERROR(check(output.memory));
    return absl::OkStatus();
  }

  absl::Status CheckWork(const plan::Task& task) const {
    BRAID_RETURN_IF_ERROR(CheckSide(task));
    if (std::holds_alternative<plan::Copy>(task.work)) return CheckCopy(task);
    if (std::holds_alternative<plan::Staging>(task.work)) return CheckStaging(task);
    if (IsTransfer(task)) return CheckTransfer(task);
    if (std::holds_alternative<plan::Collective>(task.work)) return CheckCollectiveTask(task);
    const auto* compute = std::get_if<plan::Compute>(&task.work);
    if (compute == nullptr) return absl::OkStatus();
    for (const plan::Kernel& kernel : compute->kernels) {
      for (const auto* operands : {&kernel.inputs, &kernel.outputs}) {
        for (const plan::Operand& operand : *operands) {
          const absl::Status status = CheckOperand(task, operand).status();
          if (!status.ok()) {
            return Wrong("%s '%s' (%s): %s", kernel.call->op, kernel.call->name,
                         kernel.call->location.ToString(), std::string(status.message()));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  // What devices do by themselves they do on the stream for it.
  absl::Status CheckOnDevice(const plan::Task& task, const plan::Collective& collective,
                             const plan::Members& members) const {
    const bool is_on_device = collective.algorithm == CollectiveAlgorithm::kDevice;
    if (is_on_device != (task.stream == StreamKind::kCollective)) {
      return Wrong("a collective by algorithm '%s' on stream %d",
                   CollectiveAlgorithmName(collective.algorithm), static_cast<int>(task.stream));
    }
    if (!is_on_device) return absl::OkStatus();
    for (size_t i = 0; i < members.nodes.size(); ++i)
      if (members.nodes[i] == plan_.node) BRAID_RETURN_IF_ERROR(CheckDevice(members.devices[i]));
    const uint32_t rank = collective.rank;
    if (rank >= members.nodes.size()) return absl::OkStatus();  // what is said of all algorithms
    const uint32_t node = members.nodes[rank], device = members.devices[rank];
    if (node == plan_.node && device == task.device) return absl::OkStatus();
    return Wrong("device %d of node %d does the part of device %d of node %d in a collective",
                 task.device, plan_.node, device, node);
  }

  // An end's memory; nullptr if it is not of this node or has none.
  static const plan::Memory* MemoryOf(const plan::Task& task, const plan::Operand& operand) {
    const std::optional<plan::Memory>& memory = operand.source == plan::Operand::Source::kInput
                                                    ? task.inputs[operand.index].memory
                                                    : task.outputs[operand.index].memory;
    const bool is_elsewhere = operand.source == plan::Operand::Source::kOutput && IsTransfer(task);
    return memory.has_value() && !is_elsewhere ? &*memory : nullptr;
  }

  // Bytes from the operand's first on that are its task's to read or write; its shard fits in.
  absl::StatusOr<uint64_t> CheckOperand(const plan::Task& task,
                                        const plan::Operand& operand) const {
    BRAID_ASSIGN_OR_RETURN(const uint64_t bytes, CheckShard(operand.shard, task.acts_per_step));
    const uint64_t alignment = SizeOf(operand.shard.layout->type.dtype);
    uint64_t limit = 0;
    switch (operand.source) {
      case plan::Operand::Source::kInput:
      case plan::Operand::Source::kOutput: {
        const bool is_input = operand.source == plan::Operand::Source::kInput;
        const size_t ends = is_input ? task.inputs.size() : task.outputs.size();
        if (operand.index >= ends) {
          return Wrong("an operand of %s %d, it has %d", is_input ? "input" : "output",
                       operand.index, ends);
        }
        const plan::Memory* memory = MemoryOf(task, operand);
        if (memory == nullptr) {
          return Wrong("an operand in %s %d, which has no memory here",
                       is_input ? "input" : "output", operand.index);
        }
        limit = memory->bytes;
        break;
      }
      case plan::Operand::Source::kScratch: {
        const auto arena = arenas_.find(task.device);
        if (arena != arenas_.end()) {
          limit = arena->second->scratch_bytes[static_cast<size_t>(task.stream)];
        }
        break;
      }
      case plan::Operand::Source::kKept: {
        BRAID_RETURN_IF_ERROR(CheckIsInReach(task, "what is kept"));
        const auto arena = arenas_.find(task.device);
        if (arena != arenas_.end()) limit = arena->second->kept_bytes;
        break;
      }
      case plan::Operand::Source::kVariable: {
        BRAID_RETURN_IF_ERROR(CheckIsInReach(task, absl::StrFormat("'%s'", operand.variable)));
        const auto found = variables_.find({operand.index, operand.variable});
        if (found == variables_.end()) {
          return Wrong("it reads variable '%s', which no task of device %d owns", operand.variable,
                       operand.index);
        }
        if (found->second.dtype != operand.shard.layout->type.dtype || operand.offset != 0) {
          return Wrong("it reads variable '%s' as type %d from byte %d on, it is of type %d",
                       operand.variable, TypeNumber(operand.shard), operand.offset,
                       static_cast<int>(found->second.dtype));
        }
        limit = found->second.bytes;
        break;
      }
    }
    if (!Fits(operand.offset, bytes, limit) || operand.offset % alignment != 0) {
      return Wrong("an operand of %d bytes at byte %d of %d (elements of %d bytes)", bytes,
                   operand.offset, limit, alignment);
    }
    return limit - operand.offset;
  }

  // Variables and what is kept are in the device's own memory.
  absl::Status CheckIsInReach(const plan::Task& task, std::string_view what) const {
    if (devices_[task.device]->is_host() || !IsHostStream(task.stream)) return absl::OkStatus();
    return Wrong("it works on the host and uses %s in the memory of a %s device", what,
                 devices_[task.device]->kind());
  }

  absl::Status CheckStaging(const plan::Task& task) const {
    for (const plan::Staging::Part& part : std::get<plan::Staging>(task.work).parts) {
      BRAID_RETURN_IF_ERROR(CheckOperand(task, part.from).status());
      BRAID_RETURN_IF_ERROR(CheckOperand(task, part.to).status());
      if (TypeNumber(part.from.shard) == TypeNumber(part.to.shard) &&
          part.from.shard.region == part.to.shard.region) {
        continue;
      }
      return Wrong("it copies a box of size %s to one of size %s",
                   Text(part.from.shard.region.size), Text(part.to.shard.region.size));
    }
    return absl::OkStatus();
  }

  absl::Status CheckCopy(const plan::Task& task) const {
    const auto& copy = std::get<plan::Copy>(task.work);
    BRAID_RETURN_IF_ERROR(CheckOperand(task, copy.destination).status());
    const plan::Shard& destination = copy.destination.shard;
    for (const plan::Copy::Move& move : copy.moves) {
      BRAID_RETURN_IF_ERROR(CheckOperand(task, move.source).status());
      if (TypeNumber(move.source.shard) != TypeNumber(destination)) {
        return Wrong("it moves elements of type %d into a tensor of type %d",
                     TypeNumber(move.source.shard), TypeNumber(destination));
      }
      BRAID_RETURN_IF_ERROR(CheckBox(move.box, move.source.shard.region));
      BRAID_RETURN_IF_ERROR(CheckBox(move.box, destination.region));
      if (move.add && CombineFunction(destination.layout->type.dtype, copy.reduction) == nullptr) {
        return Wrong("elements of type %d cannot be added by reduction %d", TypeNumber(destination),
                     static_cast<int>(copy.reduction));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckStaging(const plan::Transfer& transfer) const {
    if (!transfer.staging.has_value()) {
      if (IsOneRun(transfer.box, transfer.source.shard.region)) return absl::OkStatus();
      return Wrong(
          "it sends a box %s that is not one run of bytes of %s, and has no staging memory",
          Text(transfer.box.size), Text(transfer.source.shard.region.size));
    }
    BRAID_RETURN_IF_ERROR(CheckDevice(transfer.staging->device));
    const uint64_t limit = ArenaBytes(transfer.staging->device, transfer.staging->kind);
    if (Fits(transfer.staging->offset, transfer.bytes, limit)) return absl::OkStatus();
    return Wrong("it packs %d bytes at byte %d of %d", transfer.bytes, transfer.staging->offset,
                 limit);
  }

  absl::Status CheckTransfer(const plan::Task& task) const {
    const auto& transfer = std::get<plan::Transfer>(task.work);
    if (task.outputs.empty() || !task.outputs[0].memory.has_value()) {
      return Wrong("it sends and has no landing slot: %d outputs", task.outputs.size());
    }
    if (transfer.source.source == plan::Operand::Source::kOutput) {
      return Wrong("it sends its own output %d", transfer.source.index);
    }
    if (transfer.peer > kMaxNode) {
      return Wrong("peer %d: nodes are numbered up to %d", transfer.peer, kMaxNode);
    }
    BRAID_RETURN_IF_ERROR(CheckOperand(task, transfer.source).status());
    const plan::Shard& source = transfer.source.shard;
    BRAID_RETURN_IF_ERROR(CheckBox(transfer.box, source.region));
    const uint64_t bytes =
        static_cast<uint64_t>(*ElementsOf(transfer.box.size)) * SizeOf(source.layout->type.dtype);
    if (transfer.bytes != bytes) {
      return Wrong("it sends %d bytes; its box %s has %d bytes", transfer.bytes,
                   Text(transfer.box.size), bytes);
    }
    BRAID_RETURN_IF_ERROR(CheckStaging(transfer));
    const plan::Output& landing = task.outputs[0];
    const uint64_t stride = landing.memory->stride;
    BRAID_RETURN_IF_ERROR(CheckLanding(*landing.memory));
    uint64_t end;
    if (!Fits(transfer.landing, bytes, stride) ||
        __builtin_mul_overflow(stride, uint64_t{landing.slots}, &end)) {
      return Wrong("it sends %d bytes to byte %d of a landing slot of %d bytes (%d slots)", bytes,
                   transfer.landing, stride, landing.slots);
    }
    return absl::OkStatus();
  }

  // Members, kind and counts are CheckCollective's to check (comm/collective/collective.h); what
  // they mean in bytes is known here only.
  absl::Status CheckCollectiveTask(const plan::Task& task) const {
    const auto& collective = std::get<plan::Collective>(task.work);
    BRAID_ASSIGN_OR_RETURN(const uint64_t input_room, CheckOperand(task, collective.input));
    BRAID_ASSIGN_OR_RETURN(const uint64_t output_room, CheckOperand(task, collective.output));
    const auto dtype = static_cast<int>(collective.dtype);
    if (dtype != TypeNumber(collective.input.shard) ||
        dtype != TypeNumber(collective.output.shard)) {
      return Wrong("a collective of elements of type %d from type %d to type %d", dtype,
                   TypeNumber(collective.input.shard), TypeNumber(collective.output.shard));
    }
    if (collective.members >= plan_.members.size()) {
      return Wrong("a collective of the members %d, of %d lists", collective.members,
                   plan_.members.size());
    }
    const plan::Members& list = plan_.members[collective.members];
    for (uint32_t node : list.nodes) {
      if (node > kMaxNode) {
        return Wrong("member on node %d: nodes are numbered up to %d", node, kMaxNode);
      }
    }
    if (list.devices.size() != list.nodes.size()) {
      return Wrong("members on %d nodes and %d devices", list.nodes.size(), list.devices.size());
    }
    BRAID_RETURN_IF_ERROR(CheckOnDevice(task, collective, list));
    if (collective.chunk_bytes < kMinChunkBytes ||
        collective.chunk_bytes > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Wrong("chunks of %d bytes; %d at least", collective.chunk_bytes, kMinChunkBytes);
    }
    const uint64_t members = list.nodes.size();
    const bool is_all_to_all = collective.kind == CollectiveKind::kAllToAll;
    if (members == 0 || collective.rank >= members ||
        collective.counts.size() != NumCounts(collective.kind, members) ||
        collective.receives.size() != (is_all_to_all ? members : 0)) {
      return Wrong("its %s has %d counts and %d of what it receives, rank %d of %d members",
                   CollectiveKindName(collective.kind), collective.counts.size(),
                   collective.receives.size(), collective.rank, members);
    }
    const uint64_t element = SizeOf(collective.dtype);
    const uint64_t most = std::max(input_room, output_room) / element;
    BRAID_ASSIGN_OR_RETURN(const uint64_t sum, SumOf(collective.counts, most));
    BRAID_ASSIGN_OR_RETURN(const uint64_t receives, SumOf(collective.receives, most));
    uint64_t sent = sum, received = sum;
    switch (collective.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kBroadcast:
        break;
      case CollectiveKind::kAllGather:
        sent = static_cast<uint64_t>(collective.counts[collective.rank]);
        break;
      case CollectiveKind::kReduceScatter:
        received = static_cast<uint64_t>(collective.counts[collective.rank]);
        break;
      case CollectiveKind::kAllToAll:
        received = receives;
        break;
    }
    if (sent <= input_room / element && received <= output_room / element) return absl::OkStatus();
    return Wrong(
        "its collective takes %d elements and makes %d; its operands have room for %d and "
        "%d",
        sent, received, input_room / element, output_room / element);
  }

  static absl::StatusOr<uint64_t> SumOf(const std::vector<int64_t>& counts, uint64_t most) {
    uint64_t sum = 0;
    for (const int64_t count : counts) {
      if (count < 0 || static_cast<uint64_t>(count) > most - sum) {
        return Wrong(
            "count %d of its collective, beside %d; its operands have room for %d elements", count,
            sum, most);
      }
      sum += static_cast<uint64_t>(count);
    }
    return sum;
  }

  struct VariableBytes {
    DType dtype = DType::kF32;
    uint64_t bytes = 0;
  };

  const plan::NodePlan& plan_;
  const Devices& devices_;
  std::map<uint32_t, const plan::Arena*> arenas_;  // by device
  std::map<std::pair<uint32_t, std::string_view>, VariableBytes> variables_;
  std::set<uint32_t> written_;  // registers
  uint64_t slots_ = 0;
  uint64_t variable_bytes_ = 0;
};

}  // namespace

absl::Status CheckPlan(const plan::NodePlan& plan, const Devices& devices) {
  return Prefixed(absl::StrFormat("job '%s', node %d", plan.job, plan.node),
                  Checker(plan, devices).Check());
}

}  // namespace braid
