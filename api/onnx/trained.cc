#include "api/onnx/trained.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "api/onnx/onnx.pb.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// What the nodes of a graph do with a value.
struct Use {
  const NodeProto* node = nullptr;
  int input = 0;
};
using Uses = std::multimap<std::string, Use>;

// Graphs in nodes see the names outside.
void CollectUses(const GraphProto& graph, Uses& uses) {
  for (const NodeProto& node : graph.node()) {
    for (int i = 0; i < node.input_size(); ++i) uses.insert({node.input(i), {&node, i}});
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) CollectUses(attribute.g(), uses);
    }
  }
}

bool IsStatistic(const Use& use) {
  return use.node->op_type() == "BatchNormalization" && (use.input == 3 || use.input == 4);
}

// Whether the node reads this input as a number of its own, not as data.
bool IsConstantInput(const Use& use) {
  const std::string& op = use.node->op_type();
  if (op == "Pow") return use.input == 1;
  if (op == "Clip" || op == "Pad" || op == "Resize" || op == "Upsample" || op == "OneHot") {
    return use.input > 0;
  }
  if (op == "Where") return true;
  if (op == "QuantizeLinear" || op == "DequantizeLinear") return use.input > 0;
  return op.starts_with("QLinear") || op.ends_with("Integer");
}

// Whether the node reads this input as weights of a product, quantized to bytes, or makes reals of
// them that products and gathers alone read.
bool IsByteWeight(const Use& use, const Uses& uses) {
  const std::string& op = use.node->op_type();
  if (op == "DequantizeLinear") {
    const auto [begin, end] = uses.equal_range(use.node->output(0));
    return use.input == 0 && begin != end && std::all_of(begin, end, [](const auto& reader) {
             const std::string& by = reader.second.node->op_type();
             return by == "Conv" || by == "MatMul" || by == "Gemm" || by == "Gather";
           });
  }
  if (op == "QLinearConv" || op == "QLinearMatMul" || op == "QGemm") return use.input == 3;
  return use.input == 1 && (op == "ConvInteger" || op == "MatMulInteger" ||
                            op == "MatMulIntegerToFloat" || op == "DynamicQuantizeMatMul");
}

// Operators that pass positions on to sin and cos.
bool PassesPositions(std::string_view op) {
  constexpr std::string_view kPassing[] = {
      "Add",    "Cast",  "Concat", "Div",   "Einsum",    "Expand",    "Gather",    "Identity",
      "MatMul", "Mul",   "Neg",    "Pow",   "Reshape",   "Slice",     "Squeeze",   "Sub",
      "Tile",   "Shape", "Range",  "Floor", "Unsqueeze", "Transpose", "Reciprocal"};
  return std::find(std::begin(kPassing), std::end(kPassing), op) != std::end(kPassing);
}

// Whether a value is read, and by nothing that does not end in sin and cos.
bool EndsInPositions(const std::string& name, const Uses& uses,
                     const std::set<std::string>& outputs) {
  constexpr size_t kMostValues = 256;  // that a table of positions leads to
  std::vector<std::string> names = {name};
  std::set<std::string> seen = {name};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [begin, end] = uses.equal_range(names[i]);
    if (begin == end || names.size() > kMostValues || outputs.contains(names[i])) return false;
    for (auto use = begin; use != end; ++use) {
      const NodeProto& node = *use->second.node;
      const std::string& op = node.op_type();
      if (op == "Sin" || op == "Cos" || op == "Shape") continue;
      if (!PassesPositions(op) || node.output_size() != 1) return false;
      if (seen.insert(node.output(0)).second) names.push_back(node.output(0));
    }
  }
  return true;
}

}  // namespace

const char* TextOf(LeftAlone why) {
  switch (why) {
    case LeftAlone::kNot:
      return "is trained";
    case LeftAlone::kWholeNumbers:
      return "has whole numbers";
    case LeftAlone::kOneElement:
      return "has one element";
    case LeftAlone::kNotFinite:
      return "has numbers that are not finite";
    case LeftAlone::kStatistics:
      return "has statistics of batches";
    case LeftAlone::kConstant:
      return "is a constant of its operators";
    case LeftAlone::kPositions:
      return "is a table of positions";
    case LeftAlone::kBytes:
      return "is quantized";
  }
  return "";
}

LeftAlone RoleOfNumbers(const Array& weight) {
  if (!IsFloating(weight.dtype())) return LeftAlone::kWholeNumbers;
  if (weight.num_elements() <= 1) return LeftAlone::kOneElement;
  const auto are_finite = [](const auto& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](auto x) { return std::isfinite(x); });
  };
  const bool is_finite = weight.dtype() == DType::kF32 ? are_finite(weight.data<float>())
                         : weight.dtype() == DType::kF64
                             ? are_finite(weight.data<double>())
                             : are_finite(weight.As(DType::kF32).data<float>());
  return is_finite ? LeftAlone::kNot : LeftAlone::kNotFinite;
}

absl::StatusOr<std::map<std::string, WeightRole>> RolesOf(const GraphProto& graph,
                                                          const NumbersByName& weights) {
  Uses uses;
  CollectUses(graph, uses);
  std::set<std::string> outputs;
  for (const ValueInfoProto& output : graph.output()) outputs.insert(output.name());
  std::map<std::string, WeightRole> roles;
  for (const auto& [name, numbers] : weights) {
    LeftAlone& why = roles[name].why;
    BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, numbers->Read());
    why = RoleOfNumbers(*array);
    const bool is_of_bytes = array->dtype() == DType::kU8 || array->dtype() == DType::kI8;
    const bool may_be_weights = is_of_bytes && array->shape().rank() > 1;
    if (why != LeftAlone::kNot && !may_be_weights) continue;
    const auto [begin, end] = uses.equal_range(name);
    const auto all = [&, begin = begin, end = end](const auto& is_so) {
      return begin != end &&
             std::all_of(begin, end, [&](const auto& each) { return is_so(each.second); });
    };
    if (may_be_weights) {
      const auto is_byte_weight = [&](const Use& use) { return IsByteWeight(use, uses); };
      if (all(is_byte_weight)) why = LeftAlone::kBytes;
    } else if (all(IsStatistic)) {
      why = LeftAlone::kStatistics;
    } else if (all(IsConstantInput)) {
      why = LeftAlone::kConstant;
    } else if (EndsInPositions(name, uses, outputs)) {
      why = LeftAlone::kPositions;
    }
  }
  return roles;
}

}  // namespace braid::onnx
