// The kernel of boxing that needs a rank's own bytes only. (Block orders are in shape.cc.)
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "graph/sbp.h"
#include "runtime/base/status.h"
#include "runtime/kernels/check_spec.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/strided.h"

namespace braid::cpu {
namespace {

// Where the logical index `at` lies in a dense region.
BoxCopy::Side SideAt(const Region& region, const std::vector<int64_t>& at) {
  BoxCopy::Side side = {DenseStrides(region.size)};
  for (int axis = 0; axis < region.size.rank(); ++axis) {
    side.offset += (at[axis] - region.offset[axis]) * side.strides[axis];
  }
  return side;
}

// relayout: zeros, then what the input's region and the output's have in common. With once=true
// only the rank that contributes copies: it turns one of several copies (B) into an addend (P).
// Both regions move alike over micro-batches, so that those of act 0 say it for all acts.
absl::StatusOr<std::unique_ptr<Kernel>> MakeRelayout(const KernelSpec& spec) {
  // Of boxing alone: no operator says what it takes.
  BRAID_RETURN_IF_ERROR(
      CheckKernelForm({.inputs = 1, .outputs = 1, .like = {{"once", false}}}, spec));
  const OperandSpec& in = spec.inputs[0];
  const OperandSpec& out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  if (in.logical != out.logical) {
    return absl::InternalError(absl::StrFormat("%s '%s': the tensors %s and %s differ", spec.op,
                                               spec.name, in.logical.ToString(),
                                               out.logical.ToString()));
  }
  const Region common = Intersect(in.region, out.region);
  const bool copies = !common.empty() && (spec.contributes || !spec.attrs.Bool("once"));
  const bool fills = !copies || common.size.num_elements() < out.num_elements();
  const int64_t bytes = out.num_elements() * static_cast<int64_t>(SizeOf(out.dtype));
  std::optional<BoxCopy> copy;
  if (copies) {
    copy.emplace(common.size.dims(), SideAt(in.region, common.offset),
                 SideAt(out.region, common.offset), SizeOf(out.dtype));
  }
  return MakeKernel([copy = std::move(copy), fills, bytes](const KernelRun& run) {
    if (fills && bytes > 0) std::memset(run.outputs[0], 0, bytes);
    if (copy) copy->Run(run.inputs[0], run.outputs[0]);
  });
}

}  // namespace

absl::Status RegisterBoxingKernels(KernelRegistry& registry) {
  return registry.Register("relayout", MakeRelayout);
}

}  // namespace braid::cpu
