// An NCCL among the threads of a process, as a file that is opened in the place of the real one.
// Its calls never block, and it refuses what NCCL would: members that ask for different things.
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cuda/collective_parts.h"

namespace {

using braid::DType;
using braid::cuda::CollectivePart;

enum class Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kReceive };

struct Op {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction;
  int peer;  // or the root

  bool IsAlike(const Op& other) const {
    return std::tie(kind, count, type, reduction, peer) ==
           std::tie(other.kind, other.count, other.type, other.reduction, other.peer);
  }
};

// By member: what it asks for at once.
using Batch = std::vector<std::vector<Op>>;

struct World {
  std::mutex mutex;
  int members = 0, joined = 0;
  std::map<int64_t, Batch> begun;
  std::map<int64_t, int> come;
  int64_t done = 0;
  ncclResult_t result = ncclSuccess;
};

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat64:
    case ncclInt64:
      return 8;
    default:
      return 4;
  }
}

DType DTypeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
      return DType::kF64;
    case ncclFloat16:
      return DType::kF16;
    case ncclBfloat16:
      return DType::kBF16;
    case ncclInt32:
      return DType::kI32;
    case ncclInt64:
      return DType::kI64;
    default:
      return DType::kF32;
  }
}

// Writes of a batch, which come after all of its reads.
using Writes = std::vector<std::pair<void*, std::vector<std::byte>>>;

void Write(void* to, const void* from, size_t bytes, Writes& writes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  writes.emplace_back(to, std::vector<std::byte>(begin, begin + bytes));
}

// The same op of all members.
void CarryOut(const std::vector<Op>& ops, Writes& writes) {
  const Op& op = ops[0];
  const size_t bytes = op.count * BytesOf(op.type);
  const auto reduce = [&](size_t first, size_t n, void* to) {
    std::vector<CollectivePart> parts(ops.size());
    for (size_t r = 0; r < ops.size(); ++r) {
      parts[r].call.input = ops[r].send;
      parts[r].call.dtype = DTypeOf(op.type);
      parts[r].call.reduction = op.reduction == ncclSum ? 0 : op.reduction == ncclMax ? 1 : 2;
    }
    std::vector<std::byte> result(n * BytesOf(op.type));
    ReduceParts(parts, static_cast<int64_t>(first), static_cast<int64_t>(n), result.data());
    writes.emplace_back(to, std::move(result));
  };
  for (size_t r = 0; r < ops.size(); ++r) {
    if (op.kind == Kind::kAllReduce) reduce(0, op.count, ops[r].receive);
    if (op.kind == Kind::kReduceScatter) reduce(r * op.count, op.count, ops[r].receive);
    if (op.kind == Kind::kReduce && static_cast<int>(r) == op.peer) {
      reduce(0, op.count, ops[r].receive);
    }
    if (op.kind == Kind::kBroadcast) Write(ops[r].receive, ops[op.peer].send, bytes, writes);
    for (size_t from = 0; op.kind == Kind::kAllGather && from < ops.size(); ++from) {
      Write(static_cast<std::byte*>(ops[r].receive) + from * bytes, ops[from].send, bytes, writes);
    }
  }
}

// What goes from one member to another.
ncclResult_t Deliver(const Batch& batch, int from, int to, Writes& writes) {
  const auto find = [&](int at, Kind kind, int peer) -> const Op* {
    for (const Op& op : batch[at]) {
      if (op.kind == kind && op.peer == peer) return &op;
    }
    return nullptr;
  };
  const Op* const send = find(from, Kind::kSend, to);
  const Op* const receive = find(to, Kind::kReceive, from);
  if (send == nullptr && receive == nullptr) return ncclSuccess;
  if (send == nullptr || receive == nullptr || send->count != receive->count)
    return ncclInvalidUsage;
  Write(receive->receive, send->send, send->count * BytesOf(send->type), writes);
  return ncclSuccess;
}

bool IsBetweenTwo(const Op& op) { return op.kind == Kind::kSend || op.kind == Kind::kReceive; }

ncclResult_t CarryOut(const Batch& batch) {
  const int members = static_cast<int>(batch.size());
  Writes writes;
  bool is_between_two = false;
  for (const std::vector<Op>& ops : batch) {
    for (const Op& op : ops) is_between_two = is_between_two || IsBetweenTwo(op);
  }
  for (int from = 0; is_between_two && from < members; ++from) {
    for (int to = 0; to < members; ++to) {
      if (Deliver(batch, from, to, writes) != ncclSuccess) return ncclInvalidUsage;
    }
  }
  for (size_t i = 0; !is_between_two && i < batch[0].size(); ++i) {
    std::vector<Op> ops;
    for (const std::vector<Op>& of_member : batch) {
      if (of_member.size() != batch[0].size() || !of_member[i].IsAlike(batch[0][i])) {
        return ncclInvalidUsage;
      }
      ops.push_back(of_member[i]);
    }
    CarryOut(ops, writes);
  }
  for (const auto& [to, bytes] : writes) {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  }
  return ncclSuccess;
}

thread_local int group_depth = 0;
thread_local std::vector<Op> group_ops;
thread_local ncclComm_t group_comm = nullptr;

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  int64_t batches = 0;
};

namespace {

ncclResult_t Begin(ncclComm_t comm, std::vector<Op> ops) {
  World& world = *comm->world;
  const std::lock_guard lock(world.mutex);
  const int64_t number = comm->batches++;
  Batch& batch = world.begun[number];
  batch.resize(world.members);
  batch[comm->rank] = std::move(ops);
  if (++world.come[number] < world.members) return ncclInProgress;
  world.result = CarryOut(batch);
  world.begun.erase(number);
  world.done = number + 1;
  return ncclInProgress;
}

ncclResult_t Submit(ncclComm_t comm, const Op& op) {
  if (group_depth == 0) return Begin(comm, {op});
  group_ops.push_back(op);
  group_comm = comm;
  return ncclInProgress;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage" : "another error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> next = 1;
  const uint64_t number = next++;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int members, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  static std::mutex mutex;
  static std::map<uint64_t, std::shared_ptr<World>> worlds;
  uint64_t number = 0;
  std::memcpy(&number, &id, sizeof number);
  const std::lock_guard lock(mutex);
  std::shared_ptr<World>& world = worlds[number];
  if (world == nullptr) world = std::make_shared<World>();
  const std::lock_guard world_lock(world->mutex);
  world->members = members;
  ++world->joined;
  *comm = new ncclComm{.world = world, .rank = rank};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const World& world = *comm->world;
  const std::lock_guard lock(comm->world->mutex);
  *state =
      world.joined < world.members || world.done < comm->batches ? ncclInProgress : world.result;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group_comm == nullptr) return ncclSuccess;
  return Begin(std::exchange(group_comm, nullptr), std::exchange(group_ops, {}));
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  return Submit(comm, {Kind::kAllReduce, send, receive, count, type, op, 0});
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t) {
  return Submit(comm, {Kind::kReduce, send, receive, count, type, op, root});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  return Submit(comm, {Kind::kReduceScatter, send, receive, count, type, op, 0});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t) {
  return Submit(comm, {Kind::kAllGather, send, receive, count, type, ncclSum, 0});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t) {
  return Submit(comm, {Kind::kBroadcast, send, receive, count, type, ncclSum, root});
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t) {
  return Submit(comm, {Kind::kSend, send, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t) {
  return Submit(comm, {Kind::kReceive, nullptr, receive, count, type, ncclSum, peer});
}

}  // extern "C"
