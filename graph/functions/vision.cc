// graph/functional.h: convolution, pooling, normalization by channels, interpolation.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/functions/integers.h"
#include "graph/functions/operand_checks.h"
#include "graph/ops/window.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

// An option's list with an entry per axis; as it is if it does not fit, which the operator reports.
Ints PerAxis(Ints list, size_t axes, int64_t otherwise) {
  if (list.empty()) return Ints(axes, otherwise);
  if (list.size() == 1) return Ints(axes, list[0]);
  return list;
}

struct Space {
  Ints strides, dilations, begin, end;
};

// The options' windows over `space`, which must be known for "same" paddings.
template <class Options>
Space SpaceOf(const Options& options, const Ints& strides, size_t axes) {
  Space space;
  space.strides = PerAxis(strides, axes, 1);
  space.dilations = PerAxis(options.dilations, axes, 1);
  space.begin = PerAxis(options.padding, axes, 0);
  space.end = options.padding_end.empty() ? space.begin : PerAxis(options.padding_end, axes, 0);
  return space;
}

void PadSame(SamePadding same, const Ints& sizes, const Ints& kernel, Space& space) {
  const size_t axes = sizes.size();
  if (same == SamePadding::kNone || kernel.size() != axes || space.strides.size() != axes ||
      space.dilations.size() != axes) {
    return;
  }
  space.begin.assign(axes, 0);
  space.end.assign(axes, 0);
  for (size_t i = 0; i < axes; ++i) {
    if (space.strides[i] < 1) return;
    const int64_t windows = (sizes[i] + space.strides[i] - 1) / space.strides[i];
    const int64_t reach =
        (windows - 1) * space.strides[i] + space.dilations[i] * (kernel[i] - 1) + 1;
    const int64_t total = std::max<int64_t>(0, reach - sizes[i]);
    const int64_t less = total / 2, more = total - less;
    space.begin[i] = same == SamePadding::kUpper ? less : more;
    space.end[i] = same == SamePadding::kUpper ? more : less;
  }
}

Attrs AttrsOf(Space space) {
  return {{"strides", std::move(space.strides)},
          {"dilations", std::move(space.dilations)},
          {"pads_begin", std::move(space.begin)},
          {"pads_end", std::move(space.end)}};
}

Tensor ConvOf(const char* op, const std::vector<Tensor>& inputs, const ConvOptions& options,
              SourceLocation where) {
  const Tensor x = inputs[0], w = inputs[1];
  if (x.shape().rank() < 3 || w.shape().rank() < 3) {
    return Fail(x,
                absl::StrCat(op, ": x is ", x.type().ToString(), ", w is ", w.type().ToString(),
                             "; [n, c, space...] and [o, c / groups, kernel...] are needed"),
                where);
  }
  const Ints sizes = braid::SpaceOf(x.shape()), kernel = braid::SpaceOf(w.shape());
  Space space = SpaceOf(options, options.strides, sizes.size());
  PadSame(options.same, sizes, kernel, space);
  Attrs attrs = AttrsOf(std::move(space));
  attrs.Set("groups", options.groups);
  return Apply(op, inputs, std::move(attrs), where);
}

// [c] as [c, 1...], which broadcasts onto x.
Tensor OverSpace(Tensor channels, Tensor x, SourceLocation where) {
  Ints dims(x.shape().rank() - 1, 1);
  dims[0] = -1;
  return Reshape(channels, Shape(std::move(dims)), where);
}

Attrs PoolAttrs(Tensor x, const PoolOptions& options) {
  const Ints sizes = x.shape().rank() >= 2 ? braid::SpaceOf(x.shape()) : Ints();
  const Ints kernel = PerAxis(options.kernel, sizes.size(), 1);
  Space space = SpaceOf(options, options.strides.empty() ? kernel : options.strides, sizes.size());
  PadSame(options.same, sizes, kernel, space);
  Attrs attrs = AttrsOf(std::move(space));
  attrs.Set("kernel", kernel);
  attrs.Set("ceil_mode", options.ceil_mode);
  return attrs;
}

Tensor SumPool(Tensor x, const PoolOptions& options, SourceLocation where) {
  Attrs attrs = PoolAttrs(x, options);
  attrs.Set("divisor", std::string("one"));
  return Apply("avg_pool", {x}, std::move(attrs), where);
}

std::optional<Ints> SpaceAxes(Tensor x, const char* op, SourceLocation where) {
  const int rank = x.shape().rank();
  if (rank < 3) {
    Fail(x, absl::StrCat(op, ": x is ", x.type().ToString(), "; [n, c, space...] is needed"),
         where);
    return std::nullopt;
  }
  Ints axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}

}  // namespace

Tensor Conv(Tensor x, Tensor w, ConvOptions options, SourceLocation where) {
  if (!AllValid({x, w})) return Invalid({x, w}, where);
  return ConvOf("conv", {x, w}, options, where);
}
Tensor Conv(Tensor x, Tensor w, Tensor bias, ConvOptions options, SourceLocation where) {
  if (!AllValid({x, w, bias})) return Invalid({x, w, bias}, where);
  return ConvOf("conv", {x, w, bias}, options, where);
}
Tensor ConvInteger(ByteOperand x, ByteOperand w, ConvOptions options, SourceLocation where) {
  const std::vector<Tensor> inputs = ByteInputs(x, w, where);
  if (!AllValid(inputs)) return Invalid(inputs, where);
  return ConvOf("conv_integer", inputs, options, where);
}

Tensor ConvTranspose(Tensor x, Tensor w, ConvTransposeOptions options, SourceLocation where) {
  if (!AllValid({x, w})) return Invalid({x, w}, where);
  const Shape from = x.shape(), weights = w.shape();
  const auto fail = [&](const std::string& why) {
    return Fail(x,
                absl::StrCat("conv_transpose: x is ", x.type().ToString(), ", w is ",
                             w.type().ToString(), "; ", why),
                where);
  };
  if (from.rank() < 3 || weights.rank() != from.rank()) {
    return fail("[n, c, space...] and [c, o / groups, kernel...] are needed");
  }
  const Ints sizes = braid::SpaceOf(from), kernel = braid::SpaceOf(weights);
  const size_t axes = sizes.size();
  const Space space = SpaceOf(options, options.strides, axes);
  const Ints extra = PerAxis(options.output_padding, axes, 0);
  for (const Ints* list : {&space.strides, &space.dilations, &space.begin, &space.end, &extra}) {
    if (list->size() == axes) continue;
    return fail(absl::StrCat("an option has ", list->size(), " entries; one for each of ", axes,
                             " axes of space, or one for all, is needed"));
  }
  Ints result(axes);
  for (size_t i = 0; i < axes; ++i) {
    if (extra[i] < 0 || extra[i] >= space.strides[i]) {
      return fail(absl::StrCat("output_padding is ", extra[i], ", the stride is ", space.strides[i],
                               "; it must be less"));
    }
    result[i] = (sizes[i] - 1) * space.strides[i] + space.dilations[i] * (kernel[i] - 1) + 1 -
                space.begin[i] - space.end[i] + extra[i];
  }
  Attrs attrs = AttrsOf(space);
  attrs.Set("groups", options.groups);
  attrs.Set("space", std::move(result));
  return Apply("conv_input_grad", {x, w}, std::move(attrs), where);
}
Tensor ConvTranspose(Tensor x, Tensor w, Tensor bias, ConvTransposeOptions options,
                     SourceLocation where) {
  const Tensor y = ConvTranspose(x, w, std::move(options), where);
  if (!AllValid({y, bias})) return Invalid({y, bias}, where);
  return Add(y, OverSpace(bias, y, where), where);
}

Tensor MaxPool(Tensor x, PoolOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  return Apply("max_pool", {x}, PoolAttrs(x, options), where);
}
std::array<Tensor, 2> MaxPoolWithIndices(Tensor x, PoolOptions options, SourceLocation where) {
  if (!x.valid()) return {x, x};
  Attrs attrs = PoolAttrs(x, options);
  attrs.Set("with_indices", true);
  const std::vector<Tensor> results = ApplyAll("max_pool", {x}, std::move(attrs), where);
  return {results[0], results.back()};
}
Tensor AvgPool(Tensor x, PoolOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  Attrs attrs = PoolAttrs(x, options);
  attrs.Set("divisor", std::string(options.count_include_pad ? "padded" : "elements"));
  return Apply("avg_pool", {x}, std::move(attrs), where);
}
Tensor LpPool(Tensor x, double p, PoolOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (p == 1) return SumPool(Abs(x, where), options, where);
  if (p == 2) return Sqrt(SumPool(Square(x, where), options, where), where);
  return Pow(SumPool(Pow(Abs(x, where), p, where), options, where), 1 / p, where);
}
Tensor AdaptiveAvgPool(Tensor x, std::vector<int64_t> sizes, SourceLocation where) {
  return Apply("avg_pool", {x},
               {{"windows", std::move(sizes)}, {"divisor", std::string("elements")}}, where);
}
Tensor AdaptiveMaxPool(Tensor x, std::vector<int64_t> sizes, SourceLocation where) {
  return Apply("max_pool", {x}, {{"windows", std::move(sizes)}}, where);
}
Tensor GlobalAvgPool(Tensor x, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Ints> axes = SpaceAxes(x, "global_avg_pool", where);
  return axes ? ReduceMean(x, {.axes = *axes, .keep_dims = true}, where) : Invalid({x}, where);
}
Tensor GlobalMaxPool(Tensor x, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Ints> axes = SpaceAxes(x, "global_max_pool", where);
  return axes ? ReduceMax(x, {.axes = *axes, .keep_dims = true}, where) : Invalid({x}, where);
}

Tensor BatchNorm(Tensor x, Tensor gamma, Tensor beta, Tensor mean, Tensor variance,
                 BatchNormOptions options, SourceLocation where) {
  return Apply("batch_norm", {x, mean, variance, gamma, beta},
               {{"epsilon", options.epsilon}, {"training", false}}, where);
}

BatchNormResult BatchNormTraining(Tensor x, Tensor gamma, Tensor beta, BatchNormOptions options,
                                  SourceLocation where) {
  if (!AllValid({x, gamma, beta})) {
    const Tensor invalid = Invalid({x, gamma, beta}, where);
    return {invalid, invalid, invalid};
  }
  const Shape shape = x.shape();
  if (shape.rank() < 2) {
    const Tensor failed = Fail(
        x, absl::StrCat("batch_norm: x is ", x.type().ToString(), "; [n, c, space...] is needed"),
        where);
    return {failed, failed, failed};
  }
  const double count = static_cast<double>(shape.num_elements()) /
                       static_cast<double>(std::max<int64_t>(1, shape[1]));
  Attrs attrs;
  if (options.groups != 0) attrs.Set("groups", options.groups);
  const Tensor sum = Apply("channel_sum", {x}, attrs, where);
  const Tensor moment = Apply("batch_moment", {x, sum}, attrs, where);
  attrs.Set("epsilon", options.epsilon);
  attrs.Set("training", true);
  const Tensor y = Apply("batch_norm", {x, sum, moment, gamma, beta}, attrs, where);
  // Groups are of one size: their mean is the batch's.
  const auto mean = [&](Tensor sums) {
    if (options.groups != 0) sums = ReduceSum(sums, {.axes = Ints{0}}, where);
    return Scale(sums, 1 / count, where);
  };
  return {y, mean(sum), mean(moment)};
}

Tensor GroupNorm(Tensor x, Tensor gamma, Tensor beta, GroupNormOptions options,
                 SourceLocation where) {
  return Apply("group_norm", {x, gamma, beta},
               {{"epsilon", options.epsilon}, {"groups", options.groups}}, where);
}
Tensor InstanceNorm(Tensor x, Tensor gamma, Tensor beta, InstanceNormOptions options,
                    SourceLocation where) {
  const int64_t channels = x.valid() && x.shape().rank() >= 2 ? x.shape()[1] : 1;
  return GroupNorm(x, gamma, beta,
                   {.groups = std::max<int64_t>(1, channels), .epsilon = options.epsilon}, where);
}

Tensor LocalResponseNorm(Tensor x, LocalResponseNormOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  const Shape shape = x.shape();
  if (shape.rank() < 2 || options.size < 1) {
    return Fail(x,
                absl::StrCat("local_response_norm: x is ", x.type().ToString(), ", size is ",
                             options.size, "; [n, c, ...] and a size of at least 1 are needed"),
                where);
  }
  // Channels as the first axis of the space of one channel.
  int64_t rest = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) rest *= shape[axis];
  const Tensor planes = Reshape(Square(x, where), {shape[0], 1, shape[1], rest}, where);
  const int64_t before = (options.size - 1) / 2;
  const Tensor sums = SumPool(planes,
                              {.kernel = {options.size, 1},
                               .strides = {1},
                               .padding = {before, 0},
                               .padding_end = {options.size - 1 - before, 0}},
                              where);
  const Tensor base = AddScalar(
      Scale(Reshape(sums, shape, where), options.alpha / static_cast<double>(options.size), where),
      options.bias, where);
  return Mul(x, Pow(base, -options.beta, where), where);
}

Tensor Interpolate(Tensor x, InterpolateOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  const int rank = x.shape().rank();
  Ints axes = options.axes;
  if (axes.empty()) {
    for (int64_t axis = 2; axis < rank; ++axis) axes.push_back(axis);
  }
  const size_t n = axes.size();
  const bool is_crop = options.coordinates == "tf_crop_and_resize";
  const bool has_sizes = n > 0 && options.sizes.size() == n;
  const bool has_scales = n > 0 && options.scales.size() == n;
  const bool fits = (has_sizes || has_scales) && (has_sizes || options.sizes.empty()) &&
                    (has_scales || options.scales.empty()) &&
                    (!is_crop || (options.begin.size() == n && options.end.size() == n));
  if (!fits) {
    return Fail(x,
                absl::StrCat("interpolate: x is ", x.type().ToString(), ", there are ",
                             options.sizes.size(), " sizes and ", options.scales.size(),
                             " scales; sizes, scales or both, with a number for each of ", n,
                             " axes", is_crop ? ", begin and end likewise," : "", " are needed"),
                where);
  }
  for (size_t i = 0; i < n; ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) {
      return Fail(x, absl::StrCat("interpolate: axis is ", axes[i], ", x is ", x.type().ToString()),
                  where);
    }
    const int64_t size = x.shape()[static_cast<int>(axis)];
    double scale = 1;
    int64_t length = 0;
    if (options.sizes.empty()) {
      scale = options.scales[i];
      // In f32, so that 10 * 0.7 is 7 whichever type the 0.7 was rounded to.
      const float wanted = std::floor(static_cast<float>(static_cast<double>(size) * scale));
      if (!(wanted >= 0 && wanted < 2147483648.0f)) {
        return Fail(x,
                    absl::StrCat("interpolate: scale is ", scale, ", x is ", x.type().ToString(),
                                 "; a positive scale that leaves fewer than 2^31 is needed"),
                    where);
      }
      length = static_cast<int64_t>(wanted);
    } else {
      length = options.sizes[i];
      if (!options.scales.empty()) {
        scale = options.scales[i];
      } else if (length > 0 && size > 0) {
        scale = static_cast<double>(length) / static_cast<double>(size);
      }
    }
    if (length == size && scale == 1 && !is_crop) continue;  // as it is, whatever the coordinates
    x = Apply("resize_axis", {x},
              {{"axis", axis},
               {"length", length},
               {"mode", options.mode},
               {"coordinates", options.coordinates},
               {"rounding", options.rounding},
               {"scale", scale},
               {"cubic", options.cubic},
               {"begin", is_crop ? options.begin[i] : 0.0},
               {"end", is_crop ? options.end[i] : 1.0},
               {"outside", options.outside},
               {"exclude_outside", options.exclude_outside}},
              where);
    if (!x.valid()) return x;
  }
  return x;
}

}  // namespace braid
