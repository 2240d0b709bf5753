// ONNX files that tests write.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/onnx/onnx.pb.h"
#include "runtime/array.h"

namespace braid::onnx {

// Numbers that do not repeat, about -0.5 .. 0.5.
inline Array Numbers(Shape shape, int seed) {
  std::vector<float> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 37 + seed * 101) % 211) / 211 - 0.5f;
  }
  return Array::FromVector(std::move(shape), values);
}

inline Array Floats(Shape shape, const std::vector<float>& values) {
  return Array::FromVector(std::move(shape), values);
}

// Builds a file, a node at a time.
class ModelWriter {
 public:
  ModelWriter() {
    model_.set_ir_version(8);
    OperatorSetIdProto& opset = *model_.add_opset_import();
    opset.set_version(17);
  }

  ModelProto& model() { return model_; }
  GraphProto& graph() { return *model_.mutable_graph(); }

  static NodeProto& Node(NodeProto& node, const std::string& op, std::vector<std::string> inputs,
                         std::vector<std::string> outputs) {
    node.set_op_type(op);
    for (const std::string& input : inputs) node.add_input(input);
    for (const std::string& output : outputs) node.add_output(output);
    return node;
  }
  NodeProto& Add(const std::string& op, std::vector<std::string> inputs,
                 std::vector<std::string> outputs) {
    NodeProto& node = Node(*graph().add_node(), op, std::move(inputs), std::move(outputs));
    node.set_name("the_" + op);
    return node;
  }
  void Initializer(const std::string& name, const Array& array) {
    TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(array.dtype() == DType::kF32 ? 1 : 7);
    for (int64_t dim : array.shape()) tensor.add_dims(dim);
    tensor.set_raw_data(array.bytes(), array.num_bytes());
  }
  // A size of 0 is called "batch".
  static void Info(ValueInfoProto& info, const std::string& name, std::vector<int64_t> dims) {
    info.set_name(name);
    TypeProto::Tensor& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(1);
    type.mutable_shape()->clear_dim();
    for (int64_t dim : dims) {
      TensorShapeProto::Dimension& added = *type.mutable_shape()->add_dim();
      if (dim > 0) {
        added.set_dim_value(dim);
      } else {
        added.set_dim_param("batch");
      }
    }
  }
  void Input(const std::string& name, std::vector<int64_t> dims) {
    Info(*graph().add_input(), name, std::move(dims));
  }
  void Output(const std::string& name, std::vector<int64_t> dims) {
    Info(*graph().add_output(), name, std::move(dims));
  }

 private:
  ModelProto model_;
};

inline void IntAttribute(NodeProto& node, const std::string& name, int64_t value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_i(value);
  attribute.set_type(2);
}
inline void FloatAttribute(NodeProto& node, const std::string& name, double value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_f(static_cast<float>(value));
  attribute.set_type(1);
}
inline void IntsAttribute(NodeProto& node, const std::string& name,
                          const std::vector<int64_t>& values) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  for (int64_t value : values) attribute.add_ints(value);
  attribute.set_type(7);
}

}  // namespace braid::onnx
