// Of KernelSpecs: what only moves elements.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "graph/sbp.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/kernels/check_spec.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using Ints = std::vector<int64_t>;

int64_t Bytes(DType dtype) { return static_cast<int64_t>(SizeOf(dtype)); }

// ---- boxes --------------------------------------------------------------------------------------

// One side of a box, in elements.
struct BoxSide {
  Ints strides;
  int64_t offset = 0;
};

absl::StatusOr<CopyLaunch> BoxCopy(const Ints& sizes, const BoxSide& from, const BoxSide& to,
                                   DType dtype) {
  CopyLaunch copy = {
      .element_bytes = Bytes(dtype), .to_offset = to.offset, .from_offset = from.offset};
  BRAID_ASSIGN_OR_RETURN(copy.walk, WalkOf(sizes, {to.strides, from.strides}));
  return copy;
}

Error Run(const KernelTable& table, const Queue& queue, CopyLaunch copy, const void* from,
          void* to) {
  copy.from = from;
  copy.to = to;
  return table.rearrange.copy(queue, copy);
}

FillLaunch ZeroFill(const OperandSpec& out) {
  return {.element_bytes = Bytes(out.dtype), .elements = out.num_elements()};
}
Error Run(const KernelTable& table, const Queue& queue, FillLaunch fill, void* to) {
  fill.to = to;
  return table.rearrange.fill(queue, fill);
}

// ---- identity, transpose, broadcast_to ----------------------------------------------------------

KernelOr MakeIdentity(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  if (in.num_elements() != out.num_elements()) {
    return absl::InternalError(absl::StrFormat("%s '%s': the local shapes %s and %s differ in size",
                                               spec.op, spec.name, in.shape().ToString(),
                                               out.shape().ToString()));
  }
  BRAID_ASSIGN_OR_RETURN(const CopyLaunch copy,
                         BoxCopy({out.num_elements()}, {{1}}, {{1}}, out.dtype));
  return MakeKernel([&table, copy](const Queue& queue, const KernelRun& run) {
    if (run.inputs[0] == run.outputs[0]) return kDone;
    return Run(table, queue, copy, run.inputs[0], run.outputs[0]);
  });
}

KernelOr MakeBoxCopy(const KernelTable& table, const KernelSpec& spec, const BoxSide& from) {
  const OperandSpec& out = spec.outputs[0];
  if (spec.inputs[0].dtype != out.dtype) return UnsupportedTypes(spec);
  BRAID_ASSIGN_OR_RETURN(const CopyLaunch copy,
                         BoxCopy(out.shape().dims(), from, {DenseStrides(out.shape())}, out.dtype));
  return MakeKernel([&table, copy](const Queue& queue, const KernelRun& run) {
    return Run(table, queue, copy, run.inputs[0], run.outputs[0]);
  });
}

KernelOr MakeTranspose(const KernelTable& table, const KernelSpec& spec) {
  const Ints strides = DenseStrides(spec.inputs[0].shape());
  BoxSide from;
  for (int64_t axis : spec.attrs.Ints("perm")) from.strides.push_back(strides[axis]);
  return MakeBoxCopy(table, spec, from);
}

KernelOr MakeBroadcastTo(const KernelTable& table, const KernelSpec& spec) {
  const Shape& in = spec.inputs[0].shape();
  const int rank = spec.outputs[0].shape().rank();
  const Ints strides = DenseStrides(in);
  BoxSide from = {Ints(rank, 0)};
  for (int i = 0; i < in.rank(); ++i) {
    // An axis that holds one local element of many moves along with the output's one element.
    if (in[i] != 1) from.strides[i + rank - in.rank()] = strides[i];
  }
  return MakeBoxCopy(table, spec, from);
}

// ---- concat, split ------------------------------------------------------------------------------

// Between one tensor and its consecutive parts along an axis, which is whole on every operand.
absl::StatusOr<std::vector<CopyLaunch>> CopyParts(const KernelSpec& spec, const OperandSpec& whole,
                                                  const std::vector<OperandSpec>& parts,
                                                  bool to_parts) {
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const Ints whole_strides = DenseStrides(whole.shape());
  std::vector<CopyLaunch> copies;
  int64_t at = 0;
  for (const OperandSpec& part : parts) {
    if (part.dtype != whole.dtype) return UnsupportedTypes(spec);
    const BoxSide inside = {whole_strides, at * whole_strides[axis]};
    const BoxSide outside = {DenseStrides(part.shape())};
    BRAID_ASSIGN_OR_RETURN(copies.emplace_back(),
                           BoxCopy(part.shape().dims(), to_parts ? inside : outside,
                                   to_parts ? outside : inside, whole.dtype));
    at += part.shape()[axis];
  }
  if (at != whole.shape()[axis]) {
    return absl::InternalError(absl::StrFormat("%s '%s': the parts hold %d of %d along axis %d",
                                               spec.op, spec.name, at, whole.shape()[axis], axis));
  }
  return copies;
}

KernelOr MakeConcat(const KernelTable& table, const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(const auto copies, CopyParts(spec, spec.outputs[0], spec.inputs, false));
  return MakeKernel([&table, copies](const Queue& queue, const KernelRun& run) {
    for (size_t i = 0; i < copies.size(); ++i) {
      const Error error = Run(table, queue, copies[i], run.inputs[i], run.outputs[0]);
      if (error != kDone) return error;
    }
    return kDone;
  });
}

KernelOr MakeSplit(const KernelTable& table, const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(const auto copies, CopyParts(spec, spec.inputs[0], spec.outputs, true));
  return MakeKernel([&table, copies](const Queue& queue, const KernelRun& run) {
    for (size_t i = 0; i < copies.size(); ++i) {
      const Error error = Run(table, queue, copies[i], run.inputs[0], run.outputs[i]);
      if (error != kDone) return error;
    }
    return kDone;
  });
}

// Blocks along an axis, one after another, each dense <-> one dense tensor.
KernelOr MakeBlocks(const KernelTable& table, const KernelSpec& spec, bool pack) {
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const int64_t parts = spec.attrs.Int("parts");
  const Shape& whole = pack ? in.shape() : out.shape();
  const Ints whole_strides = DenseStrides(whole);
  std::vector<CopyLaunch> copies;
  int64_t at = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const Interval interval = SplitEvenly(whole[axis], parts, part);
    Shape block = whole;
    block[axis] = interval.size;
    const BoxSide tensor = {whole_strides, interval.offset * whole_strides[axis]};
    const BoxSide packed = {DenseStrides(block), at};
    at += block.num_elements();
    BRAID_ASSIGN_OR_RETURN(copies.emplace_back(), BoxCopy(block.dims(), pack ? tensor : packed,
                                                          pack ? packed : tensor, in.dtype));
  }
  return MakeKernel([&table, copies](const Queue& queue, const KernelRun& run) {
    for (const CopyLaunch& copy : copies) {
      const Error error = Run(table, queue, copy, run.inputs[0], run.outputs[0]);
      if (error != kDone) return error;
    }
    return kDone;
  });
}
KernelOr MakePack(const KernelTable& table, const KernelSpec& spec) {
  return MakeBlocks(table, spec, /*pack=*/true);
}
KernelOr MakeUnpack(const KernelTable& table, const KernelSpec& spec) {
  return MakeBlocks(table, spec, /*pack=*/false);
}

// ---- relayout -----------------------------------------------------------------------------------

// Where the logical index `at` lies in a dense region.
BoxSide SideAt(const Region& region, const Ints& at) {
  BoxSide side = {DenseStrides(region.size)};
  for (int axis = 0; axis < region.size.rank(); ++axis) {
    side.offset += (at[axis] - region.offset[axis]) * side.strides[axis];
  }
  return side;
}

// Zeros, then what the input's region and the output's have in common. With once=true only the rank
// that contributes copies: it turns one of several copies (B) into an addend (P). Both regions move
// alike over micro-batches, so that those of act 0 say it for all acts.
KernelOr MakeRelayout(const KernelTable& table, const KernelSpec& spec) {
  // Of boxing alone: no operator says what it takes.
  BRAID_RETURN_IF_ERROR(
      CheckKernelForm({.inputs = 1, .outputs = 1, .like = {{"once", false}}}, spec));
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  if (in.logical != out.logical) {
    return absl::InternalError(absl::StrFormat("%s '%s': the tensors %s and %s differ", spec.op,
                                               spec.name, in.logical.ToString(),
                                               out.logical.ToString()));
  }
  const Region common = Intersect(in.region, out.region);
  const bool copies = !common.empty() && (spec.contributes || !spec.attrs.Bool("once"));
  const bool fills = !copies || common.size.num_elements() < out.num_elements();
  CopyLaunch copy = {};
  if (copies) {
    BRAID_ASSIGN_OR_RETURN(copy, BoxCopy(common.size.dims(), SideAt(in.region, common.offset),
                                         SideAt(out.region, common.offset), out.dtype));
  }
  return MakeKernel([&table, copy, copies, fills, fill = ZeroFill(out)](const Queue& queue,
                                                                        const KernelRun& run) {
    const Error error = fills ? Run(table, queue, fill, run.outputs[0]) : kDone;
    if (error != kDone || !copies) return error;
    return Run(table, queue, copy, run.inputs[0], run.outputs[0]);
  });
}

// ---- slice --------------------------------------------------------------------------------------

int64_t CeilDiv(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// The k whose at + k * step is in `part`.
Interval Inside(int64_t at, int64_t step, const Interval& part) {
  const int64_t end = part.offset + part.size;
  const int64_t first = step > 0 ? CeilDiv(part.offset - at, step) : CeilDiv(at - end + 1, -step);
  const int64_t last = step > 0 ? CeilDiv(end - at, step) : CeilDiv(at - part.offset + 1, -step);
  return {first, std::max<int64_t>(0, last - first)};
}

struct Slice {
  CopyLaunch copy;
  bool covers = true;  // all of the output
};

// What of the slice is in the parts that are here in act `act`: it lies in them as one box.
absl::StatusOr<Slice> SliceAt(const KernelSpec& spec, int64_t act) {
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  const Ints& begin = spec.attrs.Ints("begin");
  Slice slice;
  Ints sizes;
  BoxSide from = {DenseStrides(in.shape())}, to = {DenseStrides(out.shape())};
  for (int axis = 0; axis < out.shape().rank(); ++axis) {
    const int64_t step = spec.attrs.Has("step") ? spec.attrs.Ints("step")[axis] : 1;
    const Interval source = {OffsetAt(in, axis, act), in.shape()[axis]};
    const Interval target = {OffsetAt(out, axis, act), out.shape()[axis]};
    const Interval inside = Inside(begin[axis], step, source);
    const int64_t first = std::max(inside.offset, target.offset);
    const int64_t last = std::min(inside.offset + inside.size, target.offset + target.size);
    sizes.push_back(std::max<int64_t>(0, last - first));
    from.offset += (begin[axis] + first * step - source.offset) * from.strides[axis];
    to.offset += (first - target.offset) * to.strides[axis];
    from.strides[axis] *= step;
    slice.covers = slice.covers && sizes.back() == target.size;
  }
  BRAID_ASSIGN_OR_RETURN(slice.copy, BoxCopy(sizes, from, to, out.dtype));
  return slice;
}

// Whether the operands' parts are elsewhere to each other in other acts.
bool MovesApart(const OperandSpec& a, const OperandSpec& b) {
  return a.micro_batch_axis != b.micro_batch_axis || a.micro_batch_stride != b.micro_batch_stride;
}

absl::Status CheckRank(const KernelSpec& spec, const Shape& shape) {
  if (shape.rank() <= kMaxRank) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat("%s '%s': %s has more than %d axes", spec.op,
                                                  spec.name, shape.ToString(), kMaxRank));
}

KernelOr MakeSlice(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  BRAID_RETURN_IF_ERROR(CheckRank(spec, out.shape()));
  BRAID_ASSIGN_OR_RETURN(const Slice first, SliceAt(spec, 0));
  return MakeKernel([&table, first, moves = MovesApart(in, out), fill = ZeroFill(out), spec](
                        const Queue& queue, const KernelRun& run) {
    // Its rank is one that a walk has, so that there is one in every act.
    const Slice slice = moves && run.micro_batch > 0 ? *SliceAt(spec, run.micro_batch) : first;
    const Error error = slice.covers ? kDone : Run(table, queue, fill, run.outputs[0]);
    if (error != kDone) return error;
    return Run(table, queue, slice.copy, run.inputs[0], run.outputs[0]);
  });
}

// ---- pad and its gradient -----------------------------------------------------------------------

PadAxis::Mode ModeOf(const std::string& mode, int64_t n) {
  if (mode == "constant") return PadAxis::Mode::kConstant;
  if (mode == "edge" || n == 1) return PadAxis::Mode::kEdge;  // one element is all there is
  return mode == "reflect" ? PadAxis::Mode::kReflect : PadAxis::Mode::kWrap;
}

// `inner` is the tensor without the padding, `padded` that with it. Axes that are the same on both
// are merged.
PadLaunch PadAt(const KernelSpec& spec, const OperandSpec& inner, const OperandSpec& padded,
                int64_t act) {
  const Attrs& attrs = spec.attrs;
  const std::string mode = attrs.Has("mode") ? attrs.String("mode") : "constant";
  PadLaunch launch = {.dtype = inner.dtype, .element_bytes = Bytes(inner.dtype)};
  for (int i = 0; i < inner.logical.rank(); ++i) {
    const int64_t n = inner.logical[i];
    PadAxis axis = {.mode = ModeOf(mode, n),
                    .n = n,
                    .before = attrs.Ints("before")[i],
                    .padded = padded.logical[i],
                    .step = attrs.Has("interior") ? attrs.Ints("interior")[i] + 1 : 1,
                    .in_offset = OffsetAt(inner, i, act),
                    .in_size = inner.shape()[i],
                    .out_offset = OffsetAt(padded, i, act),
                    .out_size = padded.shape()[i]};
    if (axis.before == 0 && axis.padded == n && axis.step == 1 &&
        axis.in_offset == axis.out_offset && axis.in_size == axis.out_size) {
      axis.mode = PadAxis::Mode::kSame;
    }
    PadAxis* last = launch.rank > 0 ? &launch.axes[launch.rank - 1] : nullptr;
    if (last != nullptr && last->mode == PadAxis::Mode::kSame && axis.mode == last->mode) {
      last->in_size = last->out_size = last->in_size * axis.in_size;
    } else {
      launch.axes[launch.rank++] = axis;
    }
  }
  return launch;
}

KernelOr MakePad(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  BRAID_RETURN_IF_ERROR(CheckRank(spec, out.shape()));
  const uint64_t bits = BitsOf(out.dtype, Number(spec.attrs, "value", 0));
  return MakeKernel([&table, spec, bits](const Queue& queue, const KernelRun& run) {
    PadLaunch launch = PadAt(spec, spec.inputs[0], spec.outputs[0], run.micro_batch);
    launch.from = run.inputs[0];
    launch.to = run.outputs[0];
    launch.bits = bits;
    return table.rearrange.pad(queue, launch);
  });
}

KernelOr MakePadGrad(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec &dy = spec.inputs[0], &dx = spec.outputs[0];
  if (dy.dtype != dx.dtype || !IsFloating(dx.dtype)) return UnsupportedTypes(spec);
  BRAID_RETURN_IF_ERROR(CheckRank(spec, dx.shape()));
  return MakeKernel([&table, spec](const Queue& queue, const KernelRun& run) {
    PadLaunch launch = PadAt(spec, spec.outputs[0], spec.inputs[0], run.micro_batch);
    launch.from = run.inputs[0];
    launch.to = run.outputs[0];
    return table.rearrange.pad_grad(queue, launch);
  });
}

// ---- triangle -----------------------------------------------------------------------------------

KernelOr MakeTriangle(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  const int rank = in.shape().rank();
  const bool upper = Flag(spec.attrs, "upper");
  const int64_t diagonal =
      std::clamp(spec.attrs.Int("diagonal"), -in.logical[rank - 2] - 1, in.logical[rank - 1] + 1);
  return MakeKernel([&table, in, rank, upper, diagonal](const Queue& queue, const KernelRun& run) {
    TriangleLaunch launch = {.to = run.outputs[0],
                             .from = run.inputs[0],
                             .element_bytes = Bytes(in.dtype),
                             .elements = in.num_elements(),
                             .rows = in.shape()[rank - 2],
                             .columns = in.shape()[rank - 1],
                             .upper = upper};
    // The first column above the diagonal (of an upper triangle: on it), of local row 0.
    launch.edge = OffsetAt(in, rank - 2, run.micro_batch) + diagonal + (upper ? 0 : 1) -
                  OffsetAt(in, rank - 1, run.micro_batch);
    return table.rearrange.triangle(queue, launch);
  });
}

}  // namespace

absl::Status RegisterRearrangeKernels(const KernelTable& table, KernelRegistry& registry) {
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name,
                             [&table, make](const KernelSpec& spec) { return make(table, spec); });
  };
  for (const char* name : {"after", "identity", "join_mirrored", "mirror", "mirror_parts",
                           "reshape", "stop_gradient", "sum_mirrored"}) {
    BRAID_RETURN_IF_ERROR(add(name, MakeIdentity));
  }
  BRAID_RETURN_IF_ERROR(add("transpose", MakeTranspose));
  BRAID_RETURN_IF_ERROR(add("broadcast_to", MakeBroadcastTo));
  BRAID_RETURN_IF_ERROR(add("block_pack", MakePack));
  BRAID_RETURN_IF_ERROR(add("block_unpack", MakeUnpack));
  BRAID_RETURN_IF_ERROR(add("concat", MakeConcat));
  BRAID_RETURN_IF_ERROR(add("split", MakeSplit));
  BRAID_RETURN_IF_ERROR(add("relayout", MakeRelayout));
  BRAID_RETURN_IF_ERROR(add("slice", MakeSlice));
  BRAID_RETURN_IF_ERROR(add("pad", MakePad));
  BRAID_RETURN_IF_ERROR(add("pad_grad", MakePadGrad));
  return add("triangle", MakeTriangle);
}

}  // namespace braid::cuda
