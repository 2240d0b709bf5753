#include "graph/functional.h"

#include <gtest/gtest.h>

#include <string>

#include "graph/op_registry.h"

namespace braid {
namespace {

class FunctionalTest : public testing::Test {
 protected:
  Tensor Feed(Shape shape, DType dtype = DType::kF32) {
    return Input(graph_, "x", {dtype, std::move(shape)});
  }
  const Op& Last() { return graph_.ops().back(); }

  OpRegistry registry_ = BuiltinOps();
  LogicalGraph graph_{&registry_};
};

TEST_F(FunctionalTest, OperatorsCarryTheUsersLine) {
  Tensor x = Feed({4}), y = Feed({4});
  Tensor sum = x + y;
  const int line = __LINE__ - 1;
  EXPECT_EQ(graph_.producer(sum.id()).type, "add");
  EXPECT_EQ(graph_.producer(sum.id()).location.line, line);
  EXPECT_EQ(graph_.producer(sum.id()).location.ToString(),
            "functional_test.cc:" + std::to_string(line));
  Tensor product = 2 * x;
  EXPECT_EQ(graph_.producer(product.id()).type, "scale");
  EXPECT_EQ(graph_.producer(product.id()).location.line, __LINE__ - 2);
  Tensor exp = Exp(x);
  EXPECT_EQ(graph_.producer(exp.id()).location.line, __LINE__ - 1);
}

TEST_F(FunctionalTest, OperatorsOnNumbers) {
  Tensor x = Feed({4});
  x - 1.5;
  EXPECT_EQ(Last().type, "add_scalar");
  EXPECT_EQ(Last().attrs.Double("value"), -1.5);
  x / 4;
  EXPECT_EQ(Last().attrs.Double("factor"), 0.25);
  1 - x;
  EXPECT_EQ(Last().type, "add_scalar");
  EXPECT_EQ(graph_.op(Last().id - 1).type, "neg");
  3 / x;
  EXPECT_EQ(Last().type, "scale");
  EXPECT_EQ(graph_.op(Last().id - 1).type, "reciprocal");
  -x;
  EXPECT_EQ(Last().type, "neg");
}

TEST_F(FunctionalTest, FirstErrorStaysAndLaterOpsDoNothing) {
  Tensor x = Feed({64, 784}), w = Feed({512, 10});
  const size_t before = graph_.ops().size();
  Tensor y = MatMul(x, w);
  const int line = __LINE__ - 1;
  EXPECT_FALSE(y.valid());
  Tensor z = Mean(Relu(Reshape(Softmax(y), {-1}) * 2 + x));
  EXPECT_FALSE(z.valid());
  EXPECT_FALSE(SoftmaxCrossEntropy(y, x).valid());
  EXPECT_FALSE(Dropout(y, 0.5).valid());
  EXPECT_EQ(Split(y, {1, 2}, 0).size(), 2u);
  EXPECT_EQ(graph_.ops().size(), before);
  EXPECT_EQ(graph_.status().message(),
            "matmul 'matmul': a is [64, 784], b is [512, 10]; axis 0 of b must be 784, as axis 1 "
            "of a (functional_test.cc:" +
                std::to_string(line) + ")");
}

TEST_F(FunctionalTest, OpsOnDefaultTensorsDoNothing) {
  EXPECT_FALSE(Exp(Tensor()).valid());
  EXPECT_FALSE((Tensor() + Tensor()).valid());
  EXPECT_FALSE(Transpose(Tensor(), {1, 0}).valid());
}

TEST_F(FunctionalTest, AxisErrorsSayBoth) {
  ReduceSum(Feed({4, 5}), {.axes = {2}});
  EXPECT_EQ(graph_.status().message(),
            "reduce_sum: axis is 2, a is f32[4, 5]; axes go from -2 to 1 (functional_test.cc:" +
                std::to_string(__LINE__ - 3) + ")");
}

TEST_F(FunctionalTest, TwoGraphsDoNotMix) {
  LogicalGraph other(&registry_);
  Tensor y = Input(other, "y", {DType::kF32, {4}});
  EXPECT_FALSE(Add(Feed({4}), y).valid());
  EXPECT_FALSE(graph_.status().ok());
}

TEST_F(FunctionalTest, ShapesAreCompleted) {
  Tensor x = Feed({8, 3, 4});
  EXPECT_EQ(Reshape(x, {4, -1}).shape(), Shape({4, 24}));
  EXPECT_EQ(Flatten(x).shape(), Shape({8, 12}));
  EXPECT_EQ(ExpandDims(x, -1).shape(), Shape({8, 3, 4, 1}));
  EXPECT_EQ(Squeeze(ExpandDims(x, 0), 0).shape(), Shape({8, 3, 4}));
  EXPECT_EQ(Slice(x, {0, 1, 0}, {-1, -1, 2}).shape(), Shape({8, 2, 2}));
  EXPECT_EQ(Concat({x, x}, -1).shape(), Shape({8, 3, 8}));
  EXPECT_EQ(Split(x, {1, 2}, 1)[1].shape(), Shape({8, 2, 4}));
  EXPECT_EQ(ReduceMean(x).shape(), Shape());
  EXPECT_EQ(ReduceMax(x, {.axes = {-1, 0}}).shape(), Shape({3}));
  EXPECT_EQ(Last().attrs.Ints("axes"), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(ArgMax(x).type().ToString(), "i32[8, 3]");
  EXPECT_EQ(MatMul(x, Feed({3, 5}), {.transpose_a = true}).shape(), Shape({8, 4, 5}));
  EXPECT_EQ(Embedding(Feed({7, 5}), Feed({2, 3}, DType::kI64)).shape(), Shape({2, 3, 5}));
  EXPECT_EQ(Pow(x, 2.0).shape(), x.shape());
  EXPECT_EQ(Clip(x, -1, 1).shape(), x.shape());
  EXPECT_TRUE(graph_.status().ok()) << graph_.status();
  EXPECT_FALSE(Reshape(x, {5, -1}).valid());
  EXPECT_FALSE(Reshape(x, {INT64_MAX, INT64_MAX, -1}).valid());
}

TEST_F(FunctionalTest, EqualWidensIntegersAndMeanCountsBools) {
  Tensor accuracy = Mean(Equal(ArgMax(Feed({8, 10})), Feed({8}, DType::kI64)));
  EXPECT_EQ(accuracy.type().ToString(), "f32[]");
}

TEST_F(FunctionalTest, SoftmaxCrossEntropyIsThreeOps) {
  Tensor logits = Feed({8, 10});
  Tensor sparse = SoftmaxCrossEntropy(logits, Feed({8}, DType::kI32));
  EXPECT_EQ(sparse.shape(), Shape({8}));
  EXPECT_EQ(Last().type, "sparse_softmax_cross_entropy");
  EXPECT_EQ(graph_.op(Last().id - 1).type, "sum_exp");
  EXPECT_EQ(graph_.op(Last().id - 2).type, "reduce_max");
  EXPECT_EQ(SoftmaxCrossEntropy(logits, Feed({8, 10})).shape(), Shape({8}));
  EXPECT_EQ(Last().type, "softmax_cross_entropy");
}

TEST_F(FunctionalTest, DropoutsKeyIsItsName) {
  Tensor x = Feed({4});
  graph_.PushScope("h");
  Dropout(x, 0.1);
  Dropout(x, 0.1);
  EXPECT_EQ(Last().attrs.String("key"), Last().name);
  EXPECT_EQ(graph_.op(Last().id - 1).attrs.String("key"), "h.dropout");
}

TEST_F(FunctionalTest, PlacesAndLayouts) {
  const Placement placement("cpu", {{0, 0}, {0, 1}});
  Tensor x = Feed({4, 4});
  ToSbp(x, sbp::S(1));
  EXPECT_EQ(Last().hints[0], NdSbp(sbp::S(1)));
  EXPECT_EQ(Last().type, "identity");
  ToPlacement(x, placement);
  EXPECT_EQ(Last().placement, placement);
}

TEST_F(FunctionalTest, VariablesHaveOneName) {
  graph_.PushScope("fc1");
  Tensor w = Variable(graph_, {.name = "weight", .shape = {4, 5}, .sbp = sbp::S(0)});
  EXPECT_EQ(Last().name, "fc1.weight");
  EXPECT_EQ(Last().hints[0], NdSbp(sbp::S(0)));
  Assign(w, Scale(w, 0.5));
  EXPECT_EQ(Last().type, "assign");
  EXPECT_TRUE(graph_.status().ok()) << graph_.status();
  EXPECT_FALSE(Variable(graph_, {.name = "weight", .shape = {4, 5}}).valid());
  EXPECT_EQ(graph_.status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(FunctionalTest, ReadHasOneOutputPerField) {
  const std::vector<Tensor> fields =
      Read(graph_, {.dataset = "mnist:x",
                    .batch = 8,
                    .fields = {0, 1},
                    .types = {{DType::kF32, {8, 784}}, {DType::kI32, {8}}}});
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].type().ToString(), "f32[8, 784]");
  EXPECT_EQ(fields[1].type().ToString(), "i32[8]");
  Fetch(fields[0], "image");
  EXPECT_EQ(Last().attrs.String("name"), "image");
}

}  // namespace
}  // namespace braid
