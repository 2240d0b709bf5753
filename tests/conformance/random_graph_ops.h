// The moves of a random job: each picks values that are there, appends ops of one family, and adds
// what comes out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/job.h"
#include "tests/conformance/random_graph_layout.h"

namespace braid::conformance {

// |elements| <= bound, so that no value runs away.
struct RealValue {
  Tensor tensor;
  double bound = 1;
};
// Elements in [0, limit).
struct IndexValue {
  Tensor tensor;
  int64_t limit = 1;
};

class RandomGraph {
 public:
  // `first_axis`: 1 if axis 0 of every value is the batch and must stay so.
  RandomGraph(uint64_t seed, Job& job, RandomLayout& layout, int first_axis)
      : draws_(seed, "ops"), job_(job), layout_(layout), first_axis_(first_axis) {}

  Draws& draws() { return draws_; }
  const std::vector<RealValue>& reals() const { return reals_; }
  const std::vector<IndexValue>& indices() const { return indices_; }
  const std::vector<Tensor>& bools() const { return bools_; }

  // Keeps a value; brings it back to a moderate size first.
  void Add(Tensor x, double bound);
  void AddIndices(Tensor x, int64_t limit) { indices_.push_back({x, limit}); }

  // One move of any family.
  void Move();
  // A trainable variable within +-0.6.
  RealValue NewVariable(const Shape& shape);
  // x [.., d] times a new variable [d, n].
  RealValue Project(const RealValue& x, int64_t n);

 private:
  void Unary();
  void Binary();
  void Relayout();
  void Cut();
  void Join();
  void Reduction();
  void Matrix();
  void SoftmaxOrLoss();
  void Normalize();
  void Index();
  void Compare();
  void Generate();
  void Update();
  // random_graph_index.cc:
  void Extreme();
  void Rearrange();
  void Order();
  void Position();

  const RealValue& AnyReal();
  // A value with at least `rank` axes, made if need be.
  RealValue RealOfRank(int rank);
  // Of a's shape or one that broadcasts to it.
  RealValue Partner(const RealValue& a);
  // A value of this very shape: one that is there, or a new variable or random numbers.
  RealValue OfShape(Shape shape);
  // The largest or least along an axis, which keeps its place, of numbers without ties.
  Tensor ExtremeOf(Tensor x, int axis, bool is_max);
  // x through an operator that passes maxima and minima on as it does values.
  Tensor PassOn(Tensor x, bool is_max);
  // Random numbers of a shape, which no other value ties with.
  Tensor Noise(const Shape& shape);
  // In (0.05, 0.95): keeps kinks away from round numbers.
  double Odd() { return draws_.Uniform(0.05, 0.95); }
  int Axis(const Shape& shape) {  // shape.rank() > first_axis_
    return first_axis_ + draws_.Below(shape.rank() - first_axis_);
  }

  Draws draws_;
  Job& job_;
  RandomLayout& layout_;
  const int first_axis_;
  int variables_ = 0;
  std::vector<RealValue> reals_;
  std::vector<IndexValue> indices_;
  std::vector<Tensor> bools_;
};

}  // namespace braid::conformance
