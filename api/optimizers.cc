#include "api/optimizers.h"

#include <numbers>

#include "graph/functional.h"

namespace braid {
namespace {

Tensor StepAsFloat(LogicalGraph& graph, SourceLocation where) {
  return Cast(Step(graph, where), DType::kF32, where);
}

Attrs AdamAttrs(double beta1, double beta2, double epsilon, double weight_decay, bool decoupled) {
  return Attrs{{"beta1", beta1},
               {"beta2", beta2},
               {"epsilon", epsilon},
               {"weight_decay", weight_decay},
               {"decoupled", decoupled}};
}

}  // namespace

Tensor WarmupCosine(LogicalGraph& graph, WarmupCosineOptions options, SourceLocation where) {
  const auto warmup = static_cast<double>(options.warmup_steps);
  const auto steps = static_cast<double>(options.steps);
  const Tensor step = StepAsFloat(graph, where);
  // There is no cosine operator: cos(pi t) = 1 - 2 sin^2(pi t / 2), and sin on [0, pi / 2] is its
  // Taylor polynomial of degree 11 to within 6e-8.
  const double span = steps > warmup ? steps - warmup : 1;
  const Tensor t = Clip(Scale(Shift(step, -warmup, where), 1 / span, where), 0, 1, where);
  const Tensor x = Scale(t, std::numbers::pi / 2, where);
  const Tensor x2 = Mul(x, x, where);
  Tensor series = Constant(graph, -1.0 / 39916800, {}, where);
  for (const double coefficient : {1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1.0}) {
    series = Shift(Mul(series, x2, where), coefficient, where);
  }
  const Tensor sine = Mul(series, x, where);
  const Tensor cosine = Shift(Scale(Mul(sine, sine, where), -2, where), 1, where);
  const double half = (options.peak - options.floor) / 2;
  const Tensor decayed = Shift(Scale(cosine, half, where), options.floor + half, where);
  if (options.warmup_steps == 0) return decayed;
  const Tensor rising = Scale(Shift(step, 1, where), options.peak / warmup, where);
  return Where(Less(step, Constant(graph, warmup, {}, where), where), rising, decayed, where);
}

Tensor StepDecay(LogicalGraph& graph, StepDecayOptions options, SourceLocation where) {
  // floor(step / every), in whole numbers: the cast to i32 cuts the fraction off.
  const Tensor ratio =
      Scale(StepAsFloat(graph, where), 1 / static_cast<double>(options.every), where);
  const Tensor times = Cast(Cast(ratio, DType::kI32, where), DType::kF32, where);
  return Scale(Pow(Constant(graph, options.factor, {}, where), times, where), options.initial,
               where);
}

OptimizerSpec::OptimizerSpec(const Sgd& sgd) : lr_(sgd.lr) {
  if (sgd.momentum == 0) {
    update_ = "sgd_update";
    attrs_ = Attrs{{"weight_decay", sgd.weight_decay}};
  } else {
    update_ = "momentum_update";
    attrs_ = Attrs{
        {"momentum", sgd.momentum}, {"nesterov", sgd.nesterov}, {"weight_decay", sgd.weight_decay}};
  }
}

OptimizerSpec::OptimizerSpec(const Adam& adam)
    : update_("adam_update"),
      attrs_(AdamAttrs(adam.beta1, adam.beta2, adam.epsilon, adam.weight_decay, false)),
      lr_(adam.lr) {}

OptimizerSpec::OptimizerSpec(const AdamW& adamw)
    : update_("adam_update"),
      attrs_(AdamAttrs(adamw.beta1, adamw.beta2, adamw.epsilon, adamw.weight_decay, true)),
      lr_(adamw.lr) {}

}  // namespace braid
