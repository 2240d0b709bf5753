#include "api/dist_calls.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid::dist {
namespace {

int64_t SumOf(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Of a ConstBuffer's or a Buffer's elements.
template <typename B>
GroupCall CallOf(CallKind kind, const B& of, SourceLocation where) {
  GroupCall call;
  call.kind = kind;
  call.type = of.type;
  call.element_size = of.element_size;
  call.where = where;
  return call;
}

// How many elements there are must be how many the counts say.
absl::Status CheckBuffer(const GroupCall& call, const char* what, int64_t count, int64_t expected) {
  if (count == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s (%s): the %s has %d elements; the counts say %d", NameOf(call.kind),
                      call.where.ToString(), what, count, expected));
}

absl::Status CheckTypes(const GroupCall& call, const ConstBuffer& input, const Buffer& output) {
  if (output.count == 0 || (input.type == output.type && input.element_size == output.element_size))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s (%s): the input is of %s (%d bytes each) and the output of %s (%d); both "
                      "must be the same",
                      NameOf(call.kind), call.where.ToString(), NameOf(input.type),
                      input.element_size, NameOf(output.type), output.element_size));
}

absl::Status CheckCounts(const GroupCall& call, const std::vector<int64_t>& counts, int ranks) {
  const int64_t most = std::numeric_limits<int64_t>::max() / ranks;  // so that they add up
  if (static_cast<int>(counts.size()) == ranks &&
      std::ranges::all_of(counts, [most](int64_t n) { return n >= 0 && n <= most; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s (%s): the counts are {%s}; one from 0 on for each of %d ranks was expected",
      NameOf(call.kind), call.where.ToString(), absl::StrJoin(counts, ", "), ranks));
}

// `whole` elements in equal blocks.
absl::StatusOr<std::vector<int64_t>> EqualCounts(const GroupCall& call, const char* what,
                                                 int64_t whole, int ranks) {
  if (whole % ranks == 0) return std::vector<int64_t>(ranks, whole / ranks);
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s (%s): the %s has %d elements, which are no equal blocks for %d ranks; give counts",
      NameOf(call.kind), call.where.ToString(), what, whole, ranks));
}

absl::Status CheckApart(const GroupCall& call, const ConstBuffer& input, const Buffer& output) {
  const auto* in = static_cast<const std::byte*>(input.data);
  const auto* out = static_cast<const std::byte*>(output.data);
  const std::less_equal<const std::byte*> before;
  if (before(in + input.count * input.element_size, out) ||
      before(out + output.count * output.element_size, in) || input.count == 0 ||
      output.count == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s (%s): input and output overlap; give it memory of its own for one of them",
      NameOf(call.kind), call.where.ToString()));
}

absl::StatusOr<GroupCall> BlocksCall(CallKind kind, const ConstBuffer& input, const Buffer& output,
                                     const std::vector<int64_t>& counts, int rank, int ranks,
                                     SourceLocation where) {
  GroupCall call = CallOf(kind, input, where);
  const bool gathers = kind == CallKind::kAllGather;
  BRAID_RETURN_IF_ERROR(CheckTypes(call, input, output));
  BRAID_RETURN_IF_ERROR(CheckApart(call, input, output));
  call.counts = counts;
  if (counts.empty()) {
    BRAID_ASSIGN_OR_RETURN(call.counts, EqualCounts(call, gathers ? "output" : "input",
                                                    gathers ? output.count : input.count, ranks));
  }
  BRAID_RETURN_IF_ERROR(CheckCounts(call, call.counts, ranks));
  const int64_t own = call.counts[rank], all = SumOf(call.counts);
  BRAID_RETURN_IF_ERROR(CheckBuffer(call, "input", input.count, gathers ? own : all));
  BRAID_RETURN_IF_ERROR(CheckBuffer(call, "output", output.count, gathers ? all : own));
  call.input = input.data;
  call.output = output.data;
  return call;
}

// Gather and scatter: `part` is this rank's block, `whole` the root's.
absl::StatusOr<GroupCall> RootCall(CallKind kind, const ConstBuffer& input, const Buffer& output,
                                   int root, const std::vector<int64_t>& counts, int rank,
                                   int ranks, SourceLocation where) {
  // Whose block every rank has says of what type all are.
  const bool gathers = kind == CallKind::kGather;
  GroupCall call = gathers ? CallOf(kind, input, where) : CallOf(kind, output, where);
  call.root = root;
  BRAID_RETURN_IF_ERROR(CheckCall(call, ranks));
  if (gathers || rank == root) {
    BRAID_RETURN_IF_ERROR(CheckTypes(call, input, output));
  }
  BRAID_RETURN_IF_ERROR(CheckApart(call, input, output));
  const int64_t part = gathers ? input.count : output.count;
  const int64_t whole = gathers ? output.count : input.count;
  std::vector<int64_t> blocks(ranks, 0);
  if (rank == root) {
    blocks = counts;
    if (counts.empty()) {
      BRAID_ASSIGN_OR_RETURN(blocks, EqualCounts(call, gathers ? "output" : "input", whole, ranks));
    }
    BRAID_RETURN_IF_ERROR(CheckCounts(call, blocks, ranks));
    BRAID_RETURN_IF_ERROR(CheckBuffer(call, gathers ? "output" : "input", whole, SumOf(blocks)));
    BRAID_RETURN_IF_ERROR(CheckBuffer(call, gathers ? "input" : "output", part, blocks[rank]));
  }
  std::vector<int64_t> own(ranks, 0);
  own[root] = part;
  call.counts = gathers ? own : blocks;
  call.receives = gathers ? blocks : own;
  call.input = input.data;
  call.output = output.data;
  return call;
}

GroupCall InPlace(CallKind kind, const Buffer& data, SourceLocation where) {
  GroupCall call = CallOf(kind, data, where);
  call.counts = {data.count};
  call.input = data.data;
  call.output = data.data;
  return call;
}

GroupCall TransferCall(const ConstBuffer& data, int to, int tag, SourceLocation where) {
  GroupCall call = CallOf(CallKind::kSend, data, where);
  call.counts = {data.count};
  call.peer = to;
  call.tag = tag;
  call.input = data.data;
  return call;
}

GroupCall TransferCall(const Buffer& data, int from, int tag, SourceLocation where) {
  GroupCall call = CallOf(CallKind::kReceive, data, where);
  call.counts = {data.count};
  call.peer = from;
  call.tag = tag;
  call.output = data.data;
  return call;
}

}  // namespace

GroupCalls CallMaker::Checked(GroupCall call) const {
  BRAID_RETURN_IF_ERROR(CheckCall(call, ranks_));
  std::vector<GroupCall> calls;
  calls.push_back(std::move(call));
  return calls;
}

GroupCalls CallMaker::AllReduce(const Buffer& data, const Reduction& op) const {
  GroupCall call = InPlace(CallKind::kAllReduce, data, where_);
  call.op = op.op();
  call.function = op.function();
  return Checked(std::move(call));
}

GroupCalls CallMaker::Reduce(const Buffer& data, int root, const Reduction& op) const {
  GroupCall call = InPlace(CallKind::kReduce, data, where_);
  call.op = op.op();
  call.function = op.function();
  call.root = root;
  return Checked(std::move(call));
}

GroupCalls CallMaker::Broadcast(const Buffer& data, int root) const {
  GroupCall call = InPlace(CallKind::kBroadcast, data, where_);
  call.root = root;
  return Checked(std::move(call));
}

GroupCalls CallMaker::AllGather(const ConstBuffer& input, const Buffer& output,
                                const std::vector<int64_t>& counts) const {
  BRAID_ASSIGN_OR_RETURN(GroupCall call, BlocksCall(CallKind::kAllGather, input, output, counts,
                                                    rank_, ranks_, where_));
  return Checked(std::move(call));
}

GroupCalls CallMaker::Gather(const ConstBuffer& input, const Buffer& output, int root,
                             const std::vector<int64_t>& counts) const {
  BRAID_ASSIGN_OR_RETURN(GroupCall call, RootCall(CallKind::kGather, input, output, root, counts,
                                                  rank_, ranks_, where_));
  return Checked(std::move(call));
}

GroupCalls CallMaker::ReduceScatter(const ConstBuffer& input, const Buffer& output,
                                    const Reduction& op, const std::vector<int64_t>& counts) const {
  BRAID_ASSIGN_OR_RETURN(GroupCall call, BlocksCall(CallKind::kReduceScatter, input, output, counts,
                                                    rank_, ranks_, where_));
  call.op = op.op();
  call.function = op.function();
  return Checked(std::move(call));
}

GroupCalls CallMaker::Scatter(const ConstBuffer& input, const Buffer& output, int root,
                              const std::vector<int64_t>& counts) const {
  BRAID_ASSIGN_OR_RETURN(GroupCall call, RootCall(CallKind::kScatter, input, output, root, counts,
                                                  rank_, ranks_, where_));
  return Checked(std::move(call));
}

GroupCalls CallMaker::AllToAll(const ConstBuffer& input, const Buffer& output,
                               const std::vector<int64_t>& sends,
                               const std::vector<int64_t>& receives) const {
  GroupCall call = CallOf(CallKind::kAllToAll, input, where_);
  BRAID_RETURN_IF_ERROR(CheckTypes(call, input, output));
  BRAID_RETURN_IF_ERROR(CheckApart(call, input, output));
  call.counts = sends;
  call.receives = receives;
  if (sends.empty()) {
    BRAID_ASSIGN_OR_RETURN(call.counts, EqualCounts(call, "input", input.count, ranks_));
  }
  if (receives.empty()) {
    BRAID_ASSIGN_OR_RETURN(call.receives, EqualCounts(call, "output", output.count, ranks_));
  }
  for (const std::vector<int64_t>* counts : {&call.counts, &call.receives}) {
    BRAID_RETURN_IF_ERROR(CheckCounts(call, *counts, ranks_));
  }
  BRAID_RETURN_IF_ERROR(CheckBuffer(call, "input", input.count, SumOf(call.counts)));
  BRAID_RETURN_IF_ERROR(CheckBuffer(call, "output", output.count, SumOf(call.receives)));
  if (call.counts[rank_] != call.receives[rank_]) {
    return absl::InvalidArgumentError(
        absl::StrFormat("all_to_all (%s): rank %d sends itself %d elements and receives %d",
                        where_.ToString(), rank_, call.counts[rank_], call.receives[rank_]));
  }
  call.input = input.data;
  call.output = output.data;
  return Checked(std::move(call));
}

GroupCalls CallMaker::Barrier() const {
  GroupCall call;
  call.kind = CallKind::kBarrier;
  call.type = ElementType::kBytes;
  call.element_size = 1;
  call.where = where_;
  // A byte of each rank.
  const auto bytes = std::make_shared<std::vector<std::byte>>(ranks_ + 1);
  call.input = bytes->data() + ranks_;
  call.output = bytes->data();
  call.keeps = bytes;
  return Checked(std::move(call));
}

GroupCalls CallMaker::Send(const ConstBuffer& data, int to, int tag) const {
  return Checked(TransferCall(data, to, tag, where_));
}

GroupCalls CallMaker::Receive(const Buffer& data, int from, int tag) const {
  return Checked(TransferCall(data, from, tag, where_));
}

GroupCalls CallMaker::Exchange(const std::vector<Transfer>& transfers) const {
  std::vector<GroupCall> calls;
  for (const Transfer& transfer : transfers) {
    calls.push_back(std::visit(
        [&](const auto& data) { return TransferCall(data, transfer.rank, transfer.tag, where_); },
        transfer.data));
    BRAID_RETURN_IF_ERROR(CheckCall(calls.back(), ranks_));
  }
  return calls;
}

}  // namespace braid::dist
