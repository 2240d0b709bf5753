// Optimizers and learning rates, as values that Job::Minimize takes.
#pragma once

#include <optional>
#include <string>

#include "api/schedules.h"  // IWYU pragma: export
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

// Stochastic gradient descent with the formulas of torch.optim.SGD; Nesterov as in Sutskever et
// al., ICML 2013.
struct Sgd {
  LearningRate lr = 1e-2;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
};

// Kingma and Ba, arXiv 1412.6980. Weight decay is added to the gradient.
//
// Lazy: an element whose gradient is 0 keeps its value and its moments, decay included, so that a
// table's update may do the rows of the batch alone. Rows that no step looks up stay as
// torch.optim.SparseAdam leaves them.
struct Adam {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool lazy = false;
};

// Adam with decoupled weight decay: Loshchilov and Hutter, arXiv 1711.05101.
struct AdamW {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  bool lazy = false;  // as Adam's
};

// Tieleman and Hinton, 2012; centered as in Graves, arXiv 1308.0850; the formulas of
// torch.optim.RMSprop. Weight decay is added to the gradient.
struct RmsProp {
  LearningRate lr = 1e-2;
  double alpha = 0.99;    // kept of the mean square
  double epsilon = 1e-8;  // added to its root
  double momentum = 0;    // of what the gradient is divided to
  bool centered = false;  // the square of the mean is taken off the mean square
  double weight_decay = 0;
};

// Duchi et al., JMLR 12, 2011; the formulas of torch.optim.Adagrad. Weight decay is added to the
// gradient.
struct Adagrad {
  LearningRate lr = 1e-2;
  double lr_decay = 0;     // step t has lr / (1 + t * lr_decay)
  double initial_sum = 0;  // of squares
  double epsilon = 1e-10;
  double weight_decay = 0;
};

// Momentum whose rate for each variable is trust |w| / (|g| + weight_decay |w| + epsilon) of lr:
// You et al., arXiv 1708.03888. Norms are those of whole variables, however they are split; where
// one is 0 the rate is lr.
struct Lars {
  LearningRate lr = 1e-1;
  double momentum = 0.9;
  double trust = 1e-3;
  double epsilon = 1e-8;
  double weight_decay = 0;  // times w, added to the gradient
};

// Adam whose step for each variable has the length lr |w|: You et al., arXiv 1904.00962, with bias
// correction. Norms as for Lars.
struct Lamb {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 1e-2;  // times w, added to Adam's direction
};

// Shazeer and Stern, arXiv 1804.04235; the formulas of torch.optim.Adafactor. Instead of a mean
// square for each element, those of rows and columns of the last two axes: little memory. The
// step's length is relative to the variable's, both as root mean squares of whole variables.
struct Adafactor {
  LearningRate lr = 1e-2;       // the relative step; at most 1 / sqrt(t) in step t = 1, 2, ...
  double beta2_decay = -0.8;    // mean squares move towards the new ones by t^beta2_decay
  double epsilon = 0x1p-23;     // least mean of rows; its square is the least mean square
  double epsilon_scale = 1e-3;  // least length of a variable
  double clip = 1;              // length of the direction from which on it is scaled down
  double weight_decay = 0;      // decoupled: times lr w, taken off w
};

// An exponential moving average of what is trained, beside it: the variable "NAME.ema" of each,
// which the steps move by average = decay * average + (1 - decay) * value. The values are those
// that steps begin with, so that it is one step behind that of torch.optim.swa_utils; the first is
// taken whole, as there.
struct Ema {
  double decay = 0.999;
};

// What an optimizer is to the compiler: the name of its update and its attributes.
class OptimizerSpec {
 public:
  OptimizerSpec(const Sgd& sgd);              // NOLINT: converts
  OptimizerSpec(const Adam& adam);            // NOLINT: converts
  OptimizerSpec(const AdamW& adamw);          // NOLINT: converts
  OptimizerSpec(const RmsProp& rmsprop);      // NOLINT: converts
  OptimizerSpec(const Adagrad& adagrad);      // NOLINT: converts
  OptimizerSpec(const Lars& lars);            // NOLINT: converts
  OptimizerSpec(const Lamb& lamb);            // NOLINT: converts
  OptimizerSpec(const Adafactor& adafactor);  // NOLINT: converts

  const std::string& update() const { return update_; }
  const Attrs& attrs() const { return attrs_; }
  const LearningRate& lr() const { return lr_; }

 private:
  std::string update_;
  Attrs attrs_;
  LearningRate lr_;
};

}  // namespace braid
