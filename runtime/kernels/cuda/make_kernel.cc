#include "runtime/kernels/cuda/make_kernel.h"

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid::cuda {

Queue QueueOf(const KernelRun& run) {
  return run.stream == nullptr ? Queue{} : static_cast<QueueStream*>(run.stream)->queue();
}

absl::Status LaunchStatus(const KernelRun& run, Error error) {
  if (error == kDone) return absl::OkStatus();
  if (run.stream != nullptr) return static_cast<QueueStream*>(run.stream)->Failed(error);
  return absl::InternalError(absl::StrFormat("its launch failed: CUDA error %d", error));
}

absl::StatusOr<Walk> WalkOf(const std::vector<int64_t>& sizes,
                            const std::vector<std::vector<int64_t>>& strides) {
  Walk walk;
  for (const int64_t size : sizes) walk.elements *= size;
  if (walk.elements == 0) return walk;
  struct Dim {
    int64_t size = 1;
    int64_t stride[kMaxOperands] = {};
  };
  std::vector<Dim> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    Dim dim = {.size = sizes[i]};
    bool merges = !dims.empty();
    for (size_t k = 0; k < strides.size(); ++k) {
      dim.stride[k] = strides[k][i];
      merges = merges && dims.back().stride[k] == dim.stride[k] * dim.size;
    }
    if (!merges) {
      dims.push_back(dim);
      continue;
    }
    dim.size *= dims.back().size;
    dims.back() = dim;
  }
  if (dims.size() > kMaxRank) {
    return absl::UnimplementedError(
        absl::StrFormat("cuda kernels walk over %d dimensions that cannot be merged; this has %d",
                        kMaxRank, dims.size()));
  }
  walk.rank = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    walk.size[i] = dims[i].size;
    for (int k = 0; k < kMaxOperands; ++k) walk.stride[k][i] = dims[i].stride[k];
  }
  return walk;
}

absl::StatusOr<Walk> BroadcastWalk(const Shape& out, const std::vector<Shape>& inputs) {
  std::vector<std::vector<int64_t>> strides = {DenseStrides(out)};
  for (const Shape& input : inputs) {
    const std::vector<int64_t> dense = DenseStrides(input);
    std::vector<int64_t>& repeated = strides.emplace_back(out.rank(), 0);
    for (int i = 0; i < input.rank(); ++i) {
      if (input[i] != 1) repeated[out.rank() - input.rank() + i] = dense[i];
    }
  }
  return WalkOf(out.dims(), strides);
}

absl::StatusOr<LogicalWalk> LogicalWalkOf(const OperandSpec& operand) {
  LogicalWalk logical;
  const std::vector<int64_t> strides = DenseStrides(operand.logical);
  for (int i = 0; i < operand.logical.rank(); ++i) {
    logical.first += operand.region.offset[i] * strides[i];
  }
  if (operand.micro_batch_axis >= 0) {
    logical.micro_batch_stride = operand.micro_batch_stride * strides[operand.micro_batch_axis];
  }
  BRAID_ASSIGN_OR_RETURN(logical.walk, WalkOf(operand.shape().dims(), {strides}));
  return logical;
}

}  // namespace braid::cuda
