#include "tests/fuzz/onnx_seeds.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"

namespace braid::fuzz {
namespace {

onnx::NodeProto& AddNode(onnx::GraphProto& graph, const std::string& op,
                         const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  return node;
}

onnx::AttributeProto& AddAttribute(onnx::NodeProto& node, const std::string& name) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  return attribute;
}

void AddInitializer(onnx::GraphProto& graph, const std::string& name, std::vector<int64_t> dims,
                    std::vector<float> values) {
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(1);
  for (int64_t dim : dims) tensor.add_dims(dim);
  for (float value : values) tensor.add_float_data(value);
}

void AddInfo(onnx::ValueInfoProto& info, const std::string& name, std::vector<int64_t> dims) {
  info.set_name(name);
  onnx::TypeProto::Tensor& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(1);
  for (int64_t dim : dims) type.mutable_shape()->add_dim()->set_dim_value(dim);
}

onnx::ModelProto EmptyModel(int opset = 17) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  AddInfo(*model.mutable_graph()->add_input(), "x", {2, 3});
  AddInfo(*model.mutable_graph()->add_output(), "y", {});
  return model;
}

// With nodes of that domain, too.
onnx::ModelProto EmptyModelOf(const std::string& domain, int version) {
  onnx::ModelProto model = EmptyModel();
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain(domain);
  opset.set_version(version);
  return model;
}

// An initializer of every type, cast to f32 and added up.
onnx::ModelProto Types() {
  constexpr int kFirst = 1, kLast = 26;  // of TensorProto.DataType
  onnx::ModelProto model = EmptyModel(24);
  onnx::GraphProto& graph = *model.mutable_graph();
  onnx::NodeProto sum;
  sum.set_op_type("Sum");
  sum.add_input("x");
  sum.add_output("y");
  for (int type = kFirst; type <= kLast; ++type) {
    const auto dtype = onnx::DTypeOf(type);
    if (!dtype.ok()) continue;
    onnx::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name(absl::StrCat("t", type));
    tensor.set_data_type(type);
    tensor.add_dims(1);
    tensor.set_raw_data(std::string(SizeOf(*dtype), '\1'));
    const std::string cast = absl::StrCat("c", type);
    AddAttribute(AddNode(graph, "Cast", {tensor.name()}, {cast}), "to").set_i(1);
    sum.add_input(cast);
  }
  *graph.add_node() = std::move(sum);
  return model;
}

onnx::ModelProto Quantized() {
  onnx::ModelProto model = EmptyModel(21);
  onnx::GraphProto& graph = *model.mutable_graph();
  AddInitializer(graph, "scale", {}, {0.1f});
  AddInitializer(graph, "w", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  AddNode(graph, "DynamicQuantizeLinear", {"x"}, {"q", "q_scale", "q_zero"});
  AddNode(graph, "QuantizeLinear", {"w", "scale", "q_zero"}, {"qw"});
  AddNode(graph, "QLinearMatMul",
          {"q", "q_scale", "q_zero", "qw", "scale", "q_zero", "scale", "q_zero"}, {"product"});
  AddNode(graph, "MatMulInteger", {"q", "qw"}, {"whole"});
  AddNode(graph, "DequantizeLinear", {"product", "scale", "q_zero"}, {"y"});
  return model;
}

onnx::ModelProto Microsoft() {
  onnx::ModelProto model = EmptyModelOf("com.microsoft", 1);
  onnx::GraphProto& graph = *model.mutable_graph();
  AddInitializer(graph, "w", {3, 12}, std::vector<float>(36, 0.5f));
  AddInitializer(graph, "numbers", {3}, {1, 2, 3});
  AddInitializer(graph, "bias", {12}, std::vector<float>(12, 0.25f));
  const auto add = [&](const std::string& op, const std::vector<std::string>& inputs,
                       const std::string& output) -> onnx::NodeProto& {
    onnx::NodeProto& node = AddNode(graph, op, inputs, {output});
    node.set_domain("com.microsoft");
    return node;
  };
  AddAttribute(add("FusedMatMul", {"x", "w"}, "product"), "alpha").set_f(2);
  add("BiasGelu", {"product", "bias"}, "gelu");
  add("SkipLayerNormalization", {"x", "x", "numbers", "numbers"}, "norm");
  AddNode(graph, "Unsqueeze", {"norm", "axes"}, {"batch"});
  onnx::TensorProto& axes = *graph.add_initializer();
  axes.set_name("axes");
  axes.set_data_type(7);
  axes.add_dims(1);
  axes.add_int64_data(0);
  onnx::NodeProto& attention = add("MultiHeadAttention", {"batch", "batch", "batch"}, "y");
  AddAttribute(attention, "num_heads").set_i(1);
  return model;
}

onnx::ModelProto MachineLearning() {
  onnx::ModelProto model = EmptyModelOf("ai.onnx.ml", 3);
  onnx::GraphProto& graph = *model.mutable_graph();
  const auto add = [&](const std::string& op, const std::string& input,
                       const std::string& output) -> onnx::NodeProto& {
    onnx::NodeProto& node = AddNode(graph, op, {input}, {output});
    node.set_domain("ai.onnx.ml");
    return node;
  };
  const auto floats = [](onnx::NodeProto& node, const char* name, std::vector<float> values) {
    onnx::AttributeProto& attribute = AddAttribute(node, name);
    for (float value : values) attribute.add_floats(value);
  };
  const auto ints = [](onnx::NodeProto& node, const char* name, std::vector<int64_t> values) {
    onnx::AttributeProto& attribute = AddAttribute(node, name);
    for (int64_t value : values) attribute.add_ints(value);
  };
  onnx::NodeProto& scaler = add("Scaler", "x", "scaled");
  floats(scaler, "offset", {1, 2, 3});
  floats(scaler, "scale", {1, 0.5f, 2});
  floats(add("LinearRegressor", "scaled", "line"), "coefficients", {1, 2, 3});
  // One tree of a branch and two leaves.
  onnx::NodeProto& trees = add("TreeEnsembleRegressor", "scaled", "y");
  ints(trees, "nodes_treeids", {0, 0, 0});
  ints(trees, "nodes_nodeids", {0, 1, 2});
  ints(trees, "nodes_featureids", {1, 0, 0});
  floats(trees, "nodes_values", {0.5f, 0, 0});
  onnx::AttributeProto& modes = AddAttribute(trees, "nodes_modes");
  for (const char* mode : {"BRANCH_LEQ", "LEAF", "LEAF"}) modes.add_strings(mode);
  ints(trees, "nodes_truenodeids", {1, 0, 0});
  ints(trees, "nodes_falsenodeids", {2, 0, 0});
  ints(trees, "target_treeids", {0, 0});
  ints(trees, "target_nodeids", {1, 2});
  ints(trees, "target_ids", {0, 0});
  floats(trees, "target_weights", {1, 2});
  AddAttribute(trees, "n_targets").set_i(1);
  return model;
}

}  // namespace

void WriteOnnxSeeds(const WriteSeed& write) {
  onnx::ModelProto dense = EmptyModel();
  AddInitializer(*dense.mutable_graph(), "w", {3, 2}, {1, 2, 3, 4, 5, 6});
  AddAttribute(AddNode(*dense.mutable_graph(), "Gemm", {"x", "w"}, {"h"}), "alpha").set_f(2);
  AddNode(*dense.mutable_graph(), "Shape", {"h"}, {"shape"});
  AddNode(*dense.mutable_graph(), "Reshape", {"h", "shape"}, {"r"});
  AddAttribute(AddNode(*dense.mutable_graph(), "Softmax", {"r"}, {"y"}), "axis").set_i(-1);
  write("dense", dense.SerializeAsString());

  // Five rounds of s = s + x, of which every s is kept.
  onnx::ModelProto loop = EmptyModel();
  onnx::NodeProto& rounds = AddNode(*loop.mutable_graph(), "Constant", {}, {"rounds"});
  AddAttribute(rounds, "value_int").set_i(5);
  onnx::NodeProto& node = AddNode(*loop.mutable_graph(), "Loop", {"rounds", "", "x"}, {"s", "y"});
  onnx::GraphProto& body = *AddAttribute(node, "body").mutable_g();
  for (const char* name : {"round", "go", "before"}) body.add_input()->set_name(name);
  AddNode(body, "Add", {"before", "x"}, {"after"});
  AddNode(body, "Identity", {"after"}, {"kept"});
  for (const char* name : {"go", "after", "kept"}) body.add_output()->set_name(name);
  write("loop", loop.SerializeAsString());

  onnx::ModelProto sequence = EmptyModel();
  AddNode(*sequence.mutable_graph(), "SplitToSequence", {"x"}, {"parts"});
  onnx::NodeProto& last = AddNode(*sequence.mutable_graph(), "Constant", {}, {"last"});
  AddAttribute(last, "value_int").set_i(-1);
  AddNode(*sequence.mutable_graph(), "SequenceAt", {"parts", "last"}, {"part"});
  AddNode(*sequence.mutable_graph(), "SequenceInsert", {"parts", "part"}, {"more"});
  onnx::NodeProto& joined =
      AddNode(*sequence.mutable_graph(), "ConcatFromSequence", {"more"}, {"y"});
  AddAttribute(joined, "axis").set_i(1);
  write("sequence", sequence.SerializeAsString());

  onnx::ModelProto function = EmptyModel();
  function.mutable_opset_import(0)->set_domain("");
  onnx::FunctionProto& scaled = *function.add_functions();
  scaled.set_name("Scaled");
  scaled.add_input("a");
  scaled.add_output("b");
  scaled.add_opset_import()->set_version(17);
  onnx::NodeProto& factor = *scaled.add_node();
  factor.set_op_type("Constant");
  factor.add_output("factor");
  AddAttribute(factor, "value_floats").set_ref_attr_name("factors");
  onnx::NodeProto& product = *scaled.add_node();
  product.set_op_type("Mul");
  product.add_input("a");
  product.add_input("factor");
  product.add_output("b");
  onnx::NodeProto& call = AddNode(*function.mutable_graph(), "Scaled", {"x"}, {"y"});
  onnx::AttributeProto& factors = AddAttribute(call, "factors");
  for (float value : {1.f, 2.f, 3.f}) factors.add_floats(value);
  write("function", function.SerializeAsString());

  write("types", Types().SerializeAsString());
  write("quantized", Quantized().SerializeAsString());
  write("microsoft", Microsoft().SerializeAsString());
  write("ml", MachineLearning().SerializeAsString());
}

}  // namespace braid::fuzz
