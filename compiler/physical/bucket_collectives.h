// The pass that joins the all_reduces of many small tensors into few, so that the time of a message
// is paid once a bucket. It stands after assign_streams and before chains.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// A bucket is full when it has reached this size. The first one of a step is smaller, so that
// communication starts early (as in Li et al., PyTorch Distributed, VLDB 2020).
struct BucketOptions {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{4} << 20;
};

// Joins all_reduces of equal placement, dimension, dtype, reduction and acts whose inputs come from
// compute groups that can be one chain (see chain_classes.h), in the order in which the inputs
// become final. The groups from the first to the last that write a bucket become one, whose output
// register has a part for each tensor; the all_reduce's output register has the same parts at the
// same offsets. Other communication that starts in between ends a bucket.
absl::StatusOr<PhysicalGraph> BucketCollectives(PhysicalGraph graph,
                                                const BucketOptions& options = {});

}  // namespace braid::compiler
