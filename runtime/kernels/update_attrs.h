// What the operators that update variables say in their attributes, for kernels of every kind of
// device. Numbers that come as operands (learning rates and what depends on the step) are left out.
#pragma once

#include "graph/attrs.h"
#include "runtime/kernels/functions/update_parameters.h"
#include "runtime/kernels/spec_views.h"

namespace braid {

// sgd, momentum, lars.
inline simd::SgdParameters SgdParametersOf(const Attrs& attrs) {
  simd::SgdParameters parameters = {};
  parameters.weight_decay = Number(attrs, "weight_decay", 0);
  parameters.momentum = Number(attrs, "momentum", 0);
  parameters.nesterov = Flag(attrs, "nesterov");
  return parameters;
}

// adam, lamb.
inline simd::AdamParameters AdamParametersOf(const Attrs& attrs) {
  simd::AdamParameters parameters = {};
  parameters.beta1 = attrs.Double("beta1");
  parameters.beta2 = attrs.Double("beta2");
  parameters.epsilon = attrs.Double("epsilon");
  parameters.weight_decay = Number(attrs, "weight_decay", 0);
  parameters.decoupled = Flag(attrs, "decoupled");
  parameters.lazy = Flag(attrs, "lazy");
  return parameters;
}

inline simd::RmspropParameters RmspropParametersOf(const Attrs& attrs) {
  simd::RmspropParameters parameters = {};
  parameters.alpha = attrs.Double("alpha");
  parameters.epsilon = attrs.Double("epsilon");
  parameters.momentum = Number(attrs, "momentum", 0);
  parameters.weight_decay = Number(attrs, "weight_decay", 0);
  return parameters;
}

inline simd::AdagradParameters AdagradParametersOf(const Attrs& attrs) {
  simd::AdagradParameters parameters = {};
  parameters.initial = attrs.Double("initial");
  parameters.epsilon = attrs.Double("epsilon");
  parameters.weight_decay = Number(attrs, "weight_decay", 0);
  return parameters;
}

}  // namespace braid
