#include "graph/rule.h"

#include "graph/op_def.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

std::vector<std::string> Signatures(std::string_view text, std::vector<Shape> inputs) {
  auto rule = Rule::Parse(text);
  if (!rule.ok()) return {rule.status().ToString()};
  std::vector<std::string> texts;
  for (const SbpSignature& signature : rule->Signatures(inputs)) {
    texts.push_back(signature.ToString());
  }
  return texts;
}

// The output shapes, or the error's message.
std::string Infer(std::string_view text, std::vector<Shape> inputs) {
  auto rule = Rule::Parse(text);
  if (!rule.ok()) return std::string(rule.status().message());
  auto shapes = rule->InferShapes(inputs);
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

TEST(RuleTest, ShapeErrorsSayBothValues) {
  EXPECT_EQ(Infer("ik,kj->ij", {{64, 784}, {512, 10}}),
            "a is [64, 784], b is [512, 10]; k differs");
  EXPECT_EQ(Infer("ik,kj->ij", {{64, 784}}), "takes 2 inputs, got 1");
  EXPECT_EQ(Infer("ik,kj->ij", {{64, 784}, {784}}),
            "a is [64, 784], b is [784]; b must have 2 dims (ik,kj->ij)");
  EXPECT_EQ(Infer("...c->c", {{}}), "a is []; a must have at least 1 dims (...c->c)");
  EXPECT_EQ(Infer("...,...->...", {{4, 3}, {4}}), "a is [4, 3], b is [4]; the leading dims differ");
}

TEST(RuleTest, TextErrors) {
  for (const char* text : {"ik,kj", "ik->ij", "ii->i", "i[k->i", "i]k->i", "[[i]]->i", "i->...i",
                           "i...->i", "i->j->k", "i1->i"}) {
    EXPECT_EQ(Rule::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(Infer("ik->ij", {}), "rule \"ik->ij\": no input says how long j is");
}

}  // namespace
}  // namespace braid
