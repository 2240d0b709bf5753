#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "graph/op_registry.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

class OpsTest : public testing::Test {
 protected:
  TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }
  TensorType I32(Shape shape) { return {DType::kI32, std::move(shape)}; }

  // Output types, or the error's message.
  std::string Infer(std::string_view op, const std::vector<TensorType>& inputs,
                    const Attrs& attrs = {}) {
    const auto types = registry_.Find(op)->InferTypes({attrs, inputs, {}});
    if (!types.ok()) return std::string(types.status().message());
    std::string text;
    for (const TensorType& type : *types) {
      if (!text.empty()) text += ' ';
      text += type.ToString();
    }
    return text;
  }

  // All but all-B.
  std::vector<std::string> Signatures(std::string_view op, const std::vector<TensorType>& inputs,
                                      const Attrs& attrs = {}, int64_t parts = 2) {
    const OpDef& def = *registry_.Find(op);
    const auto outputs = def.InferTypes({attrs, inputs, {}});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    std::vector<std::string> texts;
    for (const SbpSignature& s : def.LegalSignatures({attrs, inputs, *outputs}, parts)) {
      texts.push_back(s.ToString());
    }
    EXPECT_FALSE(texts.empty());
    if (!texts.empty()) texts.erase(texts.begin());
    return texts;
  }

  OpRegistry registry_ = BuiltinOps();
};

using Texts = std::vector<std::string>;

TEST_F(OpsTest, BinaryBroadcasts) {
  EXPECT_EQ(Infer("add", {F32({64, 10}), F32({10})}), "f32[64, 10]");
  EXPECT_EQ(Infer("mul", {F32({3, 1, 6}), F32({5, 1})}), "f32[3, 5, 6]");
  EXPECT_EQ(Infer("less", {F32({4}), F32({})}), "bool[4]");
  EXPECT_EQ(Infer("add", {F32({64, 10}), F32({64})}),
            "a is [64, 10], b is [64]; they do not broadcast");
  EXPECT_EQ(Infer("add", {F32({4}), I32({4})}),
            "a is f32[4], b is i32[4]; dtypes differ, Cast one");
  EXPECT_EQ(Infer("add", {F32({4})}), "has 1 inputs, takes 2");
  EXPECT_EQ(Infer("exp", {I32({4})}), "a is i32[4]; a floating dtype is needed");
}

TEST_F(OpsTest, BinarySignatures) {
  EXPECT_EQ(Signatures("add", {F32({64, 10}), F32({10})}),
            (Texts{"(S(0), B)->(S(0))", "(S(1), S(0))->(S(1))", "(P, P)->(P)"}));
  EXPECT_EQ(Signatures("mul", {F32({4}), F32({4})}),
            (Texts{"(S(0), S(0))->(S(0))", "(P, B)->(P)", "(B, P)->(P)"}));
  EXPECT_EQ(Signatures("div", {F32({4}), F32({4})}),
            (Texts{"(S(0), S(0))->(S(0))", "(P, B)->(P)"}));
  EXPECT_EQ(Signatures("maximum", {F32({4}), F32({4})}), (Texts{"(S(0), S(0))->(S(0))"}));
}

TEST_F(OpsTest, IntegersAreNotDividedInAddends) {
  EXPECT_EQ(Signatures("div", {I32({4}), I32({4})}), (Texts{"(S(0), S(0))->(S(0))"}));
  EXPECT_EQ(Signatures("mod", {F32({4}), F32({4})}), (Texts{"(S(0), S(0))->(S(0))"}));
  EXPECT_EQ(Infer("bitwise_and", {{DType::kU8, {4}}, {DType::kU8, {4}}}), "u8[4]");
  EXPECT_EQ(Infer("bitwise_and", {F32({4}), F32({4})}), "a is f32[4]; i32, i64 or u8 is needed");
  EXPECT_EQ(Infer("shift_left", {I32({4}), {DType::kI64, {4}}}),
            "a is i32[4], b is i64[4]; dtypes differ, Cast one");
  EXPECT_EQ(Infer("is_nan", {F32({4})}), "bool[4]");
}

TEST_F(OpsTest, UnarySignatures) {
  EXPECT_EQ(Signatures("relu", {F32({4, 5})}), (Texts{"(S(0))->(S(0))", "(S(1))->(S(1))"}));
  EXPECT_EQ(Signatures("scale", {F32({4})}, {{"factor", 2.0}}),
            (Texts{"(S(0))->(S(0))", "(P)->(P)"}));
  EXPECT_EQ(Signatures("identity", {F32({4})}),
            (Texts{"(S(0))->(S(0))", "(P)->(P)", "(P(max))->(P(max))", "(P(min))->(P(min))"}));
  EXPECT_EQ(Signatures("relu_grad", {F32({4}), F32({4})}),
            (Texts{"(S(0), S(0))->(S(0))", "(B, P)->(P)"}));
  EXPECT_EQ(Signatures("cast", {F32({4})}, {{"dtype", DType::kF64}}),
            (Texts{"(S(0))->(S(0))", "(P)->(P)"}));
  // Rounding does not distribute over addends.
  EXPECT_EQ(Signatures("cast", {F32({4})}, {{"dtype", DType::kBF16}}), (Texts{"(S(0))->(S(0))"}));
  EXPECT_EQ(Signatures("dropout", {F32({4})}, {{"rate", 0.5}, {"key", "d"}}),
            (Texts{"(S(0))->(S(0))"}));
}

TEST_F(OpsTest, Matmul) {
  EXPECT_EQ(Infer("matmul", {F32({64, 784}), F32({784, 10})}), "f32[64, 10]");
  EXPECT_EQ(Infer("matmul", {F32({64, 784}), F32({512, 10})}),
            "a is [64, 784], b is [512, 10]; axis 0 of b must be 784, as axis 1 of a");
  EXPECT_EQ(Infer("matmul", {F32({5, 6}), F32({7, 5})}, {{"transpose_b", true}}),
            "a is [5, 6], b is [7, 5]; axis 1 of b must be 6, as axis 1 of a");
  EXPECT_EQ(Infer("matmul", {F32({2, 3, 5, 6}), F32({6, 7})}), "f32[2, 3, 5, 7]");
  EXPECT_EQ(Infer("matmul", {F32({2, 1, 5, 6}), F32({3, 6, 7})}), "f32[2, 3, 5, 7]");
  EXPECT_EQ(Infer("matmul", {F32({2, 5, 6}), F32({3, 6, 7})}),
            "a is [2, 5, 6], b is [3, 6, 7]; they do not broadcast");
  // Just the six of the algebra, all-B counted.
  EXPECT_EQ(Signatures("matmul", {F32({4, 6}), F32({6, 8})}),
            (Texts{"(S(0), B)->(S(0))", "(B, S(1))->(S(1))", "(S(1), S(0))->(P)", "(P, B)->(P)",
                   "(B, P)->(P)"}));
  EXPECT_EQ(Signatures("matmul", {F32({6, 4}), F32({8, 6})},
                       {{"transpose_a", true}, {"transpose_b", true}}),
            (Texts{"(S(1), B)->(S(0))", "(B, S(0))->(S(1))", "(S(0), S(1))->(P)", "(P, B)->(P)",
                   "(B, P)->(P)"}));
  EXPECT_EQ(Signatures("matmul", {F32({2, 1, 5, 6}), F32({3, 6, 7})}),
            (Texts{"(S(0), B)->(S(0))", "(B, S(0))->(S(1))", "(S(2), B)->(S(2))",
                   "(B, S(2))->(S(3))", "(S(3), S(1))->(P)", "(P, B)->(P)", "(B, P)->(P)"}));
  const Shape a = {4, 6}, b = {6, 8};
  const std::vector<TensorType> inputs = {F32(a), F32(b)}, outputs = {F32({4, 8})};
  EXPECT_EQ(registry_.Find("matmul")->CountFlops({{}, inputs, outputs}), 2 * 4 * 6 * 8);
}

TEST_F(OpsTest, MatmulAdd) {
  EXPECT_EQ(Infer("matmul_add", {F32({2, 5, 6}), F32({6, 7}), F32({7})}), "f32[2, 5, 7]");
  EXPECT_EQ(Infer("matmul_add", {F32({5, 6}), F32({7, 6}), F32({5, 7}), F32({7})},
                  {{"transpose_b", true}}),
            "f32[5, 7]");
  EXPECT_EQ(Infer("matmul_add", {F32({5, 6}), F32({6, 7}), F32({5})}),
            "an addend is f32[5]; f32[5, 7] or f32[7] is needed");
  EXPECT_EQ(Infer("matmul_add", {F32({5, 6}), F32({6, 7}), {DType::kF64, {7}}}),
            "an addend is f64[7]; f32[5, 7] or f32[7] is needed");
  EXPECT_EQ(Infer("matmul_add", {F32({5, 6}), F32({5, 7}), F32({7})}),
            "a is [5, 6], b is [5, 7]; b must be a matrix, and its depth the last axis of a");
  EXPECT_EQ(
      Infer("matmul_add", {F32({5, 6}), F32({6, 7}), F32({7}), F32({7})}),
      "a is [5, 6], b is [6, 7]; of two addends one is a row, and one as large as the result");
  EXPECT_EQ(Infer("matmul_add", {F32({6, 5}), F32({6, 7}), F32({7})}, {{"transpose_a", true}}),
            "a is [6, 5], b is [6, 7]; a must not be transposed");
  EXPECT_EQ(Infer("matmul_add", {F32({5, 6}), F32({6, 7})}), "has 2 inputs, takes 3");
  EXPECT_EQ(Signatures("matmul_add", {F32({4, 6}), F32({6, 8}), F32({8}), F32({4, 8})}),
            (Texts{"(S(0), B, B, S(0))->(S(0))", "(B, S(1), S(0), S(1))->(S(1))",
                   "(S(1), S(0), P, P)->(P)", "(P, B, P, P)->(P)", "(B, P, P, P)->(P)"}));
}

TEST_F(OpsTest, Tensordot) {
  EXPECT_EQ(Infer("tensordot", {F32({2, 5, 3}), F32({2, 5, 4})}), "f32[3, 4]");
  EXPECT_EQ(Infer("tensordot", {F32({2, 5, 3}), F32({5, 4})}),
            "b is [5, 4]; b must have 3 dims (Nkm,Nkn->mn)");
  EXPECT_EQ(Signatures("tensordot", {F32({5, 3}), F32({5, 4})}),
            (Texts{"(S(0), S(0))->(P)", "(S(1), B)->(S(0))", "(B, S(1))->(S(1))", "(P, B)->(P)",
                   "(B, P)->(P)"}));
}

TEST_F(OpsTest, ReshapeMatchesGroupsOfAxes) {
  const Texts partials = {"(P)->(P)", "(P(max))->(P(max))", "(P(min))->(P(min))"};
  const auto with_partials = [&](Texts texts) {
    texts.insert(texts.end(), partials.begin(), partials.end());
    return texts;
  };
  const auto of = [&](Shape from, Ints to, int64_t parts) {
    return Signatures("reshape", {F32(std::move(from))}, {{"shape", std::move(to)}}, parts);
  };
  EXPECT_EQ(of({5, 3, 2}, {5, 6}, 2), with_partials({"(S(0))->(S(0))"}));
  EXPECT_EQ(of({5, 4, 3}, {5, 12}, 2), with_partials({"(S(0))->(S(0))", "(S(1))->(S(1))"}));
  EXPECT_EQ(of({5, 4, 3}, {5, 12}, 3), with_partials({"(S(0))->(S(0))"}));
  EXPECT_EQ(of({8, 3}, {4, 6}, 4), with_partials({"(S(0))->(S(0))"}));
  EXPECT_EQ(of({8, 3}, {4, 6}, 8), with_partials({}));
  EXPECT_EQ(of({1, 5, 6}, {5, 1, 6}, 2), with_partials({"(S(1))->(S(0))", "(S(2))->(S(2))"}));
  EXPECT_EQ(of({0, 6}, {6, 0}, 2), with_partials({}));
  EXPECT_EQ(of({}, {1}, 2), with_partials({}));
  EXPECT_EQ(Infer("reshape", {F32({5, 6})}, {{"shape", Ints{4, 7}}}),
            "a is f32[5, 6], shape is [4, 7]; the numbers of elements differ");
}

TEST_F(OpsTest, Layout) {
  EXPECT_EQ(Infer("transpose", {F32({3, 5, 2})}, {{"perm", Ints{2, 0, 1}}}), "f32[2, 3, 5]");
  EXPECT_EQ(Infer("transpose", {F32({3, 5})}, {{"perm", Ints{1, 1}}}),
            "a is f32[3, 5], perm is [1, 1]; it must name each axis once");
  EXPECT_EQ(Signatures("transpose", {F32({3, 5})}, {{"perm", Ints{1, 0}}}),
            (Texts{"(S(1))->(S(0))", "(S(0))->(S(1))", "(P)->(P)", "(P(max))->(P(max))",
                   "(P(min))->(P(min))"}));
  const Attrs slice = {{"begin", Ints{0, 2}}, {"size", Ints{5, 3}}};
  EXPECT_EQ(Infer("slice", {F32({5, 6})}, slice), "f32[5, 3]");
  EXPECT_EQ(Infer("slice", {F32({5, 4})}, slice),
            "a is f32[5, 4], begin is [0, 2]; size is [5, 3], axis 1 goes outside");
  EXPECT_EQ(Signatures("slice", {F32({5, 6})}, slice),
            (Texts{"(S(0))->(S(0))", "(S(1))->(P)", "(P)->(P)"}));
  EXPECT_EQ(Signatures("pad", {F32({5, 6})}, {{"before", Ints{0, 1}}, {"after", Ints{0, 0}}}),
            (Texts{"(S(0))->(S(0))", "(P)->(P)"}));
  EXPECT_EQ(Infer("concat", {F32({5, 2}), F32({5, 3})}, {{"axis", int64_t{1}}}), "f32[5, 5]");
  EXPECT_EQ(Infer("concat", {F32({5, 2}), F32({4, 3})}, {{"axis", int64_t{1}}}),
            "input 0 is f32[5, 2], input 1 is f32[4, 3]; only axis 1 may differ");
  EXPECT_EQ(Signatures("concat", {F32({5, 2}), F32({5, 3})}, {{"axis", int64_t{1}}}),
            (Texts{"(S(0), S(0))->(S(0))", "(P, P)->(P)"}));
  const Attrs split = {{"axis", int64_t{0}}, {"sizes", Ints{1, 4}}};
  EXPECT_EQ(Infer("split", {F32({5, 2})}, split), "f32[1, 2] f32[4, 2]");
  EXPECT_EQ(Infer("split", {F32({6, 2})}, split),
            "a is f32[6, 2], sizes is [1, 4]; they must add up to axis 0");
  EXPECT_EQ(Signatures("split", {F32({5, 2})}, split),
            (Texts{"(S(1))->(S(1), S(1))", "(P)->(P, P)"}));
  EXPECT_EQ(Signatures("broadcast_to", {F32({1, 3})}, {{"shape", Ints{2, 4, 3}}}),
            (Texts{"(B)->(S(0))", "(B)->(S(1))", "(S(1))->(S(2))", "(P)->(P)", "(P(max))->(P(max))",
                   "(P(min))->(P(min))"}));
}

TEST_F(OpsTest, SlicesInStepsAndPads) {
  const auto slice = [&](Ints begin, Ints size, Ints step) {
    return Infer("slice", {F32({7})},
                 {{"begin", std::move(begin)}, {"size", std::move(size)}, {"step", step}});
  };
  EXPECT_EQ(slice({6}, {4}, {-2}), "f32[4]");
  EXPECT_EQ(slice({7}, {0}, {3}), "f32[0]");
  EXPECT_EQ(slice({6}, {5}, {-2}),
            "a is f32[7], begin is [6]; size is [5], step is [-2], axis 0 goes outside");
  EXPECT_EQ(slice({0}, {2}, {0}), "a is f32[7], step is [0]; it must not be 0");
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  EXPECT_NE(slice({1}, {kLargest}, {kLargest}), "f32[9223372036854775807]");
  const Attrs steps = {{"begin", Ints{0, 2}}, {"size", Ints{2, 3}}, {"step", Ints{2, -1}}};
  EXPECT_EQ(Signatures("slice", {F32({4, 3})}, steps),
            (Texts{"(S(0))->(P)", "(S(1))->(P)", "(P)->(P)"}));
  EXPECT_EQ(Signatures("slice", {{DType::kBool, {4, 3}}}, steps), (Texts{"(P)->(P)"}));

  const auto pad = [&](int64_t before, int64_t after, const char* mode) {
    return Infer("pad", {F32({3})},
                 {{"before", Ints{before}}, {"after", Ints{after}}, {"mode", mode}});
  };
  EXPECT_EQ(pad(-1, 4, "wrap"), "f32[6]");
  EXPECT_EQ(pad(-2, -2, "constant"),
            "a is f32[3], before is [-2]; after is [-2], axis 0 would have a size that is none");
  EXPECT_EQ(pad(1, 1, "mirror"), "mode is 'mirror'; it must be constant, reflect, edge or wrap");
  EXPECT_EQ(pad(std::numeric_limits<int64_t>::min(), kLargest, "constant"),
            "a is f32[3], before is [-9223372036854775808]; after is [9223372036854775807]; axis 0 "
            "is too long");
  const Attrs value = {{"before", Ints{0, 1}}, {"after", Ints{0, 0}}, {"value", 1.0}};
  EXPECT_EQ(Signatures("pad", {F32({5, 6})}, value), (Texts{"(S(0))->(S(0))"}));
  EXPECT_EQ(Signatures("triangle", {F32({2, 3})}, {{"diagonal", int64_t{0}}, {"upper", true}}),
            (Texts{"(S(0))->(S(0))", "(S(1))->(S(1))", "(P)->(P)"}));
}

TEST_F(OpsTest, PlacesThatIndicesName) {
  const Attrs axis = {{"axis", int64_t{0}}};
  EXPECT_EQ(Infer("gather_elements", {F32({3, 4}), I32({5, 2})}, axis), "f32[5, 2]");
  EXPECT_EQ(Infer("gather_elements", {F32({3, 4}), I32({5, 6})}, axis),
            "the table is [3, 4], the indices are [5, 6]; they must have one rank, and the indices "
            "no larger dim but at axis 0");
  EXPECT_EQ(Signatures("gather_elements", {F32({3, 4}), I32({5, 4})}, axis),
            (Texts{"(B, S(0))->(S(0))", "(S(1), S(1))->(S(1))", "(S(0), B)->(P)", "(P, B)->(P)"}));
  const auto scatter = [](const char* reduction) {
    return Attrs{{"axis", int64_t{0}}, {"reduction", reduction}};
  };
  const std::vector<TensorType> operands = {F32({3, 4}), I32({5, 4}), F32({5, 4})};
  EXPECT_EQ(Signatures("scatter_elements", operands, scatter("none")),
            (Texts{"(S(0), B, B)->(S(0))", "(S(1), S(1), S(1))->(S(1))", "(P, B, P)->(P)"}));
  EXPECT_EQ(Signatures("scatter_elements", operands, scatter("max")),
            (Texts{"(S(0), B, B)->(S(0))", "(B, S(0), S(0))->(P(max))",
                   "(S(1), S(1), S(1))->(S(1))", "(P(max), B, P(max))->(P(max))"}));
  EXPECT_EQ(Infer("scatter_elements", operands, scatter("add")),
            "reduction is 'add'; it must be none, mul, max or min");
  const Attrs nd = {{"batch_dims", int64_t{1}}};
  EXPECT_EQ(Infer("gather_nd", {F32({2, 5, 6, 3}), I32({2, 4, 2})}, nd), "f32[2, 4, 3]");
  EXPECT_EQ(Infer("gather_nd", {F32({3, 5, 6}), I32({2, 4, 2})}, nd),
            "the table is [3, 5, 6], the indices are [2, 4, 2], batch_dims is 1; the first "
            "batch_dims dims must be equal");
  EXPECT_EQ(Infer("gather_nd", {F32({2, 5}), I32({2, 4, 2})}, nd),
            "the table is [2, 5], the indices are [2, 4, 2], batch_dims is 1; the last dim of the "
            "indices must be a number of axes of the table");
  EXPECT_EQ(Signatures("gather_nd", {F32({2, 5, 3}), I32({2, 4, 1})}, nd),
            (Texts{"(S(0), S(0))->(S(0))", "(B, S(1))->(S(1))", "(S(1), B)->(P)",
                   "(S(2), B)->(S(2))", "(P, B)->(P)"}));
  EXPECT_EQ(
      Infer("top_k", {F32({3, 4})}, {{"axis", int64_t{1}}, {"k", int64_t{5}}, {"largest", true}}),
      "a is f32[3, 4], k is 5; it must be within axis 1");
  EXPECT_EQ(Signatures("sort", {F32({3, 4})}, {{"axis", int64_t{1}}, {"descending", false}}),
            (Texts{"(S(0))->(S(0), S(0))"}));
}

TEST_F(OpsTest, Reductions) {
  const Attrs last = {{"axes", Ints{1}}, {"keep_dims", false}};
  EXPECT_EQ(Infer("reduce_sum", {F32({5, 6})}, last), "f32[5]");
  EXPECT_EQ(Infer("reduce_max", {F32({5, 6})}, {{"axes", Ints{1}}, {"keep_dims", true}}),
            "f32[5, 1]");
  EXPECT_EQ(Infer("reduce_sum", {F32({5})}, last), "axis is 1, rank is 1");
  EXPECT_EQ(Signatures("reduce_mean", {F32({5, 6})}, last),
            (Texts{"(S(0))->(S(0))", "(S(1))->(P)", "(P)->(P)"}));
  EXPECT_EQ(Signatures("reduce_max", {F32({5, 6})}, last),
            (Texts{"(S(0))->(S(0))", "(S(1))->(P(max))", "(P(max))->(P(max))"}));
  EXPECT_EQ(
      Signatures("reduce_min", {F32({3, 5, 6})}, {{"axes", Ints{0, 2}}}),
      (Texts{"(S(0))->(P(min))", "(S(1))->(S(0))", "(S(2))->(P(min))", "(P(min))->(P(min))"}));
  // A product of addends is no addend.
  EXPECT_EQ(Signatures("reduce_prod", {F32({5, 6})}, last), (Texts{"(S(0))->(S(0))"}));
  EXPECT_EQ(Signatures("reduce_sum_square", {F32({5, 6})}, last),
            (Texts{"(S(0))->(S(0))", "(S(1))->(P)"}));
  EXPECT_EQ(Infer("reduce_max", {{DType::kBool, {5, 6}}}, last), "bool[5]");
  EXPECT_EQ(Infer("reduce_sum", {{DType::kBool, {5, 6}}}, last),
            "a is bool[5, 6]; floating, i32 or i64 is needed");
  EXPECT_EQ(Infer("reduce_mean", {I32({5, 6})}, last),
            "a is i32[5, 6]; a floating dtype is needed");
  const Attrs scan = {{"axis", int64_t{1}}, {"exclusive", false}, {"reverse", false}};
  EXPECT_EQ(Signatures("cumsum", {F32({5, 6})}, scan), (Texts{"(S(0))->(S(0))", "(P)->(P)"}));
  EXPECT_EQ(Signatures("cumprod", {F32({5, 6})}, scan), (Texts{"(S(0))->(S(0))"}));
  EXPECT_EQ(Infer("cumsum", {F32({5})}, scan),
            "a is [5], axis is 1; a must have at least 2 dims (A{axis}[v]B->A[v]B)");
  EXPECT_EQ(Infer("argmax", {F32({3, 5, 6})}, {{"axis", int64_t{1}}}), "i32[3, 6]");
  EXPECT_EQ(Signatures("argmax", {F32({3, 5, 6})}, {{"axis", int64_t{1}}}),
            (Texts{"(S(0))->(S(0))", "(S(2))->(S(1))"}));
}

TEST_F(OpsTest, SoftmaxAndCrossEntropy) {
  EXPECT_EQ(Signatures("softmax", {F32({3, 5, 6})}, {{"causal", true}, {"scale", 1.0}}),
            (Texts{"(S(0))->(S(0))", "(S(1))->(S(1))"}));
  EXPECT_EQ(Signatures("sum_exp", {F32({5, 6}), F32({5})}),
            (Texts{"(S(0), S(0))->(S(0))", "(S(1), B)->(P)"}));
  EXPECT_EQ(Infer("sparse_softmax_cross_entropy", {F32({5, 6}), I32({5}), F32({5}), F32({5})}),
            "f32[5]");
  EXPECT_EQ(Infer("sparse_softmax_cross_entropy", {F32({5, 6}), I32({4}), F32({5}), F32({5})}),
            "a is [5, 6], b is [4]; axis 0 of b must be 5, as axis 0 of a");
  EXPECT_EQ(Signatures("sparse_softmax_cross_entropy", {F32({5, 6}), I32({5}), F32({5}), F32({5})}),
            (Texts{"(S(0), S(0), S(0), S(0))->(S(0))", "(S(1), B, B, B)->(P)"}));
  EXPECT_EQ(Signatures("softmax_cross_entropy_grad",
                       {F32({5, 6}), F32({5, 6}), F32({5}), F32({5}), F32({5})}),
            (Texts{"(S(0), S(0), S(0), S(0), S(0))->(S(0))", "(S(1), S(1), B, B, B)->(S(1))",
                   "(B, B, B, B, P)->(P)"}));
}

TEST_F(OpsTest, LayerNorm) {
  EXPECT_EQ(Infer("layer_norm", {F32({3, 5, 6}), F32({6}), F32({6})}),
            "f32[3, 5, 6] f32[3, 5] f32[3, 5]");
  EXPECT_EQ(Infer("layer_norm", {F32({5, 6}), F32({6}), F32({5})}),
            "a is [5, 6], c is [5]; axis 0 of c must be 6, as axis 1 of a");
  EXPECT_EQ(Signatures("layer_norm", {F32({5, 6}), F32({6}), F32({6})}),
            (Texts{"(S(0), B, B)->(S(0), S(0), S(0))"}));
  EXPECT_EQ(Signatures("layer_norm_grad", {F32({5, 6}), F32({6}), F32({5}), F32({5}), F32({5, 6})}),
            (Texts{"(S(0), B, S(0), S(0), S(0))->(S(0), P, P)", "(B, B, B, B, P)->(P, P, P)"}));
}

TEST_F(OpsTest, Indexing) {
  const Attrs middle = {{"axis", int64_t{1}}};
  EXPECT_EQ(Infer("gather", {F32({3, 7, 2}), I32({4, 5})}, middle), "f32[3, 4, 5, 2]");
  EXPECT_EQ(Infer("gather", {F32({7, 2}), F32({4})}, middle), "b is f32[4]; i32 or i64 is needed");
  EXPECT_EQ(Signatures("gather", {F32({3, 7, 2}), I32({4, 5})}, middle),
            (Texts{"(B, S(0))->(S(1))", "(B, S(1))->(S(2))", "(S(1), B)->(P)", "(S(0), B)->(S(0))",
                   "(S(2), B)->(S(3))", "(P, B)->(P)"}));
  const Attrs rows = {{"axis", int64_t{0}}, {"size", int64_t{7}}};
  EXPECT_EQ(Infer("gather_grad", {I32({5}), F32({5, 3})}, rows), "f32[7, 3]");
  EXPECT_EQ(Signatures("gather_grad", {I32({5}), F32({5, 3})}, rows),
            (Texts{"(S(0), S(0))->(P)", "(B, B)->(S(0))", "(B, S(1))->(S(1))", "(B, P)->(P)"}));
  EXPECT_EQ(Infer("one_hot", {I32({5})}, {{"depth", int64_t{3}}, {"dtype", DType::kF64}}),
            "f64[5, 3]");
  EXPECT_EQ(Infer("where", {F32({5}), F32({5}), F32({5})}), "a is f32[5]; bool is needed");
  EXPECT_EQ(Signatures("where", {{DType::kBool, {5, 1}}, F32({5, 6}), F32({})}),
            (Texts{"(S(0), S(0), B)->(S(0))", "(B, S(1), B)->(S(1))", "(B, P, P)->(P)"}));
}

TEST_F(OpsTest, SourcesAndUpdates) {
  const Attrs typed = {{"dtype", DType::kF32}, {"shape", Ints{5, 6}}};
  for (const char* op : {"variable", "input", "constant", "random_normal"}) {
    EXPECT_EQ(Infer(op, {}, typed), "f32[5, 6]");
    EXPECT_EQ(Signatures(op, {}, typed), (Texts{"()->(S(0))", "()->(S(1))"}));
  }
  const Attrs read = {{"types", "f32[8, 28, 28]; i64[8]"}, {"batch", int64_t{8}}};
  EXPECT_EQ(Infer("read", {}, read), "f32[8, 28, 28] i64[8]");
  EXPECT_EQ(Signatures("read", {}, read), (Texts{"()->(S(0), S(0))"}));
  EXPECT_EQ(Infer("read", {}, {{"types", "f32[9]"}, {"batch", int64_t{8}}}),
            "a field is f32[9], batch is 8; axis 0 is the batch");
  EXPECT_EQ(Infer("read", {}, {{"types", "f32(9)"}, {"batch", int64_t{8}}}),
            "'f32(9)' is no type; f32[64, 784] would be one");
  const TensorType w = F32({5, 6}), scalar = F32({});
  EXPECT_EQ(Signatures("adam_update", {w, w, w, w, scalar, {DType::kI64, {}}}),
            (Texts{"(S(0), S(0), S(0), S(0), B, B)->()", "(S(1), S(1), S(1), S(1), B, B)->()"}));
  EXPECT_EQ(registry_.Find("adam_update")->mutates(), (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(Infer("sgd_update", {w, F32({6, 5}), scalar}),
            "a is f32[5, 6], b is f32[6, 5]; shapes differ");
  EXPECT_EQ(Infer("dropout", {w}, {{"rate", 1.0}}), "rate is 1; it must be in [0, 1)");
}

TEST_F(OpsTest, EverySampleHasSignaturesWithinRanks) {
  for (const auto& [name, def] : registry_.ops()) {
    for (const OpSample& sample : def.samples()) {
      const auto outputs = def.InferTypes({sample.attrs, sample.inputs, {}});
      ASSERT_TRUE(outputs.ok()) << name << ": " << outputs.status();
      for (int64_t parts = 1; parts <= 4; ++parts) {
        const auto signatures = def.LegalSignatures({sample.attrs, sample.inputs, *outputs}, parts);
        ASSERT_FALSE(signatures.empty()) << name;
        for (const SbpSignature& signature : signatures) {
          EXPECT_EQ(signature.inputs.size(), sample.inputs.size()) << name;
          EXPECT_EQ(signature.outputs.size(), outputs->size()) << name;
        }
      }
    }
  }
}

// Passes find an operator by its role: none may have two by accident, or none.
TEST_F(OpsTest, EveryRoleIsOneOperators) {
  std::map<OpRole, std::string> names;
  for (const auto& [name, def] : registry_.ops()) {
    if (def.role() == OpRole::kNone) continue;
    EXPECT_TRUE(names.try_emplace(def.role(), name).second)
        << name << " and " << names[def.role()] << " have one role";
  }
  EXPECT_EQ(names, (std::map<OpRole, std::string>{{OpRole::kVariable, "variable"},
                                                  {OpRole::kInput, "input"},
                                                  {OpRole::kFetch, "fetch"},
                                                  {OpRole::kReader, "read"},
                                                  {OpRole::kStep, "step"},
                                                  {OpRole::kGradientRequest, "gradient_of"},
                                                  {OpRole::kReducedGradient, "reduced_gradient"},
                                                  {OpRole::kAfter, "after"},
                                                  {OpRole::kDropout, "dropout"},
                                                  {OpRole::kIfTraining, "if_training"},
                                                  {OpRole::kAssign, "assign"}}));
}

}  // namespace
}  // namespace braid
