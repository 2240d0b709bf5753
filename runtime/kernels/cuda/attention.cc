// Of KernelSpecs: attention, its gradients, the cached form, rotary embeddings.
#include <glog/logging.h>

#include <algorithm>
#include <initializer_list>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using PlanOr = absl::StatusOr<PlannedKernel>;

HeadStrides StridesOf(int64_t heads, int64_t time, int64_t depth, bool time_first) {
  if (time_first) return {time * heads * depth, depth, heads * depth};
  return {heads * time * depth, time * depth, depth};
}

AttentionMask MaskOf(const OperandSpec& operand) {
  AttentionMask mask = {.is_bool = operand.dtype == DType::kBool};
  const std::vector<int64_t> dense = DenseStrides(operand.shape());
  const int rank = operand.shape().rank();
  for (int axis = 0; axis < rank; ++axis) {
    if (operand.logical[axis] != 1) mask.strides[4 - rank + axis] = dense[axis];
  }
  return mask;
}

// What the operands q, k, v and the mask, if there is one, say of an attention.
class AttentionOperands {
 public:
  AttentionOperands(const KernelSpec& spec, bool is_masked)
      : query_(spec.inputs[0]), key_(spec.inputs[1]) {
    const bool time_first = Flag(spec.attrs, "time_first");
    heads_axis_ = time_first ? 2 : 1;
    time_axis_ = time_first ? 1 : 2;
    const Shape &q = query_.shape(), &k = key_.shape();
    part_.dtype = query_.dtype;
    part_.batch = q[0];
    part_.heads = q[heads_axis_];
    part_.kv_heads = k[heads_axis_];
    part_.queries = q[time_axis_];
    part_.depth = q[3];
    part_.value_depth = spec.inputs[2].shape()[3];
    part_.group = std::max<int64_t>(1, query_.logical[heads_axis_]) /
                  std::max<int64_t>(1, key_.logical[heads_axis_]);
    part_.scale = spec.attrs.Double("scale");
    const int64_t keys = k[time_axis_];
    part_.q = StridesOf(part_.heads, part_.queries, part_.depth, time_first);
    part_.k = StridesOf(part_.kv_heads, keys, part_.depth, time_first);
    part_.v = StridesOf(part_.kv_heads, keys, part_.value_depth, time_first);
    part_.o = StridesOf(part_.heads, part_.queries, part_.value_depth, time_first);
    part_.seen = {.keys = keys, .is_causal = Flag(spec.attrs, "causal")};
    if (is_masked) part_.mask = MaskOf(spec.inputs[3]);
  }

  const AttentionPart& part() const { return part_; }

  // In one act, with the pointer to the mask.
  AttentionPart In(int64_t micro_batch, const void* mask) const {
    AttentionPart part = part_;
    part.first_head = OffsetAt(query_, heads_axis_, micro_batch);
    part.first_kv_head = OffsetAt(key_, heads_axis_, micro_batch);
    // Keys and queries end together.
    part.seen.by_first = OffsetAt(query_, time_axis_, micro_batch) + key_.logical[time_axis_] -
                         query_.logical[time_axis_] + 1;
    part.mask.terms = mask;
    if (part.heads == 0) return part;
    const int64_t first = part.first_head / part.group - part.first_kv_head;
    const int64_t last = (part.first_head + part.heads - 1) / part.group - part.first_kv_head;
    CHECK(first >= 0 && last < part.kv_heads)
        << "attention: heads " << part.first_head << " to " << part.first_head + part.heads - 1
        << " of the queries do not read the key heads from " << part.first_kv_head
        << " on, which are " << part.kv_heads;
    return part;
  }

 private:
  OperandSpec query_, key_;
  int heads_axis_, time_axis_;
  AttentionPart part_;
};

DType ComputedType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

bool HaveType(DType dtype, const std::vector<OperandSpec>& operands,
              std::initializer_list<int> which) {
  return std::all_of(which.begin(), which.end(), [&](int i) { return operands[i].dtype == dtype; });
}

KernelOr MakeAttention(const KernelSpec& spec, const AttentionTable& table) {
  const DType dtype = spec.inputs[0].dtype;
  const bool is_masked = spec.inputs.size() > 3;
  const bool is_known =
      IsFloating(dtype) && HaveType(dtype, spec.inputs, {0, 1, 2}) &&
      spec.outputs[0].dtype == dtype && spec.outputs[1].dtype == ComputedType(dtype) &&
      (!is_masked || spec.inputs[3].dtype == dtype || spec.inputs[3].dtype == DType::kBool);
  if (!is_known) return UnsupportedTypes(spec);
  return MakeKernel([=, &table, operands = AttentionOperands(spec, is_masked)](
                        const Queue& queue, const KernelRun& run) {
    return table.attention(
        queue, {.part = operands.In(run.micro_batch, is_masked ? run.inputs[3] : nullptr),
                .q = run.inputs[0],
                .k = run.inputs[1],
                .v = run.inputs[2],
                .o = run.outputs[0],
                .lse = run.outputs[1]});
  });
}

// Inputs: q, k, v, [mask], o, lse, do, [dlse].
PlanOr PlanGradient(const KernelSpec& spec,
                    Error (*launch)(const Queue&, const AttentionGradLaunch&)) {
  const DType dtype = spec.inputs[0].dtype, computed = ComputedType(dtype);
  const bool is_masked = Flag(spec.attrs, "masked"), is_of_mask = spec.outputs.size() == 1;
  const int first = is_masked ? 4 : 3;
  const bool has_dlse = static_cast<int>(spec.inputs.size()) > first + 3;
  bool is_known = IsFloating(dtype) && HaveType(dtype, spec.inputs, {0, 1, 2, first, first + 2});
  for (const OperandSpec& output : spec.outputs) is_known = is_known && output.dtype == dtype;
  for (int rows = first + 1; rows < static_cast<int>(spec.inputs.size()); rows += 2) {
    const DType type = spec.inputs[rows].dtype;
    is_known = is_known && (type == dtype || type == computed);
  }
  if (is_masked) {
    const DType mask = spec.inputs[3].dtype;
    is_known = is_known && (mask == dtype || mask == DType::kBool);
  }
  if (!is_known) return UnsupportedTypes(spec);
  const auto rows_of = [&](int input) {
    return AttentionRows{.is_narrow = spec.inputs[input].dtype != computed};
  };
  AttentionGradLaunch all = {.lse = rows_of(first + 1)};
  if (has_dlse) all.dlse = rows_of(first + 3);
  const AttentionOperands operands(spec, is_masked);
  const int64_t bytes = operands.part().batch * operands.part().heads * operands.part().queries *
                        static_cast<int64_t>(SizeOf(computed));
  return PlanWithWork(spec, bytes, [=](const Queue& queue, const KernelRun& run, std::byte* work) {
    AttentionGradLaunch now = all;
    now.part = operands.In(run.micro_batch, is_masked ? run.inputs[3] : nullptr);
    now.q = run.inputs[0];
    now.k = run.inputs[1];
    now.v = run.inputs[2];
    now.o = run.inputs[first];
    now.lse.values = run.inputs[first + 1];
    now.d_o = run.inputs[first + 2];
    if (has_dlse) now.dlse.values = run.inputs[first + 3];
    now.delta = work;
    if (is_of_mask) {
      now.dmask = run.outputs[0];
    } else {
      now.dq = run.outputs[0];
      now.dk = run.outputs[1];
      now.dv = run.outputs[2];
    }
    return launch(queue, now);
  });
}

// Inputs: q, k, v, cached keys and values, position.
KernelOr MakeCachedAttention(const KernelSpec& spec, const AttentionTable& table) {
  const DType dtype = spec.inputs[0].dtype;
  const bool is_known = IsFloating(dtype) && HaveType(dtype, spec.inputs, {0, 1, 2, 3, 4}) &&
                        spec.outputs[0].dtype == dtype &&
                        IsIndexType(spec.inputs[kCachePosition].dtype);
  if (!is_known) return UnsupportedTypes(spec);
  const Shape& q = spec.inputs[0].shape();
  const int64_t time = q[1], heads = q[2], depth = q[3];
  const int64_t value_depth = spec.inputs[2].shape()[3], size = spec.inputs[3].shape()[1];
  const HeadStrides keys = StridesOf(heads, time, depth, true);
  const HeadStrides values = StridesOf(heads, time, value_depth, true);
  const AttentionLaunch all = {
      .part = {.dtype = dtype,
               .batch = q[0],
               .heads = heads,
               .kv_heads = heads,
               .queries = time,
               .depth = depth,
               .value_depth = value_depth,
               .q = keys,
               .k = keys,
               .v = values,
               .o = values,
               .scale = spec.attrs.Double("scale")},
      .cache = {.k_at = StridesOf(heads, size, depth, true),
                .v_at = StridesOf(heads, size, value_depth, true),
                .position_is_i64 = spec.inputs[kCachePosition].dtype == DType::kI64,
                .size = size}};
  return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
    AttentionLaunch now = all;
    now.q = run.inputs[0];
    now.k = run.inputs[1];
    now.v = run.inputs[2];
    now.cache.k = run.inputs[3];
    now.cache.v = run.inputs[4];
    now.cache.position = run.inputs[kCachePosition];
    now.o = run.outputs[0];
    return table.attention(queue, now);
  });
}

KernelOr MakeWriteRows(const KernelSpec& spec, const AttentionTable& table) {
  const OperandSpec &variable = spec.inputs[0], &rows = spec.inputs[1];
  const DType position = spec.inputs[kRowsPosition].dtype;
  if (variable.dtype != rows.dtype || !IsIndexType(position)) return UnsupportedTypes(spec);
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView to = ViewAround(variable.shape(), axis), from = ViewAround(rows.shape(), axis);
  const WriteRowsLaunch all = {.outer = to.outer,
                               .rows = from.size,
                               .size = to.size,
                               .bytes = to.inner * static_cast<int64_t>(SizeOf(variable.dtype)),
                               .position_is_i64 = position == DType::kI64};
  return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
    WriteRowsLaunch now = all;
    now.to = run.inputs[0];
    now.from = run.inputs[1];
    now.position = run.inputs[kRowsPosition];
    return table.write_rows(queue, now);
  });
}

KernelOr MakeRotary(const KernelSpec& spec, const AttentionTable& table) {
  const OperandSpec& x = spec.inputs[0];
  const bool has_positions = spec.inputs.size() == 2;
  const bool is_known = IsFloating(x.dtype) && spec.outputs[0].dtype == x.dtype &&
                        (!has_positions || IsIndexType(spec.inputs[1].dtype));
  if (!is_known) return UnsupportedTypes(spec);
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(x.shape(), axis);
  const int64_t depth = x.shape()[x.shape().rank() - 1];
  // Positions [batch, time]: the outer axes are the batch and what lies inside it.
  const int64_t batch = has_positions && spec.inputs[1].shape().rank() == 2 ? x.shape()[0] : 1;
  const RotaryLaunch all = {
      .dtype = x.dtype,
      .batch = batch,
      .outer = batch == 0 ? 0 : view.outer / batch,
      .time = view.size,
      .inner = depth == 0 ? 0 : view.inner / depth,
      .depth = depth,
      .base = spec.attrs.Double("base"),
      .is_interleaved = Flag(spec.attrs, "interleaved"),
      .is_inverse = Flag(spec.attrs, "inverse"),
      .positions_are_i64 = has_positions && spec.inputs[1].dtype == DType::kI64};
  const int64_t offset = spec.attrs.Int("offset");
  return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
    RotaryLaunch now = all;
    now.first = offset + OffsetAt(x, axis, run.micro_batch);
    now.positions = has_positions ? run.inputs[1] : nullptr;
    now.x = run.inputs[0];
    now.y = run.outputs[0];
    return table.rotary(queue, now);
  });
}

}  // namespace

absl::Status RegisterAttentionKernels(const KernelTable& all, KernelRegistry& registry) {
  const AttentionTable& table = all.attention;
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name,
                             [&table, make](const KernelSpec& spec) { return make(spec, table); });
  };
  BRAID_RETURN_IF_ERROR(add("attention", MakeAttention));
  BRAID_RETURN_IF_ERROR(add("cached_attention", MakeCachedAttention));
  BRAID_RETURN_IF_ERROR(add("write_rows", MakeWriteRows));
  BRAID_RETURN_IF_ERROR(add("rotary", MakeRotary));
  BRAID_RETURN_IF_ERROR(registry.Register("attention_grad", [&table](const KernelSpec& spec) {
    return PlanGradient(spec, table.attention_grad);
  }));
  return registry.Register("attention_mask_grad", [&table](const KernelSpec& spec) {
    return PlanGradient(spec, table.attention_mask_grad);
  });
}

}  // namespace braid::cuda
