// Layers that make variables: their names and shapes, and what their options compute.
#include "api/layers.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/session.h"
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

// What a job that does not train fetches, by name.
std::map<std::string, std::vector<double>> RunOnce(
    const std::function<std::map<std::string, Tensor>(Job&)>& record) {
  std::map<std::string, std::vector<double>> values;
  const auto session = Session::Start({.seed = 5, .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status().message();
  std::vector<std::string> names;
  auto job = (*session)->Compile("job", [&](Job& job) {
    for (const auto& [name, tensor] : record(job)) {
      job.Fetch(name, tensor);
      names.push_back(name);
    }
  });
  EXPECT_TRUE(job.ok()) << job.status().message();
  const auto result = job->Run();
  EXPECT_TRUE(result.ok()) << result.status().message();
  for (const std::string& name : names) {
    const Array numbers = result->Last(name).As(DType::kF64);
    values[name].assign(numbers.data<double>().begin(), numbers.data<double>().end());
  }
  return values;
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b, double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], bound) << i;
}

TEST(LayerValuesTest, ARecurrentLayerGoesOnFromAState) {
  const auto values = RunOnce([](Job& job) {
    const Tensor x = RandomNormal(job.graph(), {6, 2, 3}, {.dtype = DType::kF64});
    const auto part = [&](int64_t begin, int64_t end) {
      return SliceAxis(x, 0, {.begin = begin, .end = end});
    };
    RecurrentLayerOptions options = {.name = "lstm", .layers = 2, .dropout = 0.5};
    const RecurrentLayerResult whole = LstmLayer(x, 4, options);
    options.share = true;
    const RecurrentLayerResult first = LstmLayer(part(0, 3), 4, options);
    options.initial_state = first.state;
    options.initial_cell = first.cell;
    const RecurrentLayerResult second = LstmLayer(part(3, 6), 4, options);
    // Of the direction that ends with the first step, its state goes into the last one.
    const RecurrentLayerResult both =
        GruLayer(x, 4, {.name = "gru", .bidirectional = true, .initial_state = first.state});
    const RecurrentLayerResult one =
        GruLayer(x, 4,
                 {.name = "gru",
                  .share = true,
                  .initial_state = SliceAxis(first.state, 0, {.begin = 0, .end = 1})});
    return std::map<std::string, Tensor>{
        {"whole", whole.outputs},     {"parts", Concat({first.outputs, second.outputs}, 0)},
        {"whole state", whole.state}, {"parts state", second.state},
        {"one", one.outputs},         {"both", SliceAxis(both.outputs, 2, {.begin = 0, .end = 4})}};
  });
  ExpectNear(values.at("parts"), values.at("whole"), 1e-14);
  ExpectNear(values.at("parts state"), values.at("whole state"), 1e-14);
  ExpectNear(values.at("both"), values.at("one"), 1e-14);
}

TEST_F(LayersTest, AnInitialStateOfAnotherShape) {
  const Tensor x = Input(graph_, "x", {DType::kF32, {7, 2, 3}});
  const Tensor state = Input(graph_, "state", {DType::kF32, {1, 2, 5}});
  EXPECT_FALSE(
      LstmLayer(x, 5, {.name = "lstm", .layers = 2, .initial_state = state}).outputs.valid());
  EXPECT_NE(graph_.status().message().find("is f32[1, 2, 5]; [layers, twice that if bidirectional, "
                                           "batch, units], [2, 2, 5], was expected"),
            std::string::npos)
      << graph_.status();
}

// A mask that says what `causal` says, in all of its forms, and a token that sees nothing.
TEST(LayerValuesTest, AttentionUnderAMask) {
  const auto values = RunOnce([](Job& job) {
    const Tensor x = RandomNormal(job.graph(), {2, 5, 8}, {.dtype = DType::kF32});
    const Tensor row = Iota(job.graph(), {DType::kI64, {1, 1, 5, 5}}, 2);
    const Tensor column = Iota(job.graph(), {DType::kI64, {1, 1, 5, 5}}, 3);
    const auto added = [&](Tensor seen) {
      const auto number = [&](double value) {
        return Constant(job.graph(), value, {.dtype = DType::kF32});
      };
      return Where(seen, number(0), number(-std::numeric_limits<double>::infinity()));
    };
    const Tensor before = LessEqual(column, row), others = Less(column, row);
    std::map<std::string, Tensor> all;
    const auto attend = [&](const std::string& name, AttentionOptions options) {
      options.name = "attn";
      options.share = !all.empty();
      options.heads = 2;
      all[name] = Attention(x, options);
    };
    attend("causal", {});
    attend("causal dropout", {.dropout = 0.5});
    attend("bool", {.causal = false, .mask = before});
    attend("added", {.causal = false, .mask = added(before)});
    attend("bool dropout", {.causal = false, .dropout = 0.5, .mask = before});
    attend("added dropout", {.causal = false, .dropout = 0.5, .mask = added(before)});
    attend("both", {.mask = before});
    // The first token sees none of those before it.
    attend("none", {.mask = others});
    attend("none dropout", {.dropout = 0.5, .mask = others});
    attend("none added dropout", {.dropout = 0.5, .mask = added(others)});
    return all;
  });
  for (const auto& [name, numbers] : values) {
    SCOPED_TRACE(name);
    ExpectNear(numbers, values.at(name.starts_with("none") ? "none" : "causal"), 2e-6);
  }
  EXPECT_NE(values.at("none"), values.at("causal"));
}

}  // namespace
}  // namespace braid
