// Kernels that only move elements: identity, reshape, transpose, concat, split, broadcast_to, and
// the block orders that boxing asks for.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/strided.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

KernelOr MakeIdentity(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != spec.outputs[0].dtype) return UnsupportedTypes(spec);
  if (spec.inputs[0].num_elements() != spec.outputs[0].num_elements()) {
    return absl::InternalError(
        absl::StrFormat("%s '%s': the local shapes %s and %s differ in size", spec.op, spec.name,
                        spec.inputs[0].shape().ToString(), spec.outputs[0].shape().ToString()));
  }
  const auto element = static_cast<int64_t>(SizeOf(spec.outputs[0].dtype));
  const int64_t elements = spec.outputs[0].num_elements();
  return MakePointwise(elements, [element](const KernelRun& run, int64_t begin, int64_t size) {
    const auto* const from = Input<char>(run, 0) + begin * element;
    char* const to = Output<char>(run, 0) + begin * element;
    if (size > 0 && to != from) std::memcpy(to, from, size * element);
  });
}

KernelOr MakeBoxCopy(const KernelSpec& spec, BoxCopy copy) {
  if (spec.inputs[0].dtype != spec.outputs[0].dtype) return UnsupportedTypes(spec);
  return MakeKernel(
      [copy = std::move(copy)](const KernelRun& run) { copy.Run(run.inputs[0], run.outputs[0]); });
}

KernelOr MakeTranspose(const KernelSpec& spec) {
  const std::vector<int64_t>& perm = spec.attrs.Ints("perm");
  const std::vector<int64_t> strides = DenseStrides(spec.inputs[0].shape());
  const Shape& out = spec.outputs[0].shape();
  BoxCopy::Side from;
  for (int64_t axis : perm) from.strides.push_back(strides[axis]);
  return MakeBoxCopy(spec,
                     BoxCopy(out.dims(), from, {DenseStrides(out)}, SizeOf(spec.outputs[0].dtype)));
}

KernelOr MakeBroadcastTo(const KernelSpec& spec) {
  const Shape& in = spec.inputs[0].shape();
  const Shape& out = spec.outputs[0].shape();
  const std::vector<int64_t> strides = DenseStrides(in);
  BoxCopy::Side from;
  from.strides.assign(out.rank(), 0);
  const int shift = out.rank() - in.rank();
  for (int i = 0; i < in.rank(); ++i) {
    // An axis that holds one local element of many moves along with the output's one element.
    if (in[i] != 1) from.strides[i + shift] = strides[i];
  }
  return MakeBoxCopy(spec,
                     BoxCopy(out.dims(), from, {DenseStrides(out)}, SizeOf(spec.outputs[0].dtype)));
}

// Between one tensor and its consecutive parts along an axis, which is whole on every operand.
struct PartCopies {
  std::vector<BoxCopy> boxes;
};

absl::StatusOr<PartCopies> CopyParts(const KernelSpec& spec, const OperandSpec& whole,
                                     const std::vector<OperandSpec>& parts, bool to_parts) {
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const std::vector<int64_t> whole_strides = DenseStrides(whole.shape());
  PartCopies copies;
  int64_t at = 0;
  for (const OperandSpec& part : parts) {
    if (part.dtype != whole.dtype) return UnsupportedTypes(spec);
    BoxCopy::Side inside = {whole_strides, at * whole_strides[axis]};
    BoxCopy::Side outside = {DenseStrides(part.shape())};
    if (to_parts) {
      copies.boxes.emplace_back(part.shape().dims(), inside, outside, SizeOf(whole.dtype));
    } else {
      copies.boxes.emplace_back(part.shape().dims(), outside, inside, SizeOf(whole.dtype));
    }
    at += part.shape()[axis];
  }
  if (at != whole.shape()[axis]) {
    return absl::InternalError(absl::StrFormat("%s '%s': the parts hold %d of %d along axis %d",
                                               spec.op, spec.name, at, whole.shape()[axis], axis));
  }
  return copies;
}

KernelOr MakeConcat(const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(PartCopies copies, CopyParts(spec, spec.outputs[0], spec.inputs, false));
  return MakeKernel([copies = std::move(copies)](const KernelRun& run) {
    for (size_t i = 0; i < copies.boxes.size(); ++i) {
      copies.boxes[i].Run(run.inputs[i], run.outputs[0]);
    }
  });
}

KernelOr MakeSplit(const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(PartCopies copies, CopyParts(spec, spec.inputs[0], spec.outputs, true));
  return MakeKernel([copies = std::move(copies)](const KernelRun& run) {
    for (size_t i = 0; i < copies.boxes.size(); ++i) {
      copies.boxes[i].Run(run.inputs[0], run.outputs[i]);
    }
  });
}

// Blocks one after another, each dense <-> one dense tensor.
KernelOr MakeBlocks(const KernelSpec& spec, bool pack) {
  if (spec.inputs[0].dtype != spec.outputs[0].dtype) return UnsupportedTypes(spec);
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const int64_t parts = spec.attrs.Int("parts");
  const Shape& whole = pack ? spec.inputs[0].shape() : spec.outputs[0].shape();
  const std::vector<int64_t> whole_strides = DenseStrides(whole);
  const size_t element_size = SizeOf(spec.inputs[0].dtype);
  std::vector<BoxCopy> boxes;
  int64_t at = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const Interval interval = SplitEvenly(whole[axis], parts, part);
    Shape block = whole;
    block[axis] = interval.size;
    BoxCopy::Side tensor = {whole_strides, interval.offset * whole_strides[axis]};
    BoxCopy::Side packed = {DenseStrides(block), at};
    at += block.num_elements();
    if (pack) {
      boxes.emplace_back(block.dims(), tensor, packed, element_size);
    } else {
      boxes.emplace_back(block.dims(), packed, tensor, element_size);
    }
  }
  return MakeKernel([boxes = std::move(boxes)](const KernelRun& run) {
    for (const BoxCopy& box : boxes) box.Run(run.inputs[0], run.outputs[0]);
  });
}

}  // namespace

absl::Status RegisterShapeKernels(KernelRegistry& registry) {
  for (const char* name : {"after", "identity", "join_mirrored", "mirror", "mirror_parts",
                           "reshape", "stop_gradient", "sum_mirrored"}) {
    BRAID_RETURN_IF_ERROR(registry.Register(name, MakeIdentity));
  }
  BRAID_RETURN_IF_ERROR(registry.Register("transpose", MakeTranspose));
  BRAID_RETURN_IF_ERROR(registry.Register("broadcast_to", MakeBroadcastTo));
  BRAID_RETURN_IF_ERROR(registry.Register("concat", MakeConcat));
  BRAID_RETURN_IF_ERROR(registry.Register("split", MakeSplit));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "block_pack", [](const KernelSpec& s) { return MakeBlocks(s, /*pack=*/true); }));
  return registry.Register("block_unpack",
                           [](const KernelSpec& s) { return MakeBlocks(s, /*pack=*/false); });
}

}  // namespace braid::cpu
