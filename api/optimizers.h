// Optimizers and learning rates, as values that Job::Minimize takes.
#pragma once

#include <optional>
#include <string>

#include "graph/attrs.h"
#include "graph/logical_graph.h"

namespace braid {

// A number, or a scalar f32 Tensor of the same job that may change from step to step.
class LearningRate {
 public:
  LearningRate(double value) : value_(value) {}     // NOLINT: {.lr = 1e-3}
  LearningRate(Tensor tensor) : tensor_(tensor) {}  // NOLINT: {.lr = WarmupCosine(...)}
  double value() const { return value_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  double value_ = 0;
  Tensor tensor_;
};

// Schedules: f32[] of the job's step.
struct WarmupCosineOptions {
  double peak = 1e-3;
  double floor = 0;          // reached at `steps`
  int64_t warmup_steps = 0;  // linear from 0
  int64_t steps = 1000;
};
Tensor WarmupCosine(LogicalGraph& graph, WarmupCosineOptions options,
                    SourceLocation where = Here());
struct StepDecayOptions {
  double initial = 1e-3;
  double factor = 0.1;
  int64_t every = 1000;  // steps
};
Tensor StepDecay(LogicalGraph& graph, StepDecayOptions options, SourceLocation where = Here());

// Stochastic gradient descent with the formulas of torch.optim.SGD; Nesterov as in Sutskever et
// al., ICML 2013.
struct Sgd {
  LearningRate lr = 1e-2;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
};

// Kingma and Ba, arXiv 1412.6980. Weight decay is added to the gradient.
struct Adam {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

// Adam with decoupled weight decay: Loshchilov and Hutter, arXiv 1711.05101.
struct AdamW {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

// What an optimizer is to the compiler: an update operator and its attributes.
class OptimizerSpec {
 public:
  OptimizerSpec(const Sgd& sgd);      // NOLINT: converts
  OptimizerSpec(const Adam& adam);    // NOLINT: converts
  OptimizerSpec(const AdamW& adamw);  // NOLINT: converts

  const std::string& update() const { return update_; }
  const Attrs& attrs() const { return attrs_; }
  const LearningRate& lr() const { return lr_; }

 private:
  std::string update_;
  Attrs attrs_;
  LearningRate lr_;
};

}  // namespace braid
