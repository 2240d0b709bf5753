// Tensors read between their elements, as grids, regions and bent kernels do.
#pragma once

#include <vector>

#include "graph/logical_graph.h"

namespace braid::onnx {

// How many elements along each axis a point is made of: 1, 2 and 4.
enum class SampleMode { kNearest, kLinear, kCubic };
// What is beyond the ends: zeros; the outer elements; or the elements, mirrored.
enum class SamplePadding { kZeros, kBorder, kReflection };

struct SampleOptions {
  SampleMode mode = SampleMode::kLinear;
  SamplePadding padding = SamplePadding::kZeros;
  // An axis ends in the middle of its outer elements, else half an element farther out.
  bool ends_in_elements = false;
  // Which image each row of points lies in: i64 [rows]. Invalid: row i in image i.
  Tensor images = {};
};

// The elements that points are made of, [rows, points, taps, c], and how much of each,
// [rows, points, taps, 1]. With kNearest weights are bools that are false beyond the ends, or
// invalid where nothing is.
struct SampleTaps {
  Tensor values, weights;
};

// x [n, c, space...]; positions[i], [rows, points] in f32 or f64, count elements along axis i of
// space. Values have x's type; weights have the positions', rounded halves to even for kNearest.
// The cubic kernel is Keys', with a = -0.75.
SampleTaps TapsAt(Tensor x, const std::vector<Tensor>& positions, const SampleOptions& options);

// Their sums, of x's type: [rows, c, points].
Tensor SampleAt(Tensor x, const std::vector<Tensor>& positions, const SampleOptions& options);

// f32 for what is narrower: of positions and sums.
DType WideEnough(DType dtype);

}  // namespace braid::onnx
