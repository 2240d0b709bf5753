// Functions of the family of layouts that are more than a use of an operator: ranges, defaults and
// composites.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

const char* NameOf(PadMode mode) {
  switch (mode) {
    case PadMode::kReflect:
      return "reflect";
    case PadMode::kEdge:
      return "edge";
    case PadMode::kWrap:
      return "wrap";
    default:
      return "constant";
  }
}

bool IsAll(const Ints& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [value](int64_t v) { return v == value; });
}

Tensor Triangle(Tensor x, int64_t diagonal, bool upper, SourceLocation where) {
  return Apply("triangle", {x}, {{"diagonal", diagonal}, {"upper", upper}}, where);
}

}  // namespace

Tensor Squeeze(Tensor x, int64_t axis, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<int64_t> at = Normalize(x, axis, x.shape().rank(), "squeeze", where);
  if (!at) return Invalid({x}, where);
  Ints dims = x.shape().dims();
  if (dims[*at] != 1) {
    return Fail(x,
                absl::StrCat("squeeze: axis is ", axis, ", a is ", x.type().ToString(),
                             "; that axis must have size 1"),
                where);
  }
  dims.erase(dims.begin() + *at);
  return Reshape(x, Shape(std::move(dims)), where);
}

Tensor Squeeze(Tensor x, SourceLocation where) {
  if (!x.valid()) return x;
  Ints dims = x.shape().dims();
  std::erase(dims, 1);
  return Reshape(x, Shape(std::move(dims)), where);
}

Tensor Slice(Tensor x, std::vector<int64_t> begin, std::vector<int64_t> size,
             SourceLocation where) {
  return Slice(x, std::move(begin), std::move(size), {}, where);
}

Tensor Slice(Tensor x, std::vector<int64_t> begin, std::vector<int64_t> size,
             std::vector<int64_t> step, SourceLocation where) {
  if (!x.valid()) return x;
  const Shape shape = x.shape();
  for (size_t axis = 0; axis < size.size() && axis < begin.size(); ++axis) {
    if (size[axis] != -1 || static_cast<int>(axis) >= shape.rank()) continue;
    const int64_t by = axis < step.size() ? step[axis] : 1, all = shape[static_cast<int>(axis)];
    // To the end, or, backwards, to the first one.
    const int64_t left = by < 0 ? begin[axis] + 1 : all - begin[axis];
    size[axis] = by == 0 ? 0 : (std::max<int64_t>(0, left) + std::abs(by) - 1) / std::abs(by);
  }
  Attrs attrs = {{"begin", std::move(begin)}, {"size", std::move(size)}};
  if (!IsAll(step, 1)) attrs.Set("step", std::move(step));
  return Apply("slice", {x}, std::move(attrs), where);
}

Tensor SliceAxes(Tensor x, std::vector<int64_t> axes, const std::vector<SliceRange>& ranges,
                 SourceLocation where) {
  if (!x.valid()) return x;
  const Shape shape = x.shape();
  const std::optional<Ints> normal = NormalizeEach(x, axes, "slice", where);
  if (!normal) return Invalid({x}, where);
  if (axes.size() != ranges.size()) {
    return Fail(x,
                absl::StrCat("slice: there are ", axes.size(), " axes and ", ranges.size(),
                             " ranges; one for each is needed"),
                where);
  }
  Ints begins(shape.rank(), 0), sizes = shape.dims(), steps(shape.rank(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = (*normal)[i], all = shape[static_cast<int>(axis)];
    if (ranges[i].step == 0) {
      return Fail(x, absl::StrCat("slice: the step of axis ", axis, " is 0; it must not be"),
                  where);
    }
    // A step beyond the axis takes one element, as one of its length does.
    const int64_t step = std::clamp(ranges[i].step, -all - 1, all + 1);
    // Where a walk in the direction of the step may begin and end.
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? all : all - 1;
    const auto bound = [&](std::optional<int64_t> index, int64_t otherwise) {
      if (!index) return otherwise;
      return std::clamp(*index < 0 ? *index + all : *index, low, high);
    };
    const int64_t begin = bound(ranges[i].begin, step > 0 ? low : high);
    const int64_t end = bound(ranges[i].end, step > 0 ? high : low);
    const int64_t left = step > 0 ? end - begin : begin - end;
    sizes[axis] = left <= 0 ? 0 : (left + std::abs(step) - 1) / std::abs(step);
    begins[axis] = std::max<int64_t>(begin, 0);
    steps[axis] = step;
  }
  return Slice(x, std::move(begins), std::move(sizes), std::move(steps), where);
}

Tensor SliceAxis(Tensor x, int64_t axis, SliceRange range, SourceLocation where) {
  return SliceAxes(x, {axis}, {range}, where);
}

Tensor Pad(Tensor x, std::vector<int64_t> before, std::vector<int64_t> after, PadOptions options,
           SourceLocation where) {
  Attrs attrs = {{"before", std::move(before)}, {"after", std::move(after)}};
  if (options.mode != PadMode::kConstant) attrs.Set("mode", NameOf(options.mode));
  if (options.value != 0) attrs.Set("value", options.value);
  if (!IsAll(options.interior, 0)) attrs.Set("interior", std::move(options.interior));
  return Apply("pad", {x}, std::move(attrs), where);
}

Tensor Tile(Tensor x, std::vector<int64_t> repeats, SourceLocation where) {
  if (!x.valid()) return x;
  Ints dims = x.shape().dims();
  while (dims.size() < repeats.size()) dims.insert(dims.begin(), 1);
  while (repeats.size() < dims.size()) repeats.insert(repeats.begin(), 1);
  Ints thin, wide, merged;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (repeats[i] < 0) {
      return Fail(x,
                  absl::StrCat("tile: repeats[", i, "] is ", repeats[i], ", a is ",
                               x.type().ToString(), "; it must not be negative"),
                  where);
    }
    if (repeats[i] != 1) {
      thin.push_back(1);
      wide.push_back(repeats[i]);
    }
    thin.push_back(dims[i]);
    wide.push_back(dims[i]);
    merged.push_back(repeats[i] * dims[i]);
  }
  x = BroadcastTo(Reshape(x, Shape(std::move(thin)), where), Shape(std::move(wide)), where);
  return Reshape(x, Shape(std::move(merged)), where);
}

Tensor RepeatInterleave(Tensor x, int64_t repeats, int64_t axis, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<int64_t> at =
      Normalize(x, axis, x.shape().rank(), "repeat_interleave", where);
  if (!at) return Invalid({x}, where);
  if (repeats < 0) {
    return Fail(x,
                absl::StrCat("repeat_interleave: repeats is ", repeats,
                             "; it must not be "
                             "negative"),
                where);
  }
  Ints merged = x.shape().dims();
  Ints wide = merged;
  wide.insert(wide.begin() + *at + 1, repeats);
  merged[*at] *= repeats;
  return Reshape(BroadcastTo(ExpandDims(x, *at + 1, where), Shape(std::move(wide)), where),
                 Shape(std::move(merged)), where);
}

Tensor Flip(Tensor x, std::vector<int64_t> axes, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Ints> normal = NormalizeEach(x, axes, "flip", where);
  if (!normal) return Invalid({x}, where);
  const Shape shape = x.shape();
  Ints begin(shape.rank(), 0), step(shape.rank(), 1);
  for (int64_t axis : *normal) {
    begin[axis] = std::max<int64_t>(0, shape[static_cast<int>(axis)] - 1);
    step[axis] = -1;
  }
  return Slice(x, std::move(begin), shape.dims(), std::move(step), where);
}

Tensor Roll(Tensor x, std::vector<int64_t> shifts, std::vector<int64_t> axes,
            SourceLocation where) {
  if (!x.valid()) return x;
  if (shifts.size() != axes.size()) {
    return Fail(x,
                absl::StrCat("roll: ", shifts.size(), " shifts, ", axes.size(),
                             " axes; one shift per axis is needed"),
                where);
  }
  const std::optional<Ints> normal = NormalizeEach(x, axes, "roll", where);
  if (!normal) return Invalid({x}, where);
  const Shape shape = x.shape();
  Ints before(shape.rank(), 0), after(shape.rank(), 0);
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int axis = static_cast<int>((*normal)[i]);
    before[axis] = shape[axis] == 0 ? 0 : shifts[i] % shape[axis];
    after[axis] = -before[axis];
  }
  return Pad(x, std::move(before), std::move(after), {.mode = PadMode::kWrap}, where);
}

Tensor Tril(Tensor x, int64_t diagonal, SourceLocation where) {
  return Triangle(x, diagonal, /*upper=*/false, where);
}
Tensor Triu(Tensor x, int64_t diagonal, SourceLocation where) {
  return Triangle(x, diagonal, /*upper=*/true, where);
}

Tensor Diagonal(Tensor x, int64_t axis_a, int64_t axis_b, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Ints> axes = NormalizeEach(x, {axis_a, axis_b}, "diagonal", where);
  if (!axes) return Invalid({x}, where);
  const Shape shape = x.shape();
  const int64_t n = shape[static_cast<int>((*axes)[0])], m = shape[static_cast<int>((*axes)[1])];
  if (n != m) {
    return Fail(x,
                absl::StrCat("diagonal: a is ", x.type().ToString(), ", axis ", axis_a, " is ", n,
                             ", axis ", axis_b, " is ", m, "; they must be equal"),
                where);
  }
  Ints perm, begin, size, step;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i == (*axes)[0] || i == (*axes)[1]) continue;
    perm.push_back(i);
    size.push_back(shape[i]);
  }
  begin.assign(size.size() + 1, 0);
  step.assign(size.size() + 1, 1);
  Ints merged = size;
  merged.push_back(n * n);
  size.push_back(n);
  step.back() = n + 1;
  perm.insert(perm.end(), axes->begin(), axes->end());
  x = Reshape(Transpose(x, std::move(perm), where), Shape(std::move(merged)), where);
  return Slice(x, std::move(begin), std::move(size), std::move(step), where);
}

Tensor DepthToSpace(Tensor x, int64_t block, DepthOrder order, SourceLocation where) {
  if (!x.valid()) return x;
  const Shape s = x.shape();
  const bool fits = s.rank() == 4 && block >= 1 && (block == 1 || block <= s[1] / block);
  if (!fits || s[1] % (block * block) != 0) {
    return Fail(x,
                absl::StrCat("depth_to_space: a is ", x.type().ToString(), ", block is ", block,
                             "; [n, c * block * block, h, w] is needed"),
                where);
  }
  const int64_t n = s[0], c = s[1] / (block * block), h = s[2], w = s[3];
  if (order == DepthOrder::kDepthColumnRow) {
    x = Transpose(Reshape(x, {n, block, block, c, h, w}, where), {0, 3, 4, 1, 5, 2}, where);
  } else {
    x = Transpose(Reshape(x, {n, c, block, block, h, w}, where), {0, 1, 4, 2, 5, 3}, where);
  }
  return Reshape(x, {n, c, h * block, w * block}, where);
}

Tensor SpaceToDepth(Tensor x, int64_t block, DepthOrder order, SourceLocation where) {
  if (!x.valid()) return x;
  const Shape s = x.shape();
  if (s.rank() != 4 || block < 1 || s[2] % block != 0 || s[3] % block != 0) {
    return Fail(x,
                absl::StrCat("space_to_depth: a is ", x.type().ToString(), ", block is ", block,
                             "; [n, c, h * block, w * block] is needed"),
                where);
  }
  const int64_t n = s[0], c = s[1], h = s[2] / block, w = s[3] / block;
  const Ints perm =
      order == DepthOrder::kDepthColumnRow ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4};
  x = Transpose(Reshape(x, {n, c, h, block, w, block}, where), perm, where);
  return Reshape(x, {n, c * block * block, h, w}, where);
}

Tensor Range(LogicalGraph& graph, int64_t count, RangeOptions options, SourceLocation where) {
  // Integers exactly, floats as if in f64: rounded once.
  const DType wide = IsFloating(options.dtype) ? DType::kF64 : DType::kI64;
  Tensor x = Iota(graph, {wide, {count}}, 0, where);
  const auto number = [&](double value) { return Constant(graph, value, {.dtype = wide}, where); };
  if (options.delta != 1) x = Mul(x, number(options.delta), where);
  if (options.start != 0) x = Add(x, number(options.start), where);
  return Cast(x, options.dtype, where);
}

Tensor Eye(LogicalGraph& graph, int64_t rows, int64_t columns, EyeOptions options,
           SourceLocation where) {
  const TensorType row = {DType::kI64, {rows, 1}}, column = {DType::kI64, {1, columns}};
  const Tensor diagonal =
      Constant(graph, static_cast<double>(options.diagonal), {.dtype = DType::kI64}, where);
  const Tensor ones = Add(Iota(graph, row, 0, where), diagonal, where);
  return Cast(Equal(ones, Iota(graph, column, 1, where), where), options.dtype, where);
}

}  // namespace braid
