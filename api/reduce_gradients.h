// What a job records of its gradients' way from device to device (ddp.h).
#pragma once

#include "absl/status/status.h"
#include "api/ddp.h"
#include "graph/logical_graph.h"
#include "graph/source_location.h"

namespace braid {

// For the variables of the request that enter mirrored values, or all trainable ones of its loss if
// it lists none: records what their mirrored gradients come to. With `is_without_sync` they are
// added up on each device, and that is all. Without a hook the request gets the sizes of buckets.
// What is wrong is the graph's error.
void ReduceGradients(LogicalGraph& graph, MinimizeRequest& request, const Ddp& ddp,
                     bool is_without_sync, SourceLocation where);

}  // namespace braid
