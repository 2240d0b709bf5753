// What tests ask about the weights of an ONNX file that they write.
#pragma once

#include <braid/braid.h>
#include <braid/onnx.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/api/onnx_writer.h"
#include "tests/runtime/temp_dir.h"

namespace braid::onnx {

class WeightsTest : public testing::Test {
 protected:
  Model LoadOrDie(ModelWriter& writer) {
    const std::string path = folder_ / "model.onnx";
    PutFile(path, writer.model().SerializeAsString());
    absl::StatusOr<Model> model = Load(path);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  // The job's variables, and whether Minimize trains them.
  std::map<std::string, bool> Variables(ModelWriter& writer, const Shape& x,
                                        const ApplyOptions& options = {}) {
    Model model = LoadOrDie(writer);
    LogicalGraph graph(&ops_);
    const auto outputs = model.Apply(graph, {Input(graph, "in", {DType::kF32, x})}, options);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    std::map<std::string, bool> trained;
    for (const Op& op : graph.ops()) {
      if (op.type == "variable") trained[op.name] = op.attrs.Bool("trainable");
    }
    return trained;
  }
  std::string LoadError(ModelWriter& writer) {
    const std::string path = folder_ / "model.onnx";
    PutFile(path, writer.model().SerializeAsString());
    return std::string(Load(path).status().message());
  }
  std::string ApplyError(ModelWriter& writer, const Shape& x) {
    Model model = LoadOrDie(writer);
    LogicalGraph graph(&ops_);
    const auto outputs = model.Apply(graph, {Input(graph, "in", {DType::kF32, x})});
    return outputs.ok() ? "no error" : std::string(outputs.status().message());
  }

  const TempDir folder_;
  const OpRegistry ops_ = BuiltinOps();
};

// x * w ^ power, normalized, masked; positions by way of sin.
inline ModelWriter Various() {
  ModelWriter writer;
  writer.Input("x", {0, 3});
  writer.Output("y", {0, 3});
  writer.Initializer("w", Numbers({3}, 1));
  writer.Initializer("power", Array::FromVector<float>({3}, {1, 2, 3}));
  writer.Initializer("gain", Array::FromVector<float>({}, {2}));
  writer.Initializer("scale", Numbers({3}, 2));
  writer.Initializer("shift", Numbers({3}, 3));
  writer.Initializer("mean", Numbers({3}, 4));
  writer.Initializer("variance", Array::FromVector<float>({3}, {1, 2, 3}));
  writer.Initializer("mask", Array::FromVector<float>({3}, {0, -INFINITY, 0}));
  writer.Initializer("frequency", Numbers({3}, 5));
  writer.Add("Pow", {"w", "power"}, {"raised"});
  writer.Add("Mul", {"x", "raised"}, {"product"});
  writer.Add("Mul", {"product", "gain"}, {"gained"});
  writer.Add("BatchNormalization", {"gained", "scale", "shift", "mean", "variance"}, {"normal"});
  writer.Add("Add", {"normal", "mask"}, {"masked"});
  writer.Add("Sin", {"frequency"}, {"wave"});
  writer.Add("Add", {"masked", "wave"}, {"y"});
  return writer;
}

}  // namespace braid::onnx
