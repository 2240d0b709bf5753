// Forms of attention that ONNX's own cases do not have.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/onnx_nodes.h"

namespace braid::onnx {
namespace {

class AttentionTest : public NodesTest {
 protected:
  // 70 steps of 4 heads of queries and 2 of keys, whose depth is 6, and of values, 5.
  void GiveSteps() {
    Given("q", {2, 70, 24}, 1);
    Given("k", {2, 70, 12}, 2);
    Given("v", {2, 70, 10}, 3);
    Given("state", {2, 2, 6, 5}, 4);
  }
  // -6 .. 0: after some steps little is left of what was before.
  void GiveDecay(const std::string& name, int64_t size) {
    const Array numbers = Numbers({2, 70, size}, 5);
    std::vector<float> values;
    for (float value : numbers.data<float>()) values.push_back(6 * (value - 0.5f));
    Given(name, Array::FromVector({2, 70, size}, values));
  }
  // Outputs y_<name> and s_<name>.
  void Attend(const std::string& name, const std::vector<std::string>& inputs,
              const std::string& rule, int64_t chunk) {
    NodeProto& node = Standard("LinearAttention", inputs, {"y_" + name, "s_" + name});
    IntAttribute(node, "q_num_heads", 4);
    IntAttribute(node, "kv_num_heads", 2);
    IntAttribute(node, "chunk_size", chunk);
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("update_rule");
    attribute.set_s(rule);
  }
  void ExpectChunksAreSteps(const std::vector<std::string>& inputs, const std::string& rule) {
    writer_.model().mutable_opset_import(0)->set_version(27);
    Attend("chunks", inputs, rule, 64);
    Attend("parts", inputs, rule, 7);
    Attend("steps", inputs, rule, 1);
    ExpectEqual({{"y_chunks", "y_steps"},
                 {"s_chunks", "s_steps"},
                 {"y_parts", "y_steps"},
                 {"s_parts", "s_steps"}});
  }
};

TEST_F(AttentionTest, ChunksOfPlainSteps) {
  GiveSteps();
  ExpectChunksAreSteps({"q", "k", "v", "state"}, "linear");
}

TEST_F(AttentionTest, ChunksOfStepsWithADecayOfEachHead) {
  GiveSteps();
  GiveDecay("decay", 2);
  ExpectChunksAreSteps({"q", "k", "v", "state", "decay"}, "gated");
}

TEST_F(AttentionTest, ChunksOfStepsThatCorrectWhatTheStateHolds) {
  GiveSteps();
  Given("beta", {2, 70, 1}, 6);
  ExpectChunksAreSteps({"q", "k", "v", "state", "", "beta"}, "delta");
}

TEST_F(AttentionTest, ChunksOfCorrectionsWithADecayOfEachElement) {
  GiveSteps();
  GiveDecay("decay", 12);
  Given("beta", {2, 70, 2}, 6);
  ExpectChunksAreSteps({"q", "k", "v", "state", "decay", "beta"}, "gated_delta");
}

// Fewer keys than queries, that all start together: no query's last key is the last one.
TEST_F(AttentionTest, CausalQueriesOfOtherTimesThanKeys) {
  Given("q", {1, 2, 5, 4}, 1);
  Given("k", {1, 2, 3, 4}, 2);
  IntAttribute(Standard("Attention", {"q", "k", "k"}, {"y"}), "is_causal", 1);
  writer_.Initializer("mask", Array::FromVector<float>(
                                  {5, 3}, {0, -1e9, -1e9, 0, 0, -1e9, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  Standard("Attention", {"q", "k", "k", "mask"}, {"z"});
  ExpectEqual({{"y", "z"}});
}

}  // namespace
}  // namespace braid::onnx
