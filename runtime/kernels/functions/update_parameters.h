// Numbers that optimizers' updates go by (update_ops.h). Needs and makes no code.
#pragma once

namespace braid::simd {

struct SgdParameters {
  double lr, weight_decay, momentum;
  bool nesterov;
};

struct AdamParameters {
  double lr, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - beta^t
  bool decoupled, lazy;
};

struct RmspropParameters {
  double lr, alpha, epsilon, momentum, weight_decay;
};

struct AdagradParameters {
  double lr, initial, epsilon, weight_decay;
};

}  // namespace braid::simd
