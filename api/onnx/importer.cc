#include "api/onnx/importer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/onnx/fold.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/trained.h"
#include "api/onnx/words.h"
#include "graph/functional.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Values = std::vector<Value>;

// Loops in loops and functions in functions: what a small file may grow to.
constexpr int64_t kMaxVisits = 200'000;
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxElements = int64_t{1} << 40;
// What is known beside being computed in the job stays known while it is small: shapes are.
constexpr int64_t kMaxKnownElements = 4096;

// Few of our operators have u8, which models rarely need: no fault of the file's.
bool TakesBytes(const Values& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Value& input) {
    return input.is_tensor() && input.type().dtype == DType::kU8;
  });
}

// What a translation appended to the graph, from tensor `first` on.
absl::Status CheckMade(const LogicalGraph& graph, size_t first, bool takes_bytes) {
  const absl::Status& status = graph.status();
  if (!status.ok() && takes_bytes) return Lacking(std::string(status.message()));
  BRAID_RETURN_IF_ERROR(status);
  for (size_t id = first; id < graph.tensors().size(); ++id) {
    const Shape& shape = graph.tensors()[id].type.shape;
    int64_t elements = 1;
    for (int64_t dim : shape) {
      if (dim > 0 && elements > kMaxElements / dim) {
        return Wrong(absl::StrCat("a tensor would be ", shape.ToString()));
      }
      if (dim > 0) elements *= dim;
    }
  }
  return absl::OkStatus();
}

std::string TitleOf(const char* kind, const std::string& name) {
  return absl::StrCat("the ", kind, name.empty() ? "" : absl::StrCat(" '", name, "'"));
}

}  // namespace

std::string DomainOf(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string OperatorOf(const NodeProto& node) {
  const std::string domain = DomainOf(node.domain());
  return domain.empty() ? node.op_type() : absl::StrCat(domain, ".", node.op_type());
}

class Importer::NodeSurroundings final : public Surroundings {
 public:
  NodeSurroundings(Importer& importer, const Scope& scope, int64_t opset)
      : importer_(importer), scope_(scope), opset_(opset) {}

  absl::StatusOr<Values> RunGraph(const GraphProto& graph, Values inputs) override {
    return importer_.RunGraph(graph, std::move(inputs), scope_);
  }
  absl::StatusOr<Values> Compute(Values inputs, const TranslateFunction& translate) override {
    return importer_.Compute(NodeProto(), std::move(inputs), opset_, translate, *this);
  }
  const std::string& file() const override { return importer_.file_; }
  absl::StatusOr<std::shared_ptr<const KnownNumbers>> NumbersOf(
      const TensorProto& tensor) override {
    return importer_.NumbersOf(tensor);
  }
  std::string HowToKnow(const Value& value) const override {
    if (!value.tensor.valid()) return "";
    const std::set<std::string> inputs = importer_.InputsBehind(value.tensor);
    if (inputs.empty()) return "";
    return absl::StrCat("; it depends on ", inputs.size() == 1 ? "the input '" : "the inputs '",
                        absl::StrJoin(inputs, "', '"),
                        "': give the value as its argument (an Array)");
  }

 private:
  Importer& importer_;
  const Scope& scope_;
  const int64_t opset_;
};

Importer::Importer(const ModelProto& model, std::string file, Target& target)
    : model_(model),
      file_(std::move(file)),
      target_(target),
      translators_(AllTranslators()),
      kernels_(CpuKernels()) {}

Importer::~Importer() = default;

absl::StatusOr<Values> Importer::Run(std::map<std::string, Value> given) {
  for (const auto& [name, value] : given) {
    if (value.tensor.valid()) inputs_[value.tensor.id()] = name;
  }
  Scope scope = {.values = std::move(given), .title = TitleOf("graph", model_.graph().name())};
  BRAID_RETURN_IF_ERROR(VisitAll(model_.graph().node(), scope));
  Values outputs;
  for (const ValueInfoProto& output : model_.graph().output()) {
    BRAID_ASSIGN_OR_RETURN(Value value, Find(output.name(), scope));
    outputs.push_back(std::move(value));
  }
  return outputs;
}

template <class Nodes>
absl::Status Importer::VisitAll(const Nodes& nodes, Scope& scope) {
  for (const NodeProto& node : nodes) {
    const bool is_named = !node.name().empty();
    // Also of a node without a name the operators get a scope, lest they are named like variables.
    target_.Enter(is_named ? node.name() : node.op_type());
    const absl::Status status = Visit(node, scope);
    target_.Leave();
    if (status.ok()) continue;
    const std::string name = is_named                 ? node.name()
                             : node.output_size() > 0 ? node.output(0)
                                                      : std::string();
    const absl::StatusOr<int64_t> opset = OpsetOf(DomainOf(node.domain()), scope);
    const std::string version = opset.ok() ? absl::StrCat(" of opset ", *opset) : "";
    return Prefixed(absl::StrCat(OperatorOf(node), version, " '", name, "'"), status);
  }
  return absl::OkStatus();
}

absl::Status Importer::Visit(const NodeProto& written, Scope& scope) {
  if (++visits_ > kMaxVisits) return Lacking(absl::StrCat("more than ", kMaxVisits, " nodes"));
  const NodeProto& node = Instantiate(written, scope);
  BRAID_ASSIGN_OR_RETURN(Values inputs, Inputs(node, scope));
  BRAID_ASSIGN_OR_RETURN(const Words words, WordsMadeBy(node, inputs));
  Values outputs;
  if (CastsText(node, inputs)) {
    outputs = {inputs[0]};
    outputs[0].name.clear();
  } else {
    BRAID_ASSIGN_OR_RETURN(outputs, Translate(node, std::move(inputs), scope));
  }
  if (words != nullptr && !outputs.empty()) outputs[0].words = words;
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    if (i >= static_cast<int>(outputs.size())) return Lacking(absl::StrCat("output ", i));
    if (!outputs[i].is_present()) {
      return Wrong(absl::StrCat("an input that output ", i, " needs is missing"));
    }
    if (outputs[i].name.empty()) outputs[i].name = scope.prefix + node.output(i);
    for (const Scope* at = &scope; at != nullptr; at = at->outer) {
      const char* const where = at == &scope ? "" : " around it";
      BRAID_RETURN_IF_ERROR(CheckNew("it makes", node.output(i), *at, where));
    }
    scope.values.insert_or_assign(node.output(i), outputs[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Importer::Find(const std::string& name, const Scope& scope) const {
  for (const Scope* at = &scope; at != nullptr; at = at->outer) {
    const auto found = at->values.find(name);
    if (found != at->values.end()) return found->second;
  }
  return Wrong(absl::StrCat("nothing in front of it makes '", name,
                            "': the file's nodes are not in order, or form a circle"));
}

absl::Status Importer::CheckNew(const std::string& what, const std::string& name,
                                const Scope& scope, const char* where) {
  if (!scope.values.contains(name)) return absl::OkStatus();
  return Wrong(absl::StrCat(what, " '", name, "', which ", scope.title, where,
                            " has already; names are given once"));
}

std::set<std::string> Importer::InputsBehind(Tensor tensor) const {
  std::set<std::string> names;
  std::set<TensorId> seen;
  std::vector<TensorId> next = {tensor.id()};
  while (!next.empty()) {
    const TensorId id = next.back();
    next.pop_back();
    if (!seen.insert(id).second) continue;
    if (const auto input = inputs_.find(id); input != inputs_.end()) {
      names.insert(input->second);
      continue;
    }
    const Op& op = target_.graph().producer(id);
    next.insert(next.end(), op.inputs.begin(), op.inputs.end());
  }
  return names;
}

absl::StatusOr<Values> Importer::Inputs(const NodeProto& node, const Scope& scope) const {
  Values inputs;
  for (const std::string& name : node.input()) {
    if (name.empty()) {
      inputs.emplace_back();
      continue;
    }
    BRAID_ASSIGN_OR_RETURN(Value value, Find(name, scope));
    inputs.push_back(std::move(value));
  }
  while (!inputs.empty() && !inputs.back().is_present()) inputs.pop_back();
  return inputs;
}

absl::StatusOr<int64_t> Importer::OpsetOf(const std::string& domain, const Scope& scope) const {
  const auto& imports =
      scope.function != nullptr ? scope.function->opset_import() : model_.opset_import();
  for (const OperatorSetIdProto& opset : imports) {
    if (DomainOf(opset.domain()) == domain) return opset.version();
  }
  return Wrong(absl::StrCat("no operator set of the domain '", domain, "' is imported"));
}

const NodeProto& Importer::Instantiate(const NodeProto& node, const Scope& scope) {
  const auto& attributes = node.attribute();
  if (std::none_of(attributes.begin(), attributes.end(),
                   [](const AttributeProto& each) { return !each.ref_attr_name().empty(); })) {
    return node;
  }
  NodeProto& copy = *instances_.emplace_back(std::make_unique<NodeProto>(node));
  copy.clear_attribute();
  for (const AttributeProto& attribute : attributes) {
    if (attribute.ref_attr_name().empty()) {
      *copy.add_attribute() = attribute;
      continue;
    }
    // Not there: as if the node did not have it.
    const auto found = scope.attributes.find(attribute.ref_attr_name());
    if (found == scope.attributes.end()) continue;
    AttributeProto& added = *copy.add_attribute();
    added = *found->second;
    added.set_name(attribute.name());
  }
  return copy;
}

absl::StatusOr<Values> Importer::Translate(const NodeProto& node, Values inputs, Scope& scope) {
  const std::string domain = DomainOf(node.domain());
  for (const FunctionProto& function : model_.functions()) {
    if (function.name() == node.op_type() && DomainOf(function.domain()) == domain) {
      return Call(function, node, std::move(inputs), scope);
    }
  }
  const Translator* translator = translators_.Find(OperatorOf(node));
  if (translator == nullptr) {
    return Lacking(absl::StrCat("Braid does not have this operator; ",
                                domain.empty()
                                    ? "export the model with another opset, or so that "
                                      "its exporter decomposes it"
                                    : "make the model without operators of that domain"));
  }
  BRAID_ASSIGN_OR_RETURN(const int64_t opset, OpsetOf(domain, scope));
  const auto [least, most] = translator->arity;
  const auto num_inputs = static_cast<int>(inputs.size());
  if (num_inputs < least || num_inputs > most) {
    return Wrong(
        absl::StrCat("it has ", num_inputs, " inputs; ", least, " .. ", most, " are expected"));
  }
  for (int i = 0; i < least; ++i) {
    if (!inputs[i].is_present()) return Wrong(absl::StrCat("input ", i, " is missing"));
  }
  NodeSurroundings surroundings(*this, scope, opset);
  if (translator->translate != nullptr) {
    return Compute(node, std::move(inputs), opset, translator->translate, surroundings);
  }
  const NodeView view(node, std::move(inputs), opset, target_, surroundings);
  BRAID_ASSIGN_OR_RETURN(Values outputs, translator->translate_values(view));
  BRAID_RETURN_IF_ERROR(target_.graph().status());
  BRAID_RETURN_IF_ERROR(view.CheckRead());
  return outputs;
}

absl::StatusOr<Values> Importer::Call(const FunctionProto& function, const NodeProto& node,
                                      Values inputs, const Scope& scope) {
  Scope inner = {.function = &function,
                 .prefix = absl::StrCat(scope.prefix, node.name(), node.name().empty() ? "" : "."),
                 .title = TitleOf("function", function.name()),
                 .depth = scope.depth + 1};
  if (inner.depth > kMaxDepth) return Lacking(absl::StrCat("more than ", kMaxDepth, " levels"));
  if (static_cast<int>(inputs.size()) > function.input_size()) {
    return Wrong(absl::StrCat("it has ", inputs.size(), " inputs; the function takes ",
                              function.input_size()));
  }
  inputs.resize(function.input_size());
  for (int i = 0; i < function.input_size(); ++i) {
    inner.values.insert_or_assign(function.input(i), std::move(inputs[i]));
  }
  for (const AttributeProto& each : function.attribute_proto()) {
    inner.attributes[each.name()] = &each;
  }
  for (const AttributeProto& each : node.attribute()) inner.attributes[each.name()] = &each;
  BRAID_RETURN_IF_ERROR(VisitAll(function.node(), inner));
  Values outputs;
  for (const std::string& name : function.output()) {
    BRAID_ASSIGN_OR_RETURN(Value value, Find(name, inner));
    outputs.push_back(std::move(value));
  }
  return outputs;
}

absl::StatusOr<Values> Importer::RunGraph(const GraphProto& graph, Values inputs,
                                          const Scope& outer) {
  Scope scope = {.outer = &outer,
                 .function = outer.function,
                 .attributes = outer.attributes,
                 .prefix = outer.prefix,
                 .title = TitleOf("graph", graph.name()),
                 .depth = outer.depth + 1};
  if (scope.depth > kMaxDepth) return Lacking(absl::StrCat("more than ", kMaxDepth, " levels"));
  BRAID_RETURN_IF_ERROR(Begin(graph, std::move(inputs), scope));
  BRAID_RETURN_IF_ERROR(VisitAll(graph.node(), scope));
  Values outputs;
  for (const ValueInfoProto& output : graph.output()) {
    BRAID_ASSIGN_OR_RETURN(Value value, Find(output.name(), scope));
    outputs.push_back(std::move(value));
  }
  return outputs;
}

absl::Status Importer::Begin(const GraphProto& graph, Values inputs, Scope& scope) {
  if (static_cast<int>(inputs.size()) != graph.input_size()) {
    return Wrong(absl::StrCat("its graph has ", graph.input_size(), " inputs; ", inputs.size(),
                              " are expected"));
  }
  std::set<std::string> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = graph.input(static_cast<int>(i)).name();
    BRAID_RETURN_IF_ERROR(CheckNew(absl::StrCat(scope.title, " has the input"), name, scope));
    scope.values[name] = std::move(inputs[i]);
    given.insert(name);
  }
  for (const TensorProto& initializer : graph.initializer()) {
    if (given.contains(initializer.name())) continue;  // what it is where nobody gives the input
    const std::string what = absl::StrCat(scope.title, " has the initializer");
    BRAID_RETURN_IF_ERROR(CheckNew(what, initializer.name(), scope));
    BRAID_ASSIGN_OR_RETURN(std::shared_ptr<const KnownNumbers> numbers, NumbersOf(initializer));
    BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, numbers->Read());
    const bool is_weight = RoleOfNumbers(*array) == LeftAlone::kNot;
    scope.values[initializer.name()] = {.name = scope.prefix + initializer.name(),
                                        .numbers = std::move(numbers),
                                        .is_weight = is_weight,
                                        .is_trained = is_weight};
  }
  return absl::OkStatus();
}

absl::StatusOr<Values> Importer::Compute(const NodeProto& node, Values inputs, int64_t opset,
                                         const TranslateFunction& translate,
                                         Surroundings& surroundings) {
  bool are_known = true, are_constant = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& input = inputs[i];
    if (!input.is_present()) continue;
    if (!input.is_tensor()) return Wrong(absl::StrCat("input ", i, " is no tensor"));
    BRAID_RETURN_IF_ERROR(target_.Check(input));
    are_constant &= input.is_constant();
    are_known &=
        input.is_constant() || (input.numbers != nullptr &&
                                input.numbers->type().shape.num_elements() <= kMaxKnownElements);
  }
  Values known;
  if (are_known) {
    BRAID_ASSIGN_OR_RETURN(known, ComputeNow(node, inputs, opset, translate, surroundings));
    if (are_constant && !known.empty()) return known;
  }
  const bool takes_bytes = TakesBytes(inputs);
  const NodeView view(node, std::move(inputs), opset, target_, surroundings);
  const size_t first = target_.graph().tensors().size();
  BRAID_ASSIGN_OR_RETURN(const Tensors outputs, translate(view));
  BRAID_RETURN_IF_ERROR(CheckMade(target_.graph(), first, takes_bytes));
  BRAID_RETURN_IF_ERROR(view.CheckRead());
  Values values;
  for (size_t i = 0; i < outputs.size(); ++i) {
    values.push_back(
        {.tensor = outputs[i], .numbers = i < known.size() ? known[i].numbers : nullptr});
  }
  return values;
}

// Empty if it cannot be known before the job runs, or is large.
absl::StatusOr<Values> Importer::ComputeNow(const NodeProto& node, const Values& inputs,
                                            int64_t opset, const TranslateFunction& translate,
                                            Surroundings& surroundings) {
  LogicalGraph graph(&target_.graph().registry());
  Target target(graph);
  Values numbers;  // the inputs without their tensors, which are another graph's
  for (const Value& input : inputs) {
    numbers.push_back({.name = input.name, .numbers = input.numbers});
  }
  const NodeView view(node, std::move(numbers), opset, target, surroundings);
  BRAID_ASSIGN_OR_RETURN(const Tensors outputs, translate(view));
  BRAID_RETURN_IF_ERROR(CheckMade(graph, 0, TakesBytes(inputs)));
  BRAID_RETURN_IF_ERROR(view.CheckRead());
  for (const Tensor& output : outputs) {
    if (output.valid() && output.shape().num_elements() > kMaxLiteralElements) return Values();
  }
  std::map<TensorId, std::shared_ptr<const Array>> fed;
  for (const auto& [id, each] : target.feeds()) {
    BRAID_ASSIGN_OR_RETURN(fed[id], each->Read());
  }
  BRAID_ASSIGN_OR_RETURN(std::optional<std::vector<Array>> arrays,
                         Fold(graph, fed, outputs, kernels_));
  Values values;
  if (!arrays) return values;
  for (size_t i = 0; i < outputs.size(); ++i) {
    values.push_back(outputs[i].valid() ? ConstantOf(std::move((*arrays)[i])) : Value());
  }
  return values;
}

absl::StatusOr<std::shared_ptr<const KnownNumbers>> Importer::NumbersOf(const TensorProto& tensor) {
  std::shared_ptr<const KnownNumbers>& numbers = numbers_[&tensor];
  if (numbers == nullptr) {
    BRAID_ASSIGN_OR_RETURN(Array made, ToArray(tensor, file_));
    numbers = std::make_shared<const KnownNumbers>(std::move(made));
  }
  return numbers;
}

}  // namespace braid::onnx
