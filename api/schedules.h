// Learning rates that change from step to step: each is f32[], computed in f64, of the job's step,
// which counts from 0. `LearningRate` of an optimizer takes it.
#pragma once

#include <cstdint>

#include "graph/logical_graph.h"

namespace braid {

// Half a cosine from peak to floor: Loshchilov and Hutter, arXiv 1608.03983.
struct WarmupCosineOptions {
  double peak = 1e-3;
  double floor = 0;          // reached at `steps`
  int64_t warmup_steps = 0;  // linear from 0
  int64_t steps = 1000;
};
Tensor WarmupCosine(LogicalGraph& graph, WarmupCosineOptions options,
                    SourceLocation where = Here());

// initial * factor^(step / every), the quotient being a whole number.
struct StepDecayOptions {
  double initial = 1e-3;
  double factor = 0.1;
  int64_t every = 1000;  // steps
};
Tensor StepDecay(LogicalGraph& graph, StepDecayOptions options, SourceLocation where = Here());

// The same with any quotient.
struct ExponentialDecayOptions {
  double initial = 1e-3;
  double factor = 0.1;
  int64_t every = 1000;  // steps
};
Tensor ExponentialDecay(LogicalGraph& graph, ExponentialDecayOptions options,
                        SourceLocation where = Here());

// floor + (initial - floor) * (1 - step / steps)^power; power 1 is a line.
struct PolynomialDecayOptions {
  double initial = 1e-3;
  double floor = 0;  // from `steps` on
  double power = 1;
  int64_t steps = 1000;
};
Tensor PolynomialDecay(LogicalGraph& graph, PolynomialDecayOptions options,
                       SourceLocation where = Here());

// Half a cosine up from peak / start_divisor to peak, another down to peak / start_divisor /
// end_divisor, which the last step has: Smith and Topin, arXiv 1708.07120.
struct OneCycleOptions {
  double peak = 1e-3;
  double start_divisor = 25;
  double end_divisor = 1e4;
  double rising = 0.3;  // part of the steps, from 0 to 1
  int64_t steps = 1000;
};
Tensor OneCycle(LogicalGraph& graph, OneCycleOptions options, SourceLocation where = Here());

// Any rate, times (step + 1) / steps in the first `steps` steps.
Tensor LinearWarmup(Tensor rate, int64_t steps, SourceLocation where = Here());

}  // namespace braid
