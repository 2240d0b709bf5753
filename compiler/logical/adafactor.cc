#include "compiler/logical/adafactor.h"

#include <cmath>
#include <string>
#include <vector>

#include "compiler/logical/loss_scale.h"
#include "graph/functional.h"

namespace braid::compiler {
namespace {

// Of one variable, in the type that its states have.
class Adafactor {
 public:
  Adafactor(Tensor variable, Tensor gradient, Tensor learning_rate, Tensor step, Tensor applies,
            const Attrs& attrs, const SourceLocation& where)
      : graph_(*variable.graph()),
        dtype_(SizeOf(variable.dtype()) < SizeOf(DType::kF32) ? DType::kF32 : variable.dtype()),
        where_(where),
        attrs_(attrs),
        variable_(variable),
        value_(Cast(variable, dtype_, where)),
        gradient_(Cast(gradient, dtype_, where)),
        learning_rate_(Cast(learning_rate, dtype_, where)),
        count_(AddScalar(Cast(step, dtype_, where), 1, where)),
        applies_(applies) {}

  void Append() {
    const Tensor square = Square(gradient_, where_);
    const Tensor mean = value_.shape().rank() < 2 ? Averaged("square", square) : Factored(square);
    const double epsilon = attrs_.Double("epsilon");
    const Tensor root = Rsqrt(Maximum(mean, Number(epsilon * epsilon), where_), where_);
    const Tensor direction = Mul(gradient_, root, where_);
    const Tensor length = Scale(RootMeanSquare(direction), 1 / attrs_.Double("clip"), where_);
    const Tensor rate = Div(Rate(), Maximum(length, Number(1), where_), where_);
    Tensor kept = value_;
    if (const double decay = attrs_.Double("weight_decay"); decay != 0) {
      const Tensor rest = AddScalar(Scale(learning_rate_, -decay, where_), 1, where_);
      kept = Mul(value_, rest, where_);
    }
    const Tensor next = Sub(kept, Mul(direction, rate, where_), where_);
    AssignIfApplies(variable_, Cast(next, variable_.dtype(), where_), applies_, where_);
  }

 private:
  Tensor Number(double value) { return Constant(graph_, value, {.dtype = dtype_}, where_); }

  Tensor RootMeanSquare(Tensor x) {
    const auto count = static_cast<double>(x.shape().num_elements());
    return Scale(ReduceL2(x, {}, where_), 1 / std::sqrt(count), where_);
  }

  // Relative to the variable's size, and at most the inverse root of the number of steps.
  Tensor Rate() {
    const Tensor relative = Minimum(learning_rate_, Rsqrt(count_, where_), where_);
    const Tensor size =
        Maximum(RootMeanSquare(value_), Number(attrs_.Double("epsilon_scale")), where_);
    return Mul(relative, size, where_);
  }

  // The state's next value: it moves towards `value` by count^beta2_decay of the way.
  Tensor Averaged(const std::string& name, Tensor value) {
    const Tensor state = Variable(
        graph_,
        {.name = "adafactor_" + name, .dtype = dtype_, .shape = value.shape(), .trainable = false},
        where_);
    const Tensor part = Pow(count_, attrs_.Double("beta2_decay"), where_);
    const Tensor next = Add(state, Mul(Sub(value, state, where_), part, where_), where_);
    AssignIfApplies(state, next, applies_, where_);
    return next;
  }

  // The product of rows' and columns' means of squares that has the mean of both.
  Tensor Factored(Tensor square) {
    const int64_t rank = square.shape().rank();
    const Tensor row = Averaged("row", ReduceMean(square, {.axes = {rank - 1}}, where_));
    const Tensor column = Averaged("column", ReduceMean(square, {.axes = {rank - 2}}, where_));
    const Tensor mean = ExpandDims(ReduceMean(row, {.axes = {rank - 2}}, where_), rank - 2, where_);
    const Tensor share = Div(row, Maximum(mean, Number(attrs_.Double("epsilon")), where_), where_);
    return Mul(ExpandDims(share, rank - 1, where_), ExpandDims(column, rank - 2, where_), where_);
  }

  LogicalGraph& graph_;
  const DType dtype_;
  const SourceLocation& where_;
  const Attrs& attrs_;
  const Tensor variable_, value_, gradient_, learning_rate_, count_, applies_;
};

}  // namespace

void AppendAdafactor(Tensor variable, Tensor gradient, Tensor learning_rate, Tensor step,
                     Tensor applies, const Attrs& attrs, const SourceLocation& where) {
  Adafactor(variable, gradient, learning_rate, step, applies, attrs, where).Append();
}

}  // namespace braid::compiler
