// Convolutions by a library that is opened in the place of cuDNN (tests/support/fake_cudnn.cc),
// against Braid's own kernels: what the library is told, what it is left to, what it is lent.
#include "runtime/kernels/cuda/cudnn_convolution.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/kernels/cuda/convolution.h"
#include "runtime/kernels/cuda/libraries.h"

namespace braid::cuda {
namespace {

using Side = ConvolutionSide;

// Room for `bytes` that starts at a multiple of 256 and ends where it says.
class Room {
 public:
  explicit Room(int64_t bytes)
      : memory_(std::make_unique_for_overwrite<std::byte[]>(bytes + 2 * kEdge)),
        data_(memory_.get() + kEdge - reinterpret_cast<uintptr_t>(memory_.get()) % kEdge),
        end_(data_ + bytes) {
    *end_ = kMark;
  }
  std::byte* data() { return data_; }
  bool is_whole() const { return *end_ == kMark; }

 private:
  static constexpr int64_t kEdge = 256;
  static constexpr std::byte kMark{0x5a};
  std::unique_ptr<std::byte[]> memory_;
  std::byte *data_, *end_;
};

void Store(DType dtype, std::byte* data, int64_t i, float value) {
  const uint16_t bits =
      dtype == DType::kF16 ? FloatToFloat16Bits(value) : FloatToBFloat16Bits(value);
  if (dtype == DType::kF32) {
    std::memcpy(data + i * 4, &value, 4);
  } else {
    std::memcpy(data + i * 2, &bits, 2);
  }
}
float Load(DType dtype, const std::byte* data, int64_t i) {
  float value = 0;
  uint16_t bits = 0;
  std::memcpy(dtype == DType::kF32 ? static_cast<void*>(&value) : &bits,
              data + i * (dtype == DType::kF32 ? 4 : 2), dtype == DType::kF32 ? 4 : 2);
  if (dtype == DType::kF32) return value;
  return dtype == DType::kF16 ? Float16BitsToFloat(bits) : BFloat16BitsToFloat(bits);
}

ConvolutionAxis Axis(ConvolutionAxis axis) {
  const int32_t reach = (axis.kernel - 1) * axis.dilation + 1;
  axis.windows = (axis.size + axis.pad_begin + axis.pad_end - reach) / axis.stride + 1;
  return axis;
}

class CudnnTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = dlopen(BRAID_FAKE_CUDNN "/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(file_, nullptr) << dlerror();
    libraries_ = OpenLibraries("/nowhere:" BRAID_FAKE_CUDNN);
    ASSERT_STREQ(MissingLibraries(libraries_), "");
  }
  void TearDown() override {
    CloseLibraries(libraries_);
    EXPECT_EQ(Count("FakeCudnnLiving"), 0);
    dlclose(file_);
  }
  int Count(const char* what) { return reinterpret_cast<int (*)()>(dlsym(file_, what))(); }

  // The result with the library, and whether that computed it.
  std::vector<float> Run(ConvolutionLaunch launch, bool with_library) {
    const DType result = launch.wide_result ? DType::kF32 : launch.dtype;
    std::mt19937 random(1);
    const auto drawn = [&](DType dtype, int64_t elements) {
      Room room(elements * 4);
      for (int64_t i = 0; i < elements; ++i) {
        const auto number = static_cast<float>(static_cast<double>(random()) / 2147483648.0 - 1);
        Store(dtype, room.data(), i, number);
      }
      return room;
    };
    const int64_t elements = launch.x_elements() + launch.w_elements() + launch.y_elements() -
                             launch.first_elements() - launch.second_elements();
    Room first = drawn(launch.dtype, launch.first_elements());
    Room second = drawn(launch.dtype, launch.second_elements());
    Room bias = drawn(result, launch.groups * launch.out);
    Room to = drawn(result, elements), work(launch.WorkBytes());
    launch.first = first.data();
    launch.second = second.data();
    launch.bias = launch.side == Side::kOutput ? bias.data() : nullptr;
    launch.result = to.data();
    launch.work = work.data();
    const Queue queue = {.rounds_to_tf32 = rounds_to_tf32_,
                         .sums_by_winograd = sums_by_winograd_,
                         .libraries = with_library ? libraries_ : nullptr};
    EXPECT_EQ(MakeConvolutionTable().convolve(queue, launch), kDone);
    EXPECT_TRUE(work.is_whole());
    std::vector<float> numbers;
    for (int64_t i = 0; i < elements; ++i) numbers.push_back(Load(result, to.data(), i));
    return numbers;
  }

  void Compare(const ConvolutionLaunch& launch, bool is_taken, double tolerance) {
    const int before = Count("FakeCudnnComputed");
    const std::vector<float> got = Run(launch, true);
    EXPECT_EQ(Count("FakeCudnnComputed") - before, is_taken ? 1 : 0);
    const std::vector<float> expected = Run(launch, false);
    double largest = 1;
    for (const float number : expected) largest = std::max(largest, std::abs(double{number}));
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], tolerance * largest) << "element " << i;
    }
  }

  // Each side, in each type that the library has, with channels second and last.
  void CompareAll(ConvolutionLaunch launch, bool is_taken = true) {
    for (const bool channels_last : {false, true}) {
      launch.channels_last = channels_last;
      CompareSides(launch, is_taken);
    }
  }
  void CompareSides(ConvolutionLaunch launch, bool is_taken) {
    for (const Side side : {Side::kOutput, Side::kInput, Side::kWeights}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        for (const bool is_wide : {false, true}) {
          if (is_wide && dtype == DType::kF32) continue;
          SCOPED_TRACE(testing::Message() << "side " << static_cast<int>(side) << ", "
                                          << ToString(dtype) << (is_wide ? ", wide" : "")
                                          << (launch.channels_last ? ", channels last" : ""));
          launch.side = side;
          launch.dtype = dtype;
          launch.wide_result = is_wide;
          const double narrow = dtype == DType::kF16 ? 2e-3 : 1.6e-2;
          Compare(launch, is_taken, is_wide || dtype == DType::kF32 ? 2e-6 : narrow);
        }
      }
    }
  }

  bool rounds_to_tf32_ = false, sums_by_winograd_ = false;

 private:
  void* file_ = nullptr;
  void* libraries_ = nullptr;
};

ConvolutionLaunch Images(ConvolutionAxis height, ConvolutionAxis width) {
  ConvolutionLaunch launch = {.batch = 3, .in = 5, .out = 6};
  launch.axes[1] = Axis(height);
  launch.axes[2] = Axis(width);
  return launch;
}

TEST_F(CudnnTest, TwoAxes) {
  CompareAll(Images({.size = 9, .kernel = 3, .pad_begin = 1, .pad_end = 1},
                    {.size = 8, .kernel = 4, .stride = 2, .pad_begin = 2, .pad_end = 2}));
}

// Operands of f32 are rounded if the user says so, and not before.
TEST_F(CudnnTest, Tf32) {
  ConvolutionLaunch launch = Images({.size = 9, .kernel = 3}, {.size = 8, .kernel = 4});
  const std::vector<float> exact = Run(launch, true);
  rounds_to_tf32_ = true;
  Compare(launch, /*is_taken=*/true, 2e-3);
  EXPECT_NE(Run(launch, true), exact);
}

// Winograd's algorithm is for f32 that is not rounded, and where the user lets it.
TEST_F(CudnnTest, Winograd) {
  const ConvolutionLaunch launch = Images({.size = 9, .kernel = 3}, {.size = 8, .kernel = 3});
  CompareAll(launch);
  EXPECT_EQ(Count("FakeCudnnByWinograd"), 0);
  sums_by_winograd_ = true;
  CompareAll(launch);
  EXPECT_EQ(Count("FakeCudnnByWinograd"), 6);  // three sides, channels second and last
  rounds_to_tf32_ = true;
  Compare(launch, /*is_taken=*/true, 2e-3);
  EXPECT_EQ(Count("FakeCudnnByWinograd"), 6);
}

TEST_F(CudnnTest, GroupsAndDilation) {
  ConvolutionLaunch launch = Images({.size = 9, .kernel = 2, .dilation = 3}, {.size = 4});
  launch.groups = 3;
  CompareAll(launch);
}

TEST_F(CudnnTest, OneAxisAndThree) {
  CompareAll(Images({}, {.size = 10, .kernel = 3, .stride = 3}));
  ConvolutionLaunch launch = Images({.size = 5, .kernel = 2}, {.size = 4, .kernel = 3});
  launch.axes[0] = Axis({.size = 6, .kernel = 3, .stride = 2, .pad_begin = 1, .pad_end = 1});
  CompareAll(launch);
}

// What is padded behind the last window does not matter; what makes a window of its own does.
TEST_F(CudnnTest, UnevenPads) {
  CompareAll(Images({.size = 8, .kernel = 3, .stride = 2, .pad_begin = 1}, {.size = 4}));
  CompareAll(Images({.size = 8, .kernel = 3, .stride = 2, .pad_end = 1}, {.size = 4}), false);
}

TEST_F(CudnnTest, KeepsToItself) {
  ConvolutionLaunch launch = Images({.size = 4, .kernel = 3}, {.size = 4, .kernel = 3});
  const Queue queue = {.libraries = OpenLibraries(BRAID_FAKE_CUDNN)};
  EXPECT_NE(FindCudnnPlan(queue, launch), nullptr);
  EXPECT_EQ(FindCudnnPlan(queue, launch), FindCudnnPlan(queue, launch));
  EXPECT_EQ(FindCudnnPlan({}, launch), nullptr);
  launch.result = reinterpret_cast<void*>(intptr_t{8});  // not aligned
  EXPECT_EQ(FindCudnnPlan(queue, launch), nullptr);
  launch.result = nullptr;
  launch.dtype = DType::kF64;
  EXPECT_EQ(FindCudnnPlan(queue, launch), nullptr);
  launch.dtype = DType::kF32;
  launch.batch = 0;
  EXPECT_EQ(FindCudnnPlan(queue, launch), nullptr);
  CloseLibraries(queue.libraries);
}

// What is planned without a card: both operands in f32, three copies, and the rest.
TEST(CudnnWork, FollowsTheShape) {
  ConvolutionLaunch launch = Images({.size = 16, .kernel = 1}, {.size = 16, .kernel = 1});
  launch.batch = 4;
  launch.in = launch.out = 8;
  const int64_t kRest = int64_t{64} << 20, kImages = 4 * 8 * 16 * 16, kWeights = 8 * 8;
  EXPECT_EQ(launch.WorkBytes(), kRest + 4 * (2 * kImages + kWeights));
  launch.dtype = DType::kBF16;
  EXPECT_EQ(launch.WorkBytes(), kRest + 2 * (2 * kImages + kWeights));
  launch.wide_result = true;
  EXPECT_EQ(launch.WorkBytes(), kRest + 4 * (2 * kImages + kWeights) + 4 * (kImages + kWeights));
  launch.side = Side::kWeights;
  EXPECT_EQ(launch.WorkBytes(), kRest + 4 * (2 * kImages + kWeights) + 4 * 2 * kImages);
  launch.in = 3;  // channels are copied eight at a time
  launch.wide_result = false;
  EXPECT_EQ(launch.WorkBytes(), kRest + 2 * (2 * kImages + kWeights));
  // With the channels last, the weights' taps before them.
  launch.channels_last = true;
  EXPECT_EQ(launch.TapsBytes(), 0);
  launch.axes[1].kernel = 5;
  EXPECT_EQ(launch.TapsBytes(), 256);  // 8 x 5 x 3 numbers of 2 bytes, rounded up
  launch.axes[1].kernel = 1;
  launch.channels_last = false;
  launch.dtype = DType::kF64;
  EXPECT_LT(launch.WorkBytes(), kRest);
  // Squares of 6 x 6 for 16 x 16 windows and for the weights, of f32 alone.
  launch = Images({.size = 18, .kernel = 3}, {.size = 18, .kernel = 3});
  launch.batch = 4;
  launch.in = launch.out = 8;
  const int64_t kSquares = 4 * 16 * (8 + 8) + 8 * 8;
  EXPECT_EQ(launch.WorkBytes(), kRest + 4 * 36 * kSquares);
  launch.dtype = DType::kBF16;
  EXPECT_EQ(launch.WorkBytes(), kRest + 2 * (4 * 8 * (18 * 18 + 16 * 16) + 8 * 8 * 9));
}

}  // namespace
}  // namespace braid::cuda
