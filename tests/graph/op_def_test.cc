#include "graph/op_def.h"

#include <algorithm>

#include "graph/op_registry.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using Texts = std::vector<std::string>;

TensorType Floats(Shape shape) { return {DType::kF32, std::move(shape)}; }

Texts Legal(const OpDef& def, std::vector<TensorType> inputs, Attrs attrs = {}) {
  auto outputs = def.InferTypes({.attrs = attrs, .inputs = inputs, .outputs = {}});
  if (!outputs.ok()) return {outputs.status().ToString()};
  Texts texts;
  for (const SbpSignature& signature :
       def.LegalSignatures({.attrs = attrs, .inputs = inputs, .outputs = *outputs}, /*parts=*/4)) {
    texts.push_back(signature.ToString());
  }
  return texts;
}

TEST(OpDefTest, MatmulHasItsSixSignatures) {
  OpDef def = OpDef("matmul").Rule("ik,kj->ij").Linear({0}).Linear({1});
  EXPECT_EQ(Legal(def, {Floats({4, 6}), Floats({6, 8})}),
            (Texts{"(B, B)->(B)", "(S(0), B)->(S(0))", "(S(1), S(0))->(P)", "(B, S(1))->(S(1))",
                   "(P, B)->(P)", "(B, P)->(P)"}));
}

TEST(OpDefTest, AddPassesTwoPartials) {
  OpDef def = OpDef("add").Rule("...,...->...").Linear({0, 1});
  EXPECT_EQ(Legal(def, {Floats({4}), Floats({4})}),
            (Texts{"(B, B)->(B)", "(S(0), S(0))->(S(0))", "(P, P)->(P)"}));
}

TEST(OpDefTest, IdentityPassesEveryPartial) {
  OpDef def = OpDef("identity").Rule("...->...").Linear({0}).PassesPartialMaxMin();
  EXPECT_EQ(Legal(def, {Floats({4})}), (Texts{"(B)->(B)", "(S(0))->(S(0))", "(P)->(P)",
                                              "(P(max))->(P(max))", "(P(min))->(P(min))"}));
}

TEST(OpDefTest, OwnSignaturesReplaceTheRules) {
  auto signatures = [](const OpContext&, int64_t parts) -> std::vector<SbpSignature> {
    EXPECT_EQ(parts, 4);
    // A repeat of all-B, one out of the operand's rank, one twice.
    return {{{sbp::B}, {sbp::B}},
            {{sbp::S(1)}, {sbp::S(1)}},
            {{sbp::S(0)}, {sbp::P}},
            {{sbp::S(0)}, {sbp::P}}};
  };
  OpDef def = OpDef("op").Rule("...->...").Signatures(signatures);
  EXPECT_EQ(Legal(def, {Floats({4})}), (Texts{"(B)->(B)", "(S(0))->(P)"}));
  OpDef split_only = OpDef("op").Rule("...->...").NoBroadcast();
  EXPECT_EQ(Legal(split_only, {Floats({4})}), Texts{"(S(0))->(S(0))"});
  EXPECT_EQ(Legal(split_only, {Floats({})}), Texts{});
}

TEST(OpDefTest, AttributesChooseTheRule) {
  OpDef def = OpDef("product").Takes("ff").Linear({1}).Rule([](const OpContext& ctx) {
    return std::string(ctx.attrs.Bool("transposed") ? "ki,kj->ij; ij" : "ik,kj->ij; ij");
  });
  EXPECT_EQ(Legal(def, {Floats({4, 6}), Floats({6, 8})}, {{"transposed", false}}),
            (Texts{"(B, B)->(B)", "(S(0), B)->(S(0))", "(B, S(1))->(S(1))", "(B, P)->(P)"}));
  EXPECT_EQ(Legal(def, {Floats({6, 4}), Floats({6, 8})}, {{"transposed", true}}),
            (Texts{"(B, B)->(B)", "(S(1), B)->(S(0))", "(B, S(1))->(S(1))", "(B, P)->(P)"}));
}

TEST(OpDefTest, FactorsMayBeGiven) {
  OpDef def = OpDef("reverse")
                  .Infer([](const OpContext& context) -> absl::StatusOr<std::vector<TensorType>> {
                    std::vector<int64_t> dims = context.inputs[0].shape.dims();
                    std::reverse(dims.begin(), dims.end());
                    return std::vector<TensorType>{{DType::kF32, Shape(dims)}};
                  })
                  .Rule([](const OpContext& context) {
                    FactorRule rule;
                    const int rank = context.inputs[0].shape.rank();
                    for (int i = 0; i < rank; ++i) {
                      rule.factors.push_back({.inputs = {i}, .outputs = {rank - 1 - i}});
                    }
                    return rule;
                  });
  EXPECT_EQ(Legal(def, {Floats({4, 5})}), (Texts{"(B)->(B)", "(S(0))->(S(1))", "(S(1))->(S(0))"}));
}

TEST(OpDefTest, AnAddendIsPartialWhereTheResultIs) {
  OpDef def = OpDef("linear").Rule("bi,oi,o?->bo; boi").Linear({0}).Linear({1}).Addend(2);
  EXPECT_EQ(Legal(def, {Floats({4, 6}), Floats({8, 6}), Floats({8})}),
            (Texts{"(B, B, B)->(B)", "(S(0), B, B)->(S(0))", "(B, S(0), S(0))->(S(1))",
                   "(S(1), S(1), P)->(P)", "(P, B, P)->(P)", "(B, P, P)->(P)"}));
  EXPECT_EQ(Legal(def, {Floats({4, 6}), Floats({8, 6})}),
            (Texts{"(B, B)->(B)", "(S(0), B)->(S(0))", "(B, S(0))->(S(1))", "(S(1), S(1))->(P)",
                   "(P, B)->(P)", "(B, P)->(P)"}));
}

TEST(OpDefTest, PartialsPassOnlyWhereTheOperatorIsLinear) {
  const auto is_positive = [](const OpContext& ctx) { return ctx.attrs.Int("n") > 0; };
  OpDef def = OpDef("op").Rule("...->...").Linear({0}, is_positive).Passes(sbp::Pmax, {0});
  EXPECT_EQ(Legal(def, {Floats({})}, {{"n", int64_t{1}}}),
            (Texts{"(B)->(B)", "(P)->(P)", "(P(max))->(P(max))"}));
  EXPECT_EQ(Legal(def, {Floats({})}, {{"n", int64_t{0}}}),
            (Texts{"(B)->(B)", "(P(max))->(P(max))"}));
  OpDef all = OpDef("op").Rule("N*->()").Linear({});
  EXPECT_EQ(Legal(all, {Floats({}), Floats({})}), (Texts{"(B, B)->()", "(P, P)->()"}));
}

TEST(OpDefTest, AddendsOfBoolsAreNotLeft) {
  OpDef def = OpDef("any").Rule("Nc->N").Gives(DType::kBool);
  EXPECT_EQ(Legal(def, {Floats({4, 5})}), (Texts{"(B)->(B)", "(S(0))->(S(0))"}));
}

TEST(OpDefTest, TakesSaysTheDTypes) {
  OpDef def = OpDef("pick").Rule("N,N,N->N").Takes("bxx");
  const auto infer = [&](DType a, DType b, DType c) {
    const std::vector<TensorType> inputs = {{a, {2}}, {b, {2}}, {c, {2}}};
    const auto types = def.InferTypes({.attrs = {}, .inputs = inputs, .outputs = {}});
    return types.ok() ? (*types)[0].ToString() : std::string(types.status().message());
  };
  EXPECT_EQ(infer(DType::kBool, DType::kU8, DType::kU8), "u8[2]");
  EXPECT_EQ(infer(DType::kI32, DType::kU8, DType::kU8), "a is i32[2]; bool is needed");
  EXPECT_EQ(infer(DType::kBool, DType::kU8, DType::kF32),
            "b is u8[2], c is f32[2]; dtypes differ, Cast one");
  def.Takes("fi");
  EXPECT_EQ(infer(DType::kI32, DType::kI32, DType::kF32),
            "a is i32[2]; a floating dtype is needed");
  EXPECT_EQ(infer(DType::kF32, DType::kF32, DType::kF32), "b is f32[2]; i32 or i64 is needed");
  def.Check([](const OpContext&) { return absl::InvalidArgumentError("it is Monday"); });
  EXPECT_EQ(infer(DType::kF32, DType::kI32, DType::kF32), "it is Monday");
}

TEST(OpDefTest, TypesThatTheRuleContradictsAreAnError) {
  OpDef def = OpDef("op").Rule("nc->n").Infer(
      [](const OpContext& context) -> absl::StatusOr<std::vector<TensorType>> {
        return std::vector<TensorType>{context.inputs[0]};
      });
  EXPECT_EQ(Legal(def, {Floats({4, 5})}),
            Texts{"INVALID_ARGUMENT: output 0 is [4, 5]; output 0 must have 1 dims (nc->n)"});
}

TEST(OpDefTest, OptionalInputsMayBeAbsent) {
  OpDef def = OpDef("op").Linear({0, 1}).Infer(
      [](const OpContext& context) -> absl::StatusOr<std::vector<TensorType>> {
        return std::vector<TensorType>{context.inputs[0]};
      });
  EXPECT_EQ(Legal(def, {Floats({4})}), Texts{"(B)->(B)"});
  EXPECT_EQ(Legal(def, {Floats({4}), Floats({4})}), (Texts{"(B, B)->(B)", "(P, P)->(P)"}));
}

TEST(OpDefTest, RuleGivesTheTypeOfInputZero) {
  OpDef def = OpDef("gather").Rule("vd,n->nd");
  std::vector<TensorType> inputs = {{DType::kBF16, {9, 2}}, {DType::kI64, {3}}};
  auto types = def.InferTypes({.attrs = {}, .inputs = inputs, .outputs = {}});
  ASSERT_TRUE(types.ok()) << types.status();
  EXPECT_EQ(*types, (std::vector<TensorType>{{DType::kBF16, {3, 2}}}));
  inputs[1].dtype = DType::kF32;
  EXPECT_EQ(def.InferTypes({.attrs = {}, .inputs = inputs, .outputs = {}}).status().message(),
            "the inputs are bf16[9, 2] and f32[3]; cast one to the other's element type");
}

TEST(OpDefTest, Flops) {
  OpDef def = OpDef("relu").Rule("...->...");
  std::vector<TensorType> types = {Floats({4, 5})};
  EXPECT_EQ(def.CountFlops({.attrs = {}, .inputs = types, .outputs = types}), 20);
  def.Flops([](const OpContext& context) {
    return 3.0 * static_cast<double>(context.outputs[0].shape.num_elements());
  });
  EXPECT_EQ(def.CountFlops({.attrs = {}, .inputs = types, .outputs = types}), 60);
}

TEST(OpDefTest, NominalOutputs) {
  EXPECT_EQ(OpDef("op").Rule("n->n,n").NominalOutputs(), 2);
  auto three = [](const OpContext& context) -> absl::StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>(3, context.inputs[0]);
  };
  EXPECT_EQ(OpDef("op").Infer(three).Sample({.inputs = {Floats({2})}}).NominalOutputs(), 3);
  EXPECT_EQ(OpDef("op").Infer(three).External().NominalOutputs(), 1);
}

TEST(OpRegistryTest, RefusesIncompleteDefinitions) {
  OpRegistry registry;
  auto code = [&registry](OpDef def) { return registry.Register(std::move(def)).code(); };
  OpSample sample = {.inputs = {Floats({2})}};
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(OpDef("a").NoGradient().Sample(sample)), kInvalid);                // no rule
  EXPECT_EQ(code(OpDef("a").Rule("n->m").NoGradient().Sample(sample)), kInvalid);   // a wrong one
  EXPECT_EQ(code(OpDef("a").Rule("n->n").Sample(sample)), kInvalid);                // no gradient
  EXPECT_EQ(code(OpDef("a").Rule("n->n").NoGradient()), kInvalid);                  // no sample
  EXPECT_EQ(code(OpDef("a").Rule("nm->n").NoGradient().Sample(sample)), kInvalid);  // it misfits
  EXPECT_EQ(code(OpDef("").Rule("n->n").NoGradient().Sample(sample)), kInvalid);
  EXPECT_EQ(code(OpDef("a").Rule("n->n").Takes("z").NoGradient().Sample(sample)), kInvalid);
  EXPECT_EQ(code(OpDef("a").Rule("n->m").NoGradient().External()), kInvalid);  // what is m?
  EXPECT_TRUE(registry.ops().empty());
  EXPECT_EQ(code(OpDef("a").Rule("n->n").NoGradient().Sample(sample)), absl::StatusCode::kOk);
  EXPECT_EQ(code(OpDef("b").Rule("n->n").NoGradient().External()), absl::StatusCode::kOk);
  EXPECT_EQ(code(OpDef("a").Rule("n->n").NoGradient().Sample(sample)),
            absl::StatusCode::kAlreadyExists);
  ASSERT_NE(registry.Find("a"), nullptr);
  EXPECT_EQ(registry.Find("a")->name(), "a");
  EXPECT_EQ(registry.Find("c"), nullptr);
}

}  // namespace
}  // namespace braid
