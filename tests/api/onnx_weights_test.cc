// What an ONNX file's weights become in a job: variables that are trained, variables that are not,
// constants; numbers of few bits; and what mistakes in a file's graph say.

#include "tests/api/onnx_weights.h"

#include <braid/braid.h>
#include <braid/onnx.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/onnx_writer.h"

namespace braid::onnx {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

class OnnxWeightsTest : public WeightsTest {};

// y = x w with a w of 256 KiB, some behind it in the file, and one that is no variable.
ModelWriter Wide() {
  ModelWriter writer;
  writer.Input("x", {0, 256});
  writer.Output("z", {0, 256});
  writer.Initializer("w", Numbers({256, 256}, 1));
  writer.Initializer("b", Numbers({256}, 2));
  writer.Initializer("bounds", Numbers({256, 256}, 3));
  writer.Add("MatMul", {"x", "w"}, {"m"});
  writer.Add("Add", {"m", "b"}, {"y"});
  writer.Add("Pow", {"y", "bounds"}, {"z"});
  return writer;
}

// A field of protocol buffers that is a message.
void AppendMessage(int field, const std::string& bytes, std::string& to) {
  const auto append = [&to](uint64_t value) {
    for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
    to.push_back(static_cast<char>(value));
  };
  append(static_cast<uint64_t>(field) << 3 | 2);
  append(bytes.size());
  to += bytes;
}

std::vector<float> NumbersIn(const Array& array) {
  return {array.data<float>().begin(), array.data<float>().end()};
}

TEST_F(OnnxWeightsTest, LargeOnesStayInTheirFileUntilTheyAreLoaded) {
  ModelWriter writer = Wide();
  Model model = LoadOrDie(writer);
  const NumbersByName& weights = model.weights();
  EXPECT_TRUE(weights.at("w")->are_in_file());
  EXPECT_FALSE(weights.at("b")->are_in_file()) << "which is small";
  EXPECT_FALSE(weights.at("bounds")->are_in_file()) << "whose numbers Apply needs";
  EXPECT_EQ(weights.at("w")->type(), (TensorType{DType::kF32, {256, 256}}));
  EXPECT_EQ(weights.at("w")->num_bytes(), 256 << 10);
  EXPECT_EQ(NumbersIn(**weights.at("w")->Read()), NumbersIn(Numbers({256, 256}, 1)));
  EXPECT_EQ(NumbersIn(**weights.at("bounds")->Read()), NumbersIn(Numbers({256, 256}, 3)));

  auto session = Session::Start({.devices = {2}, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto job = (*session)->Compile("infer", [&](Job& job) {
    const auto outputs = model.Apply(job, {job.Input("x", {256, 256})});
    if (outputs.ok()) job.Fetch("z", (*outputs)[0]);
  });
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(model.LoadInto(**session).ok());
  EXPECT_EQ(NumbersIn(*(*session)->Get("w")), NumbersIn(Numbers({256, 256}, 1)));
  EXPECT_EQ(NumbersIn(*(*session)->Get("b")), NumbersIn(Numbers({256}, 2)));

  // Another file under the name, and none.
  const std::string path = folder_ / "model.onnx";
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) - std::chrono::hours(1));
  EXPECT_THAT(std::string(model.LoadInto(**session).message()),
              HasSubstr("model.onnx' has changed since the model was loaded"));
  std::filesystem::remove(path);
  EXPECT_THAT(std::string(model.LoadInto(**session).message()),
              AllOf(HasSubstr("model.onnx'"), HasSubstr("No such file")));
}

TEST_F(OnnxWeightsTest, LargeOnesOfDamagedFilesAreErrors) {
  ModelWriter writer = Wide();
  const std::string whole = writer.model().SerializeAsString();
  const auto error = [&](const std::string& bytes) {
    PutFile(folder_ / "damaged.onnx", bytes);
    return std::string(Load(folder_ / "damaged.onnx").status().message());
  };
  const std::string damaged = "'" + folder_ / "damaged.onnx" + "' is no ONNX model, or is damaged";
  EXPECT_EQ(error(whole), "");
  for (size_t size : {whole.size() - 1, whole.size() - (300 << 10), size_t{1000}, size_t{1}}) {
    EXPECT_EQ(error(whole.substr(0, size)), damaged) << size;
  }
  EXPECT_EQ(error(""), damaged);
  // Another number of bytes than its shape says; and data twice, of which one would be lost.
  writer.graph().mutable_initializer(0)->set_dims(0, 255);
  EXPECT_THAT(error(writer.model().SerializeAsString()),
              HasSubstr("tensor 'w' is f32[255, 256] and has 262144 bytes of data"));
  writer.graph().mutable_initializer(0)->set_dims(0, 256);
  std::string twice = writer.graph().initializer(0).SerializeAsString();
  TensorProto more;
  more.set_raw_data(writer.graph().initializer(0).raw_data());
  twice += more.SerializeAsString();
  GraphProto graph = writer.graph();
  graph.mutable_initializer()->DeleteSubrange(0, 1);
  ModelProto model = writer.model();
  model.clear_graph();
  std::string fields = graph.SerializeAsString();
  AppendMessage(GraphProto::kInitializerFieldNumber, twice, fields);
  std::string file = model.SerializeAsString();
  AppendMessage(ModelProto::kGraphFieldNumber, fields, file);
  EXPECT_EQ(error(file), damaged);
}

TEST_F(OnnxWeightsTest, ConstantsOfNodesAreWeightsAsInitializersAre) {
  ModelWriter writer;
  writer.Input("x", {0, 3});
  writer.Output("y", {0, 2});
  NodeProto& constant = writer.Add("Constant", {}, {"w"});
  AttributeProto& value = *constant.add_attribute();
  value.set_name("value");
  value.set_type(4);
  TensorProto& tensor = *value.mutable_t();
  tensor.set_data_type(1);
  tensor.add_dims(3);
  tensor.add_dims(2);
  for (int i = 0; i < 6; ++i) tensor.add_float_data(static_cast<float>(i));
  writer.Add("MatMul", {"x", "w"}, {"y"});
  EXPECT_THAT(Variables(writer, {4, 3}), UnorderedElementsAre(Pair("w", true)));
  const Model model = LoadOrDie(writer);
  ASSERT_TRUE(model.weights().contains("w"));
  EXPECT_EQ((*model.weights().at("w")->Read())->data<float>()[5], 5);
  EXPECT_THAT(model.operators(), UnorderedElementsAre(Pair("Constant", 1), Pair("MatMul", 1)));
  // Zeros are what a state begins with, not what somebody trained.
  for (int i = 0; i < 6; ++i) {
    writer.graph().mutable_node(0)->mutable_attribute(0)->mutable_t()->set_float_data(i, 0);
  }
  EXPECT_THAT(Variables(writer, {4, 3}), UnorderedElementsAre());
}

void TensorAttribute(NodeProto& node, const std::string& name, const Array& array) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(4);
  TensorProto& tensor = *attribute.mutable_t();
  tensor.set_data_type(1);
  for (int64_t dim : array.shape()) tensor.add_dims(dim);
  tensor.set_raw_data(array.bytes(), array.num_bytes());
}

TEST_F(OnnxWeightsTest, LargeConstantsOfNodesStayInTheirFile) {
  ModelWriter writer;
  writer.Input("x", {0, 256});
  writer.Output("y", {0, 256});
  TensorAttribute(writer.Add("Constant", {}, {"ones"}), "value",
                  Floats({256, 256}, std::vector<float>(256 * 256, 1)));
  TensorAttribute(writer.Add("Constant", {}, {"w"}), "value", Numbers({256, 256}, 1));
  writer.Add("MatMul", {"x", "w"}, {"m"});
  writer.Add("MatMul", {"m", "ones"}, {"y"});
  const std::string whole = writer.model().SerializeAsString();
  Model model = LoadOrDie(writer);
  ASSERT_TRUE(model.weights().contains("w"));
  EXPECT_TRUE(model.weights().at("w")->are_in_file());
  EXPECT_EQ(NumbersIn(**model.weights().at("w")->Read()), NumbersIn(Numbers({256, 256}, 1)));

  auto session = Session::Start({.devices = {2}, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status();
  auto job = (*session)->Compile("infer", [&](Job& job) {
    const auto outputs = model.Apply(job, {job.Input("x", {2, 256})});
    if (outputs.ok()) job.Fetch("y", (*outputs)[0]);
  });
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(model.LoadInto(**session).ok());
  const Array x = Numbers({2, 256}, 5), w = Numbers({256, 256}, 1);
  const auto run = job->Run({.feeds = {{"x", x}}});
  ASSERT_TRUE(run.ok()) << run.status();
  for (int64_t row : {0, 1}) {
    double sum = 0;
    for (int64_t k = 0; k < 256; ++k) {
      for (int64_t j = 0; j < 256; ++j) {
        sum += double{x.data<float>()[row * 256 + k]} * w.data<float>()[k * 256 + j];
      }
    }
    EXPECT_NEAR(run->Last("y").data<float>()[row * 256 + 7], sum, 1e-3);
  }

  for (size_t size : {whole.size() - 100, whole.size() - (300 << 10), size_t{1000}}) {
    PutFile(folder_ / "damaged.onnx", whole.substr(0, size));
    EXPECT_THAT(std::string(Load(folder_ / "damaged.onnx").status().message()),
                HasSubstr("damaged.onnx' is no ONNX model, or is damaged"));
  }
  writer.graph().mutable_node(1)->mutable_attribute(0)->mutable_t()->set_dims(0, 255);
  EXPECT_THAT(LoadError(writer),
              AllOf(HasSubstr("Constant 'w'"), HasSubstr("has 262144 bytes of data")));
}

TEST_F(OnnxWeightsTest, LargeAttributesOfOtherNodesAreReadWithThem) {
  ModelWriter writer;
  writer.Input("x", {0, 3});
  writer.Output("y", {0, 3});
  writer.Add("Shape", {"x"}, {"shape"});
  TensorAttribute(writer.Add("ConstantOfShape", {"shape"}, {"c"}), "value", Numbers({256, 256}, 1));
  writer.Add("Add", {"x", "c"}, {"y"});
  EXPECT_THAT(ApplyError(writer, {4, 3}), HasSubstr("its value is not one element"));
}

TEST_F(OnnxWeightsTest, WhatNoOptimizerShouldTouchIsLeftAlone) {
  ModelWriter writer = Various();
  EXPECT_THAT(Variables(writer, {4, 3}),
              UnorderedElementsAre(Pair("w", true), Pair("scale", true), Pair("shift", true),
                                   Pair("mean", false), Pair("variance", false)));
  // Somebody who knows better says so, by name and type.
  const auto is_mask = [](const std::string& name, const TensorType& type) {
    EXPECT_EQ(type.dtype, DType::kF32);
    return name == "mask";
  };
  EXPECT_THAT(
      Variables(writer, {4, 3}, {.trains = is_mask}),
      UnorderedElementsAre(Pair("w", false), Pair("scale", false), Pair("shift", false),
                           Pair("mean", false), Pair("variance", false), Pair("mask", true)));
}

TEST_F(OnnxWeightsTest, NumbersOfFewBitsStandForReals) {
  struct FewBits {
    int onnx_type;
    std::string bytes;            // of four numbers
    std::vector<float> expected;  // with a scale of 0.5
  };
  const std::vector<FewBits> cases = {
      {3, std::string("\x01\xff\x80\x7f", 4), {0.5f, -0.5f, -64, 63.5f}},  // int8
      {5,
       std::string("\x01\x00\xff\xff\x00\x80\xff\x7f", 8),
       {0.5f, -0.5f, -16384, 16383.5f}},                                            // int16
      {22, std::string("\xf1\x78", 2), {0.5f, -0.5f, -4, 3.5f}},                    // int4
      {21, std::string("\xf1\x78", 2), {0.5f, 7.5f, 4, 3.5f}},                      // uint4
      {26, std::string("\xb1", 1), {0.5f, 0, -0.5f, -1}},                           // int2
      {17, std::string("\x38\xb8\x7e\x01", 4), {0.5f, -0.5f, 224, 0.0009765625f}},  // e4m3
      {19, std::string("\x3c\xbc\x7b\x01", 4), {0.5f, -0.5f, 28672, 0x1p-17f}},     // e5m2
      {23, std::string("\xa2\x17", 2), {0.5f, -0.5f, 3, 0.25f}},                    // e2m1
  };
  for (const FewBits& each : cases) {
    SCOPED_TRACE(each.onnx_type);
    ModelWriter writer;
    writer.model().mutable_opset_import(0)->set_version(25);
    writer.Input("x", {4});
    writer.Output("y", {4});
    TensorProto& tensor = *writer.graph().add_initializer();
    tensor.set_name("w");
    tensor.set_data_type(each.onnx_type);
    tensor.add_dims(4);
    tensor.set_raw_data(each.bytes);
    writer.Initializer("half", Array::FromVector<float>({}, {0.5f}));
    writer.Add("DequantizeLinear", {"w", "half"}, {"real"});
    writer.Add("Add", {"x", "real"}, {"y"});
    Model model = LoadOrDie(writer);
    auto session = Session::Start({.devices = {2}, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status();
    auto job = (*session)->Compile("job", [&](Job& job) -> absl::Status {
      const auto outputs = model.Apply(job, {job.Input("in", {4})});
      if (!outputs.ok()) return outputs.status();
      job.Fetch("y", (*outputs)[0]);
      return absl::OkStatus();
    });
    ASSERT_TRUE(job.ok()) << job.status();
    ASSERT_EQ(model.LoadInto(**session), absl::OkStatus());
    const auto result = job->Run({.feeds = {{"in", Array(DType::kF32, {4})}}});
    ASSERT_TRUE(result.ok()) << result.status();
    const Array& y = result->Last("y");
    EXPECT_THAT(std::vector<float>(y.data<float>().begin(), y.data<float>().end()),
                testing::ElementsAreArray(each.expected));
  }
}

// Numbers that are quantized while a job runs, by each type that holds them.
TEST_F(OnnxWeightsTest, QuantizedNumbersLieOnAllDevices) {
  for (const int onnx_type : {2, 3, 4, 5, 17, 18, 19, 20, 21, 22, 23}) {
    SCOPED_TRACE(onnx_type);
    ModelWriter writer;
    writer.model().mutable_opset_import(0)->set_version(25);
    writer.Input("x", {4, 2});
    writer.Output("y", {2, 4});
    writer.Initializer("two", Array::FromVector<float>({}, {2}));
    IntAttribute(writer.Add("QuantizeLinear", {"x", "two"}, {"q"}), "output_dtype", onnx_type);
    IntsAttribute(writer.Add("Transpose", {"q"}, {"turned"}), "perm", {1, 0});
    writer.Add("DequantizeLinear", {"turned", "two"}, {"y"});
    for (const std::vector<int>& devices : {std::vector{1}, {2}, {2, 2}}) {
      Model model = LoadOrDie(writer);
      auto session = Session::Start({.devices = devices, .progress = Progress::kOff});
      ASSERT_TRUE(session.ok()) << session.status();
      auto job = (*session)->Compile("job", [&](Job& job) -> absl::Status {
        const auto outputs = model.Apply(job, {job.Input("in", {4, 2})});
        if (!outputs.ok()) return outputs.status();
        job.Fetch("y", (*outputs)[0]);
        return absl::OkStatus();
      });
      ASSERT_TRUE(job.ok()) << job.status();
      const Array x = Array::FromVector<float>({4, 2}, {0, 2, 4, 6, 8, 12, 4, 2});
      const auto result = job->Run({.feeds = {{"in", x}}});
      ASSERT_TRUE(result.ok()) << result.status();
      const Array& y = result->Last("y");
      EXPECT_THAT(std::vector<float>(y.data<float>().begin(), y.data<float>().end()),
                  testing::ElementsAre(0, 4, 8, 4, 2, 6, 12, 2));
    }
  }
}

// Two outputs, each with a weight of its own, of which a job fetches one or none.
TEST_F(OnnxWeightsTest, WhatNoJobFetchesNeedsNoWeights) {
  ModelWriter writer;
  writer.Input("x", {2, 3});
  writer.Output("a", {2, 3});
  writer.Output("b", {2, 3});
  writer.Initializer("wa", Numbers({3}, 1));
  writer.Initializer("wb", Numbers({3}, 2));
  writer.Add("Add", {"x", "wa"}, {"a"});
  writer.Add("Mul", {"x", "wb"}, {"b"});
  Model model = LoadOrDie(writer);
  const auto session = Session::Start({.devices = {2}, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto record = [&](const std::string& output) {
    return [&model, output](Job& job) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto outputs, model.Apply(job, {job.Input("x", {2, 3})}));
      job.Fetch("y", output == "a" ? outputs[0] : job.Input("z", {2, 3}) * 2.0);
      return absl::OkStatus();
    };
  };
  ASSERT_TRUE((*session)->Compile("none", record("")).ok());
  const absl::Status none = model.LoadInto(**session);
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("no compiled job has one of its 2 variables"));
  const auto job = (*session)->Compile("first", record("a"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(model.LoadInto(**session), absl::OkStatus());
  EXPECT_EQ((*session)->Get("wa")->data<float>()[1], Numbers({3}, 1).data<float>()[1]);
  EXPECT_FALSE((*session)->HasVariable("wb"));
}

TEST_F(OnnxWeightsTest, ASizeOfMinusOneIsOpen) {
  ModelWriter writer;
  writer.Input("x", {0, 3});
  writer.Output("y", {0, 3});
  writer.graph()
      .mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_value(-1);
  writer.Add("Relu", {"x"}, {"y"});
  EXPECT_EQ(LoadOrDie(writer).inputs()[0].ToString(), "x f32[?, 3]");
  EXPECT_EQ(ApplyError(writer, {7, 3}), "no error");
}

// A branch gives x as it is, the other its first element.
TEST_F(OnnxWeightsTest, AConditionSaysOnWhichInputItDepends) {
  ModelWriter writer;
  writer.Input("x", {3});
  writer.Output("y", {3});
  writer.Add("ReduceSum", {"x"}, {"sum"});
  writer.Initializer("zero", Array::FromVector<float>({}, {0}));
  writer.Initializer("first", Array::FromVector<int64_t>({1}, {0}));
  writer.Add("Greater", {"sum", "zero"}, {"is_positive"});
  NodeProto& branches = writer.Add("If", {"is_positive"}, {"y"});
  const auto branch = [&](const std::string& name, const std::string& op,
                          std::vector<std::string> inputs) {
    AttributeProto& attribute = *branches.add_attribute();
    attribute.set_name(name);
    attribute.set_type(5);
    GraphProto& graph = *attribute.mutable_g();
    ModelWriter::Node(*graph.add_node(), op, std::move(inputs), {name + "_out"});
    ModelWriter::Info(*graph.add_output(), name + "_out", {3});
  };
  branch("then_branch", "Relu", {"x"});
  branch("else_branch", "Gather", {"x", "first"});
  EXPECT_THAT(ApplyError(writer, {3}),
              AllOf(HasSubstr("If of opset 17 'the_If'"), HasSubstr("it depends on the input 'x'"),
                    HasSubstr("give the value as its argument")));
}

TEST_F(OnnxWeightsTest, NamesAreGivenOnceAndInOrder) {
  ModelWriter twice;
  twice.Input("x", {3});
  twice.Output("y", {3});
  twice.Add("Relu", {"x"}, {"y"});
  twice.Add("Neg", {"x"}, {"y"});
  EXPECT_THAT(ApplyError(twice, {3}), HasSubstr("it makes 'y', which the graph has already"));

  ModelWriter circle;
  circle.Input("x", {3});
  circle.Output("y", {3});
  circle.Add("Add", {"x", "z"}, {"y"});
  circle.Add("Neg", {"y"}, {"z"});
  EXPECT_THAT(ApplyError(circle, {3}), AllOf(HasSubstr("'z'"), HasSubstr("form a circle")));
}

// A loop whose body adds an initializer, in another file, and what is carried through it.
ModelWriter Loop() {
  ModelWriter writer;
  writer.Input("x", {3});
  writer.Output("y", {3});
  writer.Initializer("times", Array::FromVector<int64_t>({}, {2}));
  writer.graph().set_name("whole");
  NodeProto& loop = writer.Add("Loop", {"times", "", "x"}, {"y"});
  AttributeProto& attribute = *loop.add_attribute();
  attribute.set_name("body");
  attribute.set_type(5);
  GraphProto& body = *attribute.mutable_g();
  body.set_name("inner");
  for (const char* name : {"step", "goes_on", "before"}) {
    ModelWriter::Info(*body.add_input(), name, {3});
  }
  ModelWriter writes_weight;
  writes_weight.Initializer("w", Floats({3}, {1, 2, 3}));
  *body.add_initializer() = writes_weight.graph().initializer(0);
  ModelWriter::Node(*body.add_node(), "Add", {"before", "w"}, {"after"});
  ModelWriter::Node(*body.add_node(), "Identity", {"goes_on"}, {"still"});
  for (const char* name : {"still", "after"}) ModelWriter::Info(*body.add_output(), name, {3});
  return writer;
}

GraphProto& BodyOf(ModelWriter& writer) {
  return *writer.graph().mutable_node(0)->mutable_attribute(0)->mutable_g();
}

TEST_F(OnnxWeightsTest, GraphsInNodesHaveNoNamesOfThoseAround) {
  ModelWriter plain = Loop();
  EXPECT_EQ(ApplyError(plain, {3}), "no error");
  // The standard asks for that of what nodes make alone.
  ModelWriter hides = Loop();
  BodyOf(hides).mutable_input(0)->set_name("x");
  BodyOf(hides).mutable_initializer(0)->set_name("times");
  BodyOf(hides).mutable_node(0)->set_input(1, "times");
  EXPECT_EQ(ApplyError(hides, {3}), "no error");
  ModelWriter output = Loop();
  BodyOf(output).mutable_node(1)->set_output(0, "x");
  EXPECT_THAT(ApplyError(output, {3}),
              HasSubstr("it makes 'x', which the graph 'whole' around it has already"));
  ModelWriter same = Loop();
  BodyOf(same).mutable_input(2)->set_name("step");
  EXPECT_THAT(ApplyError(same, {3}),
              HasSubstr("Loop of opset 17 'the_Loop': the graph 'inner' has the input 'step', "
                        "which the graph 'inner' has already; names are given once"));
  ModelWriter twice = Loop();
  *BodyOf(twice).add_initializer() = BodyOf(twice).initializer(0);
  EXPECT_THAT(ApplyError(twice, {3}),
              HasSubstr("the graph 'inner' has the initializer 'w', which the graph 'inner' has"));
  ModelWriter weights = Loop();
  weights.Initializer("times", Array::FromVector<int64_t>({}, {3}));
  EXPECT_THAT(LoadError(weights), HasSubstr("two initializers are called 'times'"));
  ModelWriter inputs = Loop();
  inputs.Input("x", {3});
  EXPECT_THAT(LoadError(inputs), HasSubstr("two inputs are called 'x'"));
}

TEST_F(OnnxWeightsTest, GraphsInNodesHaveTheirDataInTheModelsFolder) {
  const auto move_out = [](TensorProto& tensor) {
    tensor.clear_raw_data();
    tensor.set_data_location(TensorProto::EXTERNAL);
    StringStringEntryProto& location = *tensor.add_external_data();
    location.set_key("location");
    location.set_value("inner.bin");
  };
  const Array data = Floats({3}, {1, 2, 3});
  ModelWriter writer = Loop();
  move_out(*BodyOf(writer).mutable_initializer(0));
  EXPECT_THAT(ApplyError(writer, {3}),
              AllOf(HasSubstr("Loop"), HasSubstr("tensor 'w'"), HasSubstr(folder_ / "inner.bin")));
  PutFile(folder_ / "inner.bin", std::string(reinterpret_cast<const char*>(data.bytes()), 12));
  EXPECT_THAT(Variables(writer, {3}), UnorderedElementsAre(Pair("w", true)));
  // The same as a constant, in a function.
  FunctionProto& function = *writer.model().add_functions();
  function.set_name("AddConstant");
  function.set_domain("ours");
  *function.add_opset_import() = writer.model().opset_import(0);
  function.add_input("a");
  function.add_output("b");
  NodeProto& constant = ModelWriter::Node(*function.add_node(), "Constant", {}, {"c"});
  constant.add_attribute()->set_name("value");
  *constant.mutable_attribute(0)->mutable_t() = BodyOf(writer).initializer(0);
  ModelWriter::Node(*function.add_node(), "Add", {"a", "c"}, {"b"});
  writer.model().add_opset_import()->set_domain("ours");
  writer.model().mutable_opset_import(1)->set_version(1);
  NodeProto& call = *writer.graph().mutable_node(0);
  call.Clear();
  ModelWriter::Node(call, "AddConstant", {"x"}, {"y"}).set_domain("ours");
  EXPECT_EQ(ApplyError(writer, {3}), "no error");
  std::filesystem::remove(folder_ / "inner.bin");
  EXPECT_THAT(ApplyError(writer, {3}), HasSubstr(folder_ / "inner.bin"));
}

// Words are moved by their places; nothing is computed of them, and they are as many as dims say.
TEST_F(OnnxWeightsTest, TextIsMovedAndNothingElse) {
  ModelWriter writer;
  writer.Input("x", {1, 3});
  writer.Output("y", {1});
  TensorProto& words = *writer.graph().add_initializer();
  words.set_name("words");
  words.set_data_type(8);
  words.add_dims(3);
  for (const char* word : {"one", "two", "three"}) words.add_string_data(word);
  NodeProto& most = writer.Add("ArgMax", {"x"}, {"place"});
  IntAttribute(most, "keepdims", 0);
  IntAttribute(most, "axis", 1);
  IntAttribute(writer.Add("Cast", {"words"}, {"cast"}), "to", 8);
  writer.Add("Gather", {"cast", "place"}, {"y"});
  Model model = LoadOrDie(writer);
  const auto session = Session::Start({.devices = {2}, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status();
  auto job = (*session)->Compile("job", [&](Job& job) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto outputs, model.Apply(job, {job.Input("x", {1, 3})}));
    job.Fetch("y", outputs[0]);
    return absl::OkStatus();
  });
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(model.LoadInto(**session), absl::OkStatus());
  const auto result = job->Run({.feeds = {{"x", Floats({1, 3}, {0, 1, 2})}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(model.labels().at("y")[result->Last("y").data<int64_t>()[0]], "three");

  NodeProto& equal = *writer.graph().mutable_node(2);
  equal.set_op_type("Equal");
  EXPECT_THAT(ApplyError(writer, {1, 3}), HasSubstr("input 0, 'cast', is text, which it does more "
                                                    "with than to move it"));
  words.add_string_data("four");
  const std::string path = folder_ / "text.onnx";
  PutFile(path, writer.model().SerializeAsString());
  EXPECT_THAT(std::string(Load(path).status().message()),
              AllOf(HasSubstr("text.onnx"), HasSubstr("'words' is text and has 4 words")));
}

}  // namespace
}  // namespace braid::onnx
