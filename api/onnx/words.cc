#include "api/onnx/words.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/importer.h"
#include "api/onnx/node_view.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"

namespace braid::onnx {
namespace {

// Operators whose output has elements of their first input, unchanged.
constexpr const char* kMovers[] = {
    "Identity",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Transpose",
    "Expand",
    "Tile",
    "Gather",
    "GatherND",
    "GatherElements",
    "ai.onnx.ml.ArrayFeatureExtractor",
};

const AttributeProto* AttributeOf(const NodeProto& node, const char* name) {
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

}  // namespace

bool IsText(const TensorProto& tensor) { return tensor.data_type() == kStringType; }

absl::StatusOr<Text> TextOf(const TensorProto& tensor) {
  int64_t elements = 1;
  for (const int64_t dim : tensor.dims())
    elements = dim < 0 ? -1 : elements * std::min(dim, int64_t{1} << 20);
  if (elements != tensor.string_data_size()) {
    return absl::DataLossError(absl::StrCat("tensor '", tensor.name(), "' is text and has ",
                                            tensor.string_data_size(),
                                            " words, not as many as its dims say"));
  }
  std::vector<int64_t> places(elements);
  std::iota(places.begin(), places.end(), 0);
  return Text{
      .places = Array::FromVector(Shape({tensor.dims().begin(), tensor.dims().end()}), places),
      .words = std::make_shared<const std::vector<std::string>>(tensor.string_data().begin(),
                                                                tensor.string_data().end())};
}

bool CastsText(const NodeProto& node, const std::vector<Value>& inputs) {
  const AttributeProto* to = AttributeOf(node, "to");
  return OperatorOf(node) == "Cast" && to != nullptr && to->i() == kStringType && !inputs.empty() &&
         inputs[0].words != nullptr;
}

absl::StatusOr<Words> WordsMadeBy(const NodeProto& node, const std::vector<Value>& inputs) {
  const AttributeProto* labels = AttributeOf(node, "classlabels_strings");
  const bool is_classifier =
      labels != nullptr && labels->strings_size() > 0 && OperatorOf(node).ends_with("Classifier");
  if (is_classifier) {
    return std::make_shared<const std::vector<std::string>>(labels->strings().begin(),
                                                            labels->strings().end());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].words == nullptr) continue;
    const std::string op = OperatorOf(node);
    const bool moves = i == 0 && std::ranges::find(kMovers, op) != std::end(kMovers);
    if (moves || CastsText(node, inputs)) return inputs[0].words;
    return Lacking(absl::StrCat("input ", i, ", '", inputs[i].name,
                                "', is text, which it does more with than to move it"));
  }
  return nullptr;
}

}  // namespace braid::onnx
