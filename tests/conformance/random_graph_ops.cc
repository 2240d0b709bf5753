#include "tests/conformance/random_graph_ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace braid::conformance {
namespace {

constexpr double kMostBound = 6;
constexpr int64_t kMostElements = 600;
constexpr int kMostRank = 4;

Tensor Positive(Tensor x) { return AddScalar(Square(x), 0.5); }

Shape Without(const Shape& shape, int axis) {
  std::vector<int64_t> dims = shape.dims();
  dims.erase(dims.begin() + axis);
  return Shape(std::move(dims));
}

}  // namespace

void RandomGraph::Add(Tensor x, double bound) {
  if (!x.valid() || x.shape().num_elements() > kMostElements || x.shape().rank() > kMostRank) {
    return;  // an invalid one leaves its error in the job
  }
  if (bound > kMostBound) {
    const bool squashes = draws_.Chance(50);
    x = squashes ? Tanh(x) : Scale(x, 2 / bound);
    bound = squashes ? 1 : 2;
  }
  reals_.push_back({layout_.Perhaps(x), bound});
}

void RandomGraph::Move() {
  using Family = void (RandomGraph::*)();
  static constexpr Family kFamilies[] = {
      &RandomGraph::Unary,         &RandomGraph::Unary,     &RandomGraph::Binary,
      &RandomGraph::Binary,        &RandomGraph::Relayout,  &RandomGraph::Cut,
      &RandomGraph::Join,          &RandomGraph::Reduction, &RandomGraph::Matrix,
      &RandomGraph::Matrix,        &RandomGraph::Index,     &RandomGraph::Compare,
      &RandomGraph::SoftmaxOrLoss, &RandomGraph::Normalize, &RandomGraph::Generate,
      &RandomGraph::Update,        &RandomGraph::Rearrange, &RandomGraph::Order,
      &RandomGraph::Position,      &RandomGraph::Extreme,
  };
  const Family family = kFamilies[draws_.Below(static_cast<int>(std::size(kFamilies)))];
  layout_.Somewhere([&] {
    (this->*family)();
    return 0;
  });
}

const RealValue& RandomGraph::AnyReal() {
  // Late ones more often, so that graphs grow deep.
  const int n = static_cast<int>(reals_.size());
  return reals_[std::max(draws_.Below(n), draws_.Below(n))];
}

RealValue RandomGraph::RealOfRank(int rank) {
  RealValue x = AnyReal();
  while (x.tensor.shape().rank() < rank) x.tensor = ExpandDims(x.tensor, x.tensor.shape().rank());
  return x;
}

RealValue RandomGraph::NewVariable(const Shape& shape) {
  const Tensor variable = Variable(job_.graph(), {.name = "v" + std::to_string(variables_++),
                                                  .dtype = DType::kF64,
                                                  .shape = shape,
                                                  .init = "uniform",
                                                  .low = -0.6,
                                                  .high = 0.6,
                                                  .sbp = layout_.VariableHint(shape)});
  return {variable, 1};
}

RealValue RandomGraph::Project(const RealValue& x, int64_t n) {
  const int64_t depth = x.tensor.shape()[x.tensor.shape().rank() - 1];
  const Tensor weight = NewVariable({depth, n}).tensor;
  return {MatMul(x.tensor, weight), static_cast<double>(depth) * x.bound};
}

Tensor RandomGraph::Noise(const Shape& shape) {
  return RandomUniform(job_.graph(), shape, {.dtype = DType::kF64, .low = -1, .high = 1});
}

RealValue RandomGraph::OfShape(Shape shape) {
  std::vector<RealValue> fitting;
  for (const RealValue& value : reals_) {
    if (value.tensor.shape() == shape) fitting.push_back(value);
  }
  if (!fitting.empty() && draws_.Chance(70)) {
    return fitting[draws_.Below(static_cast<int>(fitting.size()))];
  }
  // A variable has no batches.
  if (first_axis_ == 0 && draws_.Chance(60)) return NewVariable(shape);
  return {Noise(shape), 1};
}

RealValue RandomGraph::Partner(const RealValue& a) {
  if (draws_.Chance(60)) return OfShape(a.tensor.shape());
  std::vector<int64_t> dims = a.tensor.shape().dims();
  dims.erase(dims.begin(), dims.begin() + draws_.Below(static_cast<int>(dims.size()) + 1));
  if (dims.size() == a.tensor.shape().dims().size() && first_axis_ > 0) dims[0] = 1;
  for (int64_t& dim : dims) {
    if (draws_.Chance(25)) dim = 1;
  }
  return NewVariable(Shape(std::move(dims)));
}

void RandomGraph::Unary() {
  const RealValue v = AnyReal();
  const Tensor x = v.tensor;
  const double b = v.bound;
  switch (draws_.Below(22)) {
    case 0:
      return Add(Tanh(x), 1);
    case 1:
      return Add(Sigmoid(x), 1);
    case 2:
      return Add(Gelu(x), b);
    case 3:
      return Add(Gelu(x, {.approximate = true}), b);
    case 4:
      return Add(Square(x), b * b);
    case 5:
      return Add(Exp(Scale(x, 1 / b)), 3);
    case 6:
      return Add(Neg(x), b);
    case 7:
      return Add(Identity(x), b);
    case 8:
      return Add(Scale(x, -0.7), b);
    case 9:
      return Add(AddScalar(x, 0.3), b + 0.3);
    case 10:
      return Add(Log(Positive(x)), std::log(b * b + 0.5) + 1);
    case 11:
      return Add(Sqrt(Positive(x)), b + 1);
    case 12:
      return Add(Rsqrt(Positive(x)), 1.5);
    case 13:
      return Add(Reciprocal(Positive(x)), 2);
    case 14:
      return Add(Relu(AddScalar(x, Odd() - 0.5)), b + 1);
    case 15:
      return Add(Abs(AddScalar(x, Odd())), b + 1);
    case 16:
      return Add(Clip(x, -Odd() * b, Odd() * b), b);
    case 17:
      return Add(StopGradient(x), b);
    case 18:
      return Add(Sign(AddScalar(x, Odd())), 1);
    case 19:
      return Add(Pow(Positive(x), 1.5), std::pow(b * b + 0.5, 1.5));
    case 20:
      return Add(Dropout(x, 0.3), b / 0.7);
    default:
      return Add(Dropout(AddScalar(x, Odd()), 0.5), 2 * (b + 1));
  }
}

void RandomGraph::Binary() {
  const RealValue x = AnyReal();
  const RealValue y = Partner(x);
  Tensor a = x.tensor, b = y.tensor;
  const bool swaps = draws_.Chance(50);
  switch (draws_.Below(8)) {
    case 0:
    case 1:
      return Add(swaps ? braid::Add(b, a) : braid::Add(a, b), x.bound + y.bound);
    case 2:
      return Add(swaps ? Sub(b, a) : Sub(a, b), x.bound + y.bound);
    case 3:
      return Add(swaps ? Mul(b, a) : Mul(a, b), x.bound * y.bound);
    case 4:
      if (swaps) return Add(Div(b, Positive(a)), 2 * y.bound);
      return Add(Div(a, Positive(b)), 2 * x.bound);
    case 5:
      return Add(Pow(Positive(a), Scale(b, 1 / y.bound)), x.bound * x.bound + 2);
    case 6:
      return Add(Maximum(a, AddScalar(b, Odd())), std::max(x.bound, y.bound + 1));
    default:
      return Add(Minimum(AddScalar(a, Odd()), b), std::max(x.bound + 1, y.bound));
  }
}

void RandomGraph::Relayout() {
  const RealValue v = AnyReal();
  const Shape shape = v.tensor.shape();
  const int free = shape.rank() - first_axis_;
  std::vector<int64_t> dims = shape.dims();
  switch (draws_.Below(5)) {
    case 0: {  // merges two neighbours
      if (free < 2) break;
      const int axis = first_axis_ + draws_.Below(free - 1);
      dims[axis] *= dims[axis + 1];
      dims.erase(dims.begin() + axis + 1);
      return Add(Reshape(v.tensor, Shape(dims)), v.bound);
    }
    case 1: {  // cuts one in two
      if (free < 1 || shape.rank() >= kMostRank) break;
      const int axis = Axis(shape);
      std::vector<int64_t> factors;
      for (int64_t f = 1; f <= dims[axis]; ++f) {
        if (dims[axis] % f == 0) factors.push_back(f);
      }
      const int64_t factor = factors[draws_.Below(static_cast<int>(factors.size()))];
      dims[axis] /= factor;
      dims.insert(dims.begin() + axis, factor);
      return Add(Reshape(v.tensor, Shape(dims)), v.bound);
    }
    case 2:
      if (free < 1) break;
      return Add(Flatten(v.tensor, Axis(shape)), v.bound);
    case 3: {
      std::vector<int64_t> perm(shape.rank());
      std::iota(perm.begin(), perm.end(), 0);
      for (int i = shape.rank() - 1; i > first_axis_; --i) {
        std::swap(perm[i], perm[first_axis_ + draws_.Below(i + 1 - first_axis_)]);
      }
      return Add(Transpose(v.tensor, perm), v.bound);
    }
    default: {  // repeats it along a new axis
      dims.insert(dims.begin() + first_axis_, 1);
      const Tensor thin = Reshape(v.tensor, Shape(dims));
      dims[first_axis_] = 2 + draws_.Below(3);
      return Add(BroadcastTo(thin, Shape(dims)), v.bound);
    }
  }
  Add(ExpandDims(v.tensor, shape.rank()), v.bound);
}

void RandomGraph::Cut() {
  const RealValue v = RealOfRank(first_axis_ + 1);
  const Shape shape = v.tensor.shape();
  if (draws_.Chance(50)) {
    std::vector<int64_t> begin(shape.rank(), 0), size = shape.dims();
    for (int axis = first_axis_; axis < shape.rank(); ++axis) {
      if (draws_.Chance(40)) continue;
      size[axis] = 1 + draws_.Below(static_cast<int>(shape[axis]));
      begin[axis] = draws_.Below(static_cast<int>(shape[axis] - size[axis]) + 1);
    }
    return Add(Slice(v.tensor, begin, size), v.bound);
  }
  const int axis = Axis(shape);
  const int64_t first = draws_.Below(static_cast<int>(shape[axis]));
  if (first == 0) return Add(v.tensor, v.bound);
  for (const Tensor& part : Split(v.tensor, {first, shape[axis] - first}, axis)) Add(part, v.bound);
}

void RandomGraph::Join() {
  const RealValue v = RealOfRank(first_axis_ + 1);
  const Shape shape = v.tensor.shape();
  if (draws_.Chance(40)) {
    std::vector<int64_t> before(shape.rank(), 0), after(shape.rank(), 0);
    for (int axis = first_axis_; axis < shape.rank(); ++axis) {
      before[axis] = draws_.Below(3);
      after[axis] = draws_.Below(2);
    }
    return Add(Pad(v.tensor, before, after), v.bound);
  }
  const RealValue other = OfShape(shape);
  std::vector<Tensor> parts = {v.tensor, other.tensor};
  if (draws_.Chance(30)) parts.push_back(v.tensor);
  Add(Concat(parts, Axis(shape)), std::max(v.bound, other.bound));
}

void RandomGraph::Reduction() {
  const RealValue v = RealOfRank(first_axis_ + 1);
  const Shape shape = v.tensor.shape();
  ReduceOptions options = {.keep_dims = draws_.Chance(40)};
  int64_t count = 1;
  for (int axis = first_axis_; axis < shape.rank(); ++axis) {
    if (!draws_.Chance(50)) continue;
    options.axes.push_back(axis);
    count *= shape[axis];
  }
  if (options.axes.empty()) {
    options.axes = {Axis(shape)};
    count = shape[static_cast<int>(options.axes[0])];
  }
  switch (draws_.Below(5)) {
    case 0:
      return Add(ReduceSum(v.tensor, options), v.bound * static_cast<double>(count));
    case 1:
      return Add(ReduceMean(v.tensor, options), v.bound);
    case 2:
      return Add(ReduceMax(braid::Add(v.tensor, Noise(shape)), options), v.bound + 1);
    case 3:
      return Add(ReduceMin(braid::Add(v.tensor, Noise(shape)), options), v.bound + 1);
    default: {
      const int axis = Axis(shape);
      return AddIndices(ArgMax(braid::Add(v.tensor, Noise(shape)), axis), shape[axis]);
    }
  }
}

void RandomGraph::Matrix() {
  const RealValue a = RealOfRank(2);
  const Shape shape = a.tensor.shape();
  const int64_t m = shape[shape.rank() - 2], k = shape[shape.rank() - 1];
  const int64_t n = 1 + draws_.Below(7);
  const double inner = static_cast<double>(k);
  switch (draws_.Below(6)) {
    case 0: {
      const RealValue product = Project(a, n);
      return Add(product.tensor, product.bound);
    }
    case 1: {
      const RealValue b = NewVariable({n, k});
      return Add(MatMul(a.tensor, b.tensor, {.transpose_b = true}), inner * a.bound);
    }
    case 2: {  // m becomes the inner axis
      if (first_axis_ > 0 && shape.rank() < 3) break;
      const RealValue b = NewVariable({m, n});
      return Add(MatMul(a.tensor, b.tensor, {.transpose_a = true}),
                 static_cast<double>(m) * a.bound);
    }
    case 3: {  // a matrix per leading index, or one for all of them
      if (shape.rank() < 3) break;
      std::vector<int64_t> dims = shape.dims();
      dims[shape.rank() - 2] = k;
      dims[shape.rank() - 1] = n;
      if (first_axis_ > 0 || draws_.Chance(40)) dims[0] = 1;
      const RealValue b = OfShape(Shape(dims));
      return Add(MatMul(a.tensor, b.tensor), inner * a.bound * b.bound);
    }
    case 4: {  // every row with every other, as attention does
      if (first_axis_ > 0 && shape.rank() < 3) break;
      const RealValue b = OfShape(shape);
      const bool outer = draws_.Chance(50);
      return Add(MatMul(a.tensor, b.tensor, {.transpose_a = outer, .transpose_b = !outer}),
                 static_cast<double>(outer ? m : k) * a.bound * b.bound);
    }
    default: {
      if (first_axis_ > 0) break;
      const RealValue b = OfShape(shape);
      return Add(Tensordot(a.tensor, b.tensor),
                 static_cast<double>(shape.num_elements() / k) * a.bound * b.bound);
    }
  }
  const RealValue product = Project(a, n);
  Add(product.tensor, product.bound);
}

void RandomGraph::SoftmaxOrLoss() {
  const RealValue v = RealOfRank(first_axis_ + 1);
  const Shape shape = v.tensor.shape();
  const int last = shape.rank() - 1;
  const double log_classes = std::log(static_cast<double>(shape[last])) + 1;
  switch (draws_.Below(5)) {
    case 0:
      return Add(Softmax(v.tensor, {.scale = 0.8}), 1);
    case 1:
      if (last < first_axis_ + 1) return Add(Softmax(v.tensor), 1);
      return Add(Softmax(v.tensor, {.causal = true}), 1);
    case 2:
      return Add(LogSoftmax(v.tensor), 2 * v.bound + log_classes);
    case 3: {
      const Tensor labels = Softmax(OfShape(shape).tensor);
      return Add(SoftmaxCrossEntropy(v.tensor, StopGradient(labels)), 2 * v.bound + log_classes);
    }
    default: {
      std::vector<Tensor> fitting;
      for (const IndexValue& index : indices_) {
        if (index.limit <= shape[last] && index.tensor.shape() == Without(shape, last)) {
          fitting.push_back(index.tensor);
        }
      }
      const Tensor labels = fitting.empty() ? ArgMax(Noise(shape)) : fitting.back();
      return Add(SoftmaxCrossEntropy(v.tensor, labels), 2 * v.bound + log_classes);
    }
  }
}

void RandomGraph::Normalize() {
  const RealValue v = RealOfRank(first_axis_ + 1);
  const int64_t channels = v.tensor.shape()[v.tensor.shape().rank() - 1];
  const Tensor gamma = AddScalar(NewVariable({channels}).tensor, 1);
  const Tensor beta = NewVariable({channels}).tensor;
  Add(LayerNorm(v.tensor, gamma, beta, {.epsilon = 1e-2}),
      1 + 2 * std::sqrt(static_cast<double>(channels)));
}

void RandomGraph::Index() {
  const IndexValue index = indices_[draws_.Below(static_cast<int>(indices_.size()))];
  switch (draws_.Below(5)) {
    case 0:
      return Add(OneHot(index.tensor, index.limit, DType::kF64), 1);
    case 1:
      return Add(Embedding(NewVariable({index.limit, 1 + draws_.Below(6)}).tensor, index.tensor),
                 1);
    case 2: {
      const Tensor wide = index.tensor.dtype() == DType::kI32 ? Cast(index.tensor, DType::kI64)
                                                              : Cast(index.tensor, DType::kI32);
      return AddIndices(layout_.Perhaps(wide), index.limit);
    }
    case 3:
      return Add(Scale(Cast(index.tensor, DType::kF64), 1.0 / static_cast<double>(index.limit)), 1);
    default: {  // along any axis of a value
      const Tensor table = first_axis_ == 0
                               ? RealOfRank(1).tensor
                               : NewVariable({2 + draws_.Below(3), 2 + draws_.Below(5)}).tensor;
      const int axis = draws_.Below(table.shape().rank());
      Tensor at = index.tensor;
      if (table.shape()[axis] < index.limit) {
        if (first_axis_ > 0) return Add(OneHot(at, index.limit + 2, DType::kF64), 1);
        at = ArgMax(Noise({3, table.shape()[axis]}));
      }
      if (first_axis_ > 0 && axis > 0) return Add(Gather(Transpose(table, {1, 0}), at), 1);
      return Add(Gather(table, at, {.axis = axis}), kMostBound);
    }
  }
}

void RandomGraph::Compare() {
  const RealValue v = AnyReal();
  const Shape shape = v.tensor.shape();
  const Tensor other = draws_.Chance(50)
                           ? Noise(shape)
                           : Constant(job_.graph(), Odd() - 0.5, {.dtype = DType::kF64});
  Tensor condition;
  switch (draws_.Below(6)) {
    case 0:
      condition = Less(v.tensor, other);
      break;
    case 1:
      condition = LessEqual(v.tensor, other);
      break;
    case 2:
      condition = Greater(v.tensor, other);
      break;
    case 3:
      condition = GreaterEqual(v.tensor, other);
      break;
    case 4: {
      const IndexValue index = indices_[draws_.Below(static_cast<int>(indices_.size()))];
      const Tensor one = Constant(job_.graph(), 1, {.dtype = index.tensor.dtype()});
      const bool equal = draws_.Chance(50);
      bools_.push_back(equal ? Equal(index.tensor, one) : NotEqual(index.tensor, one));
      return Add(Cast(bools_.back(), DType::kF64), 1);
    }
    default:
      condition = LogicalNot(Less(v.tensor, other));
  }
  for (const Tensor& earlier : bools_) {
    if (!earlier.valid() || earlier.shape() != shape) continue;
    condition = draws_.Chance(50) ? LogicalAnd(condition, earlier) : LogicalOr(condition, earlier);
    break;
  }
  bools_.push_back(condition);
  if (draws_.Chance(30)) return Add(Cast(condition, DType::kF64), 1);
  const RealValue b = Partner(v);
  Add(draws_.Chance(50) ? braid::Where(condition, v.tensor, b.tensor)
                        : braid::Where(condition, b.tensor, v.tensor),
      std::max(v.bound, b.bound));
}

void RandomGraph::Generate() {
  const RealValue v = AnyReal();
  const Shape shape = v.tensor.shape();
  switch (draws_.Below(5)) {
    case 0:
      return Add(braid::Add(v.tensor, RandomNormal(job_.graph(), shape, {.dtype = DType::kF64})),
                 v.bound + 6);
    case 1: {
      if (shape.rank() == 0) break;
      const int axis = draws_.Below(shape.rank());
      const Tensor ramp = Iota(job_.graph(), {DType::kF64, shape}, axis);
      return Add(Mul(v.tensor, Scale(ramp, 1.0 / static_cast<double>(shape[axis]))), v.bound);
    }
    case 2: {
      const Tensor step = Cast(Step(job_.graph()), DType::kF64);
      return Add(Mul(v.tensor, AddScalar(Scale(step, 0.1), 0.5)), v.bound);
    }
    case 3:
      return Add(
          Sub(Constant(job_.graph(), 0.25, {.dtype = DType::kF64, .shape = shape}), v.tensor),
          v.bound + 0.25);
    default:
      break;
  }
  // A number of classes from a real value; its fraction is never near 0.
  AddIndices(Cast(AddScalar(Scale(Sigmoid(v.tensor), 3.9), 0.05 * Odd()), DType::kI32), 4);
}

// A variable that no gradient trains: it follows a value.
void RandomGraph::Update() {
  if (first_axis_ > 0) return Unary();
  const RealValue v = AnyReal();
  const Tensor state = Variable(job_.graph(), {.name = "state" + std::to_string(variables_++),
                                               .dtype = DType::kF64,
                                               .shape = v.tensor.shape(),
                                               .init = "constant",
                                               .value = 0.5,
                                               .trainable = false,
                                               .sbp = layout_.VariableHint(v.tensor.shape())});
  Assign(state, braid::Add(Scale(state, 0.9), Scale(v.tensor, 0.1)));
  Add(Mul(state, v.tensor), v.bound * v.bound + v.bound);
}

}  // namespace braid::conformance
