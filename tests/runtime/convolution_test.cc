// Convolutions in blocks of channels, by tiles in bf16, by lanes and by Winograd's algorithm in
// f32, beside the products of the same numbers.
#include "runtime/kernels/cpu/convolution.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/half.h"
#include "runtime/kernels/cpu/blocked.h"
#include "runtime/kernels/cpu/gemm.h"

namespace braid::cpu {
namespace {

struct BlockedCase {
  std::string name;
  int64_t batch, in, out;
  std::vector<int64_t> space;
  WindowAxis axis;  // of every axis of space
  bool has_bias = false;
};

ConvolutionShape ShapeOf(const BlockedCase& test, ConvolutionSide side) {
  ConvolutionShape shape = {.side = side, .dtype = DType::kBF16, .wide_result = true};
  shape.batch = test.batch;
  shape.in = test.in;
  shape.out = test.out;
  shape.space = test.space;
  for (int64_t size : test.space) {
    shape.axes.push_back(test.axis);
    shape.windows.push_back(CountWindows(size, test.axis).value());
  }
  shape.has_bias = test.has_bias && side == ConvolutionSide::kOutput;
  shape.x_is_blocked = shape.y_is_blocked = true;
  return shape;
}

// Ready to run; null stays null.
std::unique_ptr<Convolution> Allocated(std::unique_ptr<Convolution> convolution) {
  if (convolution != nullptr) convolution->Allocate();
  return convolution;
}

std::vector<float> RandomBFloat16Floats(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = BFloat16BitsToFloat(FloatToBFloat16Bits(normal(random)));
  return values;
}

std::vector<uint16_t> Narrow(const std::vector<float>& values) {
  std::vector<uint16_t> narrow;
  for (float value : values) narrow.push_back(FloatToBFloat16Bits(value));
  return narrow;
}

// [batch, channels, pixels] in blocks of so many channels.
template <class T>
std::vector<T> Blocked(const std::vector<T>& plain, int64_t channels, int64_t pixels,
                       int64_t of = compiler::kWideBlock) {
  std::vector<T> blocked(plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const int64_t pixel = at % pixels, channel = at / pixels % channels;
    const int64_t image = at / pixels / channels;
    const int64_t block = image * (channels / of) + channel / of;
    blocked[(block * pixels + pixel) * of + channel % of] = plain[i];
  }
  return blocked;
}

class BlockedConvolutionTest : public testing::TestWithParam<BlockedCase> {};

TEST_P(BlockedConvolutionTest, TilesEqualTheProductInF32) {
  if (!HasTiles()) GTEST_SKIP() << "no AMX on this machine";
  const BlockedCase& test = GetParam();
  for (auto side : {ConvolutionSide::kOutput, ConvolutionSide::kInput, ConvolutionSide::kWeights}) {
    const ConvolutionShape shape = ShapeOf(test, side);
    ConvolutionShape plain = shape;
    plain.dtype = DType::kF32;
    plain.wide_result = plain.x_is_blocked = plain.y_is_blocked = false;
    const SpatialAxes axes(shape);
    const std::vector<float> x = RandomBFloat16Floats(shape.batch * shape.x_elements(), 1);
    const std::vector<float> w = RandomBFloat16Floats(shape.w_elements(), 2);
    const std::vector<float> y = RandomBFloat16Floats(shape.batch * shape.y_elements(), 3);
    const std::vector<float> bias = RandomBFloat16Floats(shape.out, 4);
    const std::vector<uint16_t> narrow_x = Narrow(Blocked(x, shape.in, axes.num_pixels()));
    const std::vector<uint16_t> narrow_y = Narrow(Blocked(y, shape.out, axes.num_windows()));
    const std::vector<uint16_t> narrow_w = Narrow(w);

    const auto tiles = Allocated(ChooseTileConvolution(shape));
    ASSERT_NE(tiles, nullptr);
    const auto product = Allocated(ChooseGemmConvolution(plain));
    const float* b = shape.has_bias ? bias.data() : nullptr;
    std::vector<float> want, got;
    switch (side) {
      case ConvolutionSide::kOutput:
        want.resize(y.size()), got.resize(y.size());
        product->Run({x.data(), w.data(), b, want.data()});
        tiles->Run({narrow_x.data(), narrow_w.data(), b, got.data()});
        want = Blocked(want, shape.out, axes.num_windows());
        break;
      case ConvolutionSide::kInput:
        want.resize(x.size()), got.resize(x.size());
        product->Run({y.data(), w.data(), b, want.data()});
        tiles->Run({narrow_y.data(), narrow_w.data(), b, got.data()});
        want = Blocked(want, shape.in, axes.num_pixels());
        break;
      case ConvolutionSide::kWeights:
        want.resize(w.size()), got.resize(w.size());
        product->Run({x.data(), y.data(), b, want.data()});
        tiles->Run({narrow_x.data(), narrow_y.data(), b, got.data()});
        break;
    }
    // Products of bf16 are exact in f32; only the order of at most 10^4 sums of about 1 differs.
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-3) << "side " << static_cast<int>(side) << ", element " << i;
    }
  }
}

TEST_P(BlockedConvolutionTest, LanesEqualTheProduct) {
  ConvolutionShape shape = ShapeOf(GetParam(), ConvolutionSide::kWeights);
  shape.dtype = DType::kF32;
  shape.wide_result = false;
  ConvolutionShape plain = shape;
  plain.x_is_blocked = plain.y_is_blocked = false;
  const SpatialAxes axes(shape);
  const std::vector<float> x = RandomBFloat16Floats(shape.batch * shape.x_elements(), 1);
  const std::vector<float> y = RandomBFloat16Floats(shape.batch * shape.y_elements(), 3);
  std::vector<float> want(shape.w_elements());
  Allocated(ChooseGemmConvolution(plain))->Run({x.data(), y.data(), nullptr, want.data()});
  for (int threads : {1, 2}) {
    shape.threads = threads;
    const auto lanes = Allocated(ChooseLaneWeightGradient(shape));
    ASSERT_NE(lanes, nullptr);
    const std::vector<float> blocked_x = Blocked(x, shape.in, axes.num_pixels());
    const std::vector<float> blocked_y = Blocked(y, shape.out, axes.num_windows());
    std::vector<float> got(want.size());
    lanes->Run({blocked_x.data(), blocked_y.data(), nullptr, got.data()});
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-3) << "element " << i;
  }
}

std::vector<float> RandomNormal(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class WinogradConvolutionTest : public testing::TestWithParam<BlockedCase> {
 protected:
  // Of `side`, from random images and weights: |got - want| / |want| for the sums in f64.
  double ErrorOf(Convolution& convolution, ConvolutionShape shape, ConvolutionSide side) {
    const SpatialAxes axes(shape);
    const std::vector<float> x = RandomNormal(shape.batch * shape.x_elements(), 1);
    const std::vector<float> w = RandomNormal(shape.w_elements(), 2);
    const std::vector<float> y = RandomNormal(shape.batch * shape.y_elements(), 3);
    const std::vector<float> bias = RandomNormal(shape.out, 4);
    const int64_t block = shape.channel_block;
    const std::vector<float> blocked_x = Blocked(x, shape.in, axes.num_pixels(), block);
    const std::vector<float> blocked_y = Blocked(y, shape.out, axes.num_windows(), block);
    const bool is_output = side == ConvolutionSide::kOutput;
    const bool is_weights = side == ConvolutionSide::kWeights;
    const std::vector<float>& first = is_output || is_weights ? x : y;
    const std::vector<float>& second = is_weights ? y : w;
    const std::vector<double> wide_bias = Wide(bias);
    std::vector<double> want((is_weights ? w : is_output ? y : x).size());
    std::vector<float> got(want.size());
    convolution.Run({(is_output || is_weights ? blocked_x : blocked_y).data(),
                     (is_weights ? blocked_y : w).data(), bias.data(), got.data()});
    shape.dtype = DType::kF64;
    shape.x_is_blocked = shape.y_is_blocked = false;
    Allocated(ChooseGemmConvolution(shape))
        ->Run({Wide(first).data(), Wide(second).data(), shape.has_bias ? wide_bias.data() : nullptr,
               want.data()});
    if (is_output) want = Blocked(want, shape.out, axes.num_windows(), block);
    if (side == ConvolutionSide::kInput) want = Blocked(want, shape.in, axes.num_pixels(), block);
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += (got[i] - want[i]) * (got[i] - want[i]);
      norm += want[i] * want[i];
    }
    return std::sqrt(error / norm);
  }
};

TEST_P(WinogradConvolutionTest, IsNearTheSums) {
  for (auto side : {ConvolutionSide::kOutput, ConvolutionSide::kInput, ConvolutionSide::kWeights}) {
    SCOPED_TRACE(static_cast<int>(side));
    for (int threads : {1, 2}) {
      ConvolutionShape shape = ShapeOf(GetParam(), side);
      shape.dtype = DType::kF32;
      shape.wide_result = false;
      shape.threads = threads;
      const auto winograd = Allocated(ChooseWinogradConvolution(shape));
      if (!HasWinograd()) GTEST_SKIP() << "oneDNN 2 has Winograd's algorithm, for AVX-512";
      ASSERT_NE(winograd, nullptr);
      EXPECT_LT(ErrorOf(*winograd, shape, side), 3e-6);
      EXPECT_LT(ErrorOf(*Allocated(ChooseConvolution(shape)), shape, side), 1e-6);
    }
  }
}

// Whoever is chosen, and the weights' gradient that is for few windows.
TEST_P(WinogradConvolutionTest, BlocksOfEightAreNearTheSums) {
  for (auto side : {ConvolutionSide::kOutput, ConvolutionSide::kInput, ConvolutionSide::kWeights}) {
    SCOPED_TRACE(static_cast<int>(side));
    ConvolutionShape shape = ShapeOf(GetParam(), side);
    shape.dtype = DType::kF32;
    shape.wide_result = false;
    shape.channel_block = compiler::kNarrowBlock;
    shape.by_winograd = true;
    EXPECT_LT(ErrorOf(*Allocated(ChooseConvolution(shape)), shape, side), 3e-6);
    if (side != ConvolutionSide::kWeights) continue;
    const auto lanes = Allocated(ChooseLaneWeightGradient(shape));
    ASSERT_NE(lanes, nullptr);
    EXPECT_LT(ErrorOf(*lanes, shape, side), 1e-6);
  }
}

TEST(ConvolutionTest, WinogradIsTakenWhereThereAreManyWindowsAndItMay) {
  if (!HasWinograd()) GTEST_SKIP() << "oneDNN 2 has Winograd's algorithm, for AVX-512";
  const auto shared_bytes = [](int64_t batch, bool by_winograd) {
    ConvolutionShape shape =
        ShapeOf({"", batch, 32, 32, {16, 16}, {3, 1, 1, 1, 1}}, ConvolutionSide::kOutput);
    shape.dtype = DType::kF32;
    shape.wide_result = false;
    shape.by_winograd = by_winograd;
    return ChooseConvolution(shape)->memory().shared;
  };
  EXPECT_GT(shared_bytes(4, true), shared_bytes(4, false));
  EXPECT_EQ(shared_bytes(3, false), shared_bytes(3, true));
}

// Also on a CPU whose vectors hold wide ones: no copy of an image in another layout is kept.
TEST(ConvolutionTest, NarrowBlocksAreComputedAsTheyLie) {
  for (auto side : {ConvolutionSide::kOutput, ConvolutionSide::kInput}) {
    ConvolutionShape shape = ShapeOf({"", 2, 24, 40, {32, 32}, {1, 1, 1, 0, 0}}, side);
    shape.dtype = DType::kF32;
    shape.wide_result = false;
    shape.channel_block = compiler::kNarrowBlock;
    const int64_t weights = shape.w_elements() * static_cast<int64_t>(sizeof(float));
    EXPECT_LE(ChooseConvolution(shape)->memory().own, 2 * weights);
  }
}

WindowAxis Window(int64_t kernel, int64_t stride, int64_t dilation, int64_t begin, int64_t end) {
  return {kernel, stride, dilation, begin, end};
}

INSTANTIATE_TEST_SUITE_P(
    All, BlockedConvolutionTest,
    testing::Values(BlockedCase{"Few", 6, 32, 48, {4, 4}, Window(3, 1, 1, 1, 1)},
                    BlockedCase{"Bias", 3, 16, 16, {4, 4}, Window(3, 1, 1, 0, 0), true},
                    BlockedCase{"OneTap", 5, 16, 32, {7, 7}, Window(1, 1, 1, 0, 0)},
                    BlockedCase{"Stride", 4, 32, 16, {8, 8}, Window(3, 2, 1, 1, 1)},
                    BlockedCase{"StrideBeyondWindow", 4, 32, 16, {8, 8}, Window(1, 2, 1, 0, 0)},
                    BlockedCase{"Dilation", 2, 16, 16, {7, 7}, Window(3, 1, 2, 2, 1)},
                    BlockedCase{"StrideAndDilation", 2, 16, 16, {9, 9}, Window(3, 2, 2, 2, 1)},
                    BlockedCase{"Line", 2, 16, 32, {9}, Window(4, 1, 1, 3, 0)},
                    BlockedCase{"Volume", 2, 16, 16, {3, 3, 3}, Window(2, 1, 1, 0, 1)},
                    // More than one part of rows, of terms and of columns.
                    BlockedCase{"Parts", 24, 256, 544, {7, 7}, Window(3, 1, 1, 1, 1)}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    All, WinogradConvolutionTest,
    testing::Values(BlockedCase{"Padded", 5, 64, 48, {16, 16}, Window(3, 1, 1, 1, 1), true},
                    BlockedCase{"Unpadded", 3, 32, 32, {13, 11}, Window(3, 1, 1, 0, 0)},
                    BlockedCase{"Small", 16, 128, 64, {4, 4}, Window(3, 1, 1, 1, 1)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::cpu
