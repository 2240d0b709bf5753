// Layers that make variables: their names and shapes.
#include "api/layers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/op_registry.h"

namespace braid {
namespace {

std::vector<std::string> VariablesOf(const LogicalGraph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops()) {
    if (op.type == "variable") {
      names.push_back(op.name + " " + graph.type(op.outputs[0]).shape.ToString());
    }
  }
  return names;
}

class LayersTest : public testing::Test {
 protected:
  const OpRegistry registry_ = BuiltinOps();
  LogicalGraph graph_{&registry_};
};

using Names = std::vector<std::string>;

TEST_F(LayersTest, Lstm) {
  const Tensor x = Input(graph_, "x", {DType::kF32, {7, 2, 3}});
  const RecurrentLayerResult result =
      LstmLayer(x, 5, {.name = "lstm", .layers = 2, .bidirectional = true});
  ASSERT_TRUE(graph_.status().ok()) << graph_.status();
  EXPECT_EQ(result.outputs.shape(), (Shape{7, 2, 10}));
  EXPECT_EQ(result.state.shape(), (Shape{4, 2, 5}));
  EXPECT_EQ(result.cell.shape(), (Shape{4, 2, 5}));
  const Names names = VariablesOf(graph_);
  ASSERT_EQ(names.size(), 16u);
  EXPECT_EQ(Names(names.begin(), names.begin() + 5),
            (Names{"lstm.weight_ih_l0 [20, 3]", "lstm.weight_hh_l0 [20, 5]", "lstm.bias_ih_l0 [20]",
                   "lstm.bias_hh_l0 [20]", "lstm.weight_ih_l0_reverse [20, 3]"}));
  EXPECT_EQ(names[12], "lstm.weight_ih_l1_reverse [20, 10]");
}

TEST_F(LayersTest, GruAndRnn) {
  const Tensor x = Input(graph_, "x", {DType::kF64, {4, 2, 3}});
  const RecurrentLayerResult gru = GruLayer(x, 5, {.name = "gru", .bias = false});
  const RecurrentLayerResult rnn = RnnLayer(x, 5, {.name = "rnn", .layers = 2});
  ASSERT_TRUE(graph_.status().ok()) << graph_.status();
  EXPECT_EQ(gru.outputs.shape(), (Shape{4, 2, 5}));
  EXPECT_EQ(rnn.state.shape(), (Shape{2, 2, 5}));
  EXPECT_FALSE(gru.cell.valid());
  EXPECT_EQ(VariablesOf(graph_),
            (Names{"gru.weight_ih_l0 [15, 3]", "gru.weight_hh_l0 [15, 5]",
                   "rnn.weight_ih_l0 [5, 3]", "rnn.weight_hh_l0 [5, 5]", "rnn.bias_ih_l0 [5]",
                   "rnn.bias_hh_l0 [5]", "rnn.weight_ih_l1 [5, 5]", "rnn.weight_hh_l1 [5, 5]",
                   "rnn.bias_ih_l1 [5]", "rnn.bias_hh_l1 [5]"}));
  EXPECT_FALSE(GruLayer(x, 0, {.name = "none"}).outputs.valid());
  EXPECT_FALSE(graph_.status().ok());
}

TEST_F(LayersTest, RmsNorm) {
  const Tensor x = Input(graph_, "x", {DType::kF32, {7, 2, 3}});
  EXPECT_EQ(RmsNormLayer(x, {.name = "norm"}).shape(), x.shape());
  EXPECT_EQ(VariablesOf(graph_), Names{"norm.gamma [3]"});
}

// With dropout the weights are a tensor; both forms read the same variables.
TEST_F(LayersTest, AttentionWithDropout) {
  const Tensor x = Input(graph_, "x", {DType::kF32, {2, 7, 12}});
  const Tensor plain = Attention(x, {.name = "attn", .heads = 3});
  const size_t variables = VariablesOf(graph_).size();
  const Tensor dropped = Attention(x, {.name = "attn", .share = true, .heads = 3, .dropout = 0.1});
  ASSERT_TRUE(graph_.status().ok()) << graph_.status();
  EXPECT_EQ(plain.shape(), x.shape());
  EXPECT_EQ(dropped.shape(), x.shape());
  EXPECT_EQ(VariablesOf(graph_).size(), variables);
  int fused = 0, softmax = 0;
  for (const Op& op : graph_.ops()) {
    fused += op.type == "attention";
    softmax += op.type == "softmax";
  }
  EXPECT_EQ(fused, 1);
  EXPECT_EQ(softmax, 1);
}

TEST_F(LayersTest, AttentionWithACache) {
  const Tensor x = Input(graph_, "x", {DType::kF32, {2, 3, 12}});
  const Tensor position = Input(graph_, "position", {DType::kI32, {}});
  const Tensor y = Attention(x, {.heads = 3, .cache = 7, .position = position});
  ASSERT_TRUE(graph_.status().ok()) << graph_.status();
  EXPECT_EQ(y.shape(), x.shape());
  const Names names = VariablesOf(graph_);
  EXPECT_EQ(Names(names.begin() + 6, names.begin() + 8),
            (Names{"attn.cache_k [2, 7, 3, 4]", "attn.cache_v [2, 7, 3, 4]"}));
  EXPECT_FALSE(Attention(x, {.name = "a", .heads = 3, .cache = 7}).valid());
  EXPECT_TRUE(std::string(graph_.status().message())
                  .starts_with("attention 'a': x is [2, 3, 12], cache is 7, position missing"))
      << graph_.status();
}

}  // namespace
}  // namespace braid
