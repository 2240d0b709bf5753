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

bool IsStatistic(const Use& use) {
  return use.node != nullptr && use.node->op_type() == "BatchNormalization" &&
         (use.input == 3 || use.input == 4);
}

// Whether the node reads this input as a number of its own, not as data.
bool IsConstantInput(const Use& use) {
  if (use.node == nullptr) return false;
  const std::string& op = use.node->op_type();
  if (op == "Pow") return use.input == 1;
  if (op == "Clip" || op == "Pad" || op == "Resize" || op == "Upsample" || op == "OneHot") {
    return use.input > 0;
  }
  if (op == "Where") return true;
  if (op == "QuantizeLinear" || op == "DequantizeLinear") return use.input > 0;
  return op.starts_with("QLinear") || op.ends_with("Integer");
}

template <class F>
bool AreAll(const std::vector<Use>& uses, F is_so) {
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), is_so);
}

// Whether the node reads this input as weights of a product, quantized to bytes, or makes reals of
// them that products and gathers alone read.
bool IsByteWeight(const Use& use, const Readers& readers) {
  if (use.node == nullptr) return false;
  const std::string& op = use.node->op_type();
  if (op == "DequantizeLinear") {
    if (use.input != 0 || use.is_in_function || use.node->output_size() == 0) return false;
    return AreAll(readers.Of(use.node->output(0)), [](const Use& reader) {
      const std::string by = reader.node != nullptr ? reader.node->op_type() : "";
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
bool EndsInPositions(const std::string& name, const Readers& readers) {
  constexpr size_t kMostValues = 256;  // that a table of positions leads to
  std::vector<std::string> names = {name};
  std::set<std::string> seen = {name};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [begin, end] = readers.direct().equal_range(names[i]);
    if (begin == end || names.size() > kMostValues) return false;
    if (readers.outputs().contains(names[i])) return false;
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

LeftAlone RoleOf(const std::string& name, const Array& weight, const Readers& readers) {
  const LeftAlone why = RoleOfNumbers(weight);
  const bool is_of_bytes = weight.dtype() == DType::kU8 || weight.dtype() == DType::kI8;
  if (is_of_bytes && weight.shape().rank() > 1) {
    const auto is_byte_weight = [&](const Use& use) { return IsByteWeight(use, readers); };
    return AreAll(readers.Of(name), is_byte_weight) ? LeftAlone::kBytes : why;
  }
  if (why != LeftAlone::kNot) return why;
  const std::vector<Use> uses = readers.Of(name);
  if (AreAll(uses, IsStatistic)) return LeftAlone::kStatistics;
  if (AreAll(uses, IsConstantInput)) return LeftAlone::kConstant;
  return EndsInPositions(name, readers) ? LeftAlone::kPositions : LeftAlone::kNot;
}

absl::StatusOr<std::map<std::string, WeightRole>> RolesOf(const Readers& readers,
                                                          const NumbersByName& weights) {
  std::map<std::string, WeightRole> roles;
  for (const auto& [name, numbers] : weights) {
    BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, numbers->Read());
    roles[name].why = RoleOf(name, *array, readers);
  }
  return roles;
}

}  // namespace braid::onnx
