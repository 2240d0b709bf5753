// A user's test of an operator of their own.
#include <braid/braid.h>
#include <braid/testing.h>

#include <iostream>
#include <memory>

namespace {

class CubeKernel final : public braid::Kernel {
 public:
  explicit CubeKernel(const braid::KernelSpec& spec) : size_(spec.inputs[0].num_elements()) {}

  absl::Status Run(const braid::KernelRun& run) override {
    const auto* x = static_cast<const float*>(run.inputs[0]);
    auto* y = static_cast<float*>(run.outputs[0]);
    for (int64_t i = 0; i < size_; ++i) y[i] = x[i] * x[i] * x[i];
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
};

absl::Status Extend(braid::OpRegistry& operators, braid::KernelRegistry& kernels) {
  absl::Status status = operators.Register(
      braid::OpDef("cube")
          .Rule("N->N")
          .Gradient([](const braid::GradientContext& ctx) {
            const braid::Tensor slope = Scale(Square(ctx.inputs[0]), 3);
            return std::vector<braid::Tensor>{Mul(ctx.output_gradients[0], slope)};
          })
          .Sample({.inputs = {{braid::DType::kF32, {6, 4}}}}));
  status.Update(kernels.Register(
      "cube", [](const braid::KernelSpec& spec) { return std::make_unique<CubeKernel>(spec); }));
  return status;
}

}  // namespace

int main() {
  const absl::Status status = braid::TestOperator("cube", Extend, {.dtypes = {braid::DType::kF32}});
  std::cout << "cube: " << status << "\n";
  return status.ok() ? 0 : 1;
}
