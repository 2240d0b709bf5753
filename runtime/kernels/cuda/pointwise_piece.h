// What a kernel of pointwise.cc does to the elements at one place, as text: several in a row can
// become one kernel (fused_text.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/pointwise.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

struct PointwisePiece {
  // In C++, of the inputs' elements $0, $1 and so on: "fn::Add::F($0, $1)". "": none, the kernel
  // stays by itself.
  std::string function;
  // What these are of, and the function's value: f32, f64, i32, i64 or u8.
  std::vector<DType> takes;
  DType makes = DType::kF32;
  // As they are stored.
  std::vector<DType> inputs;
  DType output = DType::kF32;
  Walk walk;  // of the output (operand 0) and the inputs
};

class PointwiseKernel final : public Kernel {
 public:
  PointwiseKernel(PointwiseFn function, const PointwiseLaunch& launch, PointwisePiece piece)
      : function_(function), launch_(launch), piece_(std::move(piece)) {}

  absl::Status Run(const KernelRun& run) override {
    PointwiseLaunch now = launch_;
    now.output = run.outputs[0];
    for (size_t i = 0; i < piece_.inputs.size(); ++i) now.inputs[i] = run.inputs[i];
    return LaunchStatus(run, function_(QueueOf(run), now));
  }
  bool is_repeatable() const override { return true; }

  const PointwisePiece& piece() const { return piece_; }

 private:
  const PointwiseFn function_;
  const PointwiseLaunch launch_;
  const PointwisePiece piece_;
};

}  // namespace braid::cuda
