// Calls of a process group that are made together: 100 small ones take a tenth of the time that
// they take one by one, or less.
//
//   dist::Batch batch;
//   for (Array& gradient : gradients) batch.AllReduce(gradient, dist::ReduceOp::kAverage);
//   BRAID_RETURN_IF_ERROR(world->Run(batch));  // again and again, if the memory stays
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/dist.h"
#include "api/reduction.h"
#include "graph/source_location.h"

namespace braid::dist {

struct GroupCall;

// A list of calls, which Group::Run and Group::StartRun make. Each adds one, with the arguments and
// meaning of the Group's call of its name; the memory must stay as long as the batch is run, and no
// call may write where another one of the batch reads or writes.
//
// All ranks of the group run batches of the same calls in the same order: one that differs is a
// mismatch, whose error names it. Sends and receives are apart from that: the other calls of the
// batch do not wait for them. The results have the same bits as those of the calls one by one.
// Calls of one kind, type, operation and root with up to 32 KiB of data go together, through memory
// that the group keeps (1 MiB at most); larger ones, gather, scatter, all_to_all and those that
// reduce by a function of the program's follow each other.
class Batch {
 public:
  void AllReduce(Buffer data, const Reduction& op = ReduceOp::kSum, SourceLocation where = Here());
  void Reduce(Buffer data, int root, const Reduction& op = ReduceOp::kSum,
              SourceLocation where = Here());
  void Broadcast(Buffer data, int root, SourceLocation where = Here());
  void AllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts = {},
                 SourceLocation where = Here());
  void Gather(ConstBuffer input, Buffer output, int root, const std::vector<int64_t>& counts = {},
              SourceLocation where = Here());
  void ReduceScatter(ConstBuffer input, Buffer output, const Reduction& op = ReduceOp::kSum,
                     const std::vector<int64_t>& counts = {}, SourceLocation where = Here());
  void Scatter(ConstBuffer input, Buffer output, int root, const std::vector<int64_t>& counts = {},
               SourceLocation where = Here());
  void AllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends = {},
                const std::vector<int64_t>& receives = {}, SourceLocation where = Here());
  void Send(ConstBuffer data, int to, int tag = 0, SourceLocation where = Here());
  void Receive(Buffer data, int from, int tag = 0, SourceLocation where = Here());

  int64_t size() const { return static_cast<int64_t>(parts_.size()); }

 private:
  friend class Group;
  // Adds the calls of a rank.
  using Part = std::function<absl::Status(int rank, int ranks, std::vector<GroupCall>& calls)>;
  template <typename Make>
  void Add(SourceLocation where, Make make);
  absl::StatusOr<std::vector<GroupCall>> CallsOf(int rank, int ranks, SourceLocation where) const;

  std::vector<Part> parts_;
};

}  // namespace braid::dist
