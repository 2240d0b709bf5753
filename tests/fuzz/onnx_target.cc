// Models as users bring them: an ONNX file is read and, if it can be, appended to a job.
#include <braid/onnx.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "api/onnx/onnx.pb.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "tests/fuzz/input_reader.h"
#include "tests/runtime/temp_dir.h"

namespace braid::fuzz {
namespace {

// Of the input's type, small where it leaves sizes open.
onnx::Argument ArgumentFor(const onnx::ValueInfo& info, LogicalGraph& graph) {
  constexpr int64_t kLargest = 64;
  Shape shape;
  if (info.dims) {
    std::vector<int64_t> dims;
    for (const onnx::Dim& dim : *info.dims) dims.push_back(dim.size.value_or(2));
    int64_t elements = 1;
    for (int64_t dim : dims) {
      if (dim < 0 || dim > kLargest || elements > kLargest) return onnx::Argument(Tensor());
      elements *= dim;
    }
    shape = Shape(dims);
  }
  const TensorType type{info.dtype.value_or(DType::kF32), shape};
  const onnx::Argument argument(Input(graph, info.name, type), Array(type.dtype, type.shape));
  return info.is_sequence ? onnx::Argument::Sequence({argument, argument}) : argument;
}

void Run(Bytes input) {
  const TempDir folder;
  const std::string path = folder / "model.onnx";
  PutFile(path, TextOf(input));
  absl::StatusOr<onnx::Model> model = onnx::Load(path);
  if (!model.ok()) return;
  static const OpRegistry ops = BuiltinOps();
  LogicalGraph graph(&ops);
  std::vector<onnx::Argument> arguments;
  for (const onnx::ValueInfo& info : model->inputs()) arguments.push_back(ArgumentFor(info, graph));
  model->Apply(graph, arguments).IgnoreError();
}

// ---- Changes of models: other operators of all domains, other types, more inputs and attributes.

// That operators have, of each kind some.
constexpr const char* kAttributes[] = {
    "axis",          "axes",         "keepdims",      "mode",        "group",
    "pads",          "strides",      "kernel_shape",  "dilations",   "auto_pad",
    "alpha",         "beta",         "epsilon",       "perm",        "to",
    "transA",        "transB",       "num_heads",     "hidden_size", "direction",
    "blocksize",     "block_size",   "num_outputs",   "scale",       "is_causal",
    "to_num_bits",   "output_dtype", "saturate",      "k",           "p",
    "value",         "largest",      "sorted",        "exclusive",   "reverse",
    "coefficients",  "intercepts",   "nodes_treeids", "cats_int64s", "classlabels_ints",
    "spatial_scale",
};

using Random = std::minstd_rand;

template <class List>
auto& AnyOf(List& list, Random& random) {
  return *(std::begin(list) + random() % std::size(list));
}

// Also a version of its domain, if the model has none.
void ChangeOperator(onnx::ModelProto& model, onnx::NodeProto& node, Random& random) {
  static const std::vector<std::string> kNames = onnx::AllTranslators().Names();
  const std::string& name = AnyOf(kNames, random);
  const size_t dot = name.rfind('.');
  const std::string domain = dot == std::string::npos ? "" : name.substr(0, dot);
  node.set_op_type(dot == std::string::npos ? name : name.substr(dot + 1));
  node.set_domain(domain);
  if (random() % 2 == 0) node.clear_attribute();
  for (const onnx::OperatorSetIdProto& opset : model.opset_import()) {
    if (opset.domain() == domain) return;
  }
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain(domain);
  opset.set_version(1 + random() % 5);
}

void AddAttribute(onnx::NodeProto& node, Random& random) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(AnyOf(kAttributes, random));
  const int64_t number = static_cast<int64_t>(random() % 7) - 2;
  switch (random() % 4) {
    case 0:
      attribute.set_f(static_cast<float>(number) / 2);
      return;
    case 1:
      for (size_t i = random() % 5; i > 0; --i) attribute.add_ints(random() % 4);
      return;
    case 2:
      for (size_t i = random() % 5; i > 0; --i) attribute.add_floats(static_cast<float>(i));
      return;
    default:
      attribute.set_i(number);
  }
}

// One of the names that the graph has, or of none.
void AddInput(const onnx::GraphProto& graph, onnx::NodeProto& node, Random& random) {
  std::vector<std::string> names = {""};
  for (const auto& input : graph.input()) names.push_back(input.name());
  for (const auto& initializer : graph.initializer()) names.push_back(initializer.name());
  for (const auto& other : graph.node()) {
    if (&other == &node) break;
    names.insert(names.end(), other.output().begin(), other.output().end());
  }
  const std::string& name = AnyOf(names, random);
  if (node.input_size() > 0 && random() % 2 == 0) {
    node.set_input(static_cast<int>(random() % node.input_size()), name);
  } else {
    node.add_input(name);
  }
}

// Of an input, or of an initializer, which gets bytes for so many elements.
void ChangeType(onnx::GraphProto& graph, Random& random) {
  constexpr int kTypes = 26;  // and some numbers that none has
  const int type = 1 + static_cast<int>(random() % kTypes);
  if (graph.initializer_size() == 0 || random() % 2 == 0) {
    if (graph.input_size() == 0) return;
    onnx::ValueInfoProto& input = AnyOf(*graph.mutable_input(), random);
    input.mutable_type()->mutable_tensor_type()->set_elem_type(type);
    return;
  }
  onnx::TensorProto& tensor = AnyOf(*graph.mutable_initializer(), random);
  int64_t elements = 1;
  for (const int64_t dim : tensor.dims()) elements *= std::clamp<int64_t>(dim, 0, 8);
  constexpr int64_t kSizes[] = {1, 2, 4, 8};
  tensor.clear_float_data();
  tensor.set_data_type(type);
  std::string bytes(std::min<int64_t>(elements, 512) * AnyOf(kSizes, random), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() % 4);
  tensor.set_raw_data(bytes);
}

size_t Mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  onnx::ModelProto model;
  if (!model.ParseFromArray(data, static_cast<int>(size))) return 0;
  Random random(seed);
  onnx::GraphProto& graph = *model.mutable_graph();
  const bool has_nodes = graph.node_size() > 0;
  switch (has_nodes ? random() % 6 : 5) {
    case 0:
      ChangeOperator(model, AnyOf(*graph.mutable_node(), random), random);
      break;
    case 1:
      AddAttribute(AnyOf(*graph.mutable_node(), random), random);
      break;
    case 2:
      AddInput(graph, AnyOf(*graph.mutable_node(), random), random);
      break;
    case 3:
      ChangeType(graph, random);
      break;
    default:
      return 0;  // its bytes
  }
  const std::string bytes = model.SerializeAsString();
  if (bytes.size() > max_size) return 0;
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

}  // namespace

Target OnnxTarget() { return {.name = "onnx", .run = Run, .mutate = Mutate}; }

}  // namespace braid::fuzz
