// Optimizers of the domain ai.onnx.preview.training: the learning rate, the step, then for each
// variable its value, its gradient and its states; the new values and states.
#include <cmath>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// One variable: its value, its gradient and its states in, its new value and states out.
using UpdateFunction = std::function<Tensors(const Tensors& operands)>;

// The inputs are grouped by what they are, not by variable; so are the outputs.
absl::StatusOr<Tensors> ForEachVariable(const NodeView& n, int states, const UpdateFunction& f) {
  const int groups = 2 + states, operands = n.num_inputs() - 2;
  if (operands % groups != 0) {
    return Wrong(absl::StrCat("it has ", operands, " operands; a multiple of ", groups,
                              " is needed: values, gradients, states"));
  }
  const int variables = operands / groups;
  Tensors outputs(variables * (1 + states));
  for (int i = 0; i < variables; ++i) {
    Tensors mine;
    for (int group = 0; group < groups; ++group) mine.push_back(n.in(2 + group * variables + i));
    const Tensors made = f(mine);
    for (int group = 0; group < 1 + states; ++group) {
      outputs[group * variables + i] = made[group];
    }
  }
  return outputs;
}

Tensor Regularized(Tensor x, Tensor gradient, double coefficient) {
  return coefficient == 0 ? gradient : Add(Scale(x, coefficient), gradient);
}

absl::StatusOr<Tensors> TranslateAdagrad(const NodeView& n) {
  const double decay = n.Float("decay_factor", 0), epsilon = n.Float("epsilon", 1e-6);
  const double norm = n.Float("norm_coefficient", 0);
  BRAID_ASSIGN_OR_RETURN(const int64_t step, n.KnownInt(1));
  const Tensor rate = Scale(n.in(0), 1 / (1 + static_cast<double>(step) * decay));
  return ForEachVariable(n, 1, [&](const Tensors& in) {
    const Tensor gradient = Regularized(in[0], in[1], norm);
    const Tensor sum = Add(in[2], Square(gradient));
    const Tensor move = Div(Mul(gradient, rate), AddScalar(Sqrt(sum), epsilon));
    return Tensors{Sub(in[0], move), sum};
  });
}

absl::StatusOr<Tensors> TranslateAdam(const NodeView& n) {
  const double alpha = n.Float("alpha", 0.9), beta = n.Float("beta", 0.999);
  const double epsilon = n.Float("epsilon", 1e-6), norm = n.Float("norm_coefficient", 0);
  const double norm_post = n.Float("norm_coefficient_post", 0);
  BRAID_ASSIGN_OR_RETURN(const int64_t step, n.KnownInt(1));
  const auto t = static_cast<double>(step);
  const double correction =
      step > 0 ? std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t)) : 1;
  const Tensor rate = Scale(n.in(0), correction);
  return ForEachVariable(n, 2, [&](const Tensors& in) {
    const Tensor gradient = Regularized(in[0], in[1], norm);
    const Tensor mean = Add(Scale(in[2], alpha), Scale(gradient, 1 - alpha));
    const Tensor square = Add(Scale(in[3], beta), Scale(Square(gradient), 1 - beta));
    const Tensor move = Div(Mul(mean, rate), AddScalar(Sqrt(square), epsilon));
    return Tensors{Scale(Sub(in[0], move), 1 - norm_post), mean, square};
  });
}

absl::StatusOr<Tensors> TranslateMomentum(const NodeView& n) {
  const double alpha = n.Float("alpha", 0), norm = n.Float("norm_coefficient", 0);
  const std::string mode = n.Text("mode", "standard");
  if (mode != "standard" && mode != "nesterov") {
    return Wrong(absl::StrCat("mode is '", mode, "'; standard or nesterov is needed"));
  }
  BRAID_ASSIGN_OR_RETURN(const int64_t step, n.KnownInt(1));
  const double beta = n.Float("beta", 1), fresh = step > 0 ? beta : 1;
  const Tensor rate = n.in(0);
  return ForEachVariable(n, 1, [&](const Tensors& in) {
    const Tensor gradient = Regularized(in[0], in[1], norm);
    const Tensor velocity = Add(Scale(in[2], alpha), Scale(gradient, fresh));
    const Tensor move = mode == "nesterov" ? Add(gradient, Scale(velocity, alpha)) : velocity;
    return Tensors{Sub(in[0], Mul(move, rate)), velocity};
  });
}

}  // namespace

void AddTraining(Translators& all) {
  all.Add("ai.onnx.preview.training.Adagrad", {5, kAnyNumber}, TranslateAdagrad);
  all.Add("ai.onnx.preview.training.Adam", {6, kAnyNumber}, TranslateAdam);
  all.Add("ai.onnx.preview.training.Momentum", {5, kAnyNumber}, TranslateMomentum);
}

}  // namespace braid::onnx
