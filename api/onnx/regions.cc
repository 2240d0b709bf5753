// Regions of images: pooled to one size, and the choice of those that do not overlap.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/sample.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

Tensor Number(LogicalGraph& graph, DType dtype, double value) {
  return Constant(graph, value, {.dtype = dtype});
}

// Column `at` of a table: [rows, 1, 1].
Tensor Column(Tensor table, int64_t at) {
  return ExpandDims(SliceAxis(table, 1, {.begin = at, .end = at + 1}), 2);
}

// What a RoiAlign node says of one axis of space.
struct AlignedAxis {
  int64_t size = 0;     // of the image
  int64_t windows = 1;  // of the result
  int64_t samples = 1;  // of a window, at most
  int column = 0;       // where a region begins; it ends two columns on
};

// Where windows are sampled along one axis: [regions, windows, samples].
struct AlignedSamples {
  Tensor position;  // within the image
  Tensor is_near;   // the sample is not farther than one element outside of the image
  // Where the values say how many there are, [regions, 1, 1]; and which ones there are,
  // [regions, 1, samples].
  Tensor count, is_there;
};

struct AlignOptions {
  double scale = 1;            // from regions to elements
  bool is_half_pixel = false;  // elements are squares around their coordinates
  bool is_adaptive = false;    // as many samples as a window has elements
};

AlignOptions AlignOptionsOf(const NodeView& n, const std::string& transformation) {
  return {.scale = n.Float("spatial_scale", 1),
          .is_half_pixel = transformation == "half_pixel",
          .is_adaptive = n.Int("sampling_ratio", 0) <= 0};
}

AlignedSamples SamplesOf(Tensor regions, const AlignedAxis& axis, const AlignOptions& options) {
  LogicalGraph& graph = *regions.graph();
  const DType dtype = regions.dtype();
  const auto edge = [&](int64_t column) {
    const Tensor scaled = Scale(Column(regions, column), options.scale);
    return options.is_half_pixel ? AddScalar(scaled, -0.5) : scaled;
  };
  const Tensor start = edge(axis.column);
  Tensor length = Sub(edge(axis.column + 2), start);
  if (!options.is_half_pixel) length = Maximum(length, Number(graph, dtype, 1));
  const Tensor window = Scale(length, 1.0 / static_cast<double>(axis.windows));
  const Tensor sample = Iota(graph, {dtype, {1, 1, axis.samples}}, 2);
  AlignedSamples result;
  Tensor step;
  if (options.is_adaptive) {
    result.count = Maximum(Ceil(window), Number(graph, dtype, 0));
    result.is_there = Less(sample, result.count);
    step = Div(window, Maximum(result.count, Number(graph, dtype, 1)));
  } else {
    step = Scale(window, 1.0 / static_cast<double>(axis.samples));
  }
  const Tensor first = Add(start, Mul(window, Iota(graph, {dtype, {1, axis.windows, 1}}, 1)));
  const Tensor position = Add(first, Mul(step, AddScalar(sample, 0.5)));
  const auto size = static_cast<double>(axis.size);
  result.is_near = LogicalAnd(GreaterEqual(position, Number(graph, dtype, -1)),
                              LessEqual(position, Number(graph, dtype, size)));
  result.position = Clip(position, 0, size - 1);
  return result;
}

// The samples that the longest of the regions, which must be known, needs along an axis.
absl::StatusOr<int64_t> MostSamples(const NodeView& n, const AlignedAxis& axis,
                                    const AlignOptions& options) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<double> regions, n.KnownFloats(1));
  double most = 1;
  for (size_t at = axis.column; at + 2 < regions.size(); at += 4) {
    const double length = (regions[at + 2] - regions[at]) * options.scale;
    most = std::max(most, length / static_cast<double>(axis.windows));
  }
  constexpr double kMost = 1 << 12;
  if (!(most <= kMost)) return Lacking(absl::StrCat("windows of ", most, " elements"));
  return static_cast<int64_t>(std::ceil(most * (1 + 1e-6)));  // the job rounds in its own type
}

// The samples of a window: [regions, windows, samples, 1], all pairs of those along the axes.
struct WindowSamples {
  Tensor y, x, is_near;
  Tensor is_there, count;  // or invalid: all are, as many in each window
};

WindowSamples WindowSamplesOf(const AlignedSamples& y, const AlignedSamples& x, int64_t regions,
                              const AlignedAxis& y_axis, const AlignedAxis& x_axis) {
  const int64_t windows = y_axis.windows * x_axis.windows;
  const int64_t samples = y_axis.samples * x_axis.samples;
  const Shape all({regions, y_axis.windows, x_axis.windows, y_axis.samples, x_axis.samples});
  const auto down = [&](Tensor t) {  // [r, 1 or windows, samples], along y
    const Shape s = t.shape();
    return BroadcastTo(Reshape(t, {s[0], s[1], 1, s[2], 1}), all);
  };
  const auto across = [&](Tensor t) {
    const Shape s = t.shape();
    return BroadcastTo(Reshape(t, {s[0], 1, s[1], 1, s[2]}), all);
  };
  const auto flat = [&](Tensor t) { return Reshape(t, {regions, windows, samples, 1}); };
  WindowSamples result = {.y = flat(down(y.position)),
                          .x = flat(across(x.position)),
                          .is_near = flat(LogicalAnd(down(y.is_near), across(x.is_near))),
                          .is_there = {},
                          .count = {}};
  if (y.count.valid()) {
    result.is_there = flat(LogicalAnd(down(y.is_there), across(x.is_there)));
    result.count = Mul(y.count, x.count);
  }
  return result;
}

// The mean or the largest of each window's samples: [regions, windows, c].
Tensor Pooled(const SampleTaps& taps, const WindowSamples& samples, bool is_max) {
  LogicalGraph& graph = *taps.values.graph();
  const Shape all = taps.values.shape(), shape = samples.y.shape();
  const DType dtype = taps.values.dtype();
  const int64_t regions = shape[0], windows = shape[1], per_window = shape[2], each = all[2];
  const auto by_window = [&](Tensor t, int64_t channels) {
    return Reshape(t, {regions, windows, per_window * each, channels});
  };
  const auto of_taps = [&](Tensor t) {  // what samples are, their taps are
    return by_window(BroadcastTo(t, {regions, windows, per_window, each}), 1);
  };
  const Tensor zero = Number(graph, dtype, 0);
  const Tensor weights = Where(of_taps(samples.is_near), by_window(taps.weights, 1), zero);
  Tensor parts = Mul(by_window(taps.values, all[3]), weights);
  if (samples.is_there.valid()) {
    parts =
        Where(of_taps(samples.is_there), parts, is_max ? Number(graph, dtype, -INFINITY) : zero);
  }
  // Of the weighted elements, as the standard has it, not of their sums.
  if (is_max) {
    const Tensor largest = ReduceMax(parts, {.axes = {2}});
    return samples.count.valid() ? Where(Greater(samples.count, zero), largest, zero) : largest;
  }
  const Tensor sum = ReduceSum(parts, {.axes = {2}});
  if (!samples.count.valid()) return Scale(sum, 1.0 / static_cast<double>(per_window));
  return Div(sum, Maximum(samples.count, Number(graph, dtype, 1)));
}

// x [n, c, h, w], regions [r, 4] of (x1, y1, x2, y2), each one's image [r] -> [r, c, height,
// width]: He et al., arXiv 1703.06870.
absl::StatusOr<Tensors> TranslateRoiAlign(const NodeView& n) {
  const Shape shape = n.shape(0);
  const int64_t regions = n.rank(1) == 2 ? n.shape(1)[0] : 0;
  if (shape.rank() != 4 || n.shape(1) != Shape({regions, 4}) || n.shape(2) != Shape({regions})) {
    return Wrong(absl::StrCat("x is ", shape.ToString(), ", the regions ", n.shape(1).ToString(),
                              ", their images ", n.shape(2).ToString(),
                              "; [n, c, h, w], [r, 4] and [r] are needed"));
  }
  const std::string mode = n.Text("mode", "avg");
  if (mode != "avg" && mode != "max") return Wrong(absl::StrCat("mode is '", mode, "'"));
  const std::string transformation =
      n.Text("coordinate_transformation_mode", n.opset() < 16 ? "output_half_pixel" : "half_pixel");
  if (transformation != "half_pixel" && transformation != "output_half_pixel") {
    return Wrong(absl::StrCat("coordinate_transformation_mode is '", transformation, "'"));
  }
  const AlignOptions options = AlignOptionsOf(n, transformation);
  const int64_t ratio = n.Int("sampling_ratio", 0);
  AlignedAxis y = {shape[2], n.Int("output_height", 1), ratio, 1};
  AlignedAxis x = {shape[3], n.Int("output_width", 1), ratio, 0};
  if (y.windows < 1 || x.windows < 1) return Wrong("output_height and _width must be positive");
  if (options.is_adaptive) {
    BRAID_ASSIGN_OR_RETURN(y.samples, MostSamples(n, y, options));
    BRAID_ASSIGN_OR_RETURN(x.samples, MostSamples(n, x, options));
  }
  const DType wide = WideEnough(n.dtype());
  const Tensor table = Cast(n.in(1), wide);
  if (!table.valid()) return n.graph().status();
  const WindowSamples samples =
      WindowSamplesOf(SamplesOf(table, y, options), SamplesOf(table, x, options), regions, y, x);
  const int64_t all = y.windows * x.windows * y.samples * x.samples;
  const auto points = [&](Tensor t) { return Reshape(t, {regions, all}); };
  const SampleTaps taps =
      TapsAt(Cast(n.in(0), wide), {points(samples.y), points(samples.x)},
             {.padding = SamplePadding::kBorder, .images = Cast(n.in(2), DType::kI64)});
  if (!taps.values.valid()) return n.graph().status();
  const Tensor pooled = Transpose(Pooled(taps, samples, mode == "max"), {0, 2, 1});
  return Tensors{Cast(Reshape(pooled, {regions, shape[1], y.windows, x.windows}), n.dtype())};
}

// To the nearest whole number, halves away from zero.
Tensor ToWhole(Tensor x) { return Mul(Sign(x), Floor(AddScalar(Abs(x), 0.5))); }

// Which elements of an axis are in which window: bool [regions, windows, size].
Tensor IsInWindow(Tensor regions, int64_t column, int64_t size, int64_t windows, double scale) {
  LogicalGraph& graph = *regions.graph();
  const DType dtype = regions.dtype();
  const Tensor start = ToWhole(Scale(Column(regions, column), scale));
  const Tensor end = ToWhole(Scale(Column(regions, column + 2), scale));
  const Tensor length = Maximum(AddScalar(Sub(end, start), 1), Number(graph, dtype, 1));
  const Tensor step = Scale(length, 1.0 / static_cast<double>(windows));
  const Tensor window = Iota(graph, {dtype, {1, windows, 1}}, 1);
  const Tensor low = Add(start, Floor(Mul(step, window)));
  const Tensor high = Add(start, Ceil(Mul(step, AddScalar(window, 1))));
  const Tensor element = Iota(graph, {dtype, {1, 1, size}}, 2);
  return LogicalAnd(GreaterEqual(element, low), Less(element, high));
}

// The largest element in each window of the last axis: x [r, c, a, n] -> [r, c, a, windows]; the
// lowest number where a window has none.
Tensor MaxInWindows(Tensor x, Tensor is_in_window, int64_t windows) {
  const Shape shape = x.shape();
  const Tensor lowest = Number(*x.graph(), x.dtype(), -INFINITY);
  Tensors columns;
  for (int64_t i = 0; i < windows; ++i) {
    const Tensor mask =
        Reshape(SliceAxis(is_in_window, 1, {.begin = i, .end = i + 1}), {shape[0], 1, 1, shape[3]});
    columns.push_back(ReduceMax(Where(mask, x, lowest), {.axes = {3}, .keep_dims = true}));
  }
  return Concat(columns, 3);
}

// x [n, c, h, w], regions [r, 5] of (image, x1, y1, x2, y2) -> [r, c, pooled_shape]: Girshick,
// arXiv 1504.08083.
absl::StatusOr<Tensors> TranslateMaxRoiPool(const NodeView& n) {
  const Shape shape = n.shape(0);
  const int64_t regions = n.rank(1) == 2 ? n.shape(1)[0] : 0;
  const Ints pooled = n.List("pooled_shape").value_or(Ints());
  const double scale = n.Float("spatial_scale", 1);
  if (shape.rank() != 4 || n.shape(1) != Shape({regions, 5}) || pooled.size() != 2 ||
      pooled[0] < 1 || pooled[1] < 1) {
    return Wrong(absl::StrCat("x is ", shape.ToString(), ", the regions ", n.shape(1).ToString(),
                              ", pooled_shape has ", pooled.size(),
                              " numbers; [n, c, h, w], [r, 5] and two of at least 1 are needed"));
  }
  if (std::max(pooled[0], pooled[1]) > 64) return Lacking("more than 64 windows along an axis");
  const DType wide = WideEnough(n.dtype());
  const Tensor table = Cast(n.in(1), wide);
  if (!table.valid()) return n.graph().status();
  const Tensor images =
      Cast(Reshape(SliceAxis(table, 1, {.begin = 0, .end = 1}), {regions}), DType::kI64);
  Tensor x = Gather(Cast(n.in(0), wide), images);
  if (!x.valid()) return n.graph().status();
  x = MaxInWindows(x, IsInWindow(table, 1, shape[3], pooled[1], scale), pooled[1]);
  x = Transpose(x, {0, 1, 3, 2});
  if (!x.valid()) return n.graph().status();
  x = MaxInWindows(x, IsInWindow(table, 2, shape[2], pooled[0], scale), pooled[0]);
  const Tensor is_empty = Equal(x, Number(n.graph(), wide, -INFINITY));
  x = Where(is_empty, Number(n.graph(), wide, 0), x);
  return Tensors{Cast(Transpose(x, {0, 1, 3, 2}), n.dtype())};
}

// Corners of a box, whichever of them is named first. In f32, as the standard's types are.
struct Box {
  float y1 = 0, x1 = 0, y2 = 0, x2 = 0;
};

Box BoxOf(const double* numbers, bool has_center) {
  const auto at = [numbers](int i) { return static_cast<float>(numbers[i]); };
  if (has_center) {  // x, y, width, height
    return {at(1) - at(3) / 2, at(0) - at(2) / 2, at(1) + at(3) / 2, at(0) + at(2) / 2};
  }
  return {std::min(at(0), at(2)), std::min(at(1), at(3)), std::max(at(0), at(2)),
          std::max(at(1), at(3))};
}

// The share of both boxes' area that is common to them.
float Overlap(const Box& a, const Box& b) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const float area_a = (a.y2 - a.y1) * (a.x2 - a.x1), area_b = (b.y2 - b.y1) * (b.x2 - b.x1);
  if (!(height > 0 && width > 0 && area_a > 0 && area_b > 0)) return 0;
  const float common = height * width;
  return common / (area_a + area_b - common);
}

struct SuppressionOptions {
  int64_t most = 0;  // boxes that are kept
  float overlap = 0;
  float score = -INFINITY;  // of a box that is kept, at least more than this
};

// The boxes that are kept, the best one first: none overlaps one before it by more than allowed.
Ints Kept(const std::vector<Box>& boxes, const double* scores, const SuppressionOptions& options) {
  Ints order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (static_cast<float>(scores[i]) > options.score) order.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [scores](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  Ints kept;
  for (int64_t candidate : order) {
    if (static_cast<int64_t>(kept.size()) >= options.most) break;
    const bool is_free = std::none_of(kept.begin(), kept.end(), [&](int64_t other) {
      return Overlap(boxes[candidate], boxes[other]) > options.overlap;
    });
    if (is_free) kept.push_back(candidate);
  }
  return kept;
}

// boxes [n, count, 4], scores [n, classes, count] -> rows of image, class and box, as many as are
// kept: so the numbers must be known.
absl::StatusOr<std::vector<Value>> TranslateNonMaxSuppression(const NodeView& n) {
  for (int i = 0; i < n.num_inputs(); ++i) {
    if (n.HasInput(i) && !n.value(i).is_tensor()) {
      return Wrong(absl::StrCat("input ", i, " is no tensor"));
    }
  }
  const bool has_center = n.Flag("center_point_box");
  const Shape box_shape = n.shape(0), score_shape = n.shape(1);
  if (box_shape.rank() != 3 || score_shape.rank() != 3 || box_shape[2] != 4 ||
      score_shape[0] != box_shape[0] || score_shape[2] != box_shape[1]) {
    return Wrong(absl::StrCat("boxes are ", box_shape.ToString(), " and scores ",
                              score_shape.ToString(),
                              "; [n, count, 4] and [n, classes, count] are needed"));
  }
  BRAID_ASSIGN_OR_RETURN(const std::vector<double> boxes, n.KnownFloats(0));
  BRAID_ASSIGN_OR_RETURN(const std::vector<double> scores, n.KnownFloats(1));
  SuppressionOptions options;
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(options.most, n.KnownInt(2));
  }
  if (n.HasInput(3)) {
    BRAID_ASSIGN_OR_RETURN(const double overlap, n.KnownFloat(3));
    options.overlap = static_cast<float>(overlap);
  }
  if (n.HasInput(4)) {
    BRAID_ASSIGN_OR_RETURN(const double score, n.KnownFloat(4));
    options.score = static_cast<float>(score);
  }
  Ints rows;
  const int64_t count = box_shape[1], classes = score_shape[1];
  for (int64_t image = 0; image < box_shape[0]; ++image) {
    std::vector<Box> here;
    for (int64_t i = 0; i < count; ++i) {
      here.push_back(BoxOf(boxes.data() + (image * count + i) * 4, has_center));
    }
    for (int64_t kind = 0; kind < classes; ++kind) {
      const double* from = scores.data() + (image * classes + kind) * count;
      for (int64_t box : Kept(here, from, options)) rows.insert(rows.end(), {image, kind, box});
    }
  }
  const auto kept = static_cast<int64_t>(rows.size() / 3);
  return std::vector<Value>{ConstantOf(Array::FromVector({kept, 3}, rows))};
}

}  // namespace

void AddRegions(Translators& all) {
  all.Add("RoiAlign", {3, 3}, TranslateRoiAlign);
  all.Add("MaxRoiPool", {2, 2}, TranslateMaxRoiPool);
  all.AddValues("NonMaxSuppression", {2, 5}, TranslateNonMaxSuppression);
}

}  // namespace braid::onnx
