// The mirrored view: each device has a value of its own, as each process has in an SPMD program.
// What is computed from mirrored values is mirrored; values that all devices share (weights,
// constants) are mirrored where they meet one, and the gradient that comes back to them is the sum
// over the devices. Where one value is needed (a fetch, a variable's update, a loss), one of the
// functions below must make it.
#pragma once

#include <cstdint>
#include <string>

#include "graph/logical_graph.h"
#include "graph/source_location.h"

namespace braid {

// Inside job.Mirrored. The same value on each device: x, which must not be mirrored. Seldom needed,
// since it is done where x meets a mirrored value.
Tensor Mirror(Tensor x, SourceLocation where = Here());
// Inside job.Mirrored: x is [n, ...], and each of p devices has n / p rows of it, in their order;
// with micro-batches, of each of them.
Tensor MirrorParts(Tensor x, SourceLocation where = Here());

// The sum over the devices, and their mean: x is floating or a whole number for the sum.
Tensor SumMirrored(Tensor x, SourceLocation where = Here());
Tensor MeanMirrored(Tensor x, SourceLocation where = Here());
// x is [n, ...] on each device; [p * n, ...]: their rows one after another, as MirrorParts took
// them apart.
Tensor JoinParts(Tensor x, SourceLocation where = Here());
// [p, ...]: the values of all p devices, in their order.
Tensor Stack(Tensor x, SourceLocation where = Here());
// The value of the device `rank`, 0 <= rank < p.
Tensor FromRank(Tensor x, int64_t rank, SourceLocation where = Here());

// A variable of which each device has its own value, of `type`. It is stored as [p n], one device's
// n numbers after the other's, so that checkpoints have it, for as many devices.
struct OwnVariable {
  Tensor stored;  // what Assign changes: Assign(stored, StoreOwn(value))
  Tensor value;   // mirrored
};
OwnVariable MakeOwnVariable(LogicalGraph& graph, const Mirroring& mirroring, std::string name,
                            const TensorType& type, SourceLocation where = Here());
// A mirrored value as it is stored.
Tensor StoreOwn(Tensor value, SourceLocation where = Here());

// Where each device has a host of its own (a rank of a world): inside job.Mirrored, what that host
// feeds, and a mirrored value that comes to the host of each device.
Tensor MirroredInput(LogicalGraph& graph, std::string name, TensorType type,
                     SourceLocation where = Here());
void FetchMirrored(Tensor x, std::string name, SourceLocation where = Here());

}  // namespace braid
