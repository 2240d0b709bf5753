#include "runtime/group/group_batch.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/collective/chunk_schedule.h"
#include "glog/logging.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"

namespace braid::dist {
namespace {

// Above, the two copies cost more than a call.
constexpr int64_t kMostPartBytes = int64_t{32} << 10;
// Of what is joined into one call.
constexpr int64_t kMostJoinedBytes = int64_t{1} << 20;

int64_t TotalOf(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Whose counts all ranks know, so that their sums say that all of them fit together. Functions of
// the program's are told apart by their names only, so they get calls of their own.
bool IsSmall(const GroupCall& call) {
  return !IsPairwise(call.kind) && call.kind != CallKind::kBarrier && !call.function &&
         TotalOf(call.counts) * call.element_size <= kMostPartBytes;
}

// Memory that a call of a batch uses on this rank.
struct Use {
  uintptr_t begin = 0, end = 0;
  bool is_written = false;
  size_t call = 0;
};

void AddUses(const GroupCall& call, size_t index, int rank, std::vector<Use>& uses) {
  const auto add = [&](const void* data, int64_t count, bool is_written) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    if (count > 0) uses.push_back({begin, begin + count * call.element_size, is_written, index});
  };
  switch (call.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduce:
    case CallKind::kBroadcast:
    case CallKind::kReceive:
      return add(call.output, call.counts[0], true);
    case CallKind::kSend:
      return add(call.input, call.counts[0], false);
    case CallKind::kAllGather:
      add(call.input, call.counts[rank], false);
      return add(call.output, TotalOf(call.counts), true);
    case CallKind::kReduceScatter:
      add(call.input, TotalOf(call.counts), false);
      return add(call.output, call.counts[rank], true);
    case CallKind::kGather:
    case CallKind::kScatter:
    case CallKind::kAllToAll:
      add(call.input, TotalOf(call.counts), false);
      return add(call.output, TotalOf(call.receives), true);
    case CallKind::kBarrier:
      return;  // its memory is nobody else's
    case CallKind::kMakeWindow:
    case CallKind::kPut:
    case CallKind::kGet:
    case CallKind::kWaitSignal:
    case CallKind::kFence:
    case CallKind::kCloseWindow:
    case CallKind::kDropWindow:
      LOG(FATAL) << Describe(call) << " is no part of a batch";
  }
}

absl::Status CheckUses(const std::vector<GroupCall>& calls, int rank) {
  std::vector<Use> uses;
  for (size_t i = 0; i < calls.size(); ++i) AddUses(calls[i], i, rank, uses);
  std::ranges::sort(uses, {}, &Use::begin);
  Use read, written;  // which reach furthest so far
  for (const Use& use : uses) {
    const Use* other = written.end > use.begin                  ? &written
                       : use.is_written && read.end > use.begin ? &read
                                                                : nullptr;
    if (other != nullptr) {
      const auto [first, second] = std::minmax(other->call, use.call);
      return absl::InvalidArgumentError(absl::StrFormat(
          "a batch: part %d, %s, and part %d, %s, overlap; give it memory of its own for one of "
          "them",
          first + 1, Describe(calls[first]), second + 1, Describe(calls[second])));
    }
    Use& furthest = use.is_written ? written : read;
    if (use.end > furthest.end) furthest = use;
  }
  return absl::OkStatus();
}

// Of the calls of a batch, by their place in it: those that become one, in the order of their
// first.
std::vector<std::vector<int>> Joined(const std::vector<GroupCall>& calls) {
  struct Open {
    size_t index = 0;
    int64_t bytes = 0;
  };
  std::vector<std::vector<int>> joined;
  std::map<std::tuple<CallKind, ElementType, int64_t, ReduceOp, int>, Open> open;
  for (size_t i = 0; i < calls.size(); ++i) {
    const GroupCall& call = calls[i];
    if (IsSmall(call)) {
      const int64_t bytes = TotalOf(call.counts) * call.element_size;
      const auto [found, is_new] =
          open.try_emplace({call.kind, call.type, call.element_size, call.op, call.root});
      Open& last = found->second;
      if (is_new || last.bytes + bytes > kMostJoinedBytes) {
        last = {joined.size(), 0};
      } else {
        joined[last.index].push_back(static_cast<int>(i));
      }
      last.bytes += bytes;
      if (last.index < joined.size()) continue;
    }
    joined.push_back({static_cast<int>(i)});
  }
  return joined;
}

// In elements: what of a part goes into a rank's block.
int64_t BlockOf(const GroupCall& part, int block, int ranks) {
  switch (part.kind) {
    case CallKind::kAllReduce:
      return EvenBlock(part.counts[0], ranks, block);
    case CallKind::kReduce:
    case CallKind::kBroadcast:
      return block == 0 ? part.counts[0] : 0;
    default:
      return part.counts[block];
  }
}

// Calls piece(part, where in its data, where in the joined ones, bytes); of one block, or of all if
// `only` is -1.
template <typename F>
void ForEachPiece(const GroupCall& call, int ranks, int only, F piece) {
  std::vector<int64_t> done(call.parts.size(), 0);
  int64_t at = 0;
  for (int block = 0; block < ranks; ++block) {
    for (size_t i = 0; i < call.parts.size(); ++i) {
      const GroupCall& part = call.batch->calls[call.parts[i]];
      const int64_t bytes = BlockOf(part, block, ranks) * part.element_size;
      if (bytes > 0 && (only < 0 || only == block)) {
        piece(part, done[i], at, bytes);
        done[i] += bytes;
      }
      at += bytes;
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<GroupCall>> JoinCalls(std::vector<GroupCall> calls, int rank,
                                                 SourceLocation where) {
  BRAID_RETURN_IF_ERROR(CheckUses(calls, rank));
  std::vector<GroupCall> made;
  const auto collectives = std::stable_partition(
      calls.begin(), calls.end(), [](const GroupCall& call) { return IsTransfer(call.kind); });
  std::move(calls.begin(), collectives, std::back_inserter(made));
  calls.erase(calls.begin(), collectives);
  std::string text;
  for (const GroupCall& call : calls) AppendSubject(call, text);
  const auto batch = std::make_shared<GroupBatch>();
  batch->where = where;
  batch->signature = StableHash(text);
  for (const GroupCall& call : calls) batch->calls.push_back(Remembered(call));
  for (std::vector<int>& parts : Joined(calls)) {
    GroupCall& call = made.emplace_back(std::move(calls[parts[0]]));
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::vector<int64_t>& counts = calls[parts[i]].counts;
      std::ranges::transform(call.counts, counts, call.counts.begin(), std::plus<>());
    }
    call.batch = batch;
    call.parts = std::move(parts);
  }
  return made;
}

std::vector<int64_t> JoinedBlocks(const GroupCall& call, int ranks) {
  if (!IsJoined(call) || call.kind != CallKind::kAllReduce) return {};
  std::vector<int64_t> blocks(ranks, 0);
  for (const int part : call.parts) {
    for (int block = 0; block < ranks; ++block) {
      blocks[block] += BlockOf(call.batch->calls[part], block, ranks);
    }
  }
  return blocks;
}

absl::Status JoinedData::Pack(const GroupCall& call, int rank, int ranks,
                              const AllocateMemory& allocate) {
  const auto bytes = static_cast<uint64_t>(TotalOf(call.counts) * call.element_size);
  if (memory_.size() < bytes) {
    BRAID_ASSIGN_OR_RETURN(memory_, allocate(bytes));
  }
  const bool gathers = call.kind == CallKind::kAllGather;
  const bool scatters = call.kind == CallKind::kReduceScatter;
  int64_t own = 0;
  if (gathers || scatters) {
    own = std::accumulate(call.counts.begin(), call.counts.begin() + rank, int64_t{0}) *
          call.element_size;
  }
  input_ = gathers ? own : 0;
  output_ = scatters ? own : 0;
  if (call.kind == CallKind::kBroadcast && call.root != rank) return absl::OkStatus();
  ForEachPiece(call, ranks, gathers ? rank : -1,
               [this](const GroupCall& part, int64_t offset, int64_t at, int64_t size) {
                 std::memcpy(memory_.data() + at,
                             static_cast<const std::byte*>(part.input) + offset,
                             static_cast<size_t>(size));
               });
  return absl::OkStatus();
}

void JoinedData::Unpack(const GroupCall& call, int rank, int ranks) const {
  if (HasRoot(call.kind) && (call.root == rank) == (call.kind == CallKind::kBroadcast)) return;
  ForEachPiece(call, ranks, call.kind == CallKind::kReduceScatter ? rank : -1,
               [this](const GroupCall& part, int64_t offset, int64_t at, int64_t size) {
                 std::memcpy(static_cast<std::byte*>(part.output) + offset, memory_.data() + at,
                             static_cast<size_t>(size));
               });
}

}  // namespace braid::dist
