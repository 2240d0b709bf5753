#include <string>

#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

// KernelCase runs what works in parts in parts as well.
TEST(PointwiseKernelTest, LongOperandsInParts) {
  const Shape rows = {11, 112}, flat = {1003}, row = {112}, column = {11, 1};
  const Values many = RandomValues(rows, DType::kF32, 1, -6, 6);
  const Values others = RandomValues(rows, DType::kF32, 2);
  const Values few = RandomValues(row, DType::kF32, 3);
  const auto run = [](KernelCase& kernel) { EXPECT_TRUE(kernel.Run().ok()); };
  for (const char* op : {"gelu", "silu", "exp"}) {
    KernelCase kernel(op);
    run(kernel.In(DType::kF32, flat, RandomValues(flat, DType::kF32, 4)).Out(DType::kF32, flat));
  }
  for (const char* op : {"add", "gelu_grad", "silu_grad"}) {
    KernelCase kernel(op, std::string(op) == "gelu_grad" ? Attrs{{"approximate", true}} : Attrs{});
    run(kernel.In(DType::kF32, rows, many).In(DType::kF32, rows, others).Out(DType::kF32, rows));
  }
  KernelCase bias("add"), scale("mul"), narrow("cast", {{"dtype", DType::kBF16}});
  run(bias.In(DType::kF32, rows, many).In(DType::kF32, row, few).Out(DType::kF32, rows));
  run(scale.In(DType::kF32, rows, many)
          .In(DType::kF32, column, RandomValues(column, DType::kF32, 5))
          .Out(DType::kF32, rows));
  run(narrow.In(DType::kF32, rows, many).Out(DType::kBF16, rows));
  KernelCase norm("layer_norm", {{"epsilon", 1e-5}});
  run(norm.In(DType::kF32, rows, many)
          .In(DType::kF32, row, few)
          .In(DType::kF32, row, few)
          .Out(DType::kF32, rows)
          .Out(DType::kF32, {11})
          .Out(DType::kF32, {11}));
}

}  // namespace
}  // namespace braid
