// Inference token by token: attention over the keys and values of earlier steps, which variables
// hold, and of this one; and what writes this step's rows into these variables at its end.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr int kQuery = 0, kKey = 1, kValue = 2, kCachedKey = 3, kCachedValue = 4, kPosition = 5;

absl::Status CheckAttention(const OpContext& ctx) {
  RETURN_IF_ERROR(CheckInputs(ctx, kPosition + 1));
  RETURN_IF_ERROR(CheckFloating(ctx, kQuery));
  for (int input = kKey; input <= kCachedValue; ++input) {
    RETURN_IF_ERROR(CheckSameDType(ctx, kQuery, input));
  }
  RETURN_IF_ERROR(CheckInteger(ctx, kPosition));
  RETURN_IF_ERROR(CheckShape(ctx, kPosition, {}));
  const Shape &q = ctx.inputs[kQuery].shape, &cached = ctx.inputs[kCachedKey].shape;
  if (q.rank() != 4 || cached.rank() != 4 || cached[1] < q[1]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a is ", q.ToString(), ", d is ", cached.ToString(),
        "; [batch, time, heads, depth] and [batch, cache, heads, depth] with a cache of at least "
        "`time` are needed"));
  }
  // All are like q, but values may have another depth and caches hold more of time.
  const Shape& v = ctx.inputs[kValue].shape;
  const int64_t value_depth = v.rank() == 4 ? v[3] : q[3];
  RETURN_IF_ERROR(CheckShape(ctx, kKey, q));
  RETURN_IF_ERROR(CheckShape(ctx, kValue, {q[0], q[1], q[2], value_depth}));
  RETURN_IF_ERROR(CheckShape(ctx, kCachedKey, {q[0], cached[1], q[2], q[3]}));
  return CheckShape(ctx, kCachedValue, {q[0], cached[1], q[2], value_depth});
}

// (q, k, v [batch, time, heads, depth], cached keys and values [batch, cache, heads, depth],
// position): query i sees the first `position` rows of the caches and keys 0 .. i.
OpDef CachedAttentionOp() {
  const auto f32 = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  return OpDef("cached_attention")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckAttention(ctx));
        return std::vector<TensorType>{ctx.inputs[kValue]};
      })
      .Signatures([](const OpContext&, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int axis : {0, 2}) {
          signatures.push_back({std::vector<Sbp>(kPosition, sbp::S(axis)), {sbp::S(axis)}});
          signatures.back().inputs.push_back(sbp::B);
        }
        return signatures;
      })
      .NoGradient()
      .Flops([](const OpContext& ctx) {
        const Shape &q = ctx.inputs[kQuery].shape, &cached = ctx.inputs[kCachedKey].shape;
        return 2.0 * q.num_elements() * cached[1] * 2;  // of a full cache
      })
      .Sample({.inputs = {f32({2, 3, 4, 6}),
                          f32({2, 3, 4, 6}),
                          f32({2, 3, 4, 5}),
                          f32({2, 7, 4, 6}),
                          f32({2, 7, 4, 5}),
                          {DType::kI32, {}}},
               .attrs = {{"scale", 0.75}}})
      .Sample({.inputs = {f32({3, 1, 2, 4}),
                          f32({3, 1, 2, 4}),
                          f32({3, 1, 2, 4}),
                          f32({3, 4, 2, 4}),
                          f32({3, 4, 2, 4}),
                          {DType::kI64, {}}},
               .attrs = {{"scale", 1.25}}});
}

// (variable, rows, position): rows [.., n, ..] go to [.., position .. position + n - 1, ..].
OpDef WriteRowsOp() {
  return OpDef("write_rows")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 3));
        RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
        RETURN_IF_ERROR(CheckInteger(ctx, 2));
        RETURN_IF_ERROR(CheckShape(ctx, 2, {}));
        const Shape &variable = ctx.inputs[0].shape, &rows = ctx.inputs[1].shape;
        const auto axis = static_cast<int>(ctx.attrs.Int("axis"));
        RETURN_IF_ERROR(CheckAxis(axis, variable.rank()));
        Shape expected = variable;
        if (rows.rank() == variable.rank()) expected[axis] = rows[axis];
        RETURN_IF_ERROR(CheckShape(ctx, 1, expected));
        if (rows[axis] <= variable[axis]) return std::vector<TensorType>{};
        return Disagree(ctx, absl::StrCat("b has more rows on axis ", axis));
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int axis = 0; axis < ctx.inputs[0].shape.rank(); ++axis) {
          if (axis == ctx.attrs.Int("axis")) continue;
          signatures.push_back({{sbp::S(axis), sbp::S(axis), sbp::B}, {}});
        }
        return signatures;
      })
      .Mutates({0})
      .NoGradient()
      // Several rows at 0, which fits at any size that the suite makes of them, and one anywhere.
      .Sample({.inputs = {{DType::kF32, {2, 7, 3}}, {DType::kF32, {2, 3, 3}}, {DType::kI32, {}}},
               .attrs = {{"axis", int64_t{1}}},
               .int_high = 1})
      .Sample({.inputs = {{DType::kF32, {5, 3}}, {DType::kF32, {1, 3}}, {DType::kI64, {}}},
               .attrs = {{"axis", int64_t{0}}}});
}

}  // namespace

std::vector<OpDef> KeyValueCacheOps() { return {CachedAttentionOp(), WriteRowsOp()}; }

}  // namespace braid
