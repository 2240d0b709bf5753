// TestOperator: what a program's test finds of its own operators.

#include <braid/testing.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/functional.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// How the operator "cube" is wrong.
enum class Fault { kNone, kGradient, kRule, kKernel };

template <typename T>
class CubeKernel final : public Kernel {
 public:
  CubeKernel(const KernelSpec& spec, Fault fault)
      : size_(spec.inputs[0].num_elements()), fault_(fault) {}

  absl::Status Run(const KernelRun& run) override {
    const auto* x = static_cast<const T*>(run.inputs[0]);
    auto* y = static_cast<T*>(run.outputs[0]);
    for (int64_t i = 0; i < size_; ++i) {
      y[i] = x[i] * x[i] * x[i];
      // As if it did not see that it holds a part.
      if (fault_ == Fault::kKernel && i == 0) y[i] += 1;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const Fault fault_;
};

std::vector<Tensor> CubeGradient(const GradientContext& ctx, double factor) {
  const Tensor slope = Scale(Square(ctx.inputs[0]), factor);
  return {Mul(ctx.output_gradients[0], slope)};
}

absl::Status TestCube(Fault fault, const OperatorTestOptions& options, bool has_f64) {
  const auto extend = [&](OpRegistry& operators, KernelRegistry& kernels) {
    OpDef cube("cube");
    cube.Rule("N->N")
        .Takes("f")
        .Gradient([=](const GradientContext& ctx) {
          return CubeGradient(ctx, fault == Fault::kGradient ? 2 : 3);
        })
        .Sample({.inputs = {{DType::kF32, {6, 4}}}});
    if (fault == Fault::kRule) cube.Linear({0});  // addends' cubes are not the sum's
    absl::Status status = operators.Register(std::move(cube));
    const auto make = [=](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
      if (spec.inputs[0].dtype == DType::kF32) {
        return std::make_unique<CubeKernel<float>>(spec, fault);
      }
      if (has_f64 && spec.inputs[0].dtype == DType::kF64) {
        return std::make_unique<CubeKernel<double>>(spec, fault);
      }
      return absl::UnimplementedError("cube has f32 only");
    };
    status.Update(kernels.Register("cube", make));
    return status;
  };
  return TestOperator("cube", extend, options);
}

TEST(TestOperatorTest, PassesWhatIsRight) {
  EXPECT_EQ(TestCube(Fault::kNone, {}, true), absl::OkStatus());
  EXPECT_EQ(TestCube(Fault::kNone, {.dtypes = {DType::kF32}}, false), absl::OkStatus());
}

TEST(TestOperatorTest, FindsWhatIsWrong) {
  for (const bool has_f64 : {true, false}) {
    const OperatorTestOptions options = {.dtypes = has_f64 ? std::vector{DType::kF64, DType::kF32}
                                                           : std::vector{DType::kF32}};
    const auto message = [&](Fault fault) {
      return std::string(TestCube(fault, options, has_f64).message());
    };
    EXPECT_THAT(message(Fault::kGradient),
                AllOf(HasSubstr("operator 'cube' is not what it says: cube, sample 0, "),
                      HasSubstr("differences give")));
    EXPECT_THAT(message(Fault::kRule), AllOf(HasSubstr("(P)->(P)"), HasSubstr("output 0")));
    EXPECT_THAT(message(Fault::kKernel),
                AllOf(HasSubstr("(S(0))->(S(0)) over ["), HasSubstr("and "), HasSubstr(" more")));
  }
  // A type that its kernel has not.
  EXPECT_THAT(std::string(TestCube(Fault::kNone, {}, false).message()),
              HasSubstr("cube has f32 only"));
}

TEST(TestOperatorTest, SaysWhatThereIsNot) {
  const auto nothing = [](OpRegistry&, KernelRegistry&) { return absl::OkStatus(); };
  const absl::Status unknown = TestOperator("softmaxx", nothing);
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("softmax"));
  EXPECT_TRUE(absl::IsInvalidArgument(TestOperator("relu", nothing, {.dtypes = {}})));
  const auto fails = [](OpRegistry&, KernelRegistry&) { return absl::DataLossError("mine"); };
  EXPECT_EQ(TestOperator("relu", fails), absl::DataLossError("mine"));
}

}  // namespace
}  // namespace braid
