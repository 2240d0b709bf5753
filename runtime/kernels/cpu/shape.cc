// Kernels that only move elements: identity, reshape, transpose, slice, pad, concat, split,
// broadcast_to, and the block orders that boxing asks for.
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
  const int64_t bytes =
      spec.outputs[0].num_elements() * static_cast<int64_t>(SizeOf(spec.outputs[0].dtype));
  return MakeKernel([bytes](const KernelRun& run) {
    if (bytes > 0 && run.outputs[0] != run.inputs[0]) {
      std::memcpy(run.outputs[0], run.inputs[0], bytes);
    }
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

// Copies the part of the output's region that the input's region holds. `begin` is the input's
// logical index of the output's element 0. The rest of the output becomes zero.
class SliceKernel final : public Kernel {
 public:
  SliceKernel(const KernelSpec& spec, std::vector<int64_t> begin)
      : in_(spec.inputs[0]),
        out_(spec.outputs[0]),
        begin_(std::move(begin)),
        copy_(Plan(/*micro_batch=*/0)),
        moves_(in_.time_axis != out_.time_axis || in_.time_stride != out_.time_stride) {}

  absl::Status Run(const KernelRun& run) override {
    // Both operands usually move together; where they do not, each act cuts another box.
    if (moves_ && run.micro_batch > 0) {
      Copy(Plan(run.micro_batch), run);
    } else {
      Copy(copy_, run);
    }
    return absl::OkStatus();
  }

 private:
  struct Cut {
    BoxCopy box;
    bool covers;
  };

  Cut Plan(int64_t micro_batch) const {
    const Shape& in_size = in_.shape();
    const Shape& out_size = out_.shape();
    std::vector<int64_t> sizes(out_size.rank());
    BoxCopy::Side from = {DenseStrides(in_size)}, to = {DenseStrides(out_size)};
    bool covers = true;
    for (int i = 0; i < out_size.rank(); ++i) {
      // In the input's logical indices.
      const int64_t in_begin = OffsetAt(in_, i, micro_batch);
      const int64_t out_begin = OffsetAt(out_, i, micro_batch) + begin_[i];
      const int64_t begin = std::max(in_begin, out_begin);
      const int64_t end = std::min(in_begin + in_size[i], out_begin + out_size[i]);
      sizes[i] = std::max<int64_t>(0, end - begin);
      from.offset += (begin - in_begin) * from.strides[i];
      to.offset += (begin - out_begin) * to.strides[i];
      covers = covers && sizes[i] == out_size[i];
    }
    return {BoxCopy(std::move(sizes), std::move(from), std::move(to), SizeOf(out_.dtype)), covers};
  }

  void Copy(const Cut& cut, const KernelRun& run) const {
    if (!cut.covers) std::memset(run.outputs[0], 0, out_.num_elements() * SizeOf(out_.dtype));
    cut.box.Run(run.inputs[0], run.outputs[0]);
  }

  OperandSpec in_, out_;
  std::vector<int64_t> begin_;
  Cut copy_;
  bool moves_;
};

KernelOr MakeSlice(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != spec.outputs[0].dtype) return UnsupportedTypes(spec);
  return std::make_unique<SliceKernel>(spec, spec.attrs.Ints("begin"));
}

// pad is slice with a negative begin.
KernelOr MakePad(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != spec.outputs[0].dtype) return UnsupportedTypes(spec);
  std::vector<int64_t> begin = spec.attrs.Ints("before");
  for (int64_t& b : begin) b = -b;
  return std::make_unique<SliceKernel>(spec, std::move(begin));
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
  ASSIGN_OR_RETURN(PartCopies copies, CopyParts(spec, spec.outputs[0], spec.inputs, false));
  return MakeKernel([copies = std::move(copies)](const KernelRun& run) {
    for (size_t i = 0; i < copies.boxes.size(); ++i) {
      copies.boxes[i].Run(run.inputs[i], run.outputs[0]);
    }
  });
}

KernelOr MakeSplit(const KernelSpec& spec) {
  ASSIGN_OR_RETURN(PartCopies copies, CopyParts(spec, spec.inputs[0], spec.outputs, true));
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
  for (const char* name : {"identity", "stop_gradient", "reshape"}) {
    RETURN_IF_ERROR(registry.Register(name, MakeIdentity));
  }
  RETURN_IF_ERROR(registry.Register("transpose", MakeTranspose));
  RETURN_IF_ERROR(registry.Register("broadcast_to", MakeBroadcastTo));
  RETURN_IF_ERROR(registry.Register("slice", MakeSlice));
  RETURN_IF_ERROR(registry.Register("pad", MakePad));
  RETURN_IF_ERROR(registry.Register("concat", MakeConcat));
  RETURN_IF_ERROR(registry.Register("split", MakeSplit));
  RETURN_IF_ERROR(registry.Register(
      "block_pack", [](const KernelSpec& s) { return MakeBlocks(s, /*pack=*/true); }));
  return registry.Register("block_unpack",
                           [](const KernelSpec& s) { return MakeBlocks(s, /*pack=*/false); });
}

}  // namespace braid::cpu
