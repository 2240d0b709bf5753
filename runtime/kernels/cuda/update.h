// Launches of updates of variables by optimizers.
#pragma once

#include <cstddef>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/functions/update_parameters.h"

namespace braid::cuda {

inline constexpr int kMaxUpdateStates = 3;

enum class UpdateRule : int {
  kSgd,
  kMomentum,
  kNesterov,
  kAdam,
  kLazyAdam,
  kRmsprop,
  kRmspropMomentum,
  kRmspropCentered,
  kRmspropCenteredMomentum,
  kAdagrad,
  kLars,
  kLamb,
};

// A number on the device, of a type that need not be the variable's; null: there is none.
struct ScalarOperand {
  DType type = DType::kF32;
  const void* data = nullptr;
  friend bool operator==(const ScalarOperand&, const ScalarOperand&) = default;
};

// What an update goes by.
struct UpdateLaunch {
  bool is_double = false;                  // f64; else f32, or stored as bf16 or f16
  DType types[2 + kMaxUpdateStates] = {};  // of the variable, the gradient and the states
  ScalarOperand learning_rate, step, ratio;
  const uint8_t* applies = nullptr;  // on the device; null: yes
  // One of these, as the rule says, without what comes as operands.
  simd::SgdParameters sgd = {};
  simd::AdamParameters adam = {};
  simd::RmspropParameters rmsprop = {};
  simd::AdagradParameters adagrad = {};
  double lr_decay = 0;  // adagrad's
  friend bool operator==(const UpdateLaunch&, const UpdateLaunch&) = default;
};

// One variable.
struct UpdatePart {
  int64_t elements = 0;
  void* variable = nullptr;
  const void* gradient = nullptr;
  void* states[kMaxUpdateStates] = {};
  // The launch functions' own: elements of a thread at a time, and how often that is.
  int32_t group = 1;
  int64_t groups = 0;
};

// Of the rows of a table that sorted entries name (gather.h), each with the sum of its gradients in
// the order of their positions.
struct RowUpdateLaunch {
  UpdateLaunch update;
  UpdatePart part;  // the table; its gradient are the rows, one for each position
  const uint64_t* entries = nullptr;
  int64_t count = 0;  // of them
  int64_t row = 1;    // elements of a row
};

// How many parts of lamb's sum of squares there may be, each a double.
inline constexpr int kLambSquareParts = 1024;

struct UpdateTable {
  // Of several variables, some tens at a time.
  Error (*update)(const Queue&, UpdateRule, const UpdateLaunch&, const UpdatePart* parts,
                  int64_t count);
  // kSgd, kLazyAdam and kAdagrad.
  Error (*update_rows)(const Queue&, UpdateRule, const RowUpdateLaunch&);
  // The sum of squares of the directions that kLamb would go, into one number of the type;
  // `parts`: memory of the device for kLambSquareParts.
  Error (*lamb_square)(const Queue&, const UpdateLaunch&, const UpdatePart&, double* parts,
                       ScalarOperand sum);
};
UpdateTable MakeUpdateTable();

}  // namespace braid::cuda
