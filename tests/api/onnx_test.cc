// Models from ONNX files that the test writes: placed, split and trained as a job written by hand,
// and what mistakes in files and calls say.

#include <braid/braid.h>
#include <braid/onnx.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/onnx/onnx.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/onnx_writer.h"
#include "tests/runtime/temp_dir.h"

namespace braid::onnx {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kBatch = 8, kIn = 6, kHidden = 8, kOut = 4;

// Two layers, between which is a reshape to what the model computes from the shape of its input.
ModelWriter Perceptron() {
  ModelWriter writer;
  writer.Input("x", {0, kIn});
  writer.Output("logits", {0, kOut});
  writer.Initializer("fc1.weight", Numbers({kIn, kHidden}, 1));
  writer.Initializer("fc1.bias", Numbers({kHidden}, 2));
  writer.Initializer("fc2.weight", Numbers({kOut, kHidden}, 3));
  writer.Initializer("fc2.bias", Numbers({kOut}, 4));
  writer.Initializer("zero", Array::FromVector<int64_t>({1}, {0}));
  writer.Initializer("rest", Array::FromVector<int64_t>({1}, {-1}));
  writer.Add("MatMul", {"x", "fc1.weight"}, {"product"});
  writer.Add("Add", {"product", "fc1.bias"}, {"sum"});
  writer.Add("Relu", {"sum"}, {"hidden"});
  writer.Add("Shape", {"x"}, {"shape"});
  writer.Add("Gather", {"shape", "zero"}, {"rows"});
  IntAttribute(writer.Add("Concat", {"rows", "rest"}, {"wanted"}), "axis", 0);
  writer.Add("Reshape", {"hidden", "wanted"}, {"flat"});
  IntAttribute(writer.Add("Gemm", {"flat", "fc2.weight", "fc2.bias"}, {"logits"}), "transB", 1);
  return writer;
}

// The same by hand.
Tensor PerceptronByHand(Job& job, Tensor x) {
  const auto weight = [&](const std::string& name, Shape shape) {
    return Variable(job.graph(), {.name = name, .shape = std::move(shape)});
  };
  const Tensor hidden =
      Relu(Add(MatMul(x, weight("fc1.weight", {kIn, kHidden})), weight("fc1.bias", {kHidden})));
  return Add(MatMul(hidden, weight("fc2.weight", {kOut, kHidden}), {.transpose_b = true}),
             weight("fc2.bias", {kOut}));
}

class OnnxTest : public testing::Test {
 protected:
  std::string Write(ModelWriter& writer) {
    const std::string path = folder_ / "model.onnx";
    PutFile(path, writer.model().SerializeAsString());
    return path;
  }
  Model LoadOrDie(ModelWriter& writer) {
    absl::StatusOr<Model> model = Load(Write(writer));
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::string LoadError(ModelWriter& writer) {
    const absl::StatusOr<Model> model = Load(Write(writer));
    return model.ok() ? "no error" : std::string(model.status().message());
  }
  static std::unique_ptr<Session> StartOrDie(std::vector<int> devices) {
    auto session = Session::Start({.devices = std::move(devices), .progress = Progress::kOff});
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  // What Compile says to a job with the model.
  std::string ApplyError(ModelWriter& writer, const ApplyOptions& options = {}) {
    Model model = LoadOrDie(writer);
    const auto session = StartOrDie({1});
    const auto job = session->Compile("job", [&](Job& job) {
      const auto outputs = model.Apply(job, {job.Input("x", {kBatch, kIn})}, options);
      EXPECT_FALSE(outputs.ok());
    });
    return job.ok() ? "no error" : std::string(job.status().message());
  }
  // The values of all outputs on one device.
  std::vector<Array> RunModel(ModelWriter& writer, const std::vector<Argument>& arguments) {
    Model model = LoadOrDie(writer);
    const auto session = StartOrDie({1});
    size_t count = 0;
    auto job = session->Compile("job", [&](Job& job) {
      const auto outputs = model.Apply(job, arguments);
      if (!outputs.ok()) return;
      for (const Tensor& output : *outputs) job.Fetch("y" + std::to_string(count++), output);
    });
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return {};
    EXPECT_TRUE(model.LoadInto(*session).ok());
    const auto result = job->Run();
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<Array> values;
    for (size_t i = 0; i < count; ++i) values.push_back(result->Last("y" + std::to_string(i)));
    return values;
  }

  const TempDir folder_;
};

// ---- use ----------------------------------------------------------------------------------------

struct Trained {
  Array logits;                          // before the step
  std::map<std::string, Array> weights;  // after it
};

// One step on given data. `load` gives the variables their first values.
Trained TrainOneStep(const std::vector<int>& devices,
                     const std::function<Tensor(Job&, Tensor)>& net,
                     const std::function<absl::Status(Session&)>& load) {
  auto session = Session::Start({.devices = devices, .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status();
  auto job = (*session)->Compile("train", [&](Job& job) {
    const Tensor logits = net(job, job.Input("x", {kBatch, kIn}));
    const Tensor labels = job.Input("labels", {kBatch}, DType::kI64);
    job.Minimize(Mean(SoftmaxCrossEntropy(logits, labels)), Sgd{.lr = 0.5});
    job.Fetch("logits", logits);
  });
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return {};
  const absl::Status loaded = load(**session);
  EXPECT_TRUE(loaded.ok()) << loaded;
  const Array labels = Array::FromVector<int64_t>({kBatch}, {0, 1, 2, 3, 3, 2, 1, 0});
  const auto result = job->Run({.feeds = {{"x", Numbers({kBatch, kIn}, 9)}, {"labels", labels}}});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {};
  Trained trained = {.logits = result->Last("logits")};
  for (const char* name : {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}) {
    const auto value = (*session)->Get(name);
    EXPECT_TRUE(value.ok()) << value.status();
    if (value.ok()) trained.weights[name] = *value;
  }
  return trained;
}

void ExpectNear(const Array& actual, const Array& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  for (int64_t i = 0; i < actual.num_elements(); ++i) {
    EXPECT_NEAR(actual.data<float>()[i], expected.data<float>()[i], 1e-6) << what << " " << i;
  }
}

TEST_F(OnnxTest, AModelIsSplitAndTrainedAsOneWrittenByHand) {
  ModelWriter writer = Perceptron();
  Model model = LoadOrDie(writer);
  const Trained expected =
      TrainOneStep({1}, PerceptronByHand, [&](Session& session) -> absl::Status {
        for (const auto& [name, numbers] : model.weights()) {
          BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, numbers->Read());
          if (IsFloating(array->dtype())) BRAID_RETURN_IF_ERROR(session.Set(name, *array));
        }
        return absl::OkStatus();
      });
  ASSERT_EQ(expected.weights.size(), 4u);
  for (const auto& [name, after] : expected.weights) {
    EXPECT_NE(after.data<float>()[0], (*model.weights().at(name)->Read())->data<float>()[0])
        << name;
  }
  using sbp::B, sbp::S;
  const std::vector<std::pair<std::vector<int>, ApplyOptions>> cases = {
      {{1}, {}},
      {{2, 2}, {}},
      // Data parallel over nodes, tensor parallel inside.
      {{2, 2},
       {.layouts = {{"fc1.weight", NdSbp{B, S(1)}},
                    {"fc1.bias", NdSbp{B, S(0)}},
                    {"fc2.weight", NdSbp{B, S(1)}}}}},
  };
  for (const auto& [devices, options] : cases) {
    Model imported = LoadOrDie(writer);
    const Trained trained = TrainOneStep(
        devices,
        [&, &options = options](Job& job, Tensor x) {
          const auto outputs = imported.Apply(job, {x}, options);
          EXPECT_TRUE(outputs.ok()) << outputs.status();
          return outputs.ok() ? (*outputs)[0] : Tensor();
        },
        [&](Session& session) { return imported.LoadInto(session); });
    ExpectNear(trained.logits, expected.logits, "logits");
    for (const auto& [name, value] : expected.weights)
      ExpectNear(trained.weights.at(name), value, name);
  }
}

TEST_F(OnnxTest, AModelSaysItsInputsAndOutputs) {
  ModelWriter writer = Perceptron();
  const Model model = LoadOrDie(writer);
  ASSERT_EQ(model.inputs().size(), 1u);
  EXPECT_EQ(model.inputs()[0].ToString(), "x f32[batch, 6]");
  ASSERT_EQ(model.outputs().size(), 1u);
  EXPECT_EQ(model.outputs()[0].ToString(), "logits f32[batch, 4]");
  EXPECT_EQ(model.weights().size(), 6u);
}

TEST_F(OnnxTest, FrozenWeightsAndWhatIsComputedFromShapesAreNoTrainableVariables) {
  ModelWriter writer = Perceptron();
  Model model = LoadOrDie(writer);
  const OpRegistry ops = BuiltinOps();
  LogicalGraph graph(&ops);
  const Tensor x = Input(graph, "x", {DType::kF32, {kBatch, kIn}});
  ASSERT_TRUE(model.Apply(graph, {x}, {.is_trainable = false}).ok());
  int variables = 0;
  for (const Op& op : graph.ops()) {
    if (op.type != "variable") continue;
    ++variables;
    EXPECT_FALSE(op.attrs.Bool("trainable")) << op.name;
  }
  EXPECT_EQ(variables, 4);
  EXPECT_EQ(graph.ToString().find("gather"), std::string::npos);
}

// f(x) = scale * x + x, with the attribute `scale`.
TEST_F(OnnxTest, FunctionsOfTheModelTakeAttributes) {
  ModelWriter writer;
  OperatorSetIdProto& domain = *writer.model().add_opset_import();
  domain.set_domain("here");
  domain.set_version(1);
  FunctionProto& function = *writer.model().add_functions();
  function.set_name("Grow");
  function.set_domain("here");
  function.add_input("a");
  function.add_output("b");
  function.add_attribute("scale");
  function.add_opset_import()->set_version(17);
  NodeProto& constant = ModelWriter::Node(*function.add_node(), "Constant", {}, {"factor"});
  AttributeProto& value = *constant.add_attribute();
  value.set_name("value_float");
  value.set_ref_attr_name("scale");
  ModelWriter::Node(*function.add_node(), "Mul", {"a", "factor"}, {"product"});
  ModelWriter::Node(*function.add_node(), "Add", {"product", "a"}, {"b"});
  writer.Input("x", {3});
  writer.Output("y", {3});
  NodeProto& call = writer.Add("Grow", {"x"}, {"y"});
  call.set_domain("here");
  AttributeProto& scale = *call.add_attribute();
  scale.set_name("scale");
  scale.set_f(3);
  const std::vector<Array> y = RunModel(writer, {Array::FromVector<float>({3}, {1, 2, -5})});
  ASSERT_EQ(y.size(), 1u);
  ExpectNear(y[0], Array::FromVector<float>({3}, {4, 8, -20}), "y");
}

TEST_F(OnnxTest, AVariableMayBeNamedLikeAnOperatorOfANodeWithoutAName) {
  ModelWriter writer;
  writer.Input("x", {2, 2});
  writer.Output("y", {2, 2});
  writer.Initializer("scale", Array::FromVector<float>({2, 2}, {1, 2, 3, 4}));
  NodeProto& product = writer.Add("Gemm", {"x", "x"}, {"product"});
  product.clear_name();
  FloatAttribute(product, "alpha", 0.5);  // by an operator `scale`
  writer.Add("Add", {"product", "scale"}, {"y"});
  Model model = LoadOrDie(writer);
  const OpRegistry ops = BuiltinOps();
  LogicalGraph graph(&ops);
  const Tensor x = Input(graph, "x", {DType::kF32, {2, 2}});
  const auto outputs = model.Apply(graph, {x});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(model.variables().contains("scale"));
}

// ---- mistakes -----------------------------------------------------------------------------------

TEST_F(OnnxTest, AFileThatIsNoModel) {
  EXPECT_EQ(Load(folder_ / "none.onnx").status().code(), absl::StatusCode::kNotFound);
  PutFile(folder_ / "text.onnx", "this is text");
  EXPECT_EQ(Load(folder_ / "text.onnx").status().code(), absl::StatusCode::kDataLoss);
  ModelWriter writer = Perceptron();
  const std::string bytes = writer.model().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); size += 7) {
    PutFile(folder_ / "cut.onnx", bytes.substr(0, size));
    const absl::StatusOr<Model> model = Load(folder_ / "cut.onnx");
    if (model.ok()) continue;
    EXPECT_EQ(model.status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST_F(OnnxTest, WhatBraidDoesNotHaveIsNamedWithFileAndNode) {
  ModelWriter unknown;
  unknown.Input("x", {0, kIn});
  unknown.Output("y", {0, kIn});
  unknown.Add("Frobnicate", {"x"}, {"y"});
  EXPECT_THAT(ApplyError(unknown),
              AllOf(HasSubstr("model.onnx: Frobnicate of opset 17 'the_Frobnicate': "),
                    HasSubstr("not have")));

  ModelWriter attribute;
  attribute.Input("x", {0, kIn});
  attribute.Output("y", {0, kIn});
  IntAttribute(attribute.Add("Relu", {"x"}, {"y"}), "leakiness", 1);
  EXPECT_THAT(ApplyError(attribute), HasSubstr("Relu of opset 17 'the_Relu': attribute leakiness"));

  ModelWriter domain = Perceptron();
  domain.graph().mutable_node(2)->set_domain("elsewhere");
  EXPECT_THAT(ApplyError(domain), HasSubstr("elsewhere.Relu"));
}

TEST_F(OnnxTest, WeightsMayBeInAFileBesideTheModel) {
  ModelWriter writer = Perceptron();
  TensorProto& weight = *writer.graph().mutable_initializer(0);
  const std::string bytes = weight.raw_data();
  weight.clear_raw_data();
  weight.set_data_location(TensorProto::EXTERNAL);
  const auto add = [&](const std::string& key, const std::string& value) {
    StringStringEntryProto& entry = *weight.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", "weights.bin");
  add("offset", "3");
  EXPECT_THAT(LoadError(writer), AllOf(HasSubstr("fc1.weight"), HasSubstr("weights.bin")));
  PutFile(folder_ / "weights.bin", "abc" + bytes);
  const Model model = LoadOrDie(writer);
  const Array expected = Numbers({kIn, kHidden}, 1);
  ExpectNear(**model.weights().at("fc1.weight")->Read(), expected, "weight");
  PutFile(folder_ / "weights.bin", bytes);
  EXPECT_THAT(LoadError(writer), AllOf(HasSubstr("fc1.weight"), HasSubstr("has 192")));
  weight.mutable_external_data(0)->set_value("../weights.bin");
  EXPECT_THAT(LoadError(writer), HasSubstr("no file of the model's folder"));
  // By symbolic links, too; but a link of the model's leads to a folder that is the model's.
  const TempDir elsewhere;
  PutFile(elsewhere / "weights.bin", "abc" + bytes);
  std::filesystem::create_symlink(elsewhere / "weights.bin", folder_ / "link.bin");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder_ / "links");
  for (const char* path : {"link.bin", "links/weights.bin"}) {
    weight.mutable_external_data(0)->set_value(path);
    EXPECT_THAT(LoadError(writer), HasSubstr("leads out of the model's folder, to '")) << path;
  }
  weight.mutable_external_data(0)->set_value("link.bin");
  PutFile(elsewhere / "model.onnx", writer.model().SerializeAsString());
  std::filesystem::create_symlink(elsewhere / "model.onnx", folder_ / "linked.onnx");
  EXPECT_EQ(Load(folder_ / "linked.onnx").status(), absl::OkStatus());
  weight.mutable_external_data(1)->set_value("three");
  EXPECT_THAT(LoadError(writer), HasSubstr("offset is 'three'"));
}

TEST_F(OnnxTest, WrongFilesAndCalls) {
  ModelWriter loose = Perceptron();
  loose.graph().mutable_node(2)->set_input(0, "nowhere");
  EXPECT_THAT(ApplyError(loose),
              HasSubstr("Relu of opset 17 'the_Relu': nothing in front of it makes 'nowhere'"));

  ModelWriter shapes = Perceptron();
  shapes.graph().mutable_initializer(0)->set_dims(0, 1000);
  EXPECT_THAT(LoadError(shapes), AllOf(HasSubstr("fc1.weight"), HasSubstr("[1000, 8]")));

  ModelWriter sizes = Perceptron();
  ModelWriter::Info(*sizes.graph().mutable_input(0), "x", {0, 7});
  EXPECT_THAT(ApplyError(sizes), AllOf(HasSubstr("x f32[batch, 7]"), HasSubstr("f32[8, 6]")));

  ModelWriter layouts = Perceptron();
  EXPECT_THAT(ApplyError(layouts, {.layouts = {{"fc9.weight", sbp::S(0)}}}),
              AllOf(HasSubstr("'fc9.weight'"), HasSubstr("fc1.weight")));

  Model model = LoadOrDie(layouts);
  const auto session = StartOrDie({1});
  EXPECT_EQ(model.LoadInto(*session).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace braid::onnx
