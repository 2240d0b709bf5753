// Sampling at the points of a grid: transformed images, and convolutions with bent kernels.
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/sample.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

int64_t ProductOf(const Ints& ints) {
  return std::accumulate(ints.begin(), ints.end(), int64_t{1}, std::multiplies<>());
}

// `first`, then `rest`.
Shape Joined(Ints first, const Ints& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return Shape(std::move(first));
}

// Slice `at` of an axis, which disappears.
Tensor Component(Tensor x, int64_t at, int64_t axis) {
  return Squeeze(SliceAxis(x, axis, {.begin = at, .end = at + 1}), axis);
}

absl::StatusOr<SampleOptions> GridOptionsOf(const NodeView& n) {
  SampleOptions options = {.ends_in_elements = n.Flag("align_corners")};
  // The second names are those before version 20.
  const std::string mode = n.Text("mode", "linear");
  if (mode == "nearest") {
    options.mode = SampleMode::kNearest;
  } else if (mode == "linear" || mode == "bilinear") {
    options.mode = SampleMode::kLinear;
  } else if (mode == "cubic" || mode == "bicubic") {
    options.mode = SampleMode::kCubic;
  } else {
    return Wrong(absl::StrCat("mode is '", mode, "'; nearest, linear or cubic is needed"));
  }
  const std::string padding = n.Text("padding_mode", "zeros");
  if (padding == "zeros") {
    options.padding = SamplePadding::kZeros;
  } else if (padding == "border") {
    options.padding = SamplePadding::kBorder;
  } else if (padding == "reflection") {
    options.padding = SamplePadding::kReflection;
  } else {
    return Wrong(
        absl::StrCat("padding_mode is '", padding, "'; zeros, border or reflection is needed"));
  }
  return options;
}

// x [n, c, space...] at grid [n, out..., axes of space]: coordinates from -1 to 1, the last axis
// of space first.
absl::StatusOr<Tensors> TranslateGridSample(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const SampleOptions options, GridOptionsOf(n));
  const Shape x = n.shape(0), grid = n.shape(1);
  const int axes = x.rank() - 2;
  if (axes < 1 || grid.rank() != x.rank() || grid[axes + 1] != axes || grid[0] != x[0]) {
    return Wrong(absl::StrCat("x is ", x.ToString(), " and the grid ", grid.ToString(),
                              "; as many images, and a last axis with a coordinate for each axis "
                              "of x behind the first two are needed"));
  }
  const Ints out(grid.begin() + 1, grid.end() - 1);
  const int64_t points = ProductOf(out);
  const Tensor flat = Reshape(Cast(n.in(1), WideEnough(n.dtype(1))), {x[0], points, axes});
  Tensors positions;
  for (int axis = 0; axis < axes; ++axis) {
    const auto size = static_cast<double>(x[2 + axis]);
    const Tensor from_one = AddScalar(Component(flat, axes - 1 - axis, 2), 1);  // 0 .. 2
    positions.push_back(options.ends_in_elements
                            ? Scale(Scale(from_one, 0.5), size - 1)
                            : Scale(AddScalar(Scale(from_one, size), -1), 0.5));
  }
  return Tensors{Reshape(SampleAt(n.in(0), positions, options), Joined({x[0], x[1]}, out))};
}

// The grid of an affine map theta [n, axes, axes + 1] of the coordinates -1 .. 1 of an image
// [n, c, space...].
absl::StatusOr<Tensors> TranslateAffineGrid(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Ints size, n.KnownInts(1));
  const bool align_corners = n.Flag("align_corners");
  const auto axes = static_cast<int>(size.size()) - 2;
  const Shape theta = n.shape();
  if (axes < 1 || theta.rank() != 3 || theta[0] != size[0] || theta[1] != axes ||
      theta[2] != axes + 1) {
    return Wrong(absl::StrCat("theta is ", theta.ToString(), " and the size ",
                              Shape(size).ToString(),
                              "; [n, d, d + 1] for d axes of space is "
                              "needed"));
  }
  for (int64_t dim : size) {
    if (dim < 0) return Wrong(absl::StrCat("the size is ", Shape(size).ToString()));
  }
  const Shape space(Ints(size.begin() + 2, size.end()));
  const int64_t points = space.num_elements();
  Tensors columns;  // [points, 1], the last axis of space first
  for (int axis = axes - 1; axis >= 0; --axis) {
    const auto steps = static_cast<double>(space[axis]);
    Tensor at = Iota(n.graph(), {DType::kF64, space}, axis);
    if (!align_corners) {
      at = AddScalar(Scale(AddScalar(Scale(at, 2), 1), 1 / steps), -1);
    } else if (steps > 1) {
      at = AddScalar(Scale(at, 2 / (steps - 1)), -1);
    }
    columns.push_back(Reshape(at, {points, 1}));
  }
  columns.push_back(Constant(n.graph(), 1, {.dtype = DType::kF64, .shape = {points, 1}}));
  const DType wide = WideEnough(n.dtype());
  const Tensor base = Cast(ExpandDims(Concat(columns, 1), 0), wide);
  const Tensor grid = MatMul(base, Cast(n.in(0), wide), {.transpose_b = true});
  Ints dims = space.dims();
  dims.push_back(axes);
  return Tensors{Cast(Reshape(grid, Joined({size[0]}, dims)), n.dtype())};
}

// What a DeformConv node says.
struct BentKernel {
  Ints strides, dilations, begin;  // per axis of space
  Ints kernel, out;
  int64_t groups = 1, offset_groups = 1;
  int64_t taps = 0, windows = 0;  // products of kernel and out
};

absl::StatusOr<BentKernel> BentKernelOf(const NodeView& n) {
  const Shape x = n.shape(0), w = n.shape(1), offset = n.shape(2);
  if (x.rank() < 3 || w.rank() != x.rank() || offset.rank() != x.rank()) {
    return Wrong(absl::StrCat("x is ", x.ToString(), ", the weights are ", w.ToString(),
                              ", the offsets ", offset.ToString()));
  }
  const int axes = x.rank() - 2;
  BentKernel bent = {.strides = n.List("strides").value_or(Ints(axes, 1)),
                     .dilations = n.List("dilations").value_or(Ints(axes, 1)),
                     .begin = n.List("pads").value_or(Ints(2 * axes, 0)),
                     .kernel = n.List("kernel_shape").value_or(SpaceOf(w)),
                     .out = SpaceOf(offset),
                     .groups = n.Int("group", 1),
                     .offset_groups = n.Int("offset_group", 1)};
  const auto size = static_cast<size_t>(axes);
  if (bent.strides.size() != size || bent.dilations.size() != size ||
      bent.begin.size() != 2 * size || bent.kernel != SpaceOf(w)) {
    return Wrong("the attributes do not fit the axes of space and the weights");
  }
  for (int i = 0; i < axes; ++i) {
    const int64_t reach = bent.dilations[i] * (bent.kernel[i] - 1) + 1;
    const int64_t room = x[2 + i] + bent.begin[i] + bent.begin[axes + i] - reach;
    if (bent.strides[i] < 1 || room < 0 || room / bent.strides[i] + 1 != bent.out[i]) {
      return Wrong(absl::StrCat("x is ", x.ToString(), ", the offsets ", offset.ToString(),
                                "; there are not so many windows on axis ", 2 + i));
    }
  }
  bent.begin.resize(size);
  bent.taps = ProductOf(bent.kernel);
  bent.windows = ProductOf(bent.out);
  const int64_t groups = bent.groups, parts = bent.offset_groups;
  const Shape offsets = Joined({x[0], parts * bent.taps * axes}, bent.out);
  if (groups < 1 || parts < 1 || x[1] != w[1] * groups || w[0] % groups != 0 || x[1] % parts != 0 ||
      offset != offsets) {
    return Wrong(absl::StrCat("x is ", x.ToString(), ", the weights are ", w.ToString(),
                              ", the offsets ", offset.ToString(), ", group is ", groups,
                              ", offset_group ", parts, "; offsets ", offsets.ToString(),
                              " would fit"));
  }
  if (n.HasInput(4) && n.shape(4) != Joined({x[0], parts * bent.taps}, bent.out)) {
    return Wrong(
        absl::StrCat("the mask is ", n.shape(4).ToString(), ", the offsets ", offset.ToString()));
  }
  return bent;
}

// Where an axis' elements under a kernel that is not bent stand: [1, taps, windows].
Tensor StraightPositions(LogicalGraph& graph, const BentKernel& bent, int axis, DType dtype) {
  const auto axes = static_cast<int>(bent.kernel.size());
  const auto steps = [&](int at, int64_t size, int64_t step) {
    Ints dims(2 * axes, 1);
    dims[at] = size;
    return Scale(Iota(graph, {dtype, Shape(dims)}, at), static_cast<double>(step));
  };
  const Tensor position = AddScalar(Add(steps(axis, bent.kernel[axis], bent.dilations[axis]),
                                        steps(axes + axis, bent.out[axis], bent.strides[axis])),
                                    -static_cast<double>(bent.begin[axis]));
  return Reshape(BroadcastTo(position, Joined(bent.kernel, bent.out)),
                 {1, bent.taps, bent.windows});
}

// Dai et al., arXiv 1703.06211, and with a mask Zhu et al., arXiv 1811.11168: a convolution whose
// kernel reads x at offsets from where it would.
absl::StatusOr<Tensors> TranslateDeformConv(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const BentKernel bent, BentKernelOf(n));
  const Shape x = n.shape(0), w = n.shape(1);
  const int axes = x.rank() - 2;
  const int64_t parts = bent.offset_groups, rows = x[0] * parts, groups = bent.groups;
  // The channels of an offset group are an image of their own.
  const DType wide = WideEnough(n.dtype(2));
  const Tensor offset = Reshape(Cast(n.in(2), wide), {rows, bent.taps, axes, bent.windows});
  Tensors positions;
  for (int axis = 0; axis < axes; ++axis) {
    const Tensor position =
        Add(Component(offset, axis, 2), StraightPositions(n.graph(), bent, axis, wide));
    positions.push_back(Reshape(position, {rows, bent.taps * bent.windows}));
  }
  const Tensor images = Reshape(n.in(0), Joined({rows, x[1] / parts}, SpaceOf(x)));
  Tensor columns = SampleAt(images, positions, {.ends_in_elements = true});
  if (n.HasInput(4)) {
    columns = Mul(columns, Reshape(n.in(4), {rows, 1, bent.taps * bent.windows}));
  }
  columns = Reshape(columns, {x[0], groups, w[1] * bent.taps, bent.windows});
  const Shape kernels({1, groups, w[0] / groups, w[1] * bent.taps});
  Tensor y = Reshape(MatMul(Reshape(n.in(1), kernels), columns), Joined({x[0], w[0]}, bent.out));
  if (n.HasInput(3)) {
    y = Add(y, Reshape(n.in(3), Joined({w[0]}, Ints(axes, 1))));
  }
  return Tensors{y};
}

}  // namespace

void AddGrid(Translators& all) {
  all.Add("GridSample", {2, 2}, TranslateGridSample);
  all.Add("AffineGrid", {2, 2}, TranslateAffineGrid);
  all.Add("DeformConv", {3, 5}, TranslateDeformConv);
}

}  // namespace braid::onnx
