#include "api/dist_batch.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/dist_calls.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/group/group_batch.h"

namespace braid::dist {

template <typename Make>
void Batch::Add(SourceLocation where, Make make) {
  parts_.push_back([where, make = std::move(make)](int rank, int ranks,
                                                   std::vector<GroupCall>& calls) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(std::vector<GroupCall> made, make(CallMaker(rank, ranks, where)));
    calls.insert(calls.end(), std::make_move_iterator(made.begin()),
                 std::make_move_iterator(made.end()));
    return absl::OkStatus();
  });
}

void Batch::AllReduce(Buffer data, const Reduction& op, SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.AllReduce(data, op); });
}

void Batch::Reduce(Buffer data, int root, const Reduction& op, SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.Reduce(data, root, op); });
}

void Batch::Broadcast(Buffer data, int root, SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.Broadcast(data, root); });
}

void Batch::AllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts,
                      SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.AllGather(input, output, counts); });
}

void Batch::Gather(ConstBuffer input, Buffer output, int root, const std::vector<int64_t>& counts,
                   SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.Gather(input, output, root, counts); });
}

void Batch::ReduceScatter(ConstBuffer input, Buffer output, const Reduction& op,
                          const std::vector<int64_t>& counts, SourceLocation where) {
  Add(where,
      [=](const CallMaker& maker) { return maker.ReduceScatter(input, output, op, counts); });
}

void Batch::Scatter(ConstBuffer input, Buffer output, int root, const std::vector<int64_t>& counts,
                    SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.Scatter(input, output, root, counts); });
}

void Batch::AllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends,
                     const std::vector<int64_t>& receives, SourceLocation where) {
  Add(where,
      [=](const CallMaker& maker) { return maker.AllToAll(input, output, sends, receives); });
}

void Batch::Send(ConstBuffer data, int to, int tag, SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.Send(data, to, tag); });
}

void Batch::Receive(Buffer data, int from, int tag, SourceLocation where) {
  Add(where, [=](const CallMaker& maker) { return maker.Receive(data, from, tag); });
}

absl::StatusOr<std::vector<GroupCall>> Batch::CallsOf(int rank, int ranks,
                                                      SourceLocation where) const {
  std::vector<GroupCall> calls;
  calls.reserve(parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (const absl::Status made = parts_[i](rank, ranks, calls); !made.ok()) {
      return Prefixed(absl::StrFormat("part %d of a batch (%s)", i + 1, where.ToString()), made);
    }
  }
  return JoinCalls(std::move(calls), rank, where);
}

}  // namespace braid::dist
