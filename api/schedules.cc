#include "api/schedules.h"

#include <algorithm>
#include <initializer_list>
#include <numbers>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "graph/functional.h"

namespace braid {
namespace {

// Rates are computed in f64 and rounded once: what devices of different kinds make of a cosine or a
// power in f32 may differ in its last bit.
Tensor StepAsFloat(LogicalGraph& graph, SourceLocation where) {
  return Cast(Step(graph, where), DType::kF64, where);
}

Tensor Wide(LogicalGraph& graph, double value, SourceLocation where) {
  return Constant(graph, value, {.dtype = DType::kF64}, where);
}

Tensor Rounded(Tensor rate, SourceLocation where) { return Cast(rate, DType::kF32, where); }

// (step - begin) / span within [0, 1]; a span of nothing is over at once.
Tensor ProgressAt(Tensor step, double begin, double span, SourceLocation where) {
  const double inverse = 1 / std::max(span, 1e-9);
  return Clip(Scale(AddScalar(step, -begin, where), inverse, where), 0, 1, where);
}

// Half a cosine from `from` at t = 0 to `to` at t = 1.
Tensor Cosine(Tensor t, double from, double to, SourceLocation where) {
  const Tensor wave = Cos(Scale(t, std::numbers::pi, where), where);
  return AddScalar(Scale(wave, (from - to) / 2, where), (from + to) / 2, where);
}

// Rates are at least 0 and no NaN: else the graph has an error.
void CheckRates(LogicalGraph& graph, std::string_view schedule, std::initializer_list<double> rates,
                SourceLocation where) {
  for (const double rate : rates) {
    if (rate >= 0) continue;
    graph.Fail(absl::InvalidArgumentError(
        absl::StrFormat("%s: a learning rate is %g; at least 0 was expected (%s)", schedule, rate,
                        where.ToString())));
  }
}

Tensor Power(LogicalGraph& graph, double base, Tensor exponent, SourceLocation where) {
  return Pow(Wide(graph, base, where), exponent, where);
}

}  // namespace

Tensor WarmupCosine(LogicalGraph& graph, WarmupCosineOptions options, SourceLocation where) {
  CheckRates(graph, "WarmupCosine", {options.peak, options.floor}, where);
  const auto warmup = static_cast<double>(options.warmup_steps);
  const auto steps = static_cast<double>(options.steps);
  const Tensor step = StepAsFloat(graph, where);
  const Tensor t = ProgressAt(step, warmup, std::max(steps - warmup, 1.0), where);
  const Tensor decayed = Cosine(t, options.peak, options.floor, where);
  if (options.warmup_steps == 0) return Rounded(decayed, where);
  const Tensor rising = Scale(AddScalar(step, 1, where), options.peak / warmup, where);
  return Rounded(Where(Less(step, Wide(graph, warmup, where), where), rising, decayed, where),
                 where);
}

Tensor StepDecay(LogicalGraph& graph, StepDecayOptions options, SourceLocation where) {
  CheckRates(graph, "StepDecay", {options.initial}, where);
  // In whole numbers: a product with 1 / every may fall short of one.
  const auto every = static_cast<double>(std::max<int64_t>(options.every, 1));
  const Tensor times =
      Div(Step(graph, where), Constant(graph, every, {.dtype = DType::kI64}, where), where);
  return Rounded(Scale(Power(graph, options.factor, Cast(times, DType::kF64, where), where),
                       options.initial, where),
                 where);
}

Tensor ExponentialDecay(LogicalGraph& graph, ExponentialDecayOptions options,
                        SourceLocation where) {
  CheckRates(graph, "ExponentialDecay", {options.initial}, where);
  const auto every = static_cast<double>(std::max<int64_t>(options.every, 1));
  const Tensor times = Scale(StepAsFloat(graph, where), 1 / every, where);
  return Rounded(Scale(Power(graph, options.factor, times, where), options.initial, where), where);
}

Tensor PolynomialDecay(LogicalGraph& graph, PolynomialDecayOptions options, SourceLocation where) {
  CheckRates(graph, "PolynomialDecay", {options.initial, options.floor}, where);
  const Tensor t =
      ProgressAt(StepAsFloat(graph, where), 0, static_cast<double>(options.steps), where);
  const Tensor left = AddScalar(Neg(t, where), 1, where);
  const Tensor power = options.power == 1 ? left : Pow(left, options.power, where);
  return Rounded(
      AddScalar(Scale(power, options.initial - options.floor, where), options.floor, where), where);
}

Tensor OneCycle(LogicalGraph& graph, OneCycleOptions options, SourceLocation where) {
  CheckRates(graph, "OneCycle", {options.peak}, where);
  const double start = options.peak / options.start_divisor, end = start / options.end_divisor;
  const auto steps = static_cast<double>(options.steps);
  const double top = std::max(options.rising * steps - 1, 0.0);
  const Tensor step = StepAsFloat(graph, where);
  const Tensor rising = Cosine(ProgressAt(step, 0, top, where), start, options.peak, where);
  const Tensor falling =
      Cosine(ProgressAt(step, top, steps - 1 - top, where), options.peak, end, where);
  return Rounded(Where(Less(step, Wide(graph, top, where), where), rising, falling, where), where);
}

Tensor LinearWarmup(Tensor rate, int64_t steps, SourceLocation where) {
  if (!rate.valid()) return rate;
  const Tensor risen = Scale(AddScalar(StepAsFloat(*rate.graph(), where), 1, where),
                             1 / static_cast<double>(std::max<int64_t>(steps, 1)), where);
  return Mul(rate, Cast(Clip(risen, 0, 1, where), rate.dtype(), where), where);
}

}  // namespace braid
