// Batch normalization of x [n, c, space...] (Ioffe and Szegedy, arXiv 1502.03167) and group
// normalization (Wu and He, arXiv 1803.08494).
//
// Batch statistics are those of the whole batch, wherever its parts are, and take two steps: the
// channels' sums (channel_sum), and from these their centered second moments (batch_moment). Both
// are plain sums over the batch, P if it is split, so any layout gives the numbers of one device. A
// micro-batch counts as a batch. With attribute groups, as many equal runs of neighbouring images
// count as batches ("ghost batches": Hoffer et al., arXiv 1705.08741), also within micro-batches:
// statistics are then [groups, c], split along with the images, and nothing is exchanged where
// parts of the batch are whole groups.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/product_type.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

// ---- batch
// ---------------------------------------------------------------------------------------

absl::Status CheckX(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  return CheckMinRank(ctx, 0, 2);
}

// Input `input` is a number per channel, like x.
absl::Status CheckChannels(const OpContext& ctx, int input) {
  BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, input));
  return CheckShape(ctx, input, {ctx.inputs[0].shape[1]});
}

// Input `input` is one of the numbers that x, input 0, is normalized with. They have its type;
// those of a narrow x may be f32 instead, all of them.
absl::Status CheckNumbers(const OpContext& ctx, int input, const Shape& shape) {
  const bool are_wide = IsNarrow(ctx.inputs[0].dtype) && ctx.inputs[1].dtype == DType::kF32;
  BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, are_wide ? 1 : 0, input));
  return CheckShape(ctx, input, shape);
}
absl::Status CheckParameters(const OpContext& ctx, int input) {
  return CheckNumbers(ctx, input, {ctx.inputs[0].shape[1]});
}

bool HasGroups(const Attrs& attrs) { return attrs.Has("groups"); }

// Of the statistics of x.
Shape StatisticsShape(const Attrs& attrs, const Shape& x) {
  return HasGroups(attrs) ? Shape{attrs.Int("groups"), x[1]} : Shape{x[1]};
}
TensorType Statistics(const OpContext& ctx, DType dtype) {
  return {dtype, StatisticsShape(ctx.attrs, ctx.inputs[0].shape)};
}
absl::Status CheckStatistics(const OpContext& ctx, int input) {
  return CheckNumbers(ctx, input, StatisticsShape(ctx.attrs, ctx.inputs[0].shape));
}

// That x can be what batch statistics are of.
absl::Status CheckBatch(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckX(ctx));
  if (!HasGroups(ctx.attrs)) return absl::OkStatus();
  const int64_t groups = ctx.attrs.Int("groups"), images = ctx.inputs[0].shape[0];
  if (groups >= 1 && images % groups == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].ToString(), ", groups is ",
                                                 groups, "; it must divide the ", images,
                                                 " images of the batch"));
}

// Signatures are by hand: parts of the batch that are whole groups must be equal parts even where a
// group is one image, and MicroBatchSignatures say of the same roles what no rule does.
//
// What an operand is: like x, statistics of its batch, or a number per channel.
enum class NormRole { kWide, kStatistic, kParameter };
using enum NormRole;
using NormRoles = std::vector<NormRole>;

std::vector<Sbp> Along(const NormRoles& roles, int axis, Sbp statistic, Sbp parameter) {
  std::vector<Sbp> result;
  for (NormRole role : roles) {
    result.push_back(role == kWide ? sbp::S(axis) : role == kStatistic ? statistic : parameter);
  }
  return result;
}

// A signature of the operands that are there: the last ones may be left out.
SbpSignature OfOperands(const OpContext& ctx, SbpSignature signature) {
  signature.inputs.resize(ctx.inputs.size());
  return signature;
}

// Split channels split all. Along other axes parameters go in whole, as do statistics, which come
// out as sums; but parts of the batch that are whole groups have statistics of their own.
auto ChannelSignatures(NormRoles inputs, NormRoles outputs) {
  return [=](const OpContext& ctx, int64_t parts) {
    std::vector<SbpSignature> signatures;
    const bool has_groups = HasGroups(ctx.attrs);
    for (int axis = 0; axis < ctx.inputs[0].shape.rank(); ++axis) {
      Sbp in = sbp::B, out = sbp::P, parameter = sbp::B;
      if (axis == 1) {
        in = out = sbp::S(has_groups ? 1 : 0);
        parameter = sbp::S(0);
      } else if (axis == 0 && has_groups) {
        if (ctx.attrs.Int("groups") % parts != 0) continue;
        in = out = sbp::S(0);
      }
      signatures.push_back(OfOperands(
          ctx, {Along(inputs, axis, in, parameter), Along(outputs, axis, out, parameter)}));
    }
    return signatures;
  };
}

// With `training` (or always, if there is no such attribute): the statistics that come with a part
// of the batch are that part's own, or those of its groups.
auto OwnStatistics(NormRoles inputs, NormRoles outputs) {
  return [=](const OpContext& ctx) {
    std::vector<SbpSignature> signatures;
    if (ctx.attrs.Has("training") && !ctx.attrs.Bool("training")) return signatures;
    const Sbp statistic = HasGroups(ctx.attrs) ? sbp::S(0) : sbp::P;
    signatures.push_back(OfOperands(
        ctx, {Along(inputs, 0, statistic, sbp::B), Along(outputs, 0, statistic, sbp::B)}));
    return signatures;
  };
}

// Elements of a channel that statistics are of.
double CountOf(const Attrs& attrs, const Shape& x) {
  const int64_t groups = HasGroups(attrs) ? attrs.Int("groups") : 1;
  return static_cast<double>(x.num_elements()) /
         static_cast<double>(std::max<int64_t>(1, x[1]) * groups);
}
// [c] as [c, 1...], which broadcasts onto x.
Tensor OverSpace(Tensor channels, const Shape& x) {
  Ints dims(x.rank() - 1, 1);
  dims[0] = x[1];
  return Reshape(channels, Shape(std::move(dims)));
}

TensorType Images() { return {DType::kF32, {5, 3, 4}}; }
TensorType Rows() { return {DType::kF32, {5, 3}}; }
TensorType Large() { return {DType::kF32, {2, 3, 5, 7}}; }
TensorType Three() { return {DType::kF32, {3}}; }
// `attrs` and, if `from` has them, its groups.
Attrs WithGroupsOf(const Attrs& from, Attrs attrs) {
  if (HasGroups(from)) attrs.Set("groups", from.Int("groups"));
  return attrs;
}
// Statistics of x, as many as it has elements.
Tensor OverBatch(Tensor statistics, const Attrs& attrs, const Shape& x) {
  if (!HasGroups(attrs)) return BroadcastTo(OverSpace(statistics, x), x);
  const int64_t groups = attrs.Int("groups");
  Ints narrow = {groups, 1}, wide = {groups, x[0] / groups};
  for (int axis = 1; axis < x.rank(); ++axis) {
    narrow.push_back(axis == 1 ? x[1] : 1);
    wide.push_back(x[axis]);
  }
  return Reshape(BroadcastTo(Reshape(statistics, Shape(narrow)), Shape(wide)), x);
}

// So few elements of a channel that their mean is above some of them, though their sum is drawn
// from where they are.
TensorType TwoRows() { return {DType::kF32, {2, 3}}; }
TensorType Four() { return {DType::kF32, {4, 3, 2}}; }
TensorType FourRows() { return {DType::kF32, {4, 3}}; }
TensorType Numbers(const TensorType& x) { return {DType::kF32, {x.shape[1]}}; }
// Statistics of x in `groups`; 0: without the attribute.
TensorType Numbers(const TensorType& x, int64_t groups) {
  return groups == 0 ? Numbers(x) : TensorType{DType::kF32, {groups, x.shape[1]}};
}
Attrs InGroups(int64_t groups, Attrs attrs = {}) {
  if (groups > 0) attrs.Set("groups", groups);
  return attrs;
}

OpSample Positive(std::vector<TensorType> inputs, Attrs attrs) {
  return {.inputs = std::move(inputs), .attrs = std::move(attrs), .low = 0.1, .high = 1};
}

// The sum of a channel's elements; attribute dtype may say f32 of a narrow x.
OpDef ChannelSumOp() {
  return OpDef("channel_sum")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        BRAID_RETURN_IF_ERROR(CheckBatch(ctx));
        BRAID_ASSIGN_OR_RETURN(const DType dtype, ProductType(ctx));
        return std::vector<TensorType>{Statistics(ctx, dtype)};
      })
      .Signatures(ChannelSignatures({kWide}, {kStatistic}))
      .MicroBatchSignatures([](const OpContext& ctx) {
        return HasGroups(ctx.attrs) ? OwnStatistics({kWide}, {kStatistic})(ctx)
                                    : std::vector<SbpSignature>();
      })
      .Linear({0})
      .Gradient([](const Context& c) {
        const Tensor x = c.inputs[0];
        return Gradients{OverBatch(Cast(c.output_gradients[0], x.dtype()), c.op.attrs, x.shape())};
      })
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[0].shape.num_elements());
      })
      .Sample({.inputs = {Images()}, .attrs = {}})
      .Sample({.inputs = {Rows()}, .attrs = {}})
      .Sample({.inputs = {Large()}, .attrs = {}})
      .Sample({.inputs = {Four()}, .attrs = InGroups(4)})
      .Sample({.inputs = {FourRows()}, .attrs = InGroups(2)})
      .Sample({.inputs = {Images()}, .attrs = {{"dtype", DType::kF32}}});
}

// sum over a channel's elements of (x - sum / count)^2.
OpDef BatchMomentOp() {
  return OpDef("batch_moment")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckBatch(ctx));
        BRAID_RETURN_IF_ERROR(CheckStatistics(ctx, 1));
        return std::vector<TensorType>{Statistics(ctx, ctx.inputs[1].dtype)};
      })
      .Signatures(ChannelSignatures({kWide, kStatistic}, {kStatistic}))
      .MicroBatchSignatures(OwnStatistics({kWide, kStatistic}, {kStatistic}))
      .KeepsNarrow({0})
      .Gradient([](const Context& c) {
        const Tensor sum = c.inputs[1], dy = c.output_gradients[0];
        const Tensor x = Cast(c.inputs[0], sum.dtype());
        const Attrs& attrs = c.op.attrs;
        const Shape shape = x.shape();
        const double count = CountOf(attrs, shape);
        const Tensor centered = Sub(x, OverBatch(Scale(sum, 1 / count), attrs, shape));
        // Zero where `sum` is the sum of x, up to rounding.
        const Tensor missing = Apply("channel_sum", {centered}, WithGroupsOf(attrs, {}));
        const Tensor dx = Scale(Mul(centered, OverBatch(dy, attrs, shape)), 2);
        return Gradients{Cast(dx, c.inputs[0].dtype()), Scale(Mul(missing, dy), -2 / count)};
      })
      .Flops([](const OpContext& ctx) { return 3.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {Images(), Three()}, .attrs = {}})
      .Sample({.inputs = {Rows(), Three()}, .attrs = {}})
      .Sample({.inputs = {Large(), Three()}, .attrs = {}})
      .Sample({.inputs = {Four(), Numbers(Four(), 4)}, .attrs = InGroups(4)})
      .Sample({.inputs = {FourRows(), Numbers(FourRows(), 2)}, .attrs = InGroups(2)});
}

// (x - mean) / sqrt(variance + epsilon) * gamma + beta. With `training`, b and c are not mean and
// variance but the batch's sum and second moment, and all of the gradient goes to x. If there is a
// sixth input, like x, it is added; with `relu`, what is below 0 becomes 0 at the end. All but x
// and what is like it may be f32 where these are narrow, here and in the gradients' operators.
OpDef BatchNormOp() {
  const auto sample = [&](const TensorType& x, bool training, int64_t groups = 0) {
    const TensorType numbers = Numbers(x), statistics = Numbers(x, groups);
    OpSample result = Positive({x, statistics, statistics, numbers, numbers},
                               InGroups(groups, {{"epsilon", 1e-3}, {"training", training}}));
    result.check_gradient = !training;
    return result;
  };
  const auto fused = [&](const TensorType& x, bool training, bool adds, int64_t groups = 0) {
    OpSample result = sample(x, training, groups);
    if (adds) result.inputs.push_back(x);
    result.attrs.Set("relu", true);
    return result;
  };
  const NormRoles inputs = {kWide, kStatistic, kStatistic, kParameter, kParameter, kWide};
  return OpDef("batch_norm")
      .Infer([](const OpContext& ctx) -> Types {
        const bool adds = ctx.inputs.size() == 6;
        if (!adds) BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 5));
        BRAID_RETURN_IF_ERROR(CheckBatch(ctx));
        if (HasGroups(ctx.attrs) && !Flag(ctx.attrs, "training")) {
          return absl::InvalidArgumentError(
              "groups are of a batch's statistics: training is false");
        }
        for (int i : {1, 2}) BRAID_RETURN_IF_ERROR(CheckStatistics(ctx, i));
        for (int i : {3, 4}) BRAID_RETURN_IF_ERROR(CheckParameters(ctx, i));
        if (adds) BRAID_RETURN_IF_ERROR(CheckSameType(ctx, 0, 5));
        return std::vector<TensorType>{ctx.inputs[0]};
      })
      .Signatures(ChannelSignatures(inputs, {kWide}))
      .MicroBatchSignatures(OwnStatistics(inputs, {kWide}))
      .KeepsNarrow({0, 5})
      .Inplace(0, 0)
      .Inplace(5, 0)
      .Gradient([](const Context& c) {
        const Tensor x = c.inputs[0], mean = c.inputs[1], variance = c.inputs[2];
        const Tensor gamma = c.inputs[3];
        const double epsilon = c.op.attrs.Double("epsilon");
        const bool is_training = Flag(c.op.attrs, "training");
        Tensor dy = c.output_gradients[0];
        if (Flag(c.op.attrs, "relu")) dy = Apply("relu_grad", {c.outputs[0], dy}, {});
        const Gradients sums =
            ApplyAll("batch_norm_sums", {x, mean, variance, dy},
                     WithGroupsOf(c.op.attrs, {{"epsilon", epsilon}, {"training", is_training}}));
        const Tensor dgamma = sums[0], dbeta = sums[1];
        Gradients gradients;
        if (is_training) {
          const auto over_groups = [&](Tensor of_each) {
            return HasGroups(c.op.attrs) ? ReduceSum(of_each, {.axes = Ints{0}}) : of_each;
          };
          const Tensor dx = Apply("batch_norm_dx", {x, mean, variance, gamma, dy, dgamma, dbeta},
                                  WithGroupsOf(c.op.attrs, {{"epsilon", epsilon}}));
          gradients = {dx, Tensor(), Tensor(), over_groups(dgamma), over_groups(dbeta)};
        } else {
          const Tensor padded = AddScalar(variance, epsilon);
          const Tensor factor = Mul(gamma, Rsqrt(padded));
          const Tensor dx = Mul(dy, OverSpace(Cast(factor, x.dtype()), x.shape()));
          const Tensor dmean = Neg(Mul(factor, dbeta));
          const Tensor dvariance = Scale(Div(Mul(gamma, dgamma), padded), -0.5);
          gradients = {dx, dmean, dvariance, dgamma, dbeta};
        }
        if (c.inputs.size() == 6) gradients.push_back(dy);
        return gradients;
      })
      .Flops([](const OpContext& ctx) { return 3.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample(sample(Images(), false))
      .Sample(sample(Images(), true))
      .Sample(sample(Rows(), true))
      .Sample(sample(Large(), true))
      .Sample(fused(Images(), false, /*adds=*/false))
      .Sample(fused(Large(), false, /*adds=*/true))
      .Sample(fused(TwoRows(), true, /*adds=*/true))
      .Sample(sample(Four(), true, 4))
      .Sample(fused(FourRows(), true, /*adds=*/true, 2));
}

// The gradients of gamma and beta: sums of dy * (x - mean) / sqrt(variance + epsilon), and of dy.
// With `relu`, and gamma and beta as further inputs, dy is what arrives at the rectifier.
OpDef BatchNormSumsOp() {
  const auto sample = [](const TensorType& x, bool training, int64_t groups = 0) {
    const TensorType statistics = Numbers(x, groups);
    return Positive({x, statistics, statistics, x},
                    InGroups(groups, {{"epsilon", 1e-3}, {"training", training}}));
  };
  const auto fused = [&](const TensorType& x, bool training, int64_t groups = 0) {
    OpSample result = sample(x, training, groups);
    result.inputs.insert(result.inputs.end(), 2, Numbers(x));
    result.attrs.Set("relu", true);
    return result;
  };
  const NormRoles inputs = {kWide, kStatistic, kStatistic, kWide, kParameter, kParameter};
  return OpDef("batch_norm_sums")
      .Infer([](const OpContext& ctx) -> Types {
        const bool rectifies = Flag(ctx.attrs, "relu");
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, rectifies ? 6 : 4));
        BRAID_RETURN_IF_ERROR(CheckBatch(ctx));
        for (int i : {1, 2}) BRAID_RETURN_IF_ERROR(CheckStatistics(ctx, i));
        BRAID_RETURN_IF_ERROR(CheckSameType(ctx, 0, 3));
        for (int i = 4; rectifies && i < 6; ++i) BRAID_RETURN_IF_ERROR(CheckParameters(ctx, i));
        return std::vector<TensorType>(2, Statistics(ctx, ctx.inputs[1].dtype));
      })
      .Signatures(ChannelSignatures(inputs, {kStatistic, kStatistic}))
      .MicroBatchSignatures(OwnStatistics(inputs, {kStatistic, kStatistic}))
      .KeepsNarrow({0, 3})
      .Linear({3})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return 4.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample(sample(Images(), false))
      .Sample(sample(Images(), true))
      .Sample(sample(Rows(), true))
      .Sample(sample(Large(), true))
      .Sample(fused(Images(), false))
      .Sample(fused(Large(), false))
      .Sample(fused(TwoRows(), true))
      .Sample(sample(Four(), true, 4))
      .Sample(fused(FourRows(), true, 2));
}

// With xn = (x - mean) * rstd of the batch's own statistics:
// dx = gamma * rstd * (dy - (dbeta + xn * dgamma) / count).
// With `relu`, and beta as a further input, dy is what arrives at the rectifier.
OpDef BatchNormInputGradientOp() {
  const auto sample = [](const TensorType& x, int64_t groups = 0) {
    const TensorType sums = Numbers(x, groups);
    return Positive({x, sums, sums, Numbers(x), x, sums, sums},
                    InGroups(groups, {{"epsilon", 1e-3}}));
  };
  const auto fused = [&](const TensorType& x, int64_t groups = 0) {
    OpSample result = sample(x, groups);
    result.inputs.push_back(Numbers(x));
    result.attrs.Set("relu", true);
    return result;
  };
  const NormRoles inputs = {kWide, kStatistic, kStatistic, kParameter,
                            kWide, kStatistic, kStatistic, kParameter};
  return OpDef("batch_norm_dx")
      .Infer([](const OpContext& ctx) -> Types {
        const bool rectifies = Flag(ctx.attrs, "relu");
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, rectifies ? 8 : 7));
        BRAID_RETURN_IF_ERROR(CheckBatch(ctx));
        for (int i : {1, 2, 5, 6}) BRAID_RETURN_IF_ERROR(CheckStatistics(ctx, i));
        BRAID_RETURN_IF_ERROR(CheckParameters(ctx, 3));
        BRAID_RETURN_IF_ERROR(CheckSameType(ctx, 0, 4));
        if (rectifies) BRAID_RETURN_IF_ERROR(CheckParameters(ctx, 7));
        return std::vector<TensorType>{ctx.inputs[0]};
      })
      .Signatures(ChannelSignatures(inputs, {kWide}))
      .MicroBatchSignatures(OwnStatistics(inputs, {kWide}))
      .KeepsNarrow({0, 4})
      .Linear({4, 5, 6})
      .Inplace(4, 0)
      .NoGradient()
      .Flops([](const OpContext& ctx) { return 5.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample(sample(Images()))
      .Sample(sample(Rows()))
      .Sample(sample(Large()))
      .Sample(fused(TwoRows()))
      .Sample(fused({DType::kF32, {1, 3, 1, 2}}))
      .Sample(sample(Four(), 2))
      .Sample(fused(FourRows(), 4));
}

// ---- groups
// --------------------------------------------------------------------------------------

absl::Status CheckGroups(const OpContext& ctx) {
  const int64_t groups = ctx.attrs.Int("groups"), channels = ctx.inputs[0].shape[1];
  if (groups >= 1 && channels % groups == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].ToString(), ", groups is ",
                                                 groups, "; it must divide the channels"));
}

Shape GroupsOf(const Shape& x, int64_t groups) { return {x[0], groups}; }

// Of x [n, c, space...] seen as [n, groups, elements].
Tensor Grouped(Tensor x, int64_t groups) {
  const Shape shape = x.shape();
  const int64_t elements = shape.num_elements() / std::max<int64_t>(1, shape[0] * groups);
  return Reshape(x, {shape[0], groups, elements});
}

// What mean and rstd give back, which are seldom used by themselves.
Tensor StatisticsGradient(const Context& c) {
  const Tensor x = c.inputs[0], mean = c.outputs[1], rstd = c.outputs[2];
  const Shape shape = x.shape();
  const Tensor grouped = Grouped(x, c.op.attrs.Int("groups"));
  const double count = static_cast<double>(std::max<int64_t>(1, grouped.shape()[2]));
  Tensor result;
  if (c.output_gradients[1].valid()) {
    result = BroadcastTo(ExpandDims(Scale(c.output_gradients[1], 1 / count), -1), grouped.shape());
  }
  if (c.output_gradients[2].valid()) {
    // d rstd / d x = -rstd^3 (x - mean) / count.
    const Tensor factor = Scale(Mul(c.output_gradients[2], Mul(rstd, Square(rstd))), -1 / count);
    const Tensor term = Mul(Sub(grouped, ExpandDims(mean, -1)), ExpandDims(factor, -1));
    result = result.valid() ? Add(result, term) : term;
  }
  return result.valid() ? Reshape(result, shape) : result;
}

// Outputs y, and mean and 1 / sqrt(variance + epsilon) [n, groups].
OpDef GroupNormOp() {
  const auto sample = [](Shape x, int64_t groups) {
    const TensorType channels = {DType::kF32, {x[1]}};
    return OpSample{.inputs = {{DType::kF32, std::move(x)}, channels, channels},
                    .attrs = {{"epsilon", 1e-3}, {"groups", groups}}};
  };
  return OpDef("group_norm")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 3));
        BRAID_RETURN_IF_ERROR(CheckX(ctx));
        BRAID_RETURN_IF_ERROR(CheckChannels(ctx, 1));
        BRAID_RETURN_IF_ERROR(CheckChannels(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckGroups(ctx));
        const TensorType& x = ctx.inputs[0];
        const TensorType groups = {x.dtype, GroupsOf(x.shape, ctx.attrs.Int("groups"))};
        return std::vector<TensorType>{x, groups, groups};
      })
      .Rule("n(g{groups}c)[S],(gc),(gc)->n(gc)[S],ng,ng")
      .Gradient([](const Context& c) {
        Tensor dx, dgamma, dbeta;
        if (c.output_gradients[0].valid()) {
          const Gradients gradients = ApplyAll(
              "group_norm_grad",
              {c.inputs[0], c.inputs[1], c.outputs[1], c.outputs[2], c.output_gradients[0]},
              {{"groups", c.op.attrs.Int("groups")}});
          dx = gradients[0], dgamma = gradients[1], dbeta = gradients[2];
        }
        const Tensor extra = StatisticsGradient(c);
        if (extra.valid()) dx = dx.valid() ? Add(dx, extra) : extra;
        return Gradients{dx, dgamma, dbeta};
      })
      .Flops([](const OpContext& ctx) { return 7.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample(sample({3, 4, 5}, 2))
      .Sample(sample({3, 4, 2, 3}, 4))
      .Sample(sample({5, 6}, 2));
}

OpDef GroupNormGradientOp() {
  const auto sample = [](Shape x, int64_t groups) {
    const TensorType wide = {DType::kF32, x}, channels = {DType::kF32, {x[1]}};
    const TensorType statistics = {DType::kF32, GroupsOf(x, groups)};
    return OpSample{.inputs = {wide, channels, statistics, statistics, wide},
                    .attrs = {{"groups", groups}}};
  };
  return OpDef("group_norm_grad")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 5));
        BRAID_RETURN_IF_ERROR(CheckX(ctx));
        BRAID_RETURN_IF_ERROR(CheckChannels(ctx, 1));
        BRAID_RETURN_IF_ERROR(CheckGroups(ctx));
        const TensorType& x = ctx.inputs[0];
        for (int i : {2, 3}) {
          BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, i));
          BRAID_RETURN_IF_ERROR(CheckShape(ctx, i, GroupsOf(x.shape, ctx.attrs.Int("groups"))));
        }
        BRAID_RETURN_IF_ERROR(CheckSameType(ctx, 0, 4));
        return std::vector<TensorType>{x, ctx.inputs[1], ctx.inputs[1]};
      })
      .Rule("n(g{groups}c)[S],(gc),ng,ng,n(gc)[S]->n(gc)[S],(gc),(gc)")
      .Linear({4})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return 12.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample(sample({3, 4, 5}, 2))
      .Sample(sample({3, 4, 2, 3}, 4));
}

}  // namespace

std::vector<OpDef> BatchNormOps() {
  return {ChannelSumOp(),
          BatchMomentOp(),
          BatchNormOp(),
          BatchNormSumsOp(),
          BatchNormInputGradientOp(),
          GroupNormOp(),
          GroupNormGradientOp()};
}

}  // namespace braid
