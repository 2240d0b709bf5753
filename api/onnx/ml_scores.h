// What the models of the domain ai.onnx.ml do with their scores: transforms, two classes of one
// score, class labels. ONNX's text leaves much of it open; then Braid does as ONNX Runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/onnx/node_view.h"

namespace braid::onnx {

enum class PostTransform { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };
// The attribute post_transform, a name.
absl::StatusOr<PostTransform> PostTransformOf(const NodeView& n);

// Of scores [n, c]; a softmax is along the classes.
Tensor Transformed(Tensor scores, PostTransform transform);
// [n, 2] of two classes of which the model has one score, `positive`, of the second one: the first
// one has `negative`, or, where something else than a probit transforms them, -positive. Both are
// [n, 1].
Tensor TransformedPair(Tensor negative, Tensor positive, PostTransform transform);

// A list of floats, or the tensor that is called `name`_as_tensor; empty if there is neither.
absl::StatusOr<std::vector<double>> FloatsOf(const NodeView& n, const std::string& name);
// The labels of the attribute `integers`; of those that classlabels_strings has, their places.
absl::StatusOr<Ints> ClassLabels(const NodeView& n, const char* integers);
// Labels i64 [n] of classes i32 [n].
Tensor LabelsOf(Tensor classes, const Ints& labels);

// Input 0 as rows [n, features], floating: what is f64 stays so, else f32.
absl::StatusOr<Tensor> Rows(const NodeView& n);
// A number of x's dtype.
Tensor NumberLike(Tensor x, double value);
// What a table of `dtype` is made of.
Array TableOf(const std::vector<double>& values, Shape shape, DType dtype);

}  // namespace braid::onnx
