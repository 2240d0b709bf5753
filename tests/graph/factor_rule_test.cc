#include "graph/factor_rule.h"

#include "gtest/gtest.h"

namespace braid {
namespace {

using Texts = std::vector<std::string>;
constexpr int kNone = Factor::kAbsent;

Texts Signatures(const FactorRule& rule, const std::vector<TensorType>& inputs,
                 const std::vector<TensorType>& outputs, int64_t parts = 2) {
  Texts texts;
  const Attrs attrs;
  for (const SbpSignature& signature :
       rule.Signatures({.attrs = attrs, .inputs = inputs, .outputs = outputs}, parts)) {
    texts.push_back(signature.ToString());
  }
  return texts;
}

TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }

TEST(FactorRuleTest, AFactorIsSplitInEveryOperandThatHasIt) {
  const FactorRule rule = {.factors = {{.inputs = {0, kNone}, .outputs = {1}},
                                       {.inputs = {1, 0}, .outputs = {kNone}},
                                       {.inputs = {kNone, kNone}, .outputs = {0}}}};
  EXPECT_EQ(Signatures(rule, {F32({4, 6}), F32({6})}, {F32({5, 4})}),
            (Texts{"(S(0), B)->(S(1))", "(S(1), S(0))->(P)", "(B, B)->(S(0))"}));
}

TEST(FactorRuleTest, PartsOfAnAxisMustCutItsFactor) {
  // Four elements of axis 0 belong to each element of the factor.
  const FactorRule rule = {.factors = {{.inputs = {0}, .outputs = {0}, .size = 4}}};
  const Texts split = {"(S(0))->(S(0))"};
  EXPECT_EQ(Signatures(rule, {F32({16})}, {F32({4, 4})}, 1), split);
  EXPECT_EQ(Signatures(rule, {F32({16})}, {F32({4, 4})}, 2), split);
  EXPECT_EQ(Signatures(rule, {F32({16})}, {F32({4, 4})}, 4), split);
  EXPECT_EQ(Signatures(rule, {F32({16})}, {F32({4, 4})}, 3), Texts{});
  EXPECT_EQ(Signatures(rule, {F32({16})}, {F32({4, 4})}, 8), Texts{});
  // Where it is the whole axis, uneven parts cut both at the same places.
  EXPECT_EQ(Signatures(rule, {F32({4})}, {F32({4, 1})}, 3), split);
}

TEST(FactorRuleTest, PartialsAreOfTheFactorsKind) {
  const FactorRule rule = {.factors = {{.inputs = {0}, .outputs = {kNone}, .partial = sbp::Pmax}},
                           .passages = {{.inputs = {0}, .partial = sbp::Pmax}, {.inputs = {1}}}};
  EXPECT_EQ(Signatures(rule, {F32({4})}, {F32({})}),
            (Texts{"(S(0))->(P(max))", "(P(max))->(P(max))"}));
  // There are maxima of bools, but no sums.
  EXPECT_EQ(Signatures(rule, {F32({4})}, {{DType::kBool, {}}}),
            (Texts{"(S(0))->(P(max))", "(P(max))->(P(max))"}));
  EXPECT_EQ(Signatures({.factors = {{.inputs = {0}, .outputs = {kNone}}}}, {F32({4})},
                       {{DType::kBool, {}}}),
            Texts{});
}

TEST(FactorRuleTest, AddendsArePartialUnlessTheyAreSplit) {
  const FactorRule rule = {
      .factors = {{.inputs = {0, 0}, .outputs = {0}}, {.inputs = {1, kNone}, .outputs = {kNone}}},
      .passages = {{.inputs = {0}}},
      .addends = {1}};
  EXPECT_EQ(Signatures(rule, {F32({4, 6}), F32({4})}, {F32({4})}),
            (Texts{"(S(0), S(0))->(S(0))", "(S(1), P)->(P)", "(P, P)->(P)"}));
}

}  // namespace
}  // namespace braid
