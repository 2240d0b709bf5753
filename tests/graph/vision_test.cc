// Shapes, attributes and errors of convolution, pooling, normalization by channels, interpolation.
#include <gtest/gtest.h>

#include <string>

#include "graph/functional.h"
#include "graph/op_registry.h"

namespace braid {
namespace {

class VisionFunctionsTest : public testing::Test {
 protected:
  Tensor Feed(Shape shape, DType dtype = DType::kF32) {
    return Input(graph_, "x", {dtype, std::move(shape)});
  }
  // What the graph says is wrong, of a call that is.
  std::string Error() { return std::string(graph_.status().message()); }
  bool Says(const std::string& text) { return Error().find(text) != std::string::npos; }

  OpRegistry registry_ = BuiltinOps();
  LogicalGraph graph_{&registry_};
};

TEST_F(VisionFunctionsTest, ConvolutionsHaveShapes) {
  const Tensor x = Feed({2, 4, 9, 8}), w = Feed({6, 4, 3, 3});
  EXPECT_EQ(Conv(x, w).shape(), (Shape{2, 6, 7, 6}));
  EXPECT_EQ(Conv(x, w, {.strides = {2}, .padding = {1}}).shape(), (Shape{2, 6, 5, 4}));
  EXPECT_EQ(Conv(x, w, {.strides = {2, 1}, .same = SamePadding::kUpper}).shape(),
            (Shape{2, 6, 5, 8}));
  EXPECT_EQ(Conv(x, w, {.dilations = {2}, .padding = {0}, .padding_end = {1}}).shape(),
            (Shape{2, 6, 6, 5}));
  EXPECT_EQ(Conv(x, Feed({8, 1, 3, 3}), {.groups = 4}).shape(), (Shape{2, 8, 7, 6}));
  EXPECT_EQ(Conv(Feed({2, 3, 5}), Feed({4, 3, 2}), Feed({4})).shape(), (Shape{2, 4, 4}));
  // The transpose leads back.
  EXPECT_EQ(ConvTranspose(Feed({2, 6, 5, 4}), w,
                          {.strides = {2}, .padding = {1}, .output_padding = {0, 1}})
                .shape(),
            (Shape{2, 4, 9, 8}));
  EXPECT_TRUE(graph_.status().ok()) << Error();
}

TEST_F(VisionFunctionsTest, WrongConvolutionsSayWhy) {
  Conv(Feed({2, 4, 9}), Feed({6, 3, 3}));
  EXPECT_TRUE(Says("x has 4 channels, the weights 3 for each group")) << Error();
  EXPECT_TRUE(Says("vision_test.cc:")) << Error();
}
TEST_F(VisionFunctionsTest, WindowsMustFit) {
  Conv(Feed({2, 4, 2}), Feed({6, 4, 3}));
  EXPECT_TRUE(Says("no room for a window of 3")) << Error();
}
TEST_F(VisionFunctionsTest, ListsHaveAnEntryPerAxis) {
  Conv(Feed({2, 4, 9, 9}), Feed({6, 4, 3, 3}), {.strides = {1, 2, 3}});
  EXPECT_TRUE(Says("strides is [1, 2, 3]; 2 numbers from 1")) << Error();
}
TEST_F(VisionFunctionsTest, OutputPaddingIsLessThanTheStride) {
  ConvTranspose(Feed({2, 4, 9}), Feed({4, 6, 3}), {.output_padding = {1}});
  EXPECT_TRUE(Says("output_padding is 1, the stride is 1; it must be less")) << Error();
}
// Attributes of a file may say anything.
TEST_F(VisionFunctionsTest, HugeAttributesAreRefused) {
  Conv(Feed({1, 1, 4, 4, 4}), Feed({1, 1, 1, 1, 1}), {.padding = {1 << 24}});
  EXPECT_TRUE(Says("too large")) << Error();
}

TEST_F(VisionFunctionsTest, PoolingHasShapes) {
  const Tensor x = Feed({2, 3, 7, 8});
  EXPECT_EQ(MaxPool(x, {.kernel = {2}}).shape(), (Shape{2, 3, 3, 4}));
  EXPECT_EQ(MaxPool(x, {.kernel = {2}, .ceil_mode = true}).shape(), (Shape{2, 3, 4, 4}));
  EXPECT_EQ(AvgPool(x, {.kernel = {3}, .strides = {2}, .same = SamePadding::kLower}).shape(),
            (Shape{2, 3, 4, 4}));
  EXPECT_EQ(AdaptiveMaxPool(x, {3, 5}).shape(), (Shape{2, 3, 3, 5}));
  EXPECT_EQ(GlobalAvgPool(x).shape(), (Shape{2, 3, 1, 1}));
  EXPECT_EQ(MaxPoolWithIndices(x, {.kernel = {2}})[1].dtype(), DType::kI64);
  EXPECT_TRUE(graph_.status().ok()) << Error();
  AdaptiveAvgPool(x, {3});
  EXPECT_TRUE(Says("windows is [3]; a number of at least 1 for each axis")) << Error();
}

TEST_F(VisionFunctionsTest, NormalizationChecksItsOperands) {
  const Tensor x = Feed({2, 6, 7});
  EXPECT_EQ(BatchNormTraining(x, Feed({6}), Feed({6})).mean.shape(), (Shape{6}));
  EXPECT_EQ(BatchNormTraining(x, Feed({6}), Feed({6}), {.groups = 2}).mean.shape(), (Shape{6}));
  EXPECT_EQ(GroupNorm(x, Feed({6}), Feed({6}), {.groups = 3}).shape(), x.shape());
  EXPECT_TRUE(graph_.status().ok()) << Error();
  GroupNorm(x, Feed({6}), Feed({6}), {.groups = 4});
  EXPECT_TRUE(Says("groups is 4; it must divide the channels")) << Error();
}

TEST_F(VisionFunctionsTest, GroupsOfImagesMustBeEqual) {
  BatchNormTraining(Feed({4, 6, 7}), Feed({6}), Feed({6}), {.groups = 3});
  EXPECT_TRUE(Says("groups is 3; it must divide the 4 images of the batch")) << Error();
}

TEST_F(VisionFunctionsTest, InterpolationResizesSpace) {
  const Tensor x = Feed({2, 3, 5, 10});
  EXPECT_EQ(Interpolate(x, {.sizes = {7, 4}}).shape(), (Shape{2, 3, 7, 4}));
  EXPECT_EQ(Interpolate(x, {.scales = {2, 0.7}, .mode = "linear"}).shape(), (Shape{2, 3, 10, 7}));
  EXPECT_EQ(Interpolate(x, {.sizes = {5, 10}}), x);
  EXPECT_EQ(Interpolate(Feed({4}, DType::kBool), {.axes = {0}, .sizes = {8}}).dtype(),
            DType::kBool);
  EXPECT_TRUE(graph_.status().ok()) << Error();
  Interpolate(x, {.sizes = {7, 4}, .mode = "bilinear"});
  EXPECT_TRUE(Says("mode is \"bilinear\"; one of nearest, linear, cubic is needed")) << Error();
}

// Channels split where groups allow it, and only whole groups.
TEST_F(VisionFunctionsTest, GroupsAreSplitWhole) {
  const auto legal = [&](int64_t channels, int64_t groups, int64_t parts) {
    LogicalGraph graph(&registry_);
    const Tensor x = Input(graph, "x", {DType::kF32, {2, channels, 5}});
    const Tensor w = Input(graph, "w", {DType::kF32, {2 * channels, channels / groups, 3}});
    const Op& op = graph.producer(Conv(x, w, {.groups = groups}).id());
    std::vector<TensorType> inputs = {x.type(), w.type()}, outputs = {graph.type(op.outputs[0])};
    const SbpSignature split = {{sbp::S(1), sbp::S(0)}, {sbp::S(1)}};
    for (const SbpSignature& signature : registry_.Find("conv")->LegalSignatures(
             {.attrs = op.attrs, .inputs = inputs, .outputs = outputs}, parts)) {
      if (signature == split) return true;
    }
    return false;
  };
  EXPECT_TRUE(legal(8, 4, 2));
  EXPECT_TRUE(legal(8, 4, 4));
  EXPECT_FALSE(legal(8, 4, 3));
  EXPECT_FALSE(legal(8, 1, 2));
}

}  // namespace
}  // namespace braid
