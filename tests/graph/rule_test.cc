#include "graph/rule.h"

#include "graph/op_def.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

std::vector<TensorType> F32(const std::vector<Shape>& shapes) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({DType::kF32, shape});
  return types;
}

// With outputs as the rule infers them, unless `outputs` says them.
std::vector<std::string> Signatures(std::string_view text, const std::vector<Shape>& inputs,
                                    const Attrs& attrs = {}, std::vector<Shape> outputs = {},
                                    int64_t parts = 2) {
  const auto rule = Rule::Parse(text);
  if (!rule.ok()) return {rule.status().ToString()};
  const std::vector<TensorType> in = F32(inputs);
  if (outputs.empty()) {
    const auto shapes = rule->InferShapes({.attrs = attrs, .inputs = in});
    if (!shapes.ok()) return {shapes.status().ToString()};
    outputs = *shapes;
  }
  const std::vector<TensorType> out = F32(outputs);
  const OpContext context = {.attrs = attrs, .inputs = in, .outputs = out};
  const auto factors = rule->Factors(context);
  if (!factors.ok()) return {factors.status().ToString()};
  std::vector<std::string> texts;
  for (const SbpSignature& signature : factors->Signatures(context, parts)) {
    texts.push_back(signature.ToString());
  }
  return texts;
}

// The output shapes, or the error's message.
std::string Infer(std::string_view text, const std::vector<Shape>& inputs,
                  const Attrs& attrs = {}) {
  const auto rule = Rule::Parse(text);
  if (!rule.ok()) return std::string(rule.status().message());
  const auto shapes = rule->InferShapes({.attrs = attrs, .inputs = F32(inputs)});
  if (!shapes.ok()) return std::string(shapes.status().message());
  std::string result;
  for (const Shape& shape : *shapes) result += shape.ToString();
  return result;
}

using Texts = std::vector<std::string>;

TEST(RuleTest, Matmul) {
  EXPECT_EQ(Infer("ik,kj->ij", {{64, 784}, {784, 10}}), "[64, 10]");
  EXPECT_EQ(Signatures("ik,kj->ij", {{4, 6}, {6, 8}}),
            (Texts{"(S(0), B)->(S(0))", "(S(1), S(0))->(P)", "(B, S(1))->(S(1))"}));
  EXPECT_EQ(Signatures("ki,jk->ij", {{6, 4}, {8, 6}}),
            (Texts{"(S(0), S(1))->(P)", "(S(1), B)->(S(0))", "(B, S(0))->(S(1))"}));
}

TEST(RuleTest, BatchedMatmulBroadcasts) {
  EXPECT_EQ(Infer("...ik,...kj->...ij", {{5, 2, 3}, {5, 3, 4}}), "[5, 2, 4]");
  EXPECT_EQ(Infer("...ik,...kj->...ij", {{6, 5, 2, 3}, {1, 3, 4}}), "[6, 5, 2, 4]");
  EXPECT_EQ(Infer("...ik,kj->...ij", {{6, 5, 2, 3}, {3, 4}}), "[6, 5, 2, 4]");
  EXPECT_EQ(Signatures("...ik,...kj->...ij", {{6, 5, 2, 3}, {1, 3, 4}}),
            (Texts{"(S(0), B)->(S(0))", "(S(1), B)->(S(1))", "(S(2), B)->(S(2))",
                   "(S(3), S(1))->(P)", "(B, S(2))->(S(3))"}));
  // Fewer leading dims align to the right.
  EXPECT_EQ(Signatures("...ik,...kj->...ij", {{5, 2, 3}, {6, 5, 3, 4}}),
            (Texts{"(B, S(0))->(S(0))", "(S(0), S(1))->(S(1))", "(S(1), B)->(S(2))",
                   "(S(2), S(2))->(P)", "(B, S(3))->(S(3))"}));
}

TEST(RuleTest, ElementwiseWithBroadcast) {
  EXPECT_EQ(Infer("...,...->...", {{4, 1}, {3}}), "[4, 3]");
  EXPECT_EQ(Infer("...,...->...", {{}, {2, 2}}), "[2, 2]");
  EXPECT_EQ(Infer("...,...->...", {{1}, {0}}), "[0]");
  EXPECT_EQ(Signatures("...,...->...", {{4, 1}, {3}}),
            (Texts{"(S(0), B)->(S(0))", "(B, S(0))->(S(1))"}));
  EXPECT_EQ(Signatures("...,...->...", {{1, 2}, {1, 2}}),
            (Texts{"(S(0), S(0))->(S(0))", "(S(1), S(1))->(S(1))"}));
  EXPECT_EQ(Signatures("...,...->...", {{}, {}}), Texts{});
}

TEST(RuleTest, FixedLettersAreNeverSplit) {
  EXPECT_EQ(Signatures("n[c]->n[c]", {{4, 5}}), Texts{"(S(0))->(S(0))"});
  EXPECT_EQ(Signatures("n[c],n->n", {{4, 5}, {4}}), Texts{"(S(0), S(0))->(S(0))"});
  EXPECT_EQ(Signatures("...[hw]->...[hw]", {{2, 3, 4, 5}}),
            (Texts{"(S(0))->(S(0))", "(S(1))->(S(1))"}));
}

TEST(RuleTest, LeftOnlyLettersLeaveP) {
  EXPECT_EQ(Infer("nc->n", {{4, 5}}), "[4]");
  EXPECT_EQ(Signatures("nc->n", {{4, 5}}), (Texts{"(S(0))->(S(0))", "(S(1))->(P)"}));
  EXPECT_EQ(Infer("...c->c", {{2, 3, 5}}), "[5]");
  EXPECT_EQ(Signatures("...c->c", {{2, 3, 5}}),
            (Texts{"(S(0))->(P)", "(S(1))->(P)", "(S(2))->(S(0))"}));
  EXPECT_EQ(Infer("...->", {{2, 3}}), "[]");
  EXPECT_EQ(Signatures("...->", {{2, 3}}), (Texts{"(S(0))->(P)", "(S(1))->(P)"}));
}

TEST(RuleTest, BiasAndSeveralOutputs) {
  EXPECT_EQ(Signatures("...c,c->...c", {{2, 3, 5}, {5}}),
            (Texts{"(S(0), B)->(S(0))", "(S(1), B)->(S(1))", "(S(2), S(0))->(S(2))"}));
  EXPECT_EQ(Infer("nc,c->nc,c,n", {{4, 5}, {5}}), "[4, 5][5][4]");
  EXPECT_EQ(Signatures("nc,c->nc,c,n", {{4, 5}, {5}}),
            (Texts{"(S(0), B)->(S(0), P, S(0))", "(S(1), S(0))->(S(1), S(0), P)"}));
}

TEST(RuleTest, CapitalLettersAreAxesThatAreAlike) {
  EXPECT_EQ(Infer("Nc,N->N", {{2, 3, 5}, {2, 3}}), "[2, 3]");
  EXPECT_EQ(Signatures("Nc,N->N", {{2, 3, 5}, {2, 3}}),
            (Texts{"(S(0), S(0))->(S(0))", "(S(1), S(1))->(S(1))", "(S(2), B)->(P)"}));
  EXPECT_EQ(Infer("Nc,N->N", {{2, 3, 5}, {1, 3}}),
            "a is [2, 3, 5], b is [1, 3]; axis 0 of b must be 2, as axis 0 of a");
  EXPECT_EQ(Infer("Nc,N->N", {{5}, {}}), "[]");
}

TEST(RuleTest, AttributesSayAxesAndSizes) {
  const Attrs attrs = {{"axis", int64_t{1}}, {"size", int64_t{9}}};
  const std::string_view gather = "A{axis}vB,I->AIB; IvAB";
  EXPECT_EQ(Infer(gather, {{2, 7, 3}, {4, 5}}, attrs), "[2, 4, 5, 3]");
  EXPECT_EQ(Signatures(gather, {{2, 7, 3}, {4, 5}}, attrs),
            (Texts{"(B, S(0))->(S(1))", "(B, S(1))->(S(2))", "(S(1), B)->(P)", "(S(0), B)->(S(0))",
                   "(S(2), B)->(S(3))"}));
  EXPECT_EQ(Infer(gather, {{}, {4}}, attrs),
            "a is [], axis is 1; a must have at least 2 dims (A{axis}vB,I->AIB;IvAB)");
  EXPECT_EQ(Infer(gather, {{2}, {4}}, {{"axis", int64_t{-1}}}),
            "axis is -1; axis must not be negative");
  EXPECT_EQ(Infer(gather, {{2}, {4}}, {{"axis", int64_t{1} << 40}}),
            "axis is 1099511627776; these are too many axes");
  // The new axis is split by nobody's splitting: each part takes what falls into it.
  EXPECT_EQ(Infer("N->Nc{size}", {{4}}, attrs), "[4, 9]");
  EXPECT_EQ(Signatures("N->Nc{size}", {{4}}, attrs), (Texts{"(S(0))->(S(0))", "(B)->(S(1))"}));
}

TEST(RuleTest, OnlyTheFirstPartOfAnAxisIsSplit) {
  const Attrs attrs = {{"groups", int64_t{4}}};
  const std::string_view norm = "n(g{groups}c),(gc)->n(gc),ng";
  EXPECT_EQ(Infer(norm, {{3, 12}, {12}}, attrs), "[3, 12][3, 4]");
  EXPECT_EQ(Infer(norm, {{3, 10}, {10}}, attrs),
            "a is [3, 10], groups is 4; axis 1 of a must be a multiple of 4 "
            "(n(g{groups}c),(gc)->n(gc),ng)");
  const Texts both = {"(S(0), B)->(S(0), S(0))", "(S(1), S(0))->(S(1), S(1))"};
  EXPECT_EQ(Signatures(norm, {{3, 12}, {12}}, attrs, {}, 2), both);
  EXPECT_EQ(Signatures(norm, {{3, 12}, {12}}, attrs, {}, 4), both);
  // Three parts of the channels are not three parts of the groups, unless each group is a channel.
  EXPECT_EQ(Signatures(norm, {{3, 12}, {12}}, attrs, {}, 3), Texts{both[0]});
  EXPECT_EQ(Signatures(norm, {{3, 4}, {4}}, attrs, {}, 3), both);
}

TEST(RuleTest, OperandsMayBeLeftOutOrRepeated) {
  EXPECT_EQ(Infer("bi,oi,o?->bo", {{2, 3}, {4, 3}}), "[2, 4]");
  EXPECT_EQ(Infer("bi,oi,o?->bo", {{2, 3}, {4, 3}, {4}}), "[2, 4]");
  EXPECT_EQ(Infer("bi,oi,o?->bo", {{2, 3}}), "has 1 inputs, takes 2 to 3");
  EXPECT_EQ(Signatures("A_*->A_", {{2, 3}, {2, 5}}, {}, {{2, 8}}), Texts{"(S(0), S(0))->(S(0))"});
  EXPECT_EQ(Signatures("N,N,*->()", {{6}, {6}, {}, {}}), Texts{"(S(0), S(0), B, B)->()"});
  EXPECT_EQ(Signatures("()->N", {}, {}, {{2, 3}}), (Texts{"()->(S(0))", "()->(S(1))"}));
}

TEST(RuleTest, NumbersAreAxesThatAreNeverSplit) {
  EXPECT_EQ(Infer("b4u,bu->bu", {{2, 4, 3}, {2, 3}}), "[2, 3]");
  EXPECT_EQ(Signatures("b4u,bu->bu", {{2, 4, 3}, {2, 3}}),
            (Texts{"(S(0), S(0))->(S(0))", "(S(2), S(1))->(S(1))"}));
  EXPECT_EQ(Infer("b4u,bu->bu", {{2, 5, 3}, {2, 3}}), "a is [2, 5, 3]; axis 1 of a must be 4");
}

TEST(RuleTest, OrderSaysWhatIsPreferred) {
  EXPECT_EQ(
      Signatures("...mk,...kn->...mn; mnk", {{5, 4, 6}, {6, 8}}),
      (Texts{"(S(0), B)->(S(0))", "(S(1), B)->(S(1))", "(B, S(1))->(S(2))", "(S(2), S(0))->(P)"}));
  // A letter left out is never split.
  EXPECT_EQ(Signatures("mk,kn->mn; n", {{4, 6}, {6, 8}}), Texts{"(B, S(1))->(S(1))"});
}

TEST(RuleTest, ShapeErrorsSayBothValues) {
  EXPECT_EQ(Infer("ik,kj->ij", {{64, 784}, {512, 10}}),
            "a is [64, 784], b is [512, 10]; axis 0 of b must be 784, as axis 1 of a");
  EXPECT_EQ(Infer("ik,kj->ij", {{64, 784}}), "has 1 inputs, takes 2");
  EXPECT_EQ(Infer("ik,kj->ij", {{64, 784}, {784}}), "b is [784]; b must have 2 dims (ik,kj->ij)");
  EXPECT_EQ(Infer("...c->c", {{}}), "a is []; a must have at least 1 dims (...c->c)");
  EXPECT_EQ(Infer("...,...->...", {{4, 3}, {4}}), "a is [4, 3], b is [4]; they do not broadcast");
}

TEST(RuleTest, TextErrors) {
  for (const char* text :
       {"ik,kj", "ii->i", "i[k->i", "i]k->i", "[[i]]->i", "i->...i", "i...->i", "i->j->k", "i.->i",
        "i(->i", "()i->i", "(Ni)->i", "i{->i", "i{}->i", "i*,j->i", "i?,j->i", "i->i;k"}) {
    EXPECT_EQ(Rule::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(Infer("ik->ij", {}), "rule \"ik->ij\": no input says how long j is");
}

}  // namespace
}  // namespace braid
