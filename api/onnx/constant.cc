// What is known when a model is imported: constants, shapes; and what is made of few numbers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Values = std::vector<Value>;

absl::StatusOr<Values> TranslateConstant(const NodeView& n) {
  if (const AttributeProto* value = n.Find("value"); value != nullptr) {
    BRAID_ASSIGN_OR_RETURN(std::shared_ptr<const KnownNumbers> numbers,
                           n.surroundings().NumbersOf(value->t()));
    return Values{{.numbers = std::move(numbers)}};
  }
  if (const AttributeProto* value = n.Find("sparse_value"); value != nullptr) {
    BRAID_ASSIGN_OR_RETURN(Array array, ToArray(value->sparse_tensor(), n.surroundings().file()));
    return Values{ConstantOf(std::move(array))};
  }
  if (n.Has("value_int")) return Values{ConstantOf(Array::Scalar(n.Int("value_int", 0)))};
  if (n.Has("value_float")) {
    return Values{ConstantOf(Array::Scalar(static_cast<float>(n.Float("value_float", 0))))};
  }
  if (const std::optional<Ints> list = n.List("value_ints")) {
    return Values{ConstantOf(Array::FromVector({static_cast<int64_t>(list->size())}, *list))};
  }
  if (const std::optional<std::vector<double>> list = n.Floats("value_floats")) {
    const Array wide = Array::FromVector({static_cast<int64_t>(list->size())}, *list);
    return Values{ConstantOf(wide.As(DType::kF32))};
  }
  return Lacking("a constant that is neither numbers nor tensor");
}

// The dims of a tensor that Braid would make out of nothing.
absl::StatusOr<Shape> CheckedShape(const Ints& dims) {
  int64_t elements = 1;
  for (int64_t dim : dims) {
    if (dim < 0 || (dim > 0 && elements > std::numeric_limits<int32_t>::max() / dim)) {
      return Wrong(absl::StrCat("the shape is [", absl::StrJoin(dims, ", "), "]"));
    }
    if (dim > 0) elements *= dim;
  }
  return Shape(dims);
}

absl::StatusOr<Tensors> TranslateConstantOfShape(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Ints dims, n.KnownInts(0));
  BRAID_ASSIGN_OR_RETURN(const Shape shape, CheckedShape(dims));
  Array value = Array::Scalar(0.0f);
  if (const AttributeProto* given = n.Find("value"); given != nullptr) {
    BRAID_ASSIGN_OR_RETURN(value, ToArray(given->t(), n.surroundings().file()));
    if (value.num_elements() != 1) return Wrong("its value is not one element");
  }
  return Tensors{Constant(n.graph(), value.As(DType::kF64).data<double>()[0],
                          {.dtype = value.dtype(), .shape = shape})};
}

absl::StatusOr<Values> TranslateShape(const NodeView& n) {
  if (!n.value(0).is_tensor()) return Wrong("input 0 is no tensor");
  const int64_t rank = n.rank();
  const auto clamped = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = clamped(n.Int("start", 0)), end = clamped(n.Int("end", rank));
  const Shape shape = n.shape();
  Ints dims;
  for (int64_t i = start; i < end; ++i) dims.push_back(shape[static_cast<int>(i)]);
  return Values{ConstantOf(Array::FromVector({static_cast<int64_t>(dims.size())}, dims))};
}

absl::StatusOr<Values> TranslateSize(const NodeView& n) {
  if (!n.value(0).is_tensor()) return Wrong("input 0 is no tensor");
  return Values{ConstantOf(Array::Scalar(n.shape().num_elements()))};
}

absl::StatusOr<Tensors> TranslateRange(const NodeView& n) {
  const DType dtype = n.dtype();
  BRAID_ASSIGN_OR_RETURN(const double start, n.KnownFloat(0));
  BRAID_ASSIGN_OR_RETURN(const double limit, n.KnownFloat(1));
  BRAID_ASSIGN_OR_RETURN(const double delta, n.KnownFloat(2));
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  if (!(count < std::numeric_limits<int32_t>::max())) {
    return Wrong(absl::StrCat("it goes from ", start, " to ", limit, " by ", delta));
  }
  Tensor x = Iota(n.graph(), {dtype, {static_cast<int64_t>(count)}});
  if (delta != 1) x = Mul(x, Constant(n.graph(), delta, {.dtype = dtype}));
  if (start != 0) x = Add(x, Constant(n.graph(), start, {.dtype = dtype}));
  return Tensors{x};
}

absl::StatusOr<Tensors> TranslateEyeLike(const NodeView& n) {
  DType dtype = n.dtype();
  if (n.Has("dtype")) {
    BRAID_ASSIGN_OR_RETURN(dtype, DTypeOf(n.Int("dtype", 0)));
  }
  if (n.rank() != 2) return Wrong(absl::StrCat("the input has ", n.rank(), " axes; 2 are needed"));
  const int64_t k = n.Int("k", 0);
  const Shape shape = n.shape();
  constexpr int64_t kFar = int64_t{1} << 31;
  if (k < -kFar || k > kFar) return Wrong(absl::StrCat("k is ", k));
  const Tensor diagonal = Constant(n.graph(), static_cast<double>(k), {.dtype = DType::kI64});
  const Tensor row = Iota(n.graph(), {DType::kI64, {shape[0], 1}}, 0);
  const Tensor column = Iota(n.graph(), {DType::kI64, {1, shape[1]}}, 1);
  return Tensors{Cast(Equal(Add(row, diagonal), column), dtype)};
}

// The value itself, tensor or not.
absl::StatusOr<Values> TranslateIdentity(const NodeView& n) { return Values{n.value(0)}; }

}  // namespace

void AddConstant(Translators& all) {
  all.AddValues("Constant", {0, 0}, TranslateConstant);
  all.Add("ConstantOfShape", {}, TranslateConstantOfShape);
  all.AddValues("Shape", {}, TranslateShape);
  all.AddValues("Size", {}, TranslateSize);
  all.Add("Range", {3, 3}, TranslateRange);
  all.Add("EyeLike", {}, TranslateEyeLike);
  all.AddValues("Identity", {}, TranslateIdentity);
}

}  // namespace braid::onnx
