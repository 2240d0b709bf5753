// Operators of ONNX of which the standard has no cases, or cases that show little: random ones,
// pooling of regions, values that must be known.

#include <braid/braid.h>
#include <braid/onnx.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/conformance/graph_interpreter.h"
#include "api/onnx/onnx.pb.h"
#include "gmock/gmock.h"
#include "graph/op_registry.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/kernels/kernel.h"
#include "tests/api/onnx_writer.h"
#include "tests/runtime/temp_dir.h"

namespace braid::onnx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A model of one node.
class NodeWriter {
 public:
  NodeWriter(const std::string& op, int inputs, int outputs, int opset = 22) {
    model_.set_ir_version(10);
    model_.add_opset_import()->set_version(opset);
    GraphProto& graph = *model_.mutable_graph();
    node_ = graph.add_node();
    node_->set_op_type(op);
    node_->set_name("the_node");
    for (int i = 0; i < inputs; ++i) {
      node_->add_input("in" + std::to_string(i));
      graph.add_input()->set_name(node_->input(i));
    }
    for (int i = 0; i < outputs; ++i) {
      node_->add_output("out" + std::to_string(i));
      graph.add_output()->set_name(node_->output(i));
    }
  }
  AttributeProto& Attribute(const std::string& name, int type) {
    AttributeProto& attribute = *node_->add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }
  NodeWriter& Int(const std::string& name, int64_t value) {
    Attribute(name, 2).set_i(value);
    return *this;
  }
  NodeWriter& Float(const std::string& name, float value) {
    Attribute(name, 1).set_f(value);
    return *this;
  }
  NodeWriter& Ints(const std::string& name, const std::vector<int64_t>& values) {
    AttributeProto& attribute = Attribute(name, 7);
    for (int64_t value : values) attribute.add_ints(value);
    return *this;
  }
  NodeWriter& Text(const std::string& name, const std::string& value) {
    Attribute(name, 3).set_s(value);
    return *this;
  }

  absl::StatusOr<Model> Loaded() const {
    const TempDir folder;
    PutFile(folder / "model.onnx", model_.SerializeAsString());
    return Load(folder / "model.onnx");
  }
  // The outputs for inputs that are known only when the job runs.
  absl::StatusOr<std::vector<Array>> Run(const std::vector<Array>& inputs) const {
    BRAID_ASSIGN_OR_RETURN(Model model, Loaded());
    const OpRegistry ops = BuiltinOps();
    LogicalGraph graph(&ops);
    std::vector<Argument> arguments;
    std::map<std::string, Array> feeds;
    for (const Array& array : inputs) {
      const std::string name = "fed" + std::to_string(arguments.size());
      arguments.emplace_back(Input(graph, name, {array.dtype(), array.shape()}));
      feeds.insert_or_assign(name, array);
    }
    BRAID_ASSIGN_OR_RETURN(const std::vector<Tensor> made, model.Apply(graph, arguments));
    const KernelRegistry kernels = CpuKernels();
    BRAID_ASSIGN_OR_RETURN(GraphInterpreter interpreter, GraphInterpreter::Make(graph, kernels));
    for (auto& [name, array] : feeds) interpreter.Set(name, array);
    BRAID_RETURN_IF_ERROR(interpreter.Run());
    std::vector<Array> values;
    for (const Tensor& tensor : made) values.push_back(interpreter.value(tensor));
    return values;
  }
  std::vector<double> RunOrDie(const std::vector<Array>& inputs) const {
    const absl::StatusOr<std::vector<Array>> values = Run(inputs);
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return {};
    const Array wide = (*values)[0].As(DType::kF64);
    return {wide.data<double>().begin(), wide.data<double>().end()};
  }

 private:
  ModelProto model_;
  NodeProto* node_ = nullptr;
};

// 0, 1, 2, ...
Array Counted(Shape shape) {
  std::vector<float> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Array::FromVector(std::move(shape), values);
}

struct Moments {
  double mean = 0, deviation = 0;
};
Moments MomentsOf(const std::vector<double>& values) {
  Moments result;
  for (double value : values) result.mean += value / static_cast<double>(values.size());
  double squares = 0;
  for (double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / static_cast<double>(values.size()));
  return result;
}

TEST(OnnxOperatorsTest, RandomNumbersHaveTheWantedDistribution) {
  const std::vector<double> uniform = NodeWriter("RandomUniform", 0, 1)
                                          .Ints("shape", {100, 100})
                                          .Float("low", -1)
                                          .Float("high", 3)
                                          .Float("seed", 5)
                                          .RunOrDie({});
  ASSERT_EQ(uniform.size(), 10000u);
  EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), -1);
  EXPECT_LE(*std::max_element(uniform.begin(), uniform.end()), 3);
  EXPECT_NEAR(MomentsOf(uniform).mean, 1, 0.1);

  const Moments normal = MomentsOf(NodeWriter("RandomNormalLike", 1, 1)
                                       .Float("mean", 2)
                                       .Float("scale", 0.5f)
                                       .RunOrDie({Counted({100, 100})}));
  EXPECT_NEAR(normal.mean, 2, 0.05);
  EXPECT_NEAR(normal.deviation, 0.5, 0.05);

  const Array often = Floats({10000}, std::vector<float>(10000, 0.8f));
  EXPECT_NEAR(MomentsOf(NodeWriter("Bernoulli", 1, 1).RunOrDie({often})).mean, 0.8, 0.05);
}

TEST(OnnxOperatorsTest, MultinomialDrawsClassesByTheirShares) {
  const float never = -INFINITY;
  const Array logits = Floats({2, 3}, {std::log(1.0f), std::log(3.0f), never, never, 0.5f, never});
  const std::vector<double> drawn =
      NodeWriter("Multinomial", 1, 1).Int("sample_size", 4000).Int("dtype", 7).RunOrDie({logits});
  ASSERT_EQ(drawn.size(), 8000u);
  const auto first = std::vector<double>(drawn.begin(), drawn.begin() + 4000);
  EXPECT_NEAR(MomentsOf(first).mean, 0.75, 0.05);
  EXPECT_EQ(std::count(first.begin(), first.end(), 2), 0);
  EXPECT_EQ(std::count(drawn.begin() + 4000, drawn.end(), 1), 4000);
}

// y and mask of a dropout of a half, and the share of the mask that is set.
struct Dropped {
  Array y, mask;
  double share = 0;
};
Dropped RunDropout(bool trains, const Array& x) {
  const NodeWriter writer("Dropout", 3, 2);
  absl::StatusOr<Model> model = writer.Loaded();
  EXPECT_TRUE(model.ok()) << model.status();
  auto session = Session::Start({.devices = {1}, .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status();
  auto job = (*session)->Compile("job", [&](Job& job) {
    const auto outputs =
        model->Apply(job, {job.Input("x", x.shape()), Array::Scalar(0.5f), Array::Scalar(true)});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Tensor weight = Variable(job.graph(), {.name = "w", .shape = {1}});
    if (trains) job.Minimize(Mean(Mul((*outputs)[0], weight)), Sgd{.lr = 0.5});
    job.Fetch("y", (*outputs)[0]);
    job.Fetch("mask", (*outputs)[1]);
  });
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return {};
  const auto result = job->Run({.feeds = {{"x", x}}});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {};
  Dropped dropped = {.y = result->Last("y"), .mask = result->Last("mask")};
  const Array set = dropped.mask.As(DType::kF64);
  for (double each : set.data<double>()) {
    dropped.share += each / static_cast<double>(set.num_elements());
  }
  return dropped;
}

TEST(OnnxOperatorsTest, TheMaskOfADropoutSaysWhatStays) {
  const Array x = Floats({4000}, std::vector<float>(4000, 3));
  const Dropped trained = RunDropout(/*trains=*/true, x);
  EXPECT_NEAR(trained.share, 0.5, 0.05);
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    ASSERT_EQ(trained.y.data<float>()[i], trained.mask.data<bool>()[i] ? 6 : 0) << i;
  }
  const Dropped inferred = RunDropout(/*trains=*/false, x);
  EXPECT_NEAR(inferred.share, 1, 1e-9);
  EXPECT_EQ(inferred.y.data<float>()[7], 3);
}

TEST(OnnxOperatorsTest, RegionsAreMaxPooled) {
  NodeWriter writer("MaxRoiPool", 2, 1);
  writer.Ints("pooled_shape", {2, 2}).Float("spatial_scale", 0.5f);
  // In elements: columns 1 to 4 and rows 1 to 3 of image 1; one element; outside of image 0.
  const Array regions = Floats({3, 5}, {1, 2, 2, 8, 6, 0, 4, 4, 4, 4, 0, 20, 20, 30, 30});
  const double image = 36;
  // Windows of 1.5 rows: 1 and 2, 2 and 3; of 2 columns: 1 and 2, 3 and 4.
  EXPECT_THAT(writer.RunOrDie({Counted({2, 1, 6, 6}), regions}),
              ElementsAre(image + 14, image + 16, image + 20, image + 22,  //
                          14, 14, 14, 14,                                  //
                          0, 0, 0, 0));
}

TEST(OnnxOperatorsTest, NumbersThatWouldOverflowAreRefused) {
  const Array x = Floats({1, 1, 3}, {1, 2, 3}), w = Floats({1, 1, 2}, {1, 1});
  const auto error = [&](const std::string& name, int64_t value) {
    NodeWriter node("ConvTranspose", 2, 1);
    return std::string(
        node.Ints("output_shape", {4}).Ints(name, {value}).Run({x, w}).status().message());
  };
  EXPECT_THAT(error("strides", int64_t{1} << 62), HasSubstr("strides has 4611686018427387904"));
  EXPECT_THAT(error("dilations", -(int64_t{1} << 40)), HasSubstr("dilations has -1099511627776"));
  EXPECT_THAT(error("output_padding", int64_t{1} << 62), HasSubstr("output_padding has "));
}

TEST(OnnxOperatorsTest, NumbersThatMustBeKnownAreNamed) {
  const Array boxes = Counted({1, 2, 4}), scores = Counted({1, 1, 2});
  EXPECT_THAT(
      std::string(NodeWriter("NonMaxSuppression", 2, 1).Run({boxes, scores}).status().message()),
      HasSubstr("NonMaxSuppression of opset 22 'the_node': input 0, 'in0', must be known"));
  // As many samples as a region has elements.
  EXPECT_THAT(std::string(NodeWriter("RoiAlign", 3, 1)
                              .Run({Counted({1, 1, 4, 4}), Floats({1, 4}, {0, 0, 3, 3}),
                                    Array::FromVector<int64_t>({1}, {0})})
                              .status()
                              .message()),
              HasSubstr("input 1, 'in1', must be known"));
}

TEST(OnnxOperatorsTest, RegionsThatAreComputedAreSampledAsOftenAsTheNodeSays) {
  // The middle of the region is (1.5, 1.5) in elements: the mean of four.
  EXPECT_THAT(NodeWriter("RoiAlign", 3, 1)
                  .Int("sampling_ratio", 1)
                  .RunOrDie({Counted({1, 1, 4, 4}), Floats({1, 4}, {0, 0, 4, 4}),
                             Array::FromVector<int64_t>({1}, {0})}),
              ElementsAre(7.5));
}

TEST(OnnxOperatorsTest, GridsReachBeyondTheImage) {
  // Columns -1, 0.25 and 4 of 0 1 2 3, in elements from the middle of the first one.
  const Array image = Counted({1, 1, 1, 4});
  const Array grid = Floats({1, 1, 3, 2}, {-1.25f, 0, -0.625f, 0, 1.25f, 0});
  const auto sampled = [&](const std::string& mode, const std::string& padding) {
    return NodeWriter("GridSample", 2, 1)
        .Text("mode", mode)
        .Text("padding_mode", padding)
        .RunOrDie({image, grid});
  };
  EXPECT_THAT(sampled("linear", "zeros"), ElementsAre(0, 0.25, 0));
  EXPECT_THAT(sampled("linear", "border"), ElementsAre(0, 0.25, 3));
  EXPECT_THAT(sampled("linear", "reflection"), ElementsAre(0, 0.25, 3));
  EXPECT_THAT(sampled("nearest", "zeros"), ElementsAre(0, 0, 0));
  EXPECT_THAT(sampled("nearest", "border"), ElementsAre(0, 0, 3));
}

TEST(OnnxOperatorsTest, DeterminantsOfMatricesThatNeedTheirRowsSwapped) {
  const Array x = Floats({3, 3, 3}, {0, 2, 1, 1, 0, 0, 0, 1, 1,  //
                                     1, 2, 3, 2, 4, 6, 1, 1, 1,  //
                                     2, 0, 0, 0, 3, 0, 0, 0, 4});
  EXPECT_THAT(NodeWriter("Det", 1, 1).RunOrDie({x}), ElementsAre(-1, 0, 24));
}

TEST(OnnxOperatorsTest, RemaindersThatAreZeroHaveTheSignOfTheDivisor) {
  const std::vector<double> rest =
      NodeWriter("Mod", 2, 1)
          .RunOrDie({Floats({4}, {0, -0.0f, 4, -4}), Floats({4}, {-2, 2, -2, 2})});
  EXPECT_THAT(rest, ElementsAre(0, 0, 0, 0));
  std::vector<bool> are_negative;
  for (double each : rest) are_negative.push_back(std::signbit(each));
  EXPECT_THAT(are_negative, ElementsAre(true, false, true, false));
}

TEST(OnnxOperatorsTest, SequencesOfWordsAreWeighed) {
  NodeWriter writer("TfIdfVectorizer", 1, 1);
  writer.Int("min_gram_length", 1).Int("max_gram_length", 2).Int("max_skip_count", 1);
  // 7; 8; 7 8; 8 7.
  writer.Ints("pool_int64s", {7, 8, 7, 8, 8, 7}).Ints("ngram_counts", {0, 2});
  writer.Ints("ngram_indexes", {0, 1, 2, 3}).Text("mode", "TFIDF");
  AttributeProto& weights = writer.Attribute("weights", 6);
  for (float weight : {1.0f, 10.0f, 100.0f, 1000.0f}) weights.add_floats(weight);
  const Array texts = Array::FromVector<int64_t>({2, 4}, {7, 8, 8, 1, 8, 7, 7, 7});
  // 7 8 stands once in the first text, and once more with a word between.
  EXPECT_THAT(writer.RunOrDie({texts}), ElementsAre(1, 20, 200, 0, 3, 10, 0, 2000));
}

}  // namespace
}  // namespace braid::onnx
