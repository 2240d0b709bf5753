// Which weights of an ONNX file are trained where Identity, Cast or a function stands between them
// and what reads them, and where an exporter wrote equal ones once.

#include <braid/braid.h>
#include <braid/onnx.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "tests/api/onnx_weights.h"
#include "tests/api/onnx_writer.h"

namespace braid::onnx {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

class OnnxMergedTest : public WeightsTest {};

// As exporters write them that merge equal tensors or keep weights in f16.
TEST_F(OnnxMergedTest, WhatIsBehindAnotherNameIsLeftAlone) {
  ModelWriter writer = Various();
  const auto behind = [&](const std::string& op, const std::string& name) {
    for (NodeProto& node : *writer.graph().mutable_node()) {
      for (std::string& input : *node.mutable_input()) {
        if (input == name) input += "_there";
      }
    }
    NodeProto& node = writer.Add(op, {name}, {name + "_there"});
    if (op == "Cast") IntAttribute(node, "to", 1);
    auto& nodes = *writer.graph().mutable_node();
    for (int i = nodes.size() - 1; i > 0; --i) nodes.SwapElements(i, i - 1);
  };
  behind("Identity", "mean");
  behind("Cast", "variance");
  behind("Cast", "power");
  behind("Identity", "w");
  EXPECT_THAT(Variables(writer, {4, 3}),
              UnorderedElementsAre(Pair("w", true), Pair("scale", true), Pair("shift", true),
                                   Pair("mean", false), Pair("variance", false)));
  // In a function, through one that gives it back as it is.
  for (const char* name : {"Normalize", "Same"}) {
    FunctionProto& function = *writer.model().add_functions();
    function.set_name(name);
    function.set_domain("ours");
    OperatorSetIdProto& opset = *function.add_opset_import();
    opset.set_version(17);
  }
  FunctionProto& normalize = *writer.model().mutable_functions(0);
  for (const char* input : {"a", "b", "c", "d", "e"}) normalize.add_input(input);
  normalize.add_output("z");
  ModelWriter::Node(*normalize.add_node(), "BatchNormalization", {"a", "b", "c", "d", "e"}, {"z"});
  FunctionProto& same = *writer.model().mutable_functions(1);
  same.add_input("a");
  same.add_output("b");
  ModelWriter::Node(*same.add_node(), "Identity", {"a"}, {"b"});
  OperatorSetIdProto& ours = *writer.model().add_opset_import();
  ours.set_domain("ours");
  ours.set_version(1);
  for (NodeProto& node : *writer.graph().mutable_node()) {
    const bool is_mean = node.input(0) == "mean";
    if (!is_mean && node.op_type() != "BatchNormalization") continue;
    node.set_domain("ours");
    node.set_op_type(is_mean ? "Same" : "Normalize");
  }
  EXPECT_THAT(Variables(writer, {4, 3}),
              UnorderedElementsAre(Pair("w", true), Pair("scale", true), Pair("shift", true),
                                   Pair("mean", false), Pair("variance", false)));
}

// A parameter and statistics that were equal when the file was written.
TEST_F(OnnxMergedTest, MergedStatisticsStayAsTheyAre) {
  for (const bool is_uniform : {true, false}) {
    SCOPED_TRACE(is_uniform);
    ModelWriter writer;
    writer.Input("x", {0, 3});
    writer.Output("y", {0, 3});
    writer.Initializer("scale", Numbers({3}, 2));
    writer.Initializer("shift", is_uniform ? Floats({3}, {0, 0, 0}) : Numbers({3}, 1));
    writer.Initializer("variance", Floats({3}, {1, 2, 3}));
    NodeProto& named = writer.Add("Identity", {"shift"}, {"mean"});
    NodeProto& normal =
        writer.Add("BatchNormalization", {"x", "scale", "shift", "mean", "variance"}, {"y"});
    EXPECT_THAT(Variables(writer, {4, 3}),
                UnorderedElementsAre(Pair("scale", true), Pair("shift", true), Pair("mean", false),
                                     Pair("variance", false)));
    normal.set_input(3, "shift");  // by the one name
    named.set_input(0, "x");
    EXPECT_THAT(Variables(writer, {4, 3}),
                UnorderedElementsAre(Pair("scale", true), Pair("shift", true),
                                     Pair("shift.statistics", false), Pair("variance", false)));
  }
}

// x w + b, (that) v + c, where b is c in the file.
TEST_F(OnnxMergedTest, MergedParametersAreTrainedApart) {
  for (const bool is_uniform : {true, false}) {
    SCOPED_TRACE(is_uniform);
    const Array begin = is_uniform ? Floats({2}, {0, 0}) : Floats({2}, {0, 1});
    ModelWriter writer;
    writer.Input("x", {4, 3});
    writer.Output("z", {4, 2});
    writer.Initializer("w", Numbers({3, 2}, 1));
    writer.Initializer("v", Numbers({2, 2}, 2));
    writer.Initializer("b", begin);
    writer.Add("Identity", {"b"}, {"c"});
    writer.Add("Gemm", {"x", "w", "b"}, {"y"});
    writer.Add("Gemm", {"y", "v", "c"}, {"z"});
    Model model = LoadOrDie(writer);
    const auto session = Session::Start({.devices = {2}, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status();
    auto job = (*session)->Compile("train", [&](Job& job) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto outputs, model.Apply(job, {job.Input("x", {4, 3})}));
      job.Minimize(ReduceSum(outputs[0]), Sgd{.lr = 0.5});
      return absl::OkStatus();
    });
    ASSERT_TRUE(job.ok()) << job.status();
    ASSERT_EQ(model.LoadInto(**session), absl::OkStatus());
    ASSERT_TRUE(job->Run({.feeds = {{"x", Numbers({4, 3}, 3)}}}).ok());
    const Array v = Numbers({2, 2}, 2);
    for (int i = 0; i < 2; ++i) {
      // The gradient of c is the number of rows; that of b is taken through v.
      const float of_c = -0.5f * 4,
                  of_b = of_c * (v.data<float>()[2 * i] + v.data<float>()[2 * i + 1]);
      const float first = begin.data<float>()[i];
      if (is_uniform) {
        EXPECT_NEAR((*session)->Get("b")->data<float>()[i], first + of_b, 1e-5);
        EXPECT_NEAR((*session)->Get("c")->data<float>()[i], first + of_c, 1e-5);
      } else {  // one parameter with two names
        EXPECT_FALSE((*session)->HasVariable("c"));
        EXPECT_NEAR((*session)->Get("b")->data<float>()[i], first + of_b + of_c, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace braid::onnx
