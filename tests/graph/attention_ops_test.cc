// attention: shapes, errors and signatures.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/functional.h"
#include "graph/op_registry.h"

namespace braid {
namespace {

class AttentionOpsTest : public testing::Test {
 protected:
  static TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }

  // Output types, or the error's message.
  std::string Infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
    const auto types = registry_.Find("attention")->InferTypes({attrs, inputs, {}});
    if (!types.ok()) return std::string(types.status().message());
    return (*types)[0].ToString() + " " + (*types)[1].ToString();
  }

  // All but all-B.
  std::vector<std::string> Signatures(std::string_view op, const std::vector<TensorType>& inputs,
                                      const Attrs& attrs, int64_t parts) {
    const OpDef& def = *registry_.Find(op);
    const auto outputs = def.InferTypes({attrs, inputs, {}});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return {};
    std::vector<std::string> texts;
    for (const SbpSignature& s : def.LegalSignatures({attrs, inputs, *outputs}, parts)) {
      texts.push_back(s.ToString());
    }
    texts.erase(texts.begin());
    return texts;
  }

  OpRegistry registry_ = BuiltinOps();
  const Attrs plain_ = {{"causal", false}, {"scale", 1.0}, {"time_first", false}};
  const Attrs time_first_ = {{"causal", true}, {"scale", 1.0}, {"time_first", true}};
};

using Texts = std::vector<std::string>;

TEST_F(AttentionOpsTest, Shapes) {
  EXPECT_EQ(Infer({F32({2, 8, 5, 16}), F32({2, 4, 7, 16}), F32({2, 4, 7, 3})}, plain_),
            "f32[2, 8, 5, 3] f32[2, 8, 5]");
  EXPECT_EQ(Infer({F32({2, 5, 8, 16}), F32({2, 7, 4, 16}), F32({2, 7, 4, 3})}, time_first_),
            "f32[2, 5, 8, 3] f32[2, 8, 5]");
  const TensorType narrow = {DType::kBF16, {1, 1, 2, 4}};
  EXPECT_EQ(Infer({narrow, narrow, narrow, {DType::kBool, {2}}}, plain_),
            "bf16[1, 1, 2, 4] f32[1, 1, 2]");
  EXPECT_EQ(Infer({F32({2, 8, 5, 16}), F32({2, 3, 7, 16}), F32({2, 3, 7, 16})}, plain_),
            "a is [2, 8, 5, 16], b is [2, 3, 7, 16], c is [2, 3, 7, 16], heads are axis 1; equal "
            "batches, equal time and heads of b and c, heads of a that are a multiple of those, "
            "and equal depths of a and b are needed");
  EXPECT_EQ(Infer({F32({2, 5, 16}), F32({2, 3, 7, 16}), F32({2, 3, 7, 16})}, plain_),
            "a is f32[2, 5, 16]; 4 axes are needed");
  const TensorType square = F32({2, 3, 5, 4});
  EXPECT_EQ(Infer({square, square, square, F32({3, 4, 5})}, plain_),
            "d is f32[3, 4, 5]; a mask that broadcasts to [2, 3, 5, 5] = [batch, heads, query "
            "time, key time] is needed");
  EXPECT_EQ(Infer({square, square, square, {DType::kI32, {5}}}, plain_),
            "a is f32[2, 3, 5, 4], d is i32[5]; dtypes differ, Cast one");
  EXPECT_EQ(Infer({square, square}, plain_), "has 2 inputs, takes 3");
}

TEST_F(AttentionOpsTest, Signatures) {
  const TensorType q = F32({8, 4, 6, 16}), k = F32({8, 2, 6, 16});
  EXPECT_EQ(Signatures("attention", {q, k, k}, plain_, 2),
            (Texts{"(S(0), S(0), S(0))->(S(0), S(0))", "(S(1), S(1), S(1))->(S(1), S(1))",
                   "(S(2), B, B)->(S(2), S(2))", "(B, B, S(3))->(S(3), B)", "(B, B, P)->(P, B)"}));
  // Cuts in 4 fall between the key heads.
  EXPECT_EQ(Signatures("attention", {q, k, k}, plain_, 4)[1], "(S(1), B, B)->(S(1), S(1))");
  EXPECT_EQ(Signatures("attention", {q, q, q, {DType::kBool, {8, 1, 6, 1}}}, plain_, 3),
            (Texts{"(S(0), S(0), S(0), S(0))->(S(0), S(0))", "(S(1), S(1), S(1), B)->(S(1), S(1))",
                   "(S(2), B, B, S(2))->(S(2), S(2))", "(B, B, S(3), B)->(S(3), B)",
                   "(B, B, P, B)->(P, B)"}));
  EXPECT_EQ(Signatures("attention", {q, q, q}, time_first_, 2)[1],
            "(S(2), S(2), S(2))->(S(2), S(1))");
  EXPECT_EQ(
      Signatures("attention_grad", {q, k, k, q, F32({8, 4, 6}), q}, plain_, 2),
      (Texts{"(S(0), S(0), S(0), S(0), S(0), S(0))->(S(0), S(0), S(0))",
             "(S(1), S(1), S(1), S(1), S(1), S(1))->(S(1), S(1), S(1))",
             "(S(2), B, B, S(2), S(2), S(2))->(S(2), P, P)", "(B, B, B, B, B, P)->(P, P, P)"}));
}

TEST_F(AttentionOpsTest, ScaleIsTheDepthsUnlessSaid) {
  LogicalGraph graph(&registry_);
  const Tensor q = Input(graph, "q", F32({2, 3, 5, 16}));
  const Tensor o = DotProductAttention(q, q, q, {.causal = true});
  const Tensor p = DotProductAttention(q, q, q, {.scale = 2});
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.producer(o.id()).attrs.Double("scale"), 0.25);
  EXPECT_EQ(graph.producer(p.id()).attrs.Double("scale"), 2);
  EXPECT_FALSE(DotProductAttention(q, q, Input(graph, "v", F32({5}))).valid());
  EXPECT_FALSE(graph.status().ok());
}

TEST_F(AttentionOpsTest, WithACache) {
  const auto infer = [&](const char* op, const std::vector<TensorType>& inputs) {
    const Attrs attrs = {{"scale", 1.0}, {"axis", int64_t{1}}};
    const auto types = registry_.Find(op)->InferTypes({attrs, inputs, {}});
    if (!types.ok()) return std::string(types.status().message());
    return types->empty() ? "none" : (*types)[0].ToString();
  };
  const TensorType q = F32({2, 3, 8, 16}), v = F32({2, 3, 8, 5}), position = {DType::kI32, {}};
  const TensorType old_k = F32({2, 9, 8, 16}), old_v = F32({2, 9, 8, 5});
  EXPECT_EQ(infer("cached_attention", {q, q, v, old_k, old_v, position}), "f32[2, 3, 8, 5]");
  EXPECT_EQ(infer("cached_attention", {q, q, v, F32({2, 2, 8, 16}), F32({2, 2, 8, 5}), position}),
            "a is [2, 3, 8, 16], d is [2, 2, 8, 16]; [batch, time, heads, depth] and [batch, "
            "cache, heads, depth] with a cache of at least `time` are needed");
  EXPECT_EQ(infer("cached_attention", {q, q, v, old_k, old_k, position}),
            "c is [2, 3, 8, 5], e is [2, 9, 8, 16]; axis 3 of e must be 5, as axis 3 of c");
  EXPECT_EQ(infer("write_rows", {old_v, v, position}), "none");
  EXPECT_EQ(infer("write_rows", {v, old_v, position}),
            "a is [2, 3, 8, 5], b is [2, 9, 8, 5]; b has more rows on axis 1");
  EXPECT_EQ(Signatures("cached_attention", {q, q, v, old_k, old_v, position}, {{"scale", 1.0}}, 4),
            (Texts{"(S(0), S(0), S(0), S(0), S(0), B)->(S(0))",
                   "(S(2), S(2), S(2), S(2), S(2), B)->(S(2))"}));
  EXPECT_EQ(Signatures("write_rows", {old_v, v, position}, {{"axis", int64_t{1}}}, 4),
            (Texts{"(S(0), S(0), B)->()", "(S(2), S(2), B)->()", "(S(3), S(3), B)->()"}));
}

}  // namespace
}  // namespace braid
