// Operators of ONNX Runtime's domain, next to what nodes of the standard make of the same operands.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/onnx_nodes.h"

namespace braid::onnx {
namespace {

using testing::HasSubstr;

class MicrosoftTest : public NodesTest {};

TEST_F(MicrosoftTest, ProductsOfTransposedBatches) {
  Given("a", {4, 2, 6}, 1);  // rows, batch, inner
  Given("b", {2, 5, 6}, 2);
  NodeProto& fused = Fused("FusedMatMul", {"a", "b"}, {"y"});
  IntAttribute(fused, "transBatchA", 1);
  IntAttribute(fused, "transB", 1);
  FloatAttribute(fused, "alpha", 0.25);
  IntsAttribute(Standard("Transpose", {"a"}, {"rows"}), "perm", {1, 0, 2});
  IntsAttribute(Standard("Transpose", {"b"}, {"columns"}), "perm", {0, 2, 1});
  Float("quarter", 0.25);
  Standard("MatMul", {"rows", "columns"}, {"product"});
  Standard("Mul", {"product", "quarter"}, {"z"});
  ExpectEqual({{"y", "z"}});
}

TEST_F(MicrosoftTest, NormalizedSums) {
  Given("x", {2, 3, 8}, 1);
  Given("skip", {3, 8}, 2);  // of all in the batch
  Given("gamma", {8}, 3);
  Given("beta", {8}, 4);
  Given("bias", {8}, 5);
  FloatAttribute(
      Fused("SkipLayerNormalization", {"x", "skip", "gamma", "beta", "bias"}, {"y", "", "", "s"}),
      "epsilon", 1e-3);
  FloatAttribute(
      Fused("SkipSimplifiedLayerNormalization", {"x", "skip", "gamma"}, {"y_rms", "", "", "s_rms"}),
      "epsilon", 1e-3);
  Standard("Add", {"x", "skip"}, {"pair"});
  Standard("Add", {"pair", "bias"}, {"sum"});
  FloatAttribute(Standard("LayerNormalization", {"sum", "gamma", "beta"}, {"z"}), "epsilon", 1e-3);
  FloatAttribute(Standard("RMSNormalization", {"pair", "gamma"}, {"z_rms"}), "epsilon", 1e-3);
  ExpectEqual({{"y", "z"}, {"s", "sum"}, {"y_rms", "z_rms"}, {"s_rms", "pair"}});
}

TEST_F(MicrosoftTest, ActivationsOfSums) {
  Given("x", {3, 4}, 1);
  Given("bias", {4}, 2);
  Fused("BiasGelu", {"x", "bias"}, {"y"});
  Fused("FastGelu", {"x", "bias"}, {"y_fast"});
  Fused("QuickGelu", {"x"}, {"y_quick"});
  Standard("Add", {"x", "bias"}, {"sum"});
  Standard("Gelu", {"sum"}, {"z"});
  AttributeProto& form = *Standard("Gelu", {"sum"}, {"z_fast"}).add_attribute();
  form.set_name("approximate");
  form.set_s("tanh");
  FloatAttribute(Standard("Swish", {"x"}, {"z_quick"}), "alpha", 1.702);
  ExpectEqual({{"y", "z"}, {"y_fast", "z_fast"}, {"y_quick", "z_quick"}});
}

TEST_F(MicrosoftTest, EmbeddingsOfTokens) {
  writer_.Initializer("ids", Array::FromVector<int64_t>({2, 3}, {1, 0, 4, 2, 2, 3}));
  writer_.Initializer("segments", Array::FromVector<int64_t>({2, 3}, {0, 1, 1, 0, 0, 1}));
  writer_.Initializer("mask", Array::FromVector<int64_t>({2, 3}, {1, 1, 0, 1, 1, 1}));
  Ints("places", {0, 1, 2});
  Given("words", {5, 8}, 1);
  Given("positions", {6, 8}, 2);
  Given("kinds", {2, 8}, 3);
  Given("gamma", {8}, 4);
  Given("beta", {8}, 5);
  FloatAttribute(Fused("EmbedLayerNormalization",
                       {"ids", "segments", "words", "positions", "kinds", "gamma", "beta", "mask"},
                       {"y", "lengths", "s"}),
                 "epsilon", 1e-3);
  Standard("Gather", {"words", "ids"}, {"of_words"});
  Standard("Gather", {"positions", "places"}, {"of_places"});
  Standard("Gather", {"kinds", "segments"}, {"of_kinds"});
  Standard("Sum", {"of_words", "of_places", "of_kinds"}, {"sum"});
  FloatAttribute(Standard("LayerNormalization", {"sum", "gamma", "beta"}, {"z"}), "epsilon", 1e-3);
  IntAttribute(Standard("Cast", {"lengths"}, {"wide_lengths"}), "to", 1);
  writer_.Initializer("known", Array::FromVector<float>({2}, {2, 3}));
  ExpectEqual({{"y", "z"}, {"s", "sum"}, {"wide_lengths", "known"}});
}

// Padding, a bias of the scores and the future: each of these hides keys in its own way.
TEST_F(MicrosoftTest, AttentionWithProjectionsAndMasks) {
  constexpr int64_t kHeads = 2;
  Given("x", {2, 3, 5}, 1);
  Given("weights", {5, 24}, 2);
  Given("bias", {24}, 3);
  Given("scores_bias", {1, 2, 3, 3}, 4);
  writer_.Initializer("mask", Array::FromVector<int64_t>({2, 3}, {1, 1, 0, 0, 1, 1}));
  NodeProto& fused = Fused("Attention", {"x", "weights", "bias", "mask", "", "scores_bias"}, {"y"});
  IntAttribute(fused, "num_heads", kHeads);
  IntAttribute(fused, "unidirectional", 1);
  FloatAttribute(fused, "mask_filter_value", -2);

  Standard("MatMul", {"x", "weights"}, {"products"});
  Standard("Add", {"products", "bias"}, {"projected"});
  NodeProto& split = Standard("Split", {"projected"}, {"q", "k", "v"});
  IntAttribute(split, "axis", -1);
  IntAttribute(split, "num_outputs", 3);
  // The other form of the same.
  NodeProto& apart =
      Fused("MultiHeadAttention", {"q", "k", "v", "", "mask", "scores_bias"}, {"y_apart"});
  IntAttribute(apart, "num_heads", kHeads);
  IntAttribute(apart, "unidirectional", 1);
  FloatAttribute(apart, "mask_filter_value", -2);

  writer_.Initializer("padding", Array::FromVector<float>({2, 1, 1, 3}, {0, 0, -2, -2, 0, 0}));
  Standard("Add", {"scores_bias", "padding"}, {"added"});
  NodeProto& attention = Standard(
      "Attention", {Heads("q", kHeads), Heads("k", kHeads), Heads("v", kHeads), "added"}, {"seen"});
  IntAttribute(attention, "is_causal", 1);
  ExpectEqual({{"y", Merged("seen")}, {"y_apart", "merged_seen"}});
}

// As exporters stack the projections in front of MultiHeadAttention.
TEST_F(MicrosoftTest, PackedQueriesKeysAndValues) {
  Given("all", {2, 3, 2, 3, 4}, 1);  // batch, time, heads, of these three, depth
  Given("bias", {24}, 2);
  IntAttribute(Fused("MultiHeadAttention", {"all", "", "", "bias"}, {"y"}), "num_heads", 2);
  Ints("size", {0, 0, -1});
  for (int i = 0; i < 3; ++i) {
    const std::string name = std::string(1, "qkv"[i]);
    Ints("at_" + name, {i});
    IntAttribute(Standard("Gather", {"all", "at_" + name}, {"one_" + name}), "axis", 3);
    Standard("Reshape", {"one_" + name, "size"}, {name});
  }
  IntAttribute(Fused("MultiHeadAttention", {"q", "k", "v", "bias"}, {"z"}), "num_heads", 2);
  // Keys and values that are stacked beside a query.
  Ints("both", {1, 2});
  IntAttribute(Standard("Gather", {"all", "both"}, {"pairs"}), "axis", 3);
  IntAttribute(Fused("MultiHeadAttention", {"q", "pairs", "", "bias"}, {"y_pairs"}), "num_heads",
               2);
  ExpectEqual({{"y", "z"}, {"y_pairs", "z"}});
}

// A step of two tokens behind 3 and 1 others, in a cache of six: what the standard writes with four
// operators.
TEST_F(MicrosoftTest, GroupsOfQueriesWithACache) {
  constexpr int64_t kHeads = 4, kKeyHeads = 2, kDepth = 4, kCache = 6;
  Given("q", {2, 2, kHeads * kDepth}, 1);
  Given("k", {2, 2, kKeyHeads * kDepth}, 2);
  Given("v", {2, 2, kKeyHeads * kDepth}, 3);
  Given("past_k", {2, kKeyHeads, kCache, kDepth}, 4);
  Given("past_v", {2, kKeyHeads, kCache, kDepth}, 5);
  Given("last", Array::FromVector<int32_t>({2}, {4, 2}));
  Given("cosines", {8, kDepth / 2}, 6);
  Given("sines", {8, kDepth / 2}, 7);
  Ints("total", {5});
  NodeProto& fused = Fused("GroupQueryAttention",
                           {"q", "k", "v", "past_k", "past_v", "last", "total", "cosines", "sines"},
                           {"y", "new_k", "new_v"});
  IntAttribute(fused, "num_heads", kHeads);
  IntAttribute(fused, "kv_num_heads", kKeyHeads);
  IntAttribute(fused, "do_rotary", 1);

  writer_.Initializer("places", Array::FromVector<int64_t>({2, 2}, {3, 4, 1, 2}));
  Ints("starts", {3, 1});
  Ints("lengths", {5, 3});
  Standard("RotaryEmbedding", {Heads("q", kHeads), "cosines", "sines", "places"}, {"turned_q"});
  Standard("RotaryEmbedding", {Heads("k", kKeyHeads), "cosines", "sines", "places"}, {"turned_k"});
  Standard("TensorScatter", {"past_k", "turned_k", "starts"}, {"all_k"});
  Standard("TensorScatter", {"past_v", Heads("v", kKeyHeads), "starts"}, {"all_v"});
  NodeProto& attention =
      Standard("Attention", {"turned_q", "all_k", "all_v", "", "", "", "lengths"}, {"seen"});
  IntAttribute(attention, "is_causal", 1);
  ExpectEqual({{"y", Merged("seen")}, {"new_k", "all_k"}, {"new_v", "all_v"}});
}

TEST_F(MicrosoftTest, AWindowAndASinkOfEachHead) {
  constexpr int64_t kHeads = 2, kDepth = 2, kTime = 4;
  Given("all", {1, kTime, 3 * kHeads * kDepth}, 1);
  Given("sink", {kHeads}, 2);
  writer_.Initializer("last", Array::FromVector<int64_t>({1}, {kTime - 1}));
  Ints("total", {kTime});
  NodeProto& fused = Fused("GroupQueryAttention",
                           {"all", "", "", "", "", "last", "total", "", "", "", "", "sink"}, {"y"});
  IntAttribute(fused, "num_heads", kHeads);
  IntAttribute(fused, "kv_num_heads", kHeads);
  IntAttribute(fused, "local_window_size", 2);
  const auto values = Run({"y"}, {1});
  ASSERT_TRUE(values.ok()) << values.status();
  const Array &numbers = given_[0].second, &sinks = given_[1].second;
  const auto at = [&](int64_t part, int64_t time, int64_t head, int64_t i) -> double {
    return numbers.data<float>()[((time * 3 + part) * kHeads + head) * kDepth + i];
  };
  for (int64_t time = 0; time < kTime; ++time) {
    for (int64_t head = 0; head < kHeads; ++head) {
      double total = std::exp(sinks.data<float>()[head]);
      std::vector<double> sums(kDepth, 0);
      for (int64_t key = std::max<int64_t>(0, time - 1); key <= time; ++key) {
        double score = 0;
        for (int64_t i = 0; i < kDepth; ++i) score += at(0, time, head, i) * at(1, key, head, i);
        const double weight = std::exp(score / std::sqrt(kDepth));
        total += weight;
        for (int64_t i = 0; i < kDepth; ++i) sums[i] += weight * at(2, key, head, i);
      }
      for (int64_t i = 0; i < kDepth; ++i) {
        EXPECT_NEAR((*values)[0].data<float>()[(time * kHeads + head) * kDepth + i],
                    sums[i] / total, 1e-6)
            << time << " " << head << " " << i;
      }
    }
  }
}

// Two steps of an LSTM, written as two of one step each whose inputs and states were rounded to u8.
TEST_F(MicrosoftTest, AnLstmQuantizesItsInputsAndItsStates) {
  constexpr int64_t kIn = 3, kUnits = 2, kRows = 4 * kUnits;
  constexpr float kScales[] = {0.02f, 0.03f};  // of W and of R, in u8 about 128
  Given("x", {2, 2, kIn}, 1);
  const auto weights = [&](const std::string& name, int64_t columns, float scale, int seed) {
    std::vector<uint8_t> numbers(columns * kRows);
    std::vector<float> reals(numbers.size());  // transposed
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t number = (row * 31 + column * 17 + seed * 7) % 256;
        numbers[column * kRows + row] = static_cast<uint8_t>(number);
        reals[row * columns + column] = static_cast<float>(number - 128) * scale;
      }
    }
    writer_.Initializer(name, Array::FromVector<uint8_t>({1, columns, kRows}, numbers));
    writer_.graph().mutable_initializer(writer_.graph().initializer_size() - 1)->set_data_type(2);
    writer_.Initializer(name + "_real", Array::FromVector<float>({1, kRows, columns}, reals));
    writer_.Initializer(name + "_scale", Array::FromVector<float>({1}, {scale}));
    writer_.Initializer(name + "_zero", Array::FromVector<uint8_t>({1}, {128}));
    writer_.graph().mutable_initializer(writer_.graph().initializer_size() - 1)->set_data_type(2);
  };
  weights("w", kIn, kScales[0], 1);
  weights("r", kUnits, kScales[1], 2);
  writer_.Initializer("bias", Numbers({1, 2 * kRows}, 3));
  IntAttribute(
      Fused("DynamicQuantizeLSTM",
            {"x", "w", "r", "bias", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"},
            {"y", "last", "cell"}),
      "hidden_size", kUnits);

  const auto rounded = [&](const std::string& x) {
    Standard("DynamicQuantizeLinear", {x}, {x + "_q", x + "_scale", x + "_zero"});
    Standard("DequantizeLinear", {x + "_q", x + "_scale", x + "_zero"}, {x + "_rounded"});
    return x + "_rounded";
  };
  Ints("halves", {1, 1});
  Standard("Split", {rounded("x"), "halves"}, {"x0", "x1"});
  const auto step = [&](const std::string& x, std::vector<std::string> states,
                        std::vector<std::string> outputs) {
    std::vector<std::string> inputs = {x, "w_real", "r_real", "bias", ""};
    inputs.insert(inputs.end(), states.begin(), states.end());
    IntAttribute(Standard("LSTM", inputs, std::move(outputs)), "hidden_size", kUnits);
  };
  step("x0", {}, {"y0", "h0", "c0"});
  step("x1", {rounded("h0"), "c0"}, {"y1", "h1", "c1"});
  IntAttribute(Standard("Concat", {"y0", "y1"}, {"wanted"}), "axis", 0);
  ExpectEqual({{"y", "wanted"}, {"last", "h1"}, {"cell", "c1"}});
}

TEST_F(MicrosoftTest, AQuantizedLstmNeedsItsScales) {
  Given("x", {1, 1, 2}, 1);
  Given("w", {1, 2, 4}, 2);
  Given("r", {1, 1, 4}, 2);
  Fused("DynamicQuantizeLSTM", {"x", "w", "r"}, {"y"});
  EXPECT_THAT(ErrorOf("y"), HasSubstr("com.microsoft.DynamicQuantizeLSTM of opset 1 'y': input 8 "
                                      "is missing"));
}

// ---- refusals -----------------------------------------------------------------------------------

TEST_F(MicrosoftTest, ATotalLengthThatIsComputedIsRefused) {
  Given("all", {1, 1, 12}, 1);
  Given("last", Array::FromVector<int32_t>({1}, {0}));
  Given("total", Array::FromVector<int32_t>({1}, {1}));
  NodeProto& node = Fused("GroupQueryAttention", {"all", "", "", "", "", "last", "total"}, {"y"});
  IntAttribute(node, "num_heads", 1);
  IntAttribute(node, "kv_num_heads", 1);
  EXPECT_THAT(ErrorOf("y"),
              HasSubstr("com.microsoft.GroupQueryAttention of opset 1 'y': input 6, 'total', "
                        "must be known when the model is imported"));
}

TEST_F(MicrosoftTest, WhatBraidLacksIsSaid) {
  Given("x", {1, 2, 4}, 1);
  Given("weights", {4, 12}, 2);
  NodeProto& node = Fused("Attention", {"x", "weights"}, {"y"});
  IntAttribute(node, "num_heads", 2);
  IntAttribute(node, "do_rotary", 1);
  EXPECT_THAT(ErrorOf("y"), HasSubstr("com.microsoft.Attention of opset 1 'y': do_rotary"));
  node.mutable_attribute(1)->set_name("past_present_share_buffer");
  EXPECT_THAT(ErrorOf("y"), HasSubstr("a cache whose buffer outputs share with inputs"));
}

TEST_F(MicrosoftTest, HeadsThatDoNotFitAreAMistake) {
  Given("q", {1, 2, 6}, 1);
  IntAttribute(Fused("MultiHeadAttention", {"q", "q", "q"}, {"y"}), "num_heads", 4);
  EXPECT_THAT(ErrorOf("y"), HasSubstr("4 heads of [1, 2, 6]; [batch, time, heads * depth]"));
}

}  // namespace
}  // namespace braid::onnx
