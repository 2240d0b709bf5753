// Quantized models as exporters write them: products of reals that were bytes a moment before are
// products of bytes, with the numbers of the reals.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/onnx_nodes.h"

namespace braid::onnx {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kU8 = 2, kI8 = 3, kU16 = 4;  // as ONNX numbers them

class QuantizedTest : public NodesTest {
 protected:
  void Bytes(const std::string& name, const Shape& shape, const std::vector<uint8_t>& numbers,
             int type) {
    writer_.Initializer(name, Array::FromVector<uint8_t>(shape, numbers));
    writer_.graph()
        .mutable_initializer(writer_.graph().initializer_size() - 1)
        ->set_data_type(type);
  }
  // name_scale and name_zero, one for each of `zeros`, along `axis` of what they are of.
  void Quantization(const std::string& name, const std::vector<int>& zeros, int type) {
    const auto count = static_cast<int64_t>(zeros.size());
    std::vector<float> scales;
    for (int64_t i = 0; i < count; ++i) scales.push_back(ScaleAt(i));
    const Shape shape = count == 1 ? Shape() : Shape({count});
    writer_.Initializer(name + "_scale", Array::FromVector<float>(shape, scales));
    Bytes(name + "_zero", shape, {zeros.begin(), zeros.end()}, type);
  }
  static float ScaleAt(int64_t i) { return 0.004f + 0.001f * static_cast<float>(i); }

  // The weights as bytes, name_bytes, as what these stand for, `name`, and the node that says so,
  // name_reals.
  void Weights(const std::string& name, const Shape& shape, int axis, const std::vector<int>& zeros,
               int type) {
    int64_t inner = 1;
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
    std::vector<uint8_t> numbers;
    std::vector<float> reals;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      const auto number = static_cast<uint8_t>((i * 89 + 7) % 256);
      const int value = type == kI8 ? static_cast<int8_t>(number) : number;
      const int64_t at = zeros.size() == 1 ? 0 : i / inner % shape[axis];
      numbers.push_back(number);
      reals.push_back(static_cast<float>(value - zeros[at]) * ScaleAt(at));
    }
    Bytes(name + "_bytes", shape, numbers, type);
    writer_.Initializer(name, Array::FromVector<float>(shape, reals));
    Quantization(name, zeros, type);
    IntAttribute(Standard("DequantizeLinear", {name + "_bytes", name + "_scale", name + "_zero"},
                          {name + "_reals"}),
                 "axis", axis);
  }
  // x by way of bytes.
  void Rounded(const std::string& x, int zero, int type) {
    Quantization(x, {zero}, type);
    Standard("QuantizeLinear", {x, x + "_scale", x + "_zero"}, {x + "_bytes"});
    Standard("DequantizeLinear", {x + "_bytes", x + "_scale", x + "_zero"}, {x + "_reals"});
  }
};

TEST_F(QuantizedTest, ConvolutionsAreOfBytes) {
  Given("x", {2, 4, 6, 5}, 1);
  Rounded("x", 131, kU8);
  Weights("w", {8, 4, 3, 3}, 0, {0, 0, 0, 0, 0, 0, 0, 0}, kI8);
  writer_.Initializer("bias", Numbers({8}, 2));
  for (const auto& [weights, y] : {std::pair{"w_reals", "y"}, {"w", "z"}}) {
    IntsAttribute(Standard("Conv", {"x_reals", weights, "bias"}, {y}), "pads", {1, 1, 1, 1});
  }
  ExpectEqual({{"y", "z"}});
  ASSERT_TRUE(Run({"y"}, {1}).ok());
  EXPECT_THAT(explanation_, HasSubstr("i32[2, 8, 6, 5] = conv_integer"));
  EXPECT_THAT(explanation_, HasSubstr("i8[8, 4, 3, 3] = variable"));
}

TEST_F(QuantizedTest, ZeroPointsAreTakenOff) {
  Given("x", {1, 6, 5, 5}, 3);
  Rounded("x", -7, kI8);
  Weights("w", {4, 3, 2, 2}, 0, {120, 3, 255, 128}, kU8);
  for (const auto& [weights, y] : {std::pair{"w_reals", "y"}, {"w", "z"}}) {
    NodeProto& node = Standard("Conv", {"x_reals", weights}, {y});
    IntsAttribute(node, "pads", {0, 1, 1, 0});
    IntAttribute(node, "group", 2);
  }
  ExpectEqual({{"y", "z"}});
  ASSERT_TRUE(Run({"y"}, {1}).ok());
  EXPECT_THAT(explanation_, HasSubstr("= conv_integer"));
}

TEST_F(QuantizedTest, ProductsOfMatricesAreOfBytes) {
  Given("x", {3, 20}, 4);
  Rounded("x", 90, kU8);
  Weights("w", {5, 20}, 0, {0, 1, -2, 0, 3}, kI8);
  Weights("v", {20, 6}, 1, {-9}, kI8);
  writer_.Initializer("bias", Numbers({5}, 5));
  for (const auto& [suffix, y] : {std::pair<std::string, std::string>{"_reals", "y"}, {"", "z"}}) {
    IntAttribute(Standard("Gemm", {"x_reals", "w" + suffix, "bias"}, {y}), "transB", 1);
    Standard("MatMul", {"x_reals", "v" + suffix}, {y + "_plain"});
  }
  ExpectEqual({{"y", "z"}, {"y_plain", "z_plain"}});
  ASSERT_TRUE(Run({"y", "y_plain"}, {1}).ok());
  EXPECT_THAT(explanation_, HasSubstr("i32[3, 5] = matmul_integer"));
  EXPECT_THAT(explanation_, HasSubstr("i32[3, 6] = matmul_integer"));
  EXPECT_THAT(explanation_, Not(HasSubstr("= matmul ")));
}

TEST_F(QuantizedTest, RowsOfATableBecomeRealsAlone) {
  Given("rows", Array::FromVector<int64_t>({2, 3}, {4, 0, 1, 1, 3, 2}));
  Weights("table", {5, 8}, 0, {17}, kU8);
  for (const auto& [table, y] : {std::pair{"table_reals", "y"}, {"table", "z"}}) {
    Standard("Gather", {table, "rows"}, {y});
  }
  ExpectEqual({{"y", "z"}});
  ASSERT_TRUE(Run({"y"}, {1}).ok());
  EXPECT_THAT(explanation_, HasSubstr("u8[2, 3, 8] = gather"));
}

// Sums of 16 bits need more than a byte's arithmetic.
TEST_F(QuantizedTest, ZeroPointsOfSixteenBits) {
  Given("x", {4, 6}, 7);
  Float("scale", 0.01f);
  writer_.Initializer("zero", Array::FromVector<uint16_t>({}, {32768}));
  writer_.graph().mutable_initializer(writer_.graph().initializer_size() - 1)->set_data_type(kU16);
  Standard("QuantizeLinear", {"x", "scale", "zero"}, {"bytes"});
  Standard("DequantizeLinear", {"bytes", "scale", "zero"}, {"y"});
  Standard("Div", {"x", "scale"}, {"quotient"});
  Standard("Round", {"quotient"}, {"rounded"});
  Standard("Mul", {"rounded", "scale"}, {"z"});
  ExpectEqual({{"y", "z"}});
}

// What only looks as if it were made of bytes.
TEST_F(QuantizedTest, OtherNumbersStayReal) {
  Given("x", {2, 5}, 8);
  Float("half", 127.5f);
  Rounded("x", 3, kU8);
  IntAttribute(Standard("Cast", {"x_bytes"}, {"reals"}), "to", 1);
  Standard("Sub", {"reals", "half"}, {"moved"});
  Standard("Mul", {"moved", "x_scale"}, {"centered"});
  Weights("w", {5, 3}, 0, {0}, kI8);
  Standard("MatMul", {"centered", "w_reals"}, {"y"});
  Standard("MatMul", {"centered", "w"}, {"z"});
  ExpectEqual({{"y", "z"}});
}

TEST_F(QuantizedTest, ABiasHasANumberForEachOutput) {
  Given("x", {1, 2, 3, 3}, 9);
  Rounded("x", 3, kU8);
  Weights("w", {4, 2, 1, 1}, 0, {0}, kI8);
  writer_.Initializer("bias", Numbers({1}, 2));
  Standard("Conv", {"x_reals", "w_reals", "bias"}, {"y"});
  EXPECT_THAT(ErrorOf("y"), HasSubstr("input 2, the bias, is f32[1]; 4 numbers are needed"));
}

// Scales along the depth cannot be taken out of the sum.
TEST_F(QuantizedTest, ScalesOfTheDepthStayInTheProduct) {
  Given("x", {3, 4}, 6);
  Rounded("x", 90, kU8);
  Weights("w", {4, 6}, 0, {0, 1, 2, 3}, kI8);
  Standard("MatMul", {"x_reals", "w_reals"}, {"y"});
  Standard("MatMul", {"x_reals", "w"}, {"z"});
  ExpectEqual({{"y", "z"}});
  ASSERT_TRUE(Run({"y"}, {1}).ok());
  EXPECT_THAT(explanation_, Not(HasSubstr("matmul_integer")));
}

// Rows of 40 numbers, 16 of which have a scale: the last block has 8 that nobody reads.
TEST_F(QuantizedTest, RowsOfFewBitsAreQuantizedByBlocks) {
  constexpr int64_t kNumbers = 40, kOutputs = 3, kBlock = 16, kBlocks = 3;
  Given("x", {2, kNumbers}, 1);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const int bits : {2, 4, 8}) {
    for (const bool has_zero : {false, true}) {
      const std::string name = std::to_string(bits) + (has_zero ? "_zero" : "");
      const int64_t row_bytes = kBlocks * kBlock * bits / 8, zero_bytes = (kBlocks * bits + 7) / 8;
      std::vector<uint8_t> packed(kOutputs * row_bytes), zeros(kOutputs * zero_bytes);
      std::vector<float> scales, reals(kNumbers * kOutputs);
      for (int64_t row = 0; row < kOutputs; ++row) {
        for (int64_t i = 0; i < kBlocks * kBlock; ++i) {
          const int64_t block = i / kBlock, number = (row * 7 + i * 5 + 3) % (1 << bits);
          const int64_t zero = has_zero ? (row + block + 1) % (1 << bits) : 1 << (bits - 1);
          const float scale = 0.0005f * static_cast<float>(1 + row + 2 * block);
          packed[row * row_bytes + i * bits / 8] |= number << (i * bits % 8);
          if (i < kNumbers) reals[i * kOutputs + row] = static_cast<float>(number - zero) * scale;
          if (i % kBlock != 0) continue;
          zeros[row * zero_bytes + block * bits / 8] |= zero << (block * bits % 8);
          scales.push_back(scale);
        }
      }
      Bytes("packed" + name, {kOutputs, kBlocks, kBlock * bits / 8}, packed, kU8);
      Bytes("zeros" + name, {kOutputs * zero_bytes}, zeros, kU8);
      writer_.Initializer("scales" + name, Array::FromVector<float>({kOutputs * kBlocks}, scales));
      writer_.Initializer("reals" + name, Array::FromVector<float>({kNumbers, kOutputs}, reals));
      std::vector<std::string> inputs = {"x", "packed" + name, "scales" + name};
      if (has_zero) inputs.push_back("zeros" + name);
      NodeProto& node = Fused("MatMulNBits", inputs, {"y" + name});
      IntAttribute(node, "K", kNumbers);
      IntAttribute(node, "N", kOutputs);
      IntAttribute(node, "bits", bits);
      IntAttribute(node, "block_size", kBlock);
      Standard("MatMul", {"x", "reals" + name}, {"expected" + name});
      pairs.emplace_back("y" + name, "expected" + name);
    }
  }
  ExpectEqual(pairs);
}

}  // namespace
}  // namespace braid::onnx
