// What definitions say of their kernels' parts is what the kernels do: over all samples of all
// operators in every floating type, and in shapes that are cut and broadcast in other ways.
#include "graph/op_parts.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/op_registry.h"
#include "runtime/kernels/kernel.h"

namespace braid {
namespace {

class OpPartsTest : public ::testing::Test {
 protected:
  // Returns what both say; {} where there is no such kernel.
  OpParts Compare(const std::string& op, std::vector<TensorType> inputs, const Attrs& attrs) {
    const OpDef& def = *ops_.Find(op);
    const auto outputs = def.InferTypes({attrs, inputs});
    if (!outputs.ok()) return {};
    KernelSpec spec{.op = op, .name = "k", .attrs = attrs};
    for (const TensorType& type : inputs) spec.inputs.push_back(Whole(type));
    for (const TensorType& type : *outputs) spec.outputs.push_back(Whole(type));
    const auto kernel = kernels_.Create(spec);
    if (!kernel.ok()) return {};
    const OpParts said = def.PartsOf({attrs, inputs, *outputs}), made = (*kernel)->parts();
    EXPECT_EQ(said.elements, made.elements) << op << " of " << inputs[0].ToString();
    if (said.elements == 0) return {};
    EXPECT_EQ(said.step, made.step) << op << " of " << inputs[0].ToString();
    ++with_parts_;
    return said;
  }
  static OperandSpec Whole(const TensorType& type) {
    OperandSpec operand;
    operand.dtype = type.dtype;
    operand.logical = type.shape;
    operand.region = Region::Whole(type.shape);
    return operand;
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
  int with_parts_ = 0;
};

TEST_F(OpPartsTest, DefinitionsAndKernelsAgree) {
  for (const auto& [name, def] : ops_.ops()) {
    for (const OpSample& sample : def.samples()) {
      for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
        std::vector<TensorType> inputs = sample.inputs;
        for (TensorType& input : inputs) {
          if (IsFloating(input.dtype)) input.dtype = dtype;
        }
        Compare(name, inputs, sample.attrs);
      }
    }
  }
  EXPECT_GT(with_parts_, 200);
}

TEST_F(OpPartsTest, OfBroadcastOperands) {
  const auto f32 = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  const auto add = [&](Shape a, Shape b) {
    return Compare("add", {f32(std::move(a)), f32(std::move(b))}, {});
  };
  EXPECT_EQ(add({4, 6}, {4, 6}), (OpParts{24, 1}));
  EXPECT_EQ(add({4, 6}, {1}), (OpParts{24, 1}));
  EXPECT_EQ(add({4, 1, 6}, {6}), (OpParts{24, 6}));
  EXPECT_EQ(add({4, 5, 6}, {5, 6}), (OpParts{120, 30}));
  EXPECT_EQ(add({4, 6}, {4, 1}), (OpParts{24, 6}));
  EXPECT_EQ(add({4, 1}, {6}), (OpParts{24, 6}));
  EXPECT_EQ(add({4, 5, 6}, {4, 1, 6}), OpParts{});  // three runs
  EXPECT_EQ(add({1, 1}, {1}), (OpParts{1, 1}));
  EXPECT_EQ(add({0, 6}, {6}), OpParts{});
  EXPECT_EQ(Compare("greater", {f32({4, 6}), f32({6})}, {}), (OpParts{24, 6}));
}

TEST_F(OpPartsTest, OfCastsSumsAndRows) {
  const TensorType x = {DType::kF32, {5, 6}};
  EXPECT_EQ(Compare("cast", {x}, {{"dtype", DType::kBF16}}), (OpParts{30, 1}));
  EXPECT_EQ(Compare("cast", {{DType::kBF16, {5, 6}}}, {{"dtype", DType::kF32}}), OpParts{});
  const auto sum = [&](Shape shape, std::vector<int64_t> axes) {
    return Compare("reduce_sum", {{DType::kF32, std::move(shape)}},
                   {{"axes", std::move(axes)}, {"keep_dims", false}});
  };
  EXPECT_EQ(sum({5, 6}, {0}), (OpParts{30, 6}));
  EXPECT_EQ(sum({5, 2, 6}, {0, 1}), (OpParts{60, 6}));
  EXPECT_EQ(sum({1, 5, 6}, {1}), (OpParts{30, 6}));
  EXPECT_EQ(sum({5, 6}, {1}), OpParts{});
  EXPECT_EQ(sum({5, 6, 1}, {0, 2}), OpParts{});
  EXPECT_EQ(sum({5, 1}, {0}), OpParts{});
  EXPECT_EQ(sum({0, 6}, {0}), OpParts{});
  const TensorType six = {DType::kF32, {6}};
  EXPECT_EQ(Compare("layer_norm", {{DType::kF32, {3, 5, 6}}, six, six}, {{"epsilon", 1e-5}}),
            (OpParts{90, 6}));
}

}  // namespace
}  // namespace braid
