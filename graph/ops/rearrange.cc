// Ops that pick elements by a rule along each axis: slice, pad, and triangle, which keeps one side
// of a diagonal.
#include <algorithm>
#include <optional>
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
using Ints = std::vector<int64_t>;

// One number per axis, or an error. Absent lists that have a default are that number everywhere.
absl::StatusOr<Ints> PerAxis(const OpContext& ctx, const char* attr, int rank,
                             std::optional<int64_t> otherwise = std::nullopt) {
  if (otherwise && !ctx.attrs.Has(attr)) return Ints(rank, *otherwise);
  const Ints& values = ctx.attrs.Ints(attr);
  if (static_cast<int>(values.size()) == rank) return values;
  return Disagree(ctx, attr, values, "it needs one number per axis");
}

// ---- slice --------------------------------------------------------------------------------------

Ints StepsOf(const Attrs& attrs, int rank) {
  return attrs.Has("step") ? attrs.Ints("step") : Ints(rank, 1);
}

Types InferSlice(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
  const Shape& in = ctx.inputs[0].shape;
  BRAID_ASSIGN_OR_RETURN(const Ints begin, PerAxis(ctx, "begin", in.rank()));
  BRAID_ASSIGN_OR_RETURN(const Ints size, PerAxis(ctx, "size", in.rank()));
  BRAID_ASSIGN_OR_RETURN(const Ints step, PerAxis(ctx, "step", in.rank(), 1));
  for (int i = 0; i < in.rank(); ++i) {
    if (step[i] == 0) return Disagree(ctx, "step", step, "it must not be 0");
    // Of what is empty, only the begin counts.
    const __int128 last = begin[i] + std::max<__int128>(0, __int128{size[i]} - 1) * step[i];
    const int64_t most = size[i] == 0 ? in[i] : in[i] - 1;
    if (size[i] < 0 || begin[i] < 0 || begin[i] > most || last < 0 || last > most) {
      return Disagree(
          ctx, "begin", begin,
          absl::StrCat(
              "size is ", ListText(size),
              ctx.attrs.Has("step") ? absl::StrCat(", step is ", ListText(step)) : std::string(),
              ", axis ", i, " goes outside"));
    }
  }
  return std::vector<TensorType>{{ctx.inputs[0].dtype, Shape(size)}};
}

// What goes into the places that the slice took from, zeros between and around them.
Gradients SliceGradient(const Context& c) {
  const Shape in = c.inputs[0].shape(), out = c.outputs[0].shape();
  const int rank = in.rank();
  const Ints step = StepsOf(c.op.attrs, rank);
  Ints before = c.op.attrs.Ints("begin"), after(rank), interior(rank), reversed;
  for (int i = 0; i < rank; ++i) {
    if (out[i] == 0) {
      before[i] = 0;
      after[i] = in[i];
      continue;
    }
    const int64_t reach = (out[i] - 1) * step[i];
    if (step[i] < 0) {
      reversed.push_back(i);
      before[i] += reach;
    }
    interior[i] = out[i] == 1 ? 0 : std::abs(step[i]) - 1;
    after[i] = in[i] - before[i] - std::abs(reach) - 1;
  }
  const Tensor dy = c.output_gradients[0];
  return {Pad(reversed.empty() ? dy : Flip(dy, reversed), before, after, {.interior = interior})};
}

OpDef SliceOp() {
  return OpDef("slice")
      .Infer(InferSlice)
      .Rule([](const OpContext& ctx) {
        // A part of a cut axis holds some of the slice; the others' elements are zeros.
        FactorRule rule;
        const Shape &in = ctx.inputs[0].shape, &out = ctx.outputs[0].shape;
        const Ints step = StepsOf(ctx.attrs, in.rank());
        for (int i = 0; i < in.rank(); ++i) {
          const bool is_whole = in[i] == out[i] && (step[i] == 1 || in[i] <= 1);
          rule.factors.push_back({.inputs = {i}, .outputs = {is_whole ? i : Factor::kAbsent}});
        }
        return rule;
      })
      .Linear({0})
      .Gradient(SliceGradient)
      .Sample({.inputs = {{DType::kF32, {5, 6}}},
               .attrs = {{"begin", Ints{0, 2}}, {"size", Ints{5, 3}}}})
      .Sample({.inputs = {{DType::kF32, {7, 3, 4}}},
               .attrs = {{"begin", Ints{1, 0, 1}}, {"size", Ints{5, 3, 2}}}})
      .Sample(
          {.inputs = {{DType::kF32, {7, 3, 5}}},
           .attrs = {{"begin", Ints{0, 2, 4}}, {"size", Ints{3, 3, 2}}, {"step", Ints{3, -1, -2}}}})
      .Sample({.inputs = {{DType::kF32, {2, 6}}},
               .attrs = {{"begin", Ints{0, 6}}, {"size", Ints{2, 0}}, {"step", Ints{1, 4}}}});
}

// ---- pad ----------------------------------------------------------------------------------------

std::string ModeOf(const Attrs& attrs) {
  return attrs.Has("mode") ? attrs.String("mode") : "constant";
}

// Zeros are addends of zeros.
bool PadIsLinear(const OpContext& ctx) {
  return !ctx.attrs.Has("value") || ctx.attrs.Double("value") == 0;
}

// The size of what pad makes of an axis, of a tensor of shape `in`.
absl::StatusOr<Shape> PaddedShape(const OpContext& ctx, const Shape& in) {
  const int rank = in.rank();
  BRAID_ASSIGN_OR_RETURN(const Ints before, PerAxis(ctx, "before", rank));
  BRAID_ASSIGN_OR_RETURN(const Ints after, PerAxis(ctx, "after", rank));
  BRAID_ASSIGN_OR_RETURN(const Ints interior, PerAxis(ctx, "interior", rank, 0));
  const std::string mode = ModeOf(ctx.attrs);
  const bool is_constant = mode == "constant";
  if (!is_constant && mode != "reflect" && mode != "edge" && mode != "wrap") {
    return absl::InvalidArgumentError(
        absl::StrCat("mode is '", mode, "'; it must be constant, reflect, edge or wrap"));
  }
  // Far above any tensor, and far below where sums overflow.
  constexpr int64_t kMost = int64_t{1} << 60;
  Shape shape = in;
  for (int i = 0; i < rank; ++i) {
    for (int64_t amount : {before[i], after[i], interior[i]}) {
      if (amount > kMost || amount < -kMost) {
        return Disagree(ctx, "before", before,
                        absl::StrCat("after is ", ListText(after), "; axis ", i, " is too long"));
      }
    }
    if (interior[i] < 0 || (interior[i] > 0 && !is_constant)) {
      return Disagree(ctx, "interior", interior,
                      "it must not be negative, and 0 but in the mode constant");
    }
    const __int128 size = __int128{in[i]} + before[i] + after[i] +
                          std::max<__int128>(0, __int128{in[i]} - 1) * interior[i];
    if (size < 0 || size > kMost) {
      return Disagree(ctx, "before", before,
                      absl::StrCat("after is ", ListText(after), ", axis ", i,
                                   " would have a size that is none"));
    }
    if (in[i] == 0 && size > 0 && !is_constant) {
      return Disagree(ctx, "before", before,
                      absl::StrCat("axis ", i, " has no element to fill it with"));
    }
    shape[i] = static_cast<int64_t>(size);
  }
  return shape;
}

FactorRule UntouchedAxes(const OpContext& ctx) {
  FactorRule rule;
  for (int i = 0; i < ctx.inputs[0].shape.rank(); ++i) {
    bool is_touched = false;
    for (const char* attr : {"before", "after", "interior"}) {
      is_touched = is_touched || (ctx.attrs.Has(attr) && ctx.attrs.Ints(attr)[i] != 0);
    }
    if (!is_touched) rule.factors.push_back({.inputs = {i}, .outputs = {i}});
  }
  return rule;
}

Gradients PadGradient(const Context& c) {
  const Attrs& attrs = c.op.attrs;
  const Tensor dy = c.output_gradients[0];
  const Shape in = c.inputs[0].shape();
  if (ModeOf(attrs) != "constant") {
    return {Apply("pad_grad", {dy},
                  {{"before", attrs.Ints("before")},
                   {"after", attrs.Ints("after")},
                   {"mode", attrs.String("mode")},
                   {"shape", in.dims()}})};
  }
  Ints before = attrs.Ints("before"), after = attrs.Ints("after");
  for (int64_t& amount : before) amount = -amount;
  for (int64_t& amount : after) amount = -amount;
  const Tensor inside = Pad(dy, before, after);
  if (!attrs.Has("interior")) return {inside};
  Ints step = attrs.Ints("interior");
  for (int64_t& s : step) ++s;
  return {Slice(inside, Ints(in.rank(), 0), in.dims(), step)};
}

OpDef PadOp() {
  return OpDef("pad")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        BRAID_ASSIGN_OR_RETURN(Shape shape, PaddedShape(ctx, ctx.inputs[0].shape));
        return std::vector<TensorType>{{ctx.inputs[0].dtype, std::move(shape)}};
      })
      .Rule(UntouchedAxes)
      .Linear({0}, PadIsLinear)
      .Gradient(PadGradient)
      .Sample({.inputs = {{DType::kF32, {5, 3}}},
               .attrs = {{"before", Ints{0, 1}}, {"after", Ints{0, 2}}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 2}}},
               .attrs = {{"before", Ints{1, 0, 0}}, {"after", Ints{0, 0, 3}}, {"value", 0.5}}})
      .Sample(
          {.inputs = {{DType::kF32, {6, 4}}},
           .attrs = {{"before", Ints{-2, 1}}, {"after", Ints{1, -3}}, {"interior", Ints{1, 2}}}})
      .Sample(
          {.inputs = {{DType::kF32, {5, 3, 2}}},
           .attrs = {{"before", Ints{0, 2, 3}}, {"after", Ints{0, -1, 4}}, {"mode", "reflect"}}})
      .Sample({.inputs = {{DType::kF32, {4, 3, 6}}},
               .attrs = {{"before", Ints{1, 0, -2}}, {"after", Ints{2, 0, 1}}, {"mode", "edge"}}})
      .Sample({.inputs = {{DType::kF32, {3, 5}}},
               .attrs = {{"before", Ints{4, 0}}, {"after", Ints{7, 0}}, {"mode", "wrap"}}});
}

// The gradient of the modes that repeat elements: every element of dy goes where pad took its.
OpDef PadGradientOp() {
  return OpDef("pad_grad")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
        const Ints& shape = ctx.attrs.Ints("shape");
        if (std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d < 0; })) {
          return Disagree(ctx, "shape", shape, "a dim must not be negative");
        }
        BRAID_ASSIGN_OR_RETURN(const Shape padded, PaddedShape(ctx, Shape(shape)));
        if (padded != ctx.inputs[0].shape) {
          return Disagree(ctx, "shape", shape,
                          absl::StrCat("padded, it would be ", padded.ToString()));
        }
        return std::vector<TensorType>{{ctx.inputs[0].dtype, Shape(shape)}};
      })
      .Rule(UntouchedAxes)
      .Linear({0})
      .Gradient([](const Context& c) {
        const Attrs& attrs = c.op.attrs;
        return Gradients{Apply("pad", {c.output_gradients[0]},
                               {{"before", attrs.Ints("before")},
                                {"after", attrs.Ints("after")},
                                {"mode", attrs.String("mode")}})};
      })
      .Sample({.inputs = {{DType::kF32, {5, 4, 9}}},
               .attrs = {{"before", Ints{0, 2, 3}},
                         {"after", Ints{0, -1, 4}},
                         {"mode", "reflect"},
                         {"shape", Ints{5, 3, 2}}}})
      .Sample({.inputs = {{DType::kF32, {7, 3}}},
               .attrs = {{"before", Ints{1, 0}},
                         {"after", Ints{2, 0}},
                         {"mode", "edge"},
                         {"shape", Ints{4, 3}}}})
      .Sample({.inputs = {{DType::kF32, {14, 5}}},
               .attrs = {{"before", Ints{4, 0}},
                         {"after", Ints{7, 0}},
                         {"mode", "wrap"},
                         {"shape", Ints{3, 5}}}});
}

// ---- triangle -----------------------------------------------------------------------------------

OpDef TriangleOp() {
  return OpDef("triangle")
      .Rule("Nrc->Nrc")
      .Linear({0})
      .Inplace(0, 0)
      .Gradient([](const Context& c) {
        return Gradients{Apply("triangle", {c.output_gradients[0]}, c.op.attrs)};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}},
               .attrs = {{"diagonal", int64_t{0}}, {"upper", false}}})
      .Sample({.inputs = {{DType::kF32, {2, 6, 5}}},
               .attrs = {{"diagonal", int64_t{-2}}, {"upper", true}}})
      .Sample({.inputs = {{DType::kF32, {3, 4}}},
               .attrs = {{"diagonal", int64_t{1}}, {"upper", false}}});
}

}  // namespace

std::vector<OpDef> RearrangeOps() { return {SliceOp(), PadOp(), PadGradientOp(), TriangleOp()}; }

}  // namespace braid
