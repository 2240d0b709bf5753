#include "api/onnx/merged.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/importer.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/readers.h"
#include "api/onnx/trained.h"
#include "api/onnx/value.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

bool IsTaken(const std::string& name, const ModelProto& model, const Readers& readers,
             const NumbersByName& weights) {
  const auto& inputs = model.graph().input();
  return weights.contains(name) || readers.direct().contains(name) ||
         readers.outputs().contains(name) ||
         std::ranges::any_of(inputs, [&](const auto& input) { return input.name() == name; });
}

// Tensors of a job are found by their numbers' address: those of another weight need another.
void AddCopy(const std::string& name, const KnownNumbers& numbers, NumbersByName& weights) {
  weights[name] = std::make_shared<const KnownNumbers>(numbers);
}

absl::StatusOr<bool> IsWeightOfItsOwn(const NodeProto& node, const KnownNumbers& numbers,
                                      const Readers& readers) {
  BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, numbers.Read());
  return IsUniform(*array) ||
         RoleOf(node.output(0), *array, readers) != RoleOf(node.input(0), *array, readers);
}

absl::Status TakeNamesApart(ModelProto& model, NumbersByName& weights) {
  const Readers readers(model);
  std::set<const NodeProto*> replaced;
  for (const NodeProto& node : model.graph().node()) {
    const bool gives_name = node.op_type() == "Identity" && DomainOf(node.domain()).empty() &&
                            node.input_size() == 1 && node.output_size() == 1;
    if (!gives_name || weights.contains(node.output(0))) continue;
    const auto found = weights.find(node.input(0));
    if (found == weights.end() || !IsFloating(found->second->type().dtype)) continue;
    const std::shared_ptr<const KnownNumbers> numbers = found->second;
    BRAID_ASSIGN_OR_RETURN(const bool is_own, IsWeightOfItsOwn(node, *numbers, readers));
    if (!is_own) continue;
    AddCopy(node.output(0), *numbers, weights);
    replaced.insert(&node);
  }
  auto& nodes = *model.mutable_graph()->mutable_node();
  google::protobuf::RepeatedPtrField<NodeProto> others;
  for (NodeProto& node : nodes) {
    if (!replaced.contains(&node)) others.Add(std::move(node));
  }
  nodes.Swap(&others);
  return absl::OkStatus();
}

absl::Status TakeStatisticsApart(ModelProto& model, NumbersByName& weights) {
  const Readers readers(model);
  std::map<std::string, std::string> apart;
  for (NodeProto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() != "BatchNormalization") continue;
    for (int i = 3; i < 5 && i < node.input_size(); ++i) {
      const std::string name = node.input(i);
      const auto found = weights.find(name);
      if (found == weights.end()) continue;
      BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, found->second->Read());
      if (RoleOf(name, *array, readers) != LeftAlone::kNot) continue;
      std::string& own = apart[name];
      if (own.empty()) {
        own = absl::StrCat(name, ".statistics");
        while (IsTaken(own, model, readers, weights)) own += "_";
        AddCopy(own, *found->second, weights);
      }
      node.set_input(i, own);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TakeApart(ModelProto& model, NumbersByName& weights) {
  BRAID_RETURN_IF_ERROR(TakeNamesApart(model, weights));
  return TakeStatisticsApart(model, weights);
}

}  // namespace braid::onnx
