// Scaled dot-product attention in one operator, so that the weights [time, time] never exist as a
// tensor, and its gradients, which compute them again from the rows' logsumexp: Dao et al.,
// "FlashAttention", arXiv 2205.14135.
//
// With time_first the operands are [batch, time, heads, depth], as projections make them, else
// [batch, heads, time, depth]. lse is [batch, heads, query time] in both.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

constexpr int kQuery = 0, kKey = 1, kValue = 2, kMask = 3;

struct Axes {
  int heads, time;
};
Axes AxesOf(const OpContext& ctx) {
  return Flag(ctx.attrs, "time_first") ? Axes{2, 1} : Axes{1, 2};
}

// Rows of it are the logarithms of sums: a narrow type would round the weights.
DType RowType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// [batch, heads, query time, key time]
Shape ScoresShape(const OpContext& ctx) {
  const Axes axes = AxesOf(ctx);
  const Shape &q = ctx.inputs[kQuery].shape, &k = ctx.inputs[kKey].shape;
  return {q[0], q[axes.heads], q[axes.time], k[axes.time]};
}
Shape RowsShape(const OpContext& ctx) { return Leading(ScoresShape(ctx), 1); }

Shape OutputShape(const OpContext& ctx) {
  Shape shape = ctx.inputs[kQuery].shape;
  shape[3] = ctx.inputs[kValue].shape[3];
  return shape;
}

absl::Status CheckMask(const OpContext& ctx) {
  const TensorType& mask = ctx.inputs[kMask];
  if (mask.dtype != DType::kBool) BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, kQuery, kMask));
  const Shape scores = ScoresShape(ctx);
  const absl::StatusOr<Shape> broadcast = BroadcastShapes(mask.shape, scores);
  if (mask.shape.rank() <= 4 && broadcast.ok() && *broadcast == scores) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("d is ", mask.ToString(), "; a mask that broadcasts to ", scores.ToString(),
                   " = [batch, heads, query time, key time] is needed"));
}

// Products in bf16, sums, weights and all else in f32.
bool IsNarrow(const OpContext& ctx) { return ctx.attrs.Has("compute"); }

absl::Status CheckCompute(const OpContext& ctx) {
  if (!IsNarrow(ctx) || ctx.attrs.Type("compute") == DType::kBF16) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("compute is ",
                                                 std::string(ToString(ctx.attrs.Type("compute"))),
                                                 "; bf16, or no such attribute, is needed"));
}

// q, k, v and, if there is one, the mask.
absl::Status CheckOperands(const OpContext& ctx, bool is_masked) {
  BRAID_RETURN_IF_ERROR(CheckCompute(ctx));
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, kQuery));
  for (int input : {kQuery, kKey, kValue}) {
    BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, kQuery, input));
    if (ctx.inputs[input].shape.rank() == 4) continue;
    return absl::InvalidArgumentError(absl::StrCat(std::string(1, static_cast<char>('a' + input)),
                                                   " is ", ctx.inputs[input].ToString(),
                                                   "; 4 axes are needed"));
  }
  const Axes axes = AxesOf(ctx);
  const Shape &q = ctx.inputs[kQuery].shape, &k = ctx.inputs[kKey].shape;
  Shape values = k;
  values[3] = ctx.inputs[kValue].shape[3];
  const int64_t heads = q[axes.heads], kv_heads = k[axes.heads];
  const bool are_grouped = kv_heads == 0 ? heads == 0 : heads % kv_heads == 0;
  if (ctx.inputs[kValue].shape != values || q[0] != k[0] || q[3] != k[3] || !are_grouped) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a is ", q.ToString(), ", b is ", k.ToString(), ", c is ",
        ctx.inputs[kValue].shape.ToString(),
        Flag(ctx.attrs, "time_first") ? ", time is axis 1" : ", heads are axis 1",
        "; equal batches, equal time and heads of b and c, heads of a that are a multiple of "
        "those, and equal depths of a and b are needed"));
  }
  return is_masked ? CheckMask(ctx) : absl::OkStatus();
}

// ---- signatures ---------------------------------------------------------------------------------
//
// By hand: which heads of keys go with a part of the heads depends on the number of parts, the mask
// broadcasts on every axis, and of two outputs only one is linear in v. No factors say these.

// How the operands are laid out together. What is alike in shape is alike here: o and q, v and k.
struct Roles {
  Sbp q, kv, rows, mask = sbp::B;

  // Of what is added up over the devices where the operand itself is whole on each.
  static Sbp GradientOf(Sbp operand) { return operand.is_broadcast() ? sbp::P : operand; }
};

// The Sbp of an operand when axis `axis` of `out`, onto which it broadcasts, is split.
Sbp BroadcastOperandSbp(const Shape& operand, const Shape& out, int axis) {
  const int own = axis - (out.rank() - operand.rank());
  return own < 0 || operand[own] != out[axis] ? sbp::B : sbp::S(own);
}

std::vector<Roles> Layouts(const OpContext& ctx, bool is_masked, int64_t parts) {
  const Axes axes = AxesOf(ctx);
  const Shape scores = ScoresShape(ctx);
  const int64_t heads = scores[1], kv_heads = ctx.inputs[kKey].shape[axes.heads];
  std::vector<Roles> layouts = {{sbp::S(0), sbp::S(0), sbp::S(0)}};
  const Sbp by_head = sbp::S(axes.heads);
  // Where the cuts of heads fall between those of key heads, every device gets all key heads. Parts
  // of one are asked about by the check of plans, which knows the regions themselves.
  const bool is_aligned = heads == kv_heads || kv_heads % parts == 0;
  if (is_aligned || parts == 1) layouts.push_back({by_head, by_head, sbp::S(1)});
  if (!is_aligned || parts == 1) layouts.push_back({by_head, sbp::B, sbp::S(1)});
  layouts.push_back({sbp::S(axes.time), sbp::B, sbp::S(2)});
  if (is_masked) {
    for (Roles& roles : layouts) {
      roles.mask = BroadcastOperandSbp(ctx.inputs[kMask].shape, scores, roles.rows.axis);
    }
  }
  return layouts;
}

std::vector<SbpSignature> AttentionSignatures(const OpContext& ctx, int64_t parts) {
  const bool is_masked = ctx.inputs.size() > kMask;
  const auto with_mask = [is_masked](std::vector<Sbp> inputs, Sbp mask) {
    if (is_masked) inputs.push_back(mask);
    return inputs;
  };
  std::vector<SbpSignature> signatures;
  for (const Roles& roles : Layouts(ctx, is_masked, parts)) {
    signatures.push_back(
        {with_mask({roles.q, roles.kv, roles.kv}, roles.mask), {roles.q, roles.rows}});
  }
  // The output is linear in v, column by column; lse does not depend on it. Addends of v would be
  // rounded one by one where products are narrow.
  for (const Sbp sbp : {sbp::S(3), sbp::P}) {
    if (sbp.is_partial() && IsNarrow(ctx)) continue;
    signatures.push_back({with_mask({sbp::B, sbp::B, sbp}, sbp::B), {sbp, sbp::B}});
  }
  return signatures;
}

// ---- the gradients' operands: q, k, v, [mask], o, lse, do, [dlse]
// --------------------------------

bool IsMasked(const OpContext& ctx) { return Flag(ctx.attrs, "masked"); }
int FirstResult(const OpContext& ctx) { return IsMasked(ctx) ? kMask + 1 : kMask; }

absl::Status CheckGradientOperands(const OpContext& ctx) {
  const int first = FirstResult(ctx), count = static_cast<int>(ctx.inputs.size());
  if (count != first + 4) BRAID_RETURN_IF_ERROR(CheckInputs(ctx, first + 3));
  BRAID_RETURN_IF_ERROR(CheckOperands(ctx, IsMasked(ctx)));
  for (int input : {first, first + 2}) {
    BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, kQuery, input));
    BRAID_RETURN_IF_ERROR(CheckShape(ctx, input, OutputShape(ctx)));
  }
  for (int input = first + 1; input < count; input += 2) {
    if (ctx.inputs[input].dtype != RowType(ctx.inputs[kQuery].dtype)) {
      BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, kQuery, input));
    }
    BRAID_RETURN_IF_ERROR(CheckShape(ctx, input, RowsShape(ctx)));
  }
  return absl::OkStatus();
}

// `outputs` gives those of a layout.
std::vector<SbpSignature> GradientSignatures(const OpContext& ctx, int64_t parts,
                                             std::vector<Sbp> (*outputs)(const Roles&)) {
  const bool is_masked = IsMasked(ctx);
  const int first = FirstResult(ctx);
  std::vector<SbpSignature> signatures;
  for (const Roles& roles : Layouts(ctx, is_masked, parts)) {
    SbpSignature signature = {{roles.q, roles.kv, roles.kv}, outputs(roles)};
    if (is_masked) signature.inputs.push_back(roles.mask);
    for (const Sbp sbp : {roles.q, roles.rows, roles.q, roles.rows}) {
      if (signature.inputs.size() < ctx.inputs.size()) signature.inputs.push_back(sbp);
    }
    signatures.push_back(std::move(signature));
  }
  if (IsNarrow(ctx)) return signatures;
  // Linear in what flows in.
  SbpSignature linear = {std::vector<Sbp>(ctx.inputs.size(), sbp::B),
                         std::vector<Sbp>(ctx.outputs.size(), sbp::P)};
  for (size_t input = first + 2; input < ctx.inputs.size(); ++input) {
    linear.inputs[input] = sbp::P;
  }
  signatures.push_back(std::move(linear));
  return signatures;
}

// ---- cost ---------------------------------------------------------------------------------------

// Of one product of a matrix of the scores' shape with q's depth.
double ProductFlops(const OpContext& ctx, bool is_causal) {
  const double all = 2.0 * ScoresShape(ctx).num_elements() * ctx.inputs[kQuery].shape[3];
  return is_causal ? all / 2 : all;
}

Gradients AttentionGradient(const Context& c) {
  std::vector<Tensor> operands = c.inputs;
  const bool is_masked = operands.size() > kMask;
  const TensorType out = c.outputs[0].type();
  Tensor flows = c.output_gradients[0];
  if (!flows.valid()) flows = Constant(c.graph, 0, {.dtype = out.dtype, .shape = out.shape});
  operands.insert(operands.end(), {c.outputs[0], c.outputs[1], flows});
  if (c.output_gradients[1].valid()) operands.push_back(c.output_gradients[1]);
  Attrs attrs = c.op.attrs;
  attrs.Set("masked", is_masked);
  Gradients gradients = ApplyAll("attention_grad", operands, attrs);
  // An op of its own: it is pruned where the mask is none of what is trained, as masks mostly are.
  if (is_masked) {
    gradients.push_back(IsFloating(c.inputs[kMask].dtype())
                            ? Apply("attention_mask_grad", operands, attrs)
                            : Tensor());
  }
  return gradients;
}

// ---- definitions --------------------------------------------------------------------------------

TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }

// q, k and v. A mask that is added is as wide as they: narrow, it would lose what it hides by, and
// its gradient the sums of weights.
std::vector<int> NarrowOperands(const OpContext& ctx, bool is_masked) {
  if (is_masked && IsFloating(ctx.inputs[kMask].dtype)) return {};
  return {kQuery, kKey, kValue};
}
// With o and its gradient; logarithms of sums stay wide.
std::vector<int> NarrowGradientOperands(const OpContext& ctx) {
  std::vector<int> operands = NarrowOperands(ctx, IsMasked(ctx));
  const int first = FirstResult(ctx);
  if (!operands.empty()) operands.insert(operands.end(), {first, first + 2});
  return operands;
}

OpDef AttentionOp() {
  const Attrs plain = {{"causal", false}, {"time_first", false}, {"scale", 0.75}};
  const Attrs causal = {{"causal", true}, {"time_first", false}, {"scale", 0.75}};
  const Attrs causal_time_first = {{"causal", true}, {"time_first", true}, {"scale", 1.25}};
  const TensorType q = F32({2, 4, 3, 6}), k = F32({2, 2, 5, 6}), v = F32({2, 2, 5, 3});
  return OpDef("attention")
      .Infer([](const OpContext& ctx) -> Types {
        if (ctx.inputs.size() != kMask + 1) BRAID_RETURN_IF_ERROR(CheckInputs(ctx, kMask));
        BRAID_RETURN_IF_ERROR(CheckOperands(ctx, ctx.inputs.size() > kMask));
        const DType dtype = ctx.inputs[kQuery].dtype;
        return std::vector<TensorType>{{dtype, OutputShape(ctx)}, {RowType(dtype), RowsShape(ctx)}};
      })
      .Signatures(AttentionSignatures)
      .NarrowInside(
          [](const OpContext& ctx) { return NarrowOperands(ctx, ctx.inputs.size() > kMask); })
      .Gradient(AttentionGradient)
      .Flops([](const OpContext& ctx) { return 2 * ProductFlops(ctx, Flag(ctx.attrs, "causal")); })
      .Sample(
          {.inputs = {F32({2, 3, 5, 4}), F32({2, 3, 5, 4}), F32({2, 3, 5, 4})}, .attrs = causal})
      .Sample({.inputs = {q, k, v}, .attrs = plain})
      .Sample({.inputs = {F32({2, 3, 4, 6}), F32({2, 5, 2, 6}), F32({2, 5, 2, 3})},
               .attrs = causal_time_first})
      .Sample({.inputs = {q, k, v, F32({4, 1, 5})}, .attrs = plain})
      .Sample({.inputs = {q, k, v, F32({2, 1, 3, 1})}, .attrs = causal})
      .Sample({.inputs = {q, k, v, {DType::kBool, {2, 1, 3, 5}}}, .attrs = plain})
      .Sample({.inputs = {F32({1, 2, 9, 5}), F32({1, 1, 11, 5}), F32({1, 1, 11, 3})},
               .attrs = {{"causal", true},
                         {"time_first", false},
                         {"scale", 0.75},
                         {"compute", DType::kBF16}}});
}

OpDef GradientOp(std::string name, bool is_of_mask) {
  const Attrs plain = {
      {"causal", false}, {"time_first", false}, {"scale", 0.75}, {"masked", is_of_mask}};
  const Attrs causal_time_first = {
      {"causal", true}, {"time_first", true}, {"scale", 1.25}, {"masked", is_of_mask}};
  const TensorType out = F32({2, 4, 3, 3}), rows = F32({2, 4, 3});
  std::vector<TensorType> inputs = {F32({2, 4, 3, 6}), F32({2, 2, 5, 6}), F32({2, 2, 5, 3})};
  std::vector<TensorType> time_first = {F32({2, 3, 4, 6}), F32({2, 5, 2, 6}), F32({2, 5, 2, 3})};
  if (is_of_mask) {
    inputs.push_back(F32({4, 1, 5}));
    time_first.push_back(F32({2, 1, 3, 1}));
  }
  inputs.insert(inputs.end(), {out, rows, out});
  time_first.insert(time_first.end(), {F32({2, 3, 4, 3}), rows, F32({2, 3, 4, 3}), rows});
  return OpDef(std::move(name))
      .NoGradient()
      .Sample({.inputs = std::move(inputs), .attrs = plain})
      .Sample({.inputs = std::move(time_first), .attrs = causal_time_first});
}

OpDef AttentionGradientOp() {
  return GradientOp("attention_grad", /*is_of_mask=*/false)
      .NarrowInside(NarrowGradientOperands)
      .Sample({.inputs = {F32({1, 2, 9, 5}), F32({1, 1, 11, 5}), F32({1, 1, 11, 3}),
                          F32({1, 2, 9, 3}), F32({1, 2, 9}), F32({1, 2, 9, 3})},
               .attrs = {{"causal", true},
                         {"time_first", false},
                         {"scale", 0.75},
                         {"masked", false},
                         {"compute", DType::kBF16}}})
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckGradientOperands(ctx));
        return std::vector<TensorType>{ctx.inputs[kQuery], ctx.inputs[kKey], ctx.inputs[kValue]};
      })
      .Signatures([](const OpContext& ctx, int64_t parts) {
        return GradientSignatures(ctx, parts, [](const Roles& roles) {
          const Sbp kv = Roles::GradientOf(roles.kv);
          return std::vector<Sbp>{roles.q, kv, kv};
        });
      })
      .Flops([](const OpContext& ctx) { return 5 * ProductFlops(ctx, Flag(ctx.attrs, "causal")); });
}

OpDef AttentionMaskGradientOp() {
  return GradientOp("attention_mask_grad", /*is_of_mask=*/true)
      .Infer([](const OpContext& ctx) -> Types {
        if (!IsMasked(ctx)) {
          return absl::InvalidArgumentError("masked is false; the gradient of a mask needs one");
        }
        BRAID_RETURN_IF_ERROR(CheckGradientOperands(ctx));
        BRAID_RETURN_IF_ERROR(CheckFloating(ctx, kMask));
        return std::vector<TensorType>{ctx.inputs[kMask]};
      })
      .Signatures([](const OpContext& ctx, int64_t parts) {
        return GradientSignatures(ctx, parts, [](const Roles& roles) {
          return std::vector<Sbp>{Roles::GradientOf(roles.mask)};
        });
      })
      .Flops([](const OpContext& ctx) { return 2 * ProductFlops(ctx, Flag(ctx.attrs, "causal")); });
}

}  // namespace

std::vector<OpDef> AttentionOps() {
  return {AttentionOp(), AttentionGradientOp(), AttentionMaskGradientOp()};
}

}  // namespace braid
