// Numbers that optimizers' updates go by (update_ops.h). Needs and makes no code.
#pragma once

namespace braid::simd {

struct SgdParameters {
  double lr, weight_decay, momentum;
  bool nesterov;
  friend bool operator==(const SgdParameters&, const SgdParameters&) = default;
};

struct AdamParameters {
  double lr, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - beta^t
  bool decoupled, lazy;
  friend bool operator==(const AdamParameters&, const AdamParameters&) = default;
};

struct RmspropParameters {
  double lr, alpha, epsilon, momentum, weight_decay;
  friend bool operator==(const RmspropParameters&, const RmspropParameters&) = default;
};

struct AdagradParameters {
  double lr, initial, epsilon, weight_decay;
  friend bool operator==(const AdagradParameters&, const AdagradParameters&) = default;
};

}  // namespace braid::simd
