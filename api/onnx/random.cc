// Random numbers. They are the job's, which has one seed: new ones every step, and the same ones on
// any number of devices. The seeds of nodes, which mean something to one generator only, say
// nothing.
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/sample.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Values = std::vector<Value>;

// [0, 1).
Tensor Uniform(LogicalGraph& graph, const Shape& shape, DType dtype) {
  return RandomUniform(graph, shape, {.dtype = dtype});
}

absl::StatusOr<DType> WantedType(const NodeView& n, DType otherwise) {
  if (!n.Has("dtype")) return otherwise;
  return DTypeOf(n.Int("dtype", 0));
}

// f32, if the node says nothing of a shape and a type; `is_like`: those of its input.
template <class Make>
TranslateFunction Random(bool is_like, Make make) {
  return [=](const NodeView& n) -> absl::StatusOr<Tensors> {
    n.Ignore("seed");
    BRAID_ASSIGN_OR_RETURN(const DType dtype, WantedType(n, is_like ? n.dtype() : DType::kF32));
    if (!IsFloating(dtype)) {
      return Wrong(
          absl::StrCat("its type is ", std::string(ToString(dtype)), "; a floating one is needed"));
    }
    if (is_like) return Tensors{Cast(make(n, n.shape(), WideEnough(dtype)), dtype)};
    const std::optional<Ints> dims = n.List("shape");
    if (!dims) return Wrong("shape is missing");
    return Tensors{Cast(make(n, Shape(*dims), WideEnough(dtype)), dtype)};
  };
}

Tensor MakeUniform(const NodeView& n, const Shape& shape, DType dtype) {
  return RandomUniform(n.graph(), shape,
                       {.dtype = dtype, .low = n.Float("low", 0), .high = n.Float("high", 1)});
}

Tensor MakeNormal(const NodeView& n, const Shape& shape, DType dtype) {
  return RandomNormal(n.graph(), shape,
                      {.dtype = dtype, .mean = n.Float("mean", 0), .stddev = n.Float("scale", 1)});
}

// 1 with the probability that the input says, else 0.
absl::StatusOr<Tensors> TranslateBernoulli(const NodeView& n) {
  n.Ignore("seed");
  BRAID_ASSIGN_OR_RETURN(const DType dtype, WantedType(n, n.dtype()));
  const DType wide = WideEnough(n.dtype());
  return Tensors{Cast(Less(Uniform(n.graph(), n.shape(), wide), Cast(n.in(0), wide)), dtype)};
}

// x [batch, classes], logarithms of the classes' shares -> sample_size classes for each row: the
// class whose logarithm, with a number of Gumbel's distribution added, is the largest.
absl::StatusOr<Tensors> TranslateMultinomial(const NodeView& n) {
  n.Ignore("seed");
  BRAID_ASSIGN_OR_RETURN(const DType dtype, WantedType(n, DType::kI32));
  const int64_t samples = n.Int("sample_size", 1);
  const Shape x = n.shape();
  if (x.rank() != 2 || x[1] < 1 || samples < 0) {
    return Wrong(absl::StrCat("x is ", x.ToString(), ", sample_size is ", samples,
                              "; [batch, classes] and a positive number are needed"));
  }
  const DType wide = WideEnough(n.dtype());
  const Tensor uniform = Uniform(n.graph(), {x[0], samples, x[1]}, wide);
  const Tensor gumbel = Neg(Log(Neg(Log(uniform))));
  return Tensors{Cast(ArgMax(Add(ExpandDims(Cast(n.in(0), wide), 1), gumbel), 2), dtype)};
}

// x without a share of its elements, and a mask of those that stay.
Values MaskedDropout(const NodeView& n, double rate, DType mask_type) {
  const Tensor x = n.in(0);
  const Shape shape = n.shape();
  const Tensor all = Constant(n.graph(), 1, {.dtype = DType::kBool, .shape = shape});
  const Tensor limit = Constant(n.graph(), rate, {.dtype = DType::kF32});
  const Tensor stays = GreaterEqual(Uniform(n.graph(), shape, DType::kF32), limit);
  const Tensor zero = Constant(n.graph(), 0, {.dtype = n.dtype()});
  const Tensor scaled = rate < 1 ? Scale(x, 1 / (1 - rate)) : x;
  return {{.tensor = IfTraining(Where(stays, scaled, zero), x)},
          {.tensor = Cast(IfTraining(stays, all), mask_type)}};
}

absl::StatusOr<Values> TranslateDropout(const NodeView& n) {
  if (!n.value(0).is_tensor()) return Wrong("input 0 is no tensor");
  n.Ignore("seed");
  n.Ignore("is_test");
  double rate = n.Float("ratio", 0.5);
  bool is_training = n.opset() < 7 && !n.Flag("is_test");
  if (n.HasInput(1)) {
    BRAID_ASSIGN_OR_RETURN(rate, n.KnownFloat(1));
  }
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(const int64_t training, n.KnownInt(2));
    is_training = training != 0;
  }
  const DType mask_type = n.opset() < 10 ? n.dtype() : DType::kBool;
  if (is_training && rate != 0 && n.HasOutput(1)) return MaskedDropout(n, rate, mask_type);
  Values outputs = {n.value(0)};
  if (is_training && rate != 0) outputs[0] = Value{.tensor = Dropout(n.in(0), rate)};
  if (n.HasOutput(1)) {
    outputs.push_back({.tensor = Constant(n.graph(), 1, {.dtype = mask_type, .shape = n.shape()})});
  }
  return outputs;
}

}  // namespace

void AddRandom(Translators& all) {
  all.Add("RandomUniform", {0, 0}, Random(/*is_like=*/false, MakeUniform));
  all.Add("RandomUniformLike", {}, Random(/*is_like=*/true, MakeUniform));
  all.Add("RandomNormal", {0, 0}, Random(/*is_like=*/false, MakeNormal));
  all.Add("RandomNormalLike", {}, Random(/*is_like=*/true, MakeNormal));
  all.Add("Bernoulli", {}, TranslateBernoulli);
  all.Add("Multinomial", {}, TranslateMultinomial);
  all.AddValues("Dropout", {1, 3}, TranslateDropout);
}

}  // namespace braid::onnx
