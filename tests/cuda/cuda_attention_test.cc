// Attention that is longer than a tile, which the operators' samples are not, by CUDA kernels.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/conformance/operator_case.h"
#include "api/conformance/operator_checks.h"
#include "api/conformance/operator_run.h"
#include "graph/op_registry.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid::conformance {
namespace {

class LongAttentionTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  }
  void ExpectEqualsTheCpu(const std::string& op, Attrs attrs, std::vector<TensorType> inputs) {
    const OpDef& def = *ops_.Find(op);
    for (TensorType& input : inputs) {
      if (input.dtype == DType::kF32) input.dtype = GetParam();
    }
    OpCase c = {.def = &def, .label = op, .attrs = std::move(attrs), .inputs = std::move(inputs)};
    c.int_high = 80;
    const auto outputs = def.InferTypes(c.context());
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    c.outputs = *outputs;
    const std::vector<Array> operands = DrawInputs(c);
    const auto expected = RunWhole(cpu_, c, operands), got = RunWhole(cuda_, c, operands);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < got->size(); ++i) {
      EXPECT_EQ(Compare((*got)[i], (*expected)[i], 2 * ToleranceOf(GetParam()), 1), "")
          << op << ", output " << i;
    }
  }

  // q, k, v and the mask, if it has axes; with time before heads if `time_first`.
  struct Attention {
    int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
    bool time_first = false, causal = false;
    TensorType mask = {};
    bool has_mask = false;
    double scale = 0.25;
  };
  void ExpectAllEqualTheCpu(const Attention& s) {
    const auto shape = [&](int64_t heads, int64_t time, int64_t depth) {
      if (s.time_first) return TensorType{DType::kF32, {s.batch, time, heads, depth}};
      return TensorType{DType::kF32, {s.batch, heads, time, depth}};
    };
    std::vector<TensorType> inputs = {shape(s.heads, s.queries, s.depth),
                                      shape(s.kv_heads, s.keys, s.depth),
                                      shape(s.kv_heads, s.keys, s.value_depth)};
    if (s.has_mask) inputs.push_back(s.mask);
    Attrs attrs = {{"causal", s.causal}, {"time_first", s.time_first}, {"scale", s.scale}};
    ExpectEqualsTheCpu("attention", attrs, inputs);
    const TensorType o = shape(s.heads, s.queries, s.value_depth);
    const TensorType rows = {DType::kF32, {s.batch, s.heads, s.queries}};
    inputs.insert(inputs.end(), {o, rows, o, rows});
    attrs.Set("masked", s.has_mask);
    ExpectEqualsTheCpu("attention_grad", attrs, inputs);
    if (s.has_mask && s.mask.dtype != DType::kBool) {
      ExpectEqualsTheCpu("attention_mask_grad", attrs, inputs);
    }
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry cpu_ = CpuKernels();
  const KernelRegistry& cuda_ = KernelsUnderTest();
};

TEST_P(LongAttentionTest, Grouped) { ExpectAllEqualTheCpu({2, 4, 2, 70, 133, 40, 24}); }

TEST_P(LongAttentionTest, Causal) {
  ExpectAllEqualTheCpu({1, 2, 1, 130, 130, 64, 64, /*time_first=*/true, /*causal=*/true});
  ExpectAllEqualTheCpu({1, 2, 2, 67, 150, 35, 33, /*time_first=*/false, /*causal=*/true});
  // The first queries see nothing.
  ExpectAllEqualTheCpu({1, 1, 1, 150, 70, 8, 8, /*time_first=*/true, /*causal=*/true});
}

TEST_P(LongAttentionTest, Wide) {
  ExpectAllEqualTheCpu({1, 1, 1, 65, 70, 72, 128});
  ExpectAllEqualTheCpu({1, 1, 1, 70, 65, 264, 136, /*time_first=*/true, /*causal=*/true});
}

TEST_P(LongAttentionTest, Masked) {
  for (const TensorType& mask : std::vector<TensorType>{{DType::kF32, {70, 90}},
                                                        {DType::kF32, {2, 1, 1, 90}},
                                                        {DType::kF32, {2, 70, 1}},
                                                        {DType::kF32, {1}},
                                                        {DType::kBool, {2, 1, 70, 90}},
                                                        {DType::kBool, {70, 1}}}) {
    for (const bool causal : {false, true}) {
      // Values of 24 columns go to the matrix units, if narrow.
      const int64_t value_depth = causal == (mask.shape.rank() % 2 == 0) ? 20 : 24;
      ExpectAllEqualTheCpu({2, 2, 1, 70, 90, 16, value_depth, /*time_first=*/false, causal, mask,
                            /*has_mask=*/true});
    }
  }
}

TEST_P(LongAttentionTest, OtherScales) {
  for (const double scale : {0.0, -0.5}) {
    Attention s = {1, 2, 2, 70, 90, 16, 16, /*time_first=*/true, /*causal=*/true};
    s.scale = scale;
    ExpectAllEqualTheCpu(s);
  }
}

TEST_P(LongAttentionTest, Cached) {
  const auto f32 = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  for (const int64_t time : {1, 70}) {
    ExpectEqualsTheCpu("cached_attention", {{"scale", 0.25}},
                       {f32({2, time, 2, 40}),
                        f32({2, time, 2, 40}),
                        f32({2, time, 2, 72}),
                        f32({2, 160, 2, 40}),
                        f32({2, 160, 2, 72}),
                        {DType::kI32, {}}});
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LongAttentionTest,
                         testing::Values(DType::kF32, DType::kF64, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(ToString(info.param)); });

}  // namespace
}  // namespace braid::conformance
