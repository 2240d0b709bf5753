// The calls of process groups, made from what the program gives and checked as far as one rank can.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "api/dist.h"
#include "api/reduction.h"
#include "graph/source_location.h"
#include "runtime/group/group_call.h"

namespace braid::dist {

// What one function of a Group starts: one call, or several that are waited for together.
using GroupCalls = absl::StatusOr<std::vector<GroupCall>>;

// Of one rank of a group, at a line of the program. Each function is as the Group's of its name.
class CallMaker {
 public:
  CallMaker(int rank, int ranks, SourceLocation where)
      : rank_(rank), ranks_(ranks), where_(where) {}

  GroupCalls AllReduce(const Buffer& data, const Reduction& op) const;
  GroupCalls Reduce(const Buffer& data, int root, const Reduction& op) const;
  GroupCalls Broadcast(const Buffer& data, int root) const;
  GroupCalls AllGather(const ConstBuffer& input, const Buffer& output,
                       const std::vector<int64_t>& counts) const;
  GroupCalls Gather(const ConstBuffer& input, const Buffer& output, int root,
                    const std::vector<int64_t>& counts) const;
  GroupCalls ReduceScatter(const ConstBuffer& input, const Buffer& output, const Reduction& op,
                           const std::vector<int64_t>& counts) const;
  GroupCalls Scatter(const ConstBuffer& input, const Buffer& output, int root,
                     const std::vector<int64_t>& counts) const;
  GroupCalls AllToAll(const ConstBuffer& input, const Buffer& output,
                      const std::vector<int64_t>& sends,
                      const std::vector<int64_t>& receives) const;
  GroupCalls Barrier() const;
  GroupCalls Send(const ConstBuffer& data, int to, int tag) const;
  GroupCalls Receive(const Buffer& data, int from, int tag) const;
  GroupCalls Exchange(const std::vector<Transfer>& transfers) const;

 private:
  GroupCalls Checked(GroupCall call) const;

  const int rank_;
  const int ranks_;
  const SourceLocation where_;
};

}  // namespace braid::dist
