// Operators of the domain ai.onnx.ml: nodes of which the results are worked out by hand, on one and
// on two devices, and what Braid refuses.
#include <braid/braid.h>
#include <braid/onnx.h>

#include <cmath>
#include <limits>
#include <map>
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

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;

constexpr int kFloat = 1, kInt64 = 7, kUint8 = 2, kDouble = 11;  // of ONNX
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A node of ai.onnx.ml, with inputs x0, x1, ... and outputs y0, y1, ...
class MlNode {
 public:
  MlNode(const std::string& op, int outputs) {
    for (int i = 0; i < outputs; ++i) node_.add_output("y" + std::to_string(i));
    node_.set_op_type(op);
    node_.set_domain("ai.onnx.ml");
    node_.set_name("the_" + op);
  }

  MlNode& Int(const std::string& name, int64_t value) {
    Attribute(name).set_i(value);
    return *this;
  }
  MlNode& Float(const std::string& name, double value) {
    Attribute(name).set_f(static_cast<float>(value));
    return *this;
  }
  MlNode& Text(const std::string& name, const std::string& value) {
    Attribute(name).set_s(value);
    return *this;
  }
  MlNode& Ints(const std::string& name, const std::vector<int64_t>& values) {
    AttributeProto& attribute = Attribute(name);
    for (int64_t value : values) attribute.add_ints(value);
    return *this;
  }
  MlNode& Floats(const std::string& name, const std::vector<double>& values) {
    AttributeProto& attribute = Attribute(name);
    for (double value : values) attribute.add_floats(static_cast<float>(value));
    return *this;
  }
  MlNode& Texts(const std::string& name, const std::vector<std::string>& values) {
    AttributeProto& attribute = Attribute(name);
    for (const std::string& value : values) attribute.add_strings(value);
    return *this;
  }
  MlNode& FloatTensor(const std::string& name, const std::vector<double>& values) {
    TensorProto& tensor = Tensor(name, kFloat, values.size());
    for (double value : values) tensor.add_float_data(static_cast<float>(value));
    return *this;
  }
  MlNode& ByteTensor(const std::string& name, const std::vector<int>& values) {
    TensorProto& tensor = Tensor(name, kUint8, values.size());
    for (int value : values) tensor.add_int32_data(value);
    return *this;
  }

  ModelProto File(const std::vector<Array>& inputs) const {
    ModelProto model;
    model.set_ir_version(8);
    for (const char* domain : {"", "ai.onnx.ml"}) {
      OperatorSetIdProto& opset = *model.add_opset_import();
      opset.set_domain(domain);
      opset.set_version(domain[0] == '\0' ? 17 : 5);
    }
    GraphProto& graph = *model.mutable_graph();
    NodeProto& node = *graph.add_node();
    node = node_;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = "x" + std::to_string(i);
      node.add_input(name);
      ValueInfoProto& info = *graph.add_input();
      info.set_name(name);
      info.mutable_type()->mutable_tensor_type()->set_elem_type(
          inputs[i].dtype() == DType::kF32   ? kFloat
          : inputs[i].dtype() == DType::kF64 ? kDouble
                                             : kInt64);
    }
    for (const std::string& output : node_.output()) graph.add_output()->set_name(output);
    return model;
  }

 private:
  AttributeProto& Attribute(const std::string& name) {
    AttributeProto& attribute = *node_.add_attribute();
    attribute.set_name(name);
    return attribute;
  }
  TensorProto& Tensor(const std::string& name, int type, size_t size) {
    TensorProto& tensor = *Attribute(name).mutable_t();
    tensor.set_data_type(type);
    tensor.add_dims(static_cast<int64_t>(size));
    return tensor;
  }

  NodeProto node_;
};

std::vector<float> Values(const Array& array) {
  const Array wide = array.As(DType::kF32);
  return {wide.data<float>().begin(), wide.data<float>().end()};
}

class OnnxMlTest : public testing::Test {
 protected:
  Model LoadOrDie(const MlNode& node, const std::vector<Array>& inputs) {
    const std::string path = folder_ / "model.onnx";
    PutFile(path, node.File(inputs).SerializeAsString());
    absl::StatusOr<Model> model = Load(path);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // The outputs for inputs that are fed.
  std::vector<Array> RunOn(int devices, const MlNode& node, const std::vector<Array>& inputs) {
    Model model = LoadOrDie(node, inputs);
    auto session = Session::Start({.devices = {devices}, .progress = Progress::kOff});
    EXPECT_TRUE(session.ok()) << session.status();
    size_t count = 0;
    std::vector<std::pair<std::string, Array>> feeds;
    auto job = (*session)->Compile("job", [&](Job& job) {
      std::vector<Argument> arguments;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const std::string name = "in" + std::to_string(i);
        arguments.emplace_back(job.Input(name, inputs[i].shape(), inputs[i].dtype()));
        feeds.emplace_back(name, inputs[i]);
      }
      const auto outputs = model.Apply(job, arguments);
      if (!outputs.ok()) return;
      for (const Tensor& output : *outputs) job.Fetch("y" + std::to_string(count++), output);
    });
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return {};
    EXPECT_TRUE(model.LoadInto(**session).ok());
    const auto result = job->Run({.feeds = feeds});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    std::vector<Array> values;
    for (size_t i = 0; i < count; ++i) values.push_back(result->Last("y" + std::to_string(i)));
    return values;
  }

  void ExpectOutputs(const MlNode& node, const std::vector<Array>& inputs,
                     const std::vector<Array>& expected) {
    for (int devices : {1, 2}) {
      SCOPED_TRACE(devices);
      const std::vector<Array> outputs = RunOn(devices, node, inputs);
      ASSERT_EQ(outputs.size(), expected.size());
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_EQ(outputs[i].dtype(), expected[i].dtype());
        EXPECT_EQ(outputs[i].shape(), expected[i].shape());
        EXPECT_THAT(Values(outputs[i]), Pointwise(FloatNear(1e-6f), Values(expected[i])));
      }
    }
  }

  std::string ApplyError(const MlNode& node, const std::vector<Array>& inputs) {
    Model model = LoadOrDie(node, inputs);
    auto session = Session::Start({.devices = {1}, .progress = Progress::kOff});
    const auto job = (*session)->Compile("job", [&](Job& job) {
      std::vector<Argument> arguments;
      for (const Array& input : inputs) {
        arguments.emplace_back(
            job.Input("in" + std::to_string(arguments.size()), input.shape(), input.dtype()));
      }
      EXPECT_FALSE(model.Apply(job, arguments).ok());
    });
    return job.ok() ? "no error" : std::string(job.status().message());
  }

 private:
  const TempDir folder_;
};

// ---- features -----------------------------------------------------------------------------------

TEST_F(OnnxMlTest, FeaturesAreMadeReady) {
  const Array x = Floats({2, 2}, {1, -3, 0, 0});
  ExpectOutputs(MlNode("Scaler", 1).Floats("offset", {1, 2}).Floats("scale", {2, 10}), {x},
                {Floats({2, 2}, {0, -50, -2, -20})});
  ExpectOutputs(MlNode("Normalizer", 1).Text("norm", "L1"), {x},
                {Floats({2, 2}, {0.25f, -0.75f, 0, 0})});
  ExpectOutputs(MlNode("Binarizer", 1).Float("threshold", 0.5), {x},
                {Floats({2, 2}, {1, 0, 0, 0})});
  ExpectOutputs(MlNode("Imputer", 1)
                    .Float("replaced_value_float", kNan)
                    .Floats("imputed_value_floats", {7, 8}),
                {Floats({2, 2}, {1, NAN, NAN, 4})}, {Floats({2, 2}, {1, 8, 7, 4})});
  ExpectOutputs(MlNode("FeatureVectorizer", 1).Ints("inputdimensions", {1, 3}), {x, x},
                {Floats({2, 4}, {1, 1, -3, 0, 0, 0, 0, 0})});
  ExpectOutputs(MlNode("ArrayFeatureExtractor", 1), {x, Array::FromVector<int64_t>({3}, {1, 1, 0})},
                {Floats({2, 3}, {-3, -3, 1, 0, 0, 0})});
}

TEST_F(OnnxMlTest, NumbersAreEncoded) {
  const Array x = Array::FromVector<int64_t>({2, 2}, {4, 7, 9, 4});
  ExpectOutputs(MlNode("OneHotEncoder", 1).Ints("cats_int64s", {7, 4}), {x},
                {Floats({2, 2, 2}, {0, 1, 1, 0, 0, 0, 0, 1})});
  // Of two keys 4 the last one counts.
  ExpectOutputs(MlNode("LabelEncoder", 1)
                    .Ints("keys_int64s", {4, 7, 4})
                    .Floats("values_floats", {1, 2, 3.5})
                    .Float("default_float", -1),
                {x}, {Floats({2, 2}, {3.5f, 2, -1, 3.5f})});
  ExpectOutputs(
      MlNode("LabelEncoder", 1).Floats("keys_floats", {1, kNan}).Ints("values_int64s", {10, 20}),
      {Floats({3}, {NAN, 1, 2})}, {Array::FromVector<int64_t>({3}, {20, 10, -1})});
}

// As ONNX defines it: who meets an unknown category has an error.
TEST_F(OnnxMlTest, AnUnknownCategoryIsAnErrorOfTheStepWhereTheNodeSaysSo) {
  const MlNode node = MlNode("OneHotEncoder", 1).Ints("cats_int64s", {7, 4}).Int("zeros", 0);
  const Array known = Array::FromVector<int64_t>({2}, {4, 7});
  ExpectOutputs(node, {known}, {Floats({2, 2}, {0, 1, 1, 0})});
  const Array unknown = Array::FromVector<int64_t>({2}, {4, 5});
  Model model = LoadOrDie(node, {unknown});
  auto session = Session::Start({.devices = {1}, .progress = Progress::kOff});
  auto job = (*session)->Compile("job", [&](Job& job) {
    const auto outputs = model.Apply(job, {job.Input("in", {2}, DType::kI64)});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    job.Fetch("y", outputs->front());
  });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->Run({.feeds = {{"in", unknown}}}).ok());
}

// ---- linear models and support vector machines --------------------------------------------------

TEST_F(OnnxMlTest, LinearModels) {
  const Array x = Floats({2, 2}, {1, 2, -1, 0});
  MlNode three("LinearClassifier", 2);
  three.Floats("coefficients", {1, 0, 0, 1, 1, 1}).Floats("intercepts", {0, 0, -3});
  three.Ints("classlabels_ints", {10, 20, 30});
  ExpectOutputs(three, {x},
                {Array::FromVector<int64_t>({2}, {20, 20}), Floats({2, 3}, {1, 2, 0, -1, 0, -4})});
  MlNode two("LinearClassifier", 2);
  two.Floats("coefficients", {1, 1}).Floats("intercepts", {0}).Text("post_transform", "LOGISTIC");
  two.Ints("classlabels_ints", {10, 20});
  const auto logistic = [](double s) { return static_cast<float>(1 / (1 + std::exp(-s))); };
  ExpectOutputs(two, {x},
                {Array::FromVector<int64_t>({2}, {20, 10}),
                 Floats({2, 2}, {logistic(-3), logistic(3), logistic(1), logistic(-1)})});
  ExpectOutputs(MlNode("LinearRegressor", 1)
                    .Floats("coefficients", {1, 1, 2, 0})
                    .Floats("intercepts", {0.5, 0})
                    .Int("targets", 2),
                {x}, {Floats({2, 2}, {3.5f, 2, -0.5f, -2})});
}

TEST_F(OnnxMlTest, SupportVectorMachines) {
  const Array x = Floats({2, 2}, {1, 0, 0, 2});
  // Kernels of the vectors (1, 0) and (0, 1): exp(-0.5 distance^2).
  const auto weight = [](double square) { return std::exp(-0.5 * square); };
  ExpectOutputs(MlNode("SVMRegressor", 1)
                    .Floats("coefficients", {2, -1})
                    .Floats("support_vectors", {1, 0, 0, 1})
                    .Floats("rho", {0.25})
                    .Floats("kernel_params", {0.5, 0, 0})
                    .Int("n_supports", 2)
                    .Text("kernel_type", "RBF"),
                {x},
                {Floats({2, 1}, {static_cast<float>(2 * weight(0) - weight(2) + 0.25),
                                 static_cast<float>(2 * weight(5) - weight(1) + 0.25)})});
  // Of three classes with a vector each: 0 against 1 has 1 x0 - 1 x1, 0 against 2 has
  // 2 x0 - 2 (x0 + x1), 1 against 2 has 3 x1 - 3 (x0 + x1).
  ExpectOutputs(
      MlNode("SVMClassifier", 2)
          .Floats("coefficients", {1, -1, -2, 2, 3, -3})
          .Floats("support_vectors", {1, 0, 0, 1, 1, 1})
          .Floats("rho", {0, 0.5, 0})
          .Ints("vectors_per_class", {1, 1, 1})
          .Ints("classlabels_ints", {5, 6, 7})
          .Text("kernel_type", "LINEAR"),
      {x}, {Array::FromVector<int64_t>({2}, {5, 7}), Floats({2, 3}, {1, 0.5f, -3, -2, -3.5f, 0})});
}

// Probabilities of pairs that agree with those of the classes, 0.5, 0.3 and 0.2, give these, as
// exactly as LIBSVM finds them.
TEST_F(OnnxMlTest, ProbabilitiesOfPairsBecomeThoseOfClasses) {
  const auto logit = [](double p, double q) { return std::log(p / q); };
  MlNode node("SVMClassifier", 2);
  node.Floats("coefficients", {0, 0, 0, 0, 0, 0}).Floats("support_vectors", {1, 2, 3});
  node.Floats("rho", {logit(0.5, 0.3), logit(0.5, 0.2), logit(0.3, 0.2)});
  node.Floats("prob_a", {-1, -1, -1}).Floats("prob_b", {0, 0, 0});
  node.Ints("vectors_per_class", {1, 1, 1}).Ints("classlabels_ints", {5, 6, 7});
  const std::vector<Array> outputs = RunOn(1, node, {Floats({1, 1}, {1})});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_THAT(Values(outputs[0]), ElementsAre(5));
  const std::vector<float> values = Values(outputs[1]);
  EXPECT_THAT(values, Pointwise(FloatNear(5e-3f), {0.5f, 0.3f, 0.2f}));
  EXPECT_NEAR(values[0] + values[1] + values[2], 1, 1e-6);
}

// ---- trees --------------------------------------------------------------------------------------

// A tree for each mode: feature 0 against 2 gives 1 if true, else 0.
MlNode Stumps(const std::vector<std::string>& modes, const std::vector<int64_t>& tracks_true) {
  std::vector<int64_t> trees, ids, features, yes, no, nans, leaf_trees, leaf_ids, targets;
  std::vector<double> values, weights;
  std::vector<std::string> all_modes;
  for (size_t i = 0; i < modes.size(); ++i) {
    const auto tree = static_cast<int64_t>(i);
    for (int64_t id : {0, 1, 2}) {
      trees.push_back(tree);
      ids.push_back(id);
      features.push_back(0);
      values.push_back(id == 0 ? 2 : 0);
      all_modes.push_back(id == 0 ? modes[i] : "LEAF");
      yes.push_back(id == 0 ? 1 : 0);
      no.push_back(id == 0 ? 2 : 0);
      nans.push_back(id == 0 ? tracks_true[i] : 0);
    }
    for (int64_t id : {1, 2}) {
      leaf_trees.push_back(tree);
      leaf_ids.push_back(id);
      targets.push_back(tree);
      weights.push_back(id == 1 ? 1 : 0);
    }
  }
  MlNode node("TreeEnsembleRegressor", 1);
  node.Ints("nodes_treeids", trees).Ints("nodes_nodeids", ids).Ints("nodes_featureids", features);
  node.Floats("nodes_values", values).Texts("nodes_modes", all_modes);
  node.Ints("nodes_truenodeids", yes).Ints("nodes_falsenodeids", no);
  node.Ints("nodes_missing_value_tracks_true", nans);
  node.Ints("target_treeids", leaf_trees).Ints("target_nodeids", leaf_ids);
  node.Ints("target_ids", targets).Floats("target_weights", weights);
  node.Int("n_targets", static_cast<int64_t>(modes.size()));
  return node;
}

TEST_F(OnnxMlTest, TreesAskInEveryMode) {
  const Array x = Floats({4, 1}, {1, 2, 3, NAN});
  const std::vector<std::string> modes = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                          "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  const std::vector<float> expected = {1, 1, 0, 0, 0, 1,   //
                                       1, 0, 1, 0, 1, 0,   //
                                       0, 0, 1, 1, 0, 1};  //
  for (int64_t tracks_true : {0, 1}) {
    std::vector<float> all = expected;
    all.insert(all.end(), 6, static_cast<float>(tracks_true));
    ExpectOutputs(Stumps(modes, std::vector<int64_t>(6, tracks_true)), {x}, {Floats({4, 6}, all)});
  }
  for (size_t i = 0; i < modes.size(); ++i) {
    SCOPED_TRACE(modes[i]);
    ExpectOutputs(Stumps({modes[i]}, {1}), {x},
                  {Floats({4, 1}, {expected[i], expected[6 + i], expected[12 + i], 1})});
  }
}

// x0 <= 0 ? (x1 <= 0 ? a : b) : c, and a tree that is one leaf, d; a, b, c, d give 1, 2, 4, 8.
MlNode TwoTrees(const std::string& op, const std::string& prefix, int outputs) {
  MlNode node(op, outputs);
  node.Ints("nodes_treeids", {0, 0, 0, 0, 0, 7}).Ints("nodes_nodeids", {0, 1, 2, 3, 4, 0});
  node.Ints("nodes_featureids", {0, 1, 0, 0, 0, 0}).Floats("nodes_values", {0, 0, 0, 0, 0, 0});
  node.Texts("nodes_modes", {"BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "LEAF"});
  node.Ints("nodes_truenodeids", {1, 2, 0, 0, 0, 0});
  node.Ints("nodes_falsenodeids", {4, 3, 0, 0, 0, 0});
  node.Ints(prefix + "_treeids", {0, 0, 0, 7}).Ints(prefix + "_nodeids", {2, 3, 4, 0});
  node.Floats(prefix + "_weights", {1, 2, 4, 8});
  return node;
}

TEST_F(OnnxMlTest, LeavesAreAggregated) {
  const Array x = Floats({3, 2}, {-1, -1, -1, 1, 1, 1});
  const std::map<std::string, std::vector<float>> expected = {{"SUM", {9.5f, 10.5f, 12.5f}},
                                                              {"AVERAGE", {5, 5.5f, 6.5f}},
                                                              {"MIN", {1.5f, 2.5f, 4.5f}},
                                                              {"MAX", {8.5f, 8.5f, 8.5f}}};
  for (const auto& [function, values] : expected) {
    SCOPED_TRACE(function);
    MlNode node = TwoTrees("TreeEnsembleRegressor", "target", 1);
    node.Ints("target_ids", {0, 0, 0, 0}).Floats("base_values", {0.5});
    node.Text("aggregate_function", function);
    ExpectOutputs(node, {x}, {Floats({3, 1}, values)});
  }
  // A target to which no leaf of a row gives anything has 0, also of extremes.
  MlNode node = TwoTrees("TreeEnsembleRegressor", "target", 1);
  node.Ints("target_ids", {0, 1, 0, 0}).Int("n_targets", 2).Text("aggregate_function", "MIN");
  ExpectOutputs(node, {x}, {Floats({3, 2}, {1, 0, 8, 2, 4, 0})});
}

TEST_F(OnnxMlTest, TreesClassify) {
  const Array x = Floats({3, 2}, {-1, -1, -1, 1, 1, 1});
  MlNode node = TwoTrees("TreeEnsembleClassifier", "class", 2);
  node.Ints("class_ids", {0, 1, 2, 0}).Ints("classlabels_int64s", {10, 20, 30});
  node.Floats("base_values", {-6.5, 1, 0});
  ExpectOutputs(node, {x},
                {Array::FromVector<int64_t>({3}, {10, 20, 30}),
                 Floats({3, 3}, {2.5f, 1, 0, 1.5f, 3, 0, 1.5f, 1, 4})});
  // One score of two classes; as no weight is negative, it is a probability: over one half?
  MlNode two = TwoTrees("TreeEnsembleClassifier", "class", 2);
  two.Ints("class_ids", {0, 0, 0, 0}).Ints("classlabels_int64s", {10, 20});
  two.Floats("base_values", {-9.25});
  ExpectOutputs(two, {x},
                {Array::FromVector<int64_t>({3}, {10, 20, 20}),
                 Floats({3, 2}, {1.25f, -0.25f, 0.25f, 0.75f, -1.75f, 2.75f})});
}

TEST_F(OnnxMlTest, NodesAskForMembersOfSets) {
  // x in {1, 5} ? 10 : (x in {3} ? 20 : 30); leaves have a list of their own.
  MlNode node("TreeEnsemble", 1);
  node.Ints("tree_roots", {0}).ByteTensor("nodes_modes", {6, 6});
  node.Ints("nodes_featureids", {0, 0}).FloatTensor("nodes_splits", {0, 0});
  node.Ints("nodes_truenodeids", {0, 1}).Ints("nodes_trueleafs", {1, 1});
  node.Ints("nodes_falsenodeids", {1, 2}).Ints("nodes_falseleafs", {0, 1});
  node.Ints("leaf_targetids", {0, 0, 0}).FloatTensor("leaf_weights", {10, 20, 30});
  node.FloatTensor("membership_values", {1, 5, kNan, 3, kNan}).Int("n_targets", 1);
  ExpectOutputs(node, {Floats({5, 1}, {1, 3, 5, 0, NAN})}, {Floats({5, 1}, {10, 20, 10, 30, 30})});
}

// ---- tables and mistakes ------------------------------------------------------------------------

// What is too large for the plan is a variable, which no step changes.
TEST_F(OnnxMlTest, LargeTablesAreVariables) {
  constexpr int64_t kMany = 70'000;
  std::vector<double> coefficients(kMany);
  coefficients[1] = 2;
  coefficients[kMany - 1] = 3;
  MlNode node("LinearRegressor", 1);
  node.Floats("coefficients", coefficients);
  const Array x = Floats({1, kMany}, std::vector<float>(kMany, 1));
  Model model = LoadOrDie(node, {x});
  auto session = Session::Start({.devices = {1}, .progress = Progress::kOff});
  auto job = (*session)->Compile("job", [&](Job& job) {
    const auto outputs = model.Apply(job, {job.Input("in", x.shape())});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    job.Fetch("y", outputs->front());
  });
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(model.variables().count("y0.coefficients"), 1u);
  EXPECT_THAT(model.weights(), IsEmpty());
  ASSERT_TRUE(model.LoadInto(**session).ok());
  const auto result = job->Run({.feeds = {{"in", x}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Values(result->Last("y")), ElementsAre(5));
}

// They come out as their places.
TEST_F(OnnxMlTest, ClassLabelsMayBeText) {
  const auto classifier_of = [](int outputs) {
    MlNode node("LinearClassifier", outputs);
    node.Floats("coefficients", {1, 0, 0, 1, -1, -1}).Floats("intercepts", {0, 0, 0.5});
    node.Texts("classlabels_strings", {"cat", "dog", "neither"});
    return node;
  };
  const MlNode classifier = classifier_of(2);
  const Array x = Floats({3, 2}, {1, 2, -1, -2, 3, 1});
  ExpectOutputs(classifier, {x},
                {Array::FromVector<int64_t>({3}, {1, 2, 0}),
                 Floats({3, 3}, {1, 2, -2.5, -1, -2, 3.5, 3, 1, -3.5})});
  for (const int outputs : {1, 2}) {
    Model model = LoadOrDie(classifier_of(outputs), {x});
    const OpRegistry ops = BuiltinOps();
    LogicalGraph graph(&ops);
    ASSERT_TRUE(model.Apply(graph, {Input(graph, "x", {DType::kF32, {3, 2}})}).ok());
    ASSERT_EQ(model.labels().size(), 1u);
    EXPECT_THAT(model.labels().at("y0"), ElementsAre("cat", "dog", "neither"));
  }
}

TEST_F(OnnxMlTest, StringsAreRefusedWithAWayOut) {
  MlNode encoder("LabelEncoder", 1);
  encoder.Ints("keys_int64s", {1}).Texts("values_strings", {"one"});
  EXPECT_THAT(ApplyError(encoder, {Array::FromVector<int64_t>({1}, {1})}),
              HasSubstr("values that are strings"));
}

TEST_F(OnnxMlTest, MistakesInTreesAreSaid) {
  const Array x = Floats({1, 2}, {1, 2});
  MlNode circle("TreeEnsemble", 1);
  circle.Ints("tree_roots", {0}).ByteTensor("nodes_modes", {0}).Ints("nodes_featureids", {0});
  circle.FloatTensor("nodes_splits", {0}).Ints("nodes_truenodeids", {0});
  circle.Ints("nodes_trueleafs", {0}).Ints("nodes_falsenodeids", {0});
  circle.Ints("nodes_falseleafs", {1}).Ints("leaf_targetids", {0});
  circle.FloatTensor("leaf_weights", {1});
  EXPECT_THAT(ApplyError(circle, {x}), HasSubstr("go in a circle"));
  MlNode beyond = TwoTrees("TreeEnsembleRegressor", "target", 1);
  beyond.Ints("target_ids", {0, 0, 2, 0});
  EXPECT_THAT(ApplyError(beyond, {x}), HasSubstr("a leaf has a weight for 2 of 1"));
  MlNode narrow = TwoTrees("TreeEnsembleRegressor", "target", 1);
  narrow.Ints("target_ids", {0, 0, 0, 0});
  EXPECT_THAT(ApplyError(narrow, {Floats({1, 1}, {1})}), HasSubstr("feature 1 of 1"));
}

}  // namespace
}  // namespace braid::onnx
