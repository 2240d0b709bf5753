// Inference token by token: attention over the keys and values of earlier steps, which variables
// hold, and of this one; and what writes this step's rows into these variables at its end.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

constexpr int kQuery = 0, kCachedKey = 3;

// The cache holds at least what comes now.
absl::Status CheckCache(const OpContext& ctx) {
  const Shape &q = ctx.inputs[kQuery].shape, &cached = ctx.inputs[kCachedKey].shape;
  if (cached[1] >= q[1]) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a is ", q.ToString(), ", d is ", cached.ToString(),
      "; [batch, time, heads, depth] and [batch, cache, heads, depth] with a cache of at least "
      "`time` are needed"));
}

// (q, k, v [batch, time, heads, depth], cached keys and values [batch, cache, heads, depth],
// position): query i sees the first `position` rows of the caches and keys 0 .. i.
OpDef CachedAttentionOp() {
  const auto f32 = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  return OpDef("cached_attention")
      .Rule("b[t]h[d],b[t]h[d],b[t]h[e],b[c]h[d],b[c]h[e],->b[t]h[e]")
      .Takes("fffffi")
      .Check(CheckCache)
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
      .Rule("A{axis}_B,A_B,->()")
      .Takes("xxi")
      .Check([](const OpContext& ctx) {
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        if (ctx.inputs[1].shape[axis] <= ctx.inputs[0].shape[axis]) return absl::OkStatus();
        return Disagree(ctx, absl::StrCat("b has more rows on axis ", axis));
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
