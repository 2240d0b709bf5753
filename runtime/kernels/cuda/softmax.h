// Launches of softmax, cross entropies, negative log-likelihoods.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Softmax or its logarithm along rows, or the gradient of one of them. With `is_causal` row i of
// each matrix of `matrix_rows` rows sees columns up to first_row + i only.
struct SoftmaxLaunch {
  DType type = DType::kF32;
  const void* x = nullptr;   // forward
  const void* dy = nullptr;  // backward
  void* y = nullptr;         // read by the gradients
  void* dx = nullptr;
  int64_t rows = 0, size = 0;
  double scale = 1;
  bool is_log = false, is_causal = false;
  int64_t matrix_rows = 1, first_row = 0;
};

// sum[row] = sum of exp(x - max[row]).
struct SumExpLaunch {
  DType type = DType::kF32;
  bool are_wide = false;  // max and sum: f32 of a narrow x
  const void *x = nullptr, *max = nullptr;
  void* sum = nullptr;
  int64_t rows = 0, size = 0;
};

// The label of each row of classes, of which [first, first + here) of `all` are here.
struct Labels {
  const void* data = nullptr;
  bool is_i64 = false, has_ignored = false;
  int64_t ignored = 0;
  int64_t rows = 0, here = 0, all = 0, first = 0;
};

// Cross entropy, or its gradient, of logits whose rows' maximum and sum of exponentials are given.
// A row's probability is `probabilities`, or on_label at its label and on_each at each class.
struct CrossEntropyLaunch {
  DType type = DType::kF32;
  bool are_wide = false;  // max, sum, losses and their gradient: f32 of narrow logits
  const void *logits = nullptr, *max = nullptr, *sum = nullptr;
  Labels labels;                        // of rows with class numbers
  const void* probabilities = nullptr;  // of the others
  double on_label = 1, on_each = 0;
  const void* dloss = nullptr;  // of the gradient
  void* out = nullptr;          // a loss per row, or the gradient of the logits
};

// -x[row, label], or its gradient: -x[row] at the label, 0 elsewhere.
struct NllLaunch {
  DType type = DType::kF32;
  Labels labels;
  const void* x = nullptr;
  void* out = nullptr;
};

struct SoftmaxTable {
  Error (*softmax)(const Queue&, const SoftmaxLaunch&);
  Error (*softmax_grad)(const Queue&, const SoftmaxLaunch&);
  Error (*sum_exp)(const Queue&, const SumExpLaunch&);
  Error (*cross_entropy)(const Queue&, const CrossEntropyLaunch&);
  Error (*cross_entropy_grad)(const Queue&, const CrossEntropyLaunch&);
  Error (*nll)(const Queue&, const NllLaunch&);
  Error (*nll_grad)(const Queue&, const NllLaunch&);
};
SoftmaxTable MakeSoftmaxTable();

}  // namespace braid::cuda
