// onnx.h: reading files, and Apply.
#include <braid/onnx.h>
#include <glog/logging.h>

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/onnx/importer.h"
#include "api/onnx/merged.h"
#include "api/onnx/model_file.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/readers.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/trained.h"
#include "api/onnx/words.h"
#include "api/session.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

ValueInfo InfoOf(const ValueInfoProto& proto) {
  ValueInfo info = {.name = proto.name()};
  const TypeProto* type = &proto.type();
  if (type->has_optional_type()) {
    info.is_optional = true;
    type = &type->optional_type().elem_type();
  }
  if (type->has_sequence_type()) {
    info.is_sequence = true;
    type = &type->sequence_type().elem_type();
  }
  if (!type->has_tensor_type()) return info;
  const TypeProto::Tensor& tensor = type->tensor_type();
  const absl::StatusOr<DType> dtype = DTypeOf(tensor.elem_type());
  if (dtype.ok()) info.dtype = *dtype;
  if (!tensor.has_shape()) return info;
  info.dims.emplace();
  for (const TensorShapeProto::Dimension& dim : tensor.shape().dim()) {
    Dim& added = info.dims->emplace_back();
    if (dim.has_dim_value() && dim.dim_value() >= 0) added.size = dim.dim_value();  // -1: open
    if (dim.has_dim_param()) added.name = dim.dim_param();
  }
  return info;
}

// Of the same rank, with every size that the file fixes.
bool Fits(const ValueInfo& info, const TensorType& type) {
  if (info.dtype && *info.dtype != type.dtype) return false;
  if (!info.dims) return true;
  if (static_cast<int>(info.dims->size()) != type.shape.rank()) return false;
  for (int i = 0; i < type.shape.rank(); ++i) {
    const std::optional<int64_t>& size = (*info.dims)[i].size;
    if (size && *size != type.shape[i]) return false;
  }
  return true;
}

Value ValueOf(const std::string& name, const Argument& argument) {
  if (argument.sequence == nullptr) {
    Value value = {.name = name, .tensor = argument.tensor};
    if (argument.array != nullptr) {
      value.numbers = std::make_shared<const KnownNumbers>(argument.array);
    }
    return value;
  }
  std::vector<Value> elements;
  for (const Argument& element : *argument.sequence) {
    elements.push_back(ValueOf(absl::StrCat(name, ".", elements.size()), element));
  }
  Value value = SequenceOf(std::move(elements));
  value.name = name;
  return value;
}

// Of a sequence all tensors, one after another.
void AppendTensors(const Value& value, Target& target, std::vector<Tensor>& tensors) {
  if (value.is_tensor()) tensors.push_back(target.TensorOf(value));
  if (value.sequence == nullptr) return;
  for (const Value& element : *value.sequence) AppendTensors(element, target, tensors);
}

absl::Status GivenTwice(const std::string& file, const char* what, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": two ", what, " are called '", name, "'; names are given once"));
}

using Labels = std::map<std::string, std::vector<std::string>>;

absl::Status TakeText(const std::string& name, const TensorProto& tensor, NumbersByName& weights,
                      Labels& texts) {
  BRAID_ASSIGN_OR_RETURN(Text text, TextOf(tensor));
  weights[name] = std::make_shared<const KnownNumbers>(std::move(text.places));
  texts[name] = *text.words;
  return absl::OkStatus();
}

std::optional<FileRange> FindIn(const std::map<int, FileRange>& left_out, int number) {
  const auto found = left_out.find(number);
  return found == left_out.end() ? std::nullopt : std::optional(found->second);
}

// Whether it is one of the weights now.
absl::StatusOr<bool> TakeConstant(const std::string& name, const TensorProto& tensor,
                                  const std::string& file, std::optional<FileRange> left_out,
                                  NumbersByName& weights) {
  if (weights.contains(name)) return false;
  BRAID_ASSIGN_OR_RETURN(KnownNumbers numbers, ToNumbers(tensor, file, left_out));
  BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, numbers.Read());
  // Zeros to begin with, ones that scale nothing: what an exporter made up, and nobody trained.
  if (IsUniform(*array)) return false;
  weights[name] = std::make_shared<const KnownNumbers>(std::move(numbers));
  return true;
}

// What nodes have as constants is to the rest of the graph as initializers are; some exporters
// write all weights so.
absl::Status TakeConstants(GraphProto& graph, const std::string& file,
                           const std::map<int, FileRange>& left_out, NumbersByName& weights,
                           Labels& texts) {
  google::protobuf::RepeatedPtrField<NodeProto> others;
  for (int i = 0; i < graph.node_size(); ++i) {
    NodeProto& node = *graph.mutable_node(i);
    if (!IsTensorConstant(node)) {
      others.Add(std::move(node));
      continue;
    }
    const std::string name = node.output(0);
    TensorProto& tensor = *node.mutable_attribute(0)->mutable_t();
    if (IsText(tensor) && !weights.contains(name)) {
      BRAID_RETURN_IF_ERROR(TakeText(name, tensor, weights, texts));
      node.Clear();
      continue;
    }
    const std::optional<FileRange> range = FindIn(left_out, i);
    const absl::StatusOr<bool> is_weight = TakeConstant(name, tensor, file, range, weights);
    if (!is_weight.ok()) return Prefixed(absl::StrCat("Constant '", name, "'"), is_weight.status());
    if (*is_weight) {
      node.Clear();
      continue;
    }
    if (range.has_value()) BRAID_RETURN_IF_ERROR(PutBack(file, *range, tensor));
    others.Add(std::move(node));
  }
  graph.mutable_node()->Swap(&others);
  return absl::OkStatus();
}

std::string OriginOf(const ModelProto& model) {
  std::string text = model.producer_name().empty() ? "unknown producer" : model.producer_name();
  if (!model.producer_version().empty()) absl::StrAppend(&text, " ", model.producer_version());
  for (const OperatorSetIdProto& opset : model.opset_import()) {
    absl::StrAppend(&text, ", ", DomainOf(opset.domain()), opset.domain().empty() ? "" : " ",
                    "opset ", opset.version());
  }
  return text;
}

template <class Nodes>
void CountOperators(const Nodes& nodes, std::map<std::string, int64_t>& counts) {
  for (const NodeProto& node : nodes) {
    ++counts[OperatorOf(node)];
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) CountOperators(attribute.g().node(), counts);
    }
  }
}

// So that nobody wonders why a weight stays as it was.
void SayWhatIsLeftAlone(const std::string& file, const std::map<std::string, WeightRole>& roles) {
  constexpr size_t kMost = 8;
  size_t trained = 0, left = 0;
  std::vector<std::string> reasons;
  for (const auto& [name, role] : roles) {
    if (role.why == LeftAlone::kNot) ++trained;
    // Nobody expects numbers of a formula, indices and masks to be trained.
    const bool is_plain = role.why == LeftAlone::kWholeNumbers ||
                          role.why == LeftAlone::kOneElement || role.why == LeftAlone::kBytes;
    if (role.why == LeftAlone::kNot || is_plain) continue;
    if (++left <= kMost) reasons.push_back(absl::StrCat("'", name, "' ", TextOf(role.why)));
  }
  if (left == 0) return;
  if (left > kMost) reasons.push_back(absl::StrCat("and so on for ", left - kMost, " more"));
  LOG(INFO) << file << ": Minimize trains " << trained << " of its weights and leaves " << left
            << " as they are (ApplyOptions::trains chooses others): "
            << absl::StrJoin(reasons, ", ");
}

}  // namespace

KnownNumbers::KnownNumbers(std::shared_ptr<const Array> array)
    : type_{array->dtype(), array->shape()}, array_(std::move(array)) {}

KnownNumbers::KnownNumbers(TensorType type, std::function<absl::StatusOr<Array>()> read,
                           std::optional<FilePart> place, std::function<absl::Status()> check)
    : type_(std::move(type)),
      read_(std::move(read)),
      place_(std::move(place)),
      check_(std::move(check)) {}

absl::StatusOr<std::shared_ptr<const Array>> KnownNumbers::Read() const {
  if (array_ != nullptr) return array_;
  BRAID_RETURN_IF_ERROR(CheckFile());
  BRAID_ASSIGN_OR_RETURN(Array array, read_());
  return std::make_shared<const Array>(std::move(array));
}

Argument Argument::Sequence(std::vector<Argument> elements) {
  Argument argument((Tensor()));
  argument.sequence = std::make_shared<const std::vector<Argument>>(std::move(elements));
  return argument;
}

std::string ValueInfo::ToString() const {
  std::string text = name;
  if (is_optional) absl::StrAppend(&text, " optional");
  if (is_sequence) absl::StrAppend(&text, " sequence of");
  if (dtype) absl::StrAppend(&text, " ", std::string(braid::ToString(*dtype)));
  if (!dims) return text;
  std::vector<std::string> sizes;
  for (const Dim& dim : *dims) {
    sizes.push_back(dim.size ? absl::StrCat(*dim.size) : dim.name.empty() ? "?" : dim.name);
  }
  return absl::StrCat(text, "[", absl::StrJoin(sizes, ", "), "]");
}

Model::Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

absl::StatusOr<Model> Load(const std::string& file) {
  BRAID_ASSIGN_OR_RETURN(ModelFile parsed, ReadModelFile(file));
  Model model;
  model.file_ = file;
  model.proto_ = std::move(parsed.proto);
  GraphProto& graph = *model.proto_->mutable_graph();
  if (graph.sparse_initializer_size() > 0) {
    return absl::UnimplementedError(absl::StrCat(file, ": sparse initializers"));
  }
  for (int i = 0; i < graph.initializer_size(); ++i) {
    TensorProto& initializer = *graph.mutable_initializer(i);
    if (model.weights_.contains(initializer.name())) {
      return GivenTwice(file, "initializers", initializer.name());
    }
    if (IsText(initializer)) {
      const absl::Status taken =
          TakeText(initializer.name(), initializer, model.weights_, model.texts_);
      if (!taken.ok()) return Prefixed(file, taken);
      initializer.Clear();
      continue;
    }
    absl::StatusOr<KnownNumbers> numbers = ToNumbers(initializer, file, FindIn(parsed.left_out, i));
    if (!numbers.ok()) return Prefixed(file, numbers.status());
    model.weights_[initializer.name()] = std::make_shared<const KnownNumbers>(*std::move(numbers));
    initializer.Clear();  // its memory, before the next one
  }
  graph.clear_initializer();
  model.origin_ = OriginOf(*model.proto_);
  CountOperators(graph.node(), model.operators_);
  for (const FunctionProto& function : model.proto_->functions()) {
    CountOperators(function.node(), model.operators_);
  }
  BRAID_RETURN_IF_ERROR(Prefixed(
      file, TakeConstants(graph, file, parsed.left_out_of_nodes, model.weights_, model.texts_)));
  BRAID_RETURN_IF_ERROR(Prefixed(file, TakeApart(*model.proto_, model.weights_)));
  absl::StatusOr<std::map<std::string, WeightRole>> roles =
      RolesOf(Readers(*model.proto_), model.weights_);
  if (!roles.ok()) return Prefixed(file, roles.status());
  model.roles_ = std::make_unique<std::map<std::string, WeightRole>>(*std::move(roles));
  // What is no variable is computed with as the model is applied, and read once for it.
  for (auto& [name, numbers] : model.weights_) {
    if (!numbers->are_in_file() || model.roles_->at(name).is_variable()) continue;
    absl::StatusOr<std::shared_ptr<const Array>> array = numbers->Read();
    if (!array.ok()) return Prefixed(file, array.status());
    numbers = std::make_shared<const KnownNumbers>(*std::move(array));
  }
  std::set<std::string> inputs;
  for (const ValueInfoProto& input : graph.input()) {
    if (!inputs.insert(input.name()).second) return GivenTwice(file, "inputs", input.name());
    if (!model.weights_.contains(input.name())) model.inputs_.push_back(InfoOf(input));
  }
  for (const ValueInfoProto& output : graph.output()) model.outputs_.push_back(InfoOf(output));
  return model;
}

absl::StatusOr<std::vector<Tensor>> Model::Apply(LogicalGraph& graph,
                                                 const std::vector<Argument>& arguments,
                                                 const ApplyOptions& options) {
  BRAID_RETURN_IF_ERROR(graph.status());
  absl::StatusOr<std::vector<Tensor>> outputs = Import(graph, arguments, options);
  if (outputs.ok()) return outputs;
  const absl::Status failure = Prefixed(file_, outputs.status());
  graph.Fail(failure);
  return failure;
}

absl::StatusOr<std::vector<Tensor>> Model::Import(LogicalGraph& graph,
                                                  const std::vector<Argument>& arguments,
                                                  const ApplyOptions& options) {
  if (arguments.size() != inputs_.size()) {
    std::vector<std::string> names;
    for (const ValueInfo& input : inputs_) names.push_back(input.ToString());
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.size(), " arguments for the inputs ", absl::StrJoin(names, ", ")));
  }
  std::map<std::string, Value> given;
  for (const auto& [name, numbers] : weights_) {
    const WeightRole& role = roles_->at(name);
    bool is_trained = role.why == LeftAlone::kNot;
    if (options.trains && IsFloating(numbers->type().dtype)) {
      is_trained = options.trains(name, numbers->type());
    }
    given[name] = {.name = name,
                   .numbers = numbers,
                   .is_weight = is_trained || role.is_variable(),
                   .is_trained = is_trained};
    if (const auto text = texts_.find(name); text != texts_.end()) {
      given[name].words = std::make_shared<const std::vector<std::string>>(text->second);
    }
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ValueInfo& input = inputs_[i];
    Value value = ValueOf(input.name, arguments[i]);
    if (!value.is_present() && input.is_optional) value.is_empty_optional = true;
    if (!value.is_present()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the argument for '", input.name, "' is no tensor"));
    }
    if (value.is_tensor() && (input.is_sequence || !Fits(input, value.type()))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the input is ", input.ToString(), ", the argument is ", value.type().ToString()));
    }
    given[input.name] = std::move(value);
  }
  for (const auto& [name, sbp] : options.layouts) {
    if (weights_.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [weight, numbers] : weights_) names.push_back(weight);
    return absl::NotFoundError(absl::StrCat("a layout is given for '", name, "'; its weights are ",
                                            absl::StrJoin(names, ", ")));
  }
  Target target(graph, options);
  Importer importer(*proto_, file_, target);
  BRAID_ASSIGN_OR_RETURN(const std::vector<Value> values, importer.Run(std::move(given)));
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < values.size(); ++i) {
    AppendTensors(values[i], target, outputs);
    if (values[i].words != nullptr) labels_[outputs_[i].name] = *values[i].words;
  }
  BRAID_RETURN_IF_ERROR(graph.status());
  // Of some only the numbers were wanted: the job will not have these.
  std::set<std::string> read;
  for (const Op& op : graph.ops()) {
    for (TensorId input : op.inputs) read.insert(graph.producer(input).name);
  }
  for (const Tensor& output : outputs) {
    if (output.valid()) read.insert(graph.producer(output.id()).name);
  }
  for (const auto& [name, numbers] : target.variables()) {
    if (read.contains(name)) variables_[name] = numbers;
  }
  if (!is_applied_ && options.is_trainable && !options.trains) SayWhatIsLeftAlone(file_, *roles_);
  is_applied_ = true;
  return outputs;
}

absl::Status Model::LoadInto(Session& session) const {
  if (!is_applied_) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_, ": no job has this model; Apply it first"));
  }
  std::map<std::string, FilePart> in_files;
  std::vector<std::shared_ptr<const Array>> held;
  std::map<std::string, const Array*> values;
  bool has_any = variables_.empty();
  for (const auto& [name, numbers] : variables_) {
    // Of what no job fetches, weights need no variables either.
    if (!session.HasVariable(name)) continue;
    has_any = true;
    if (numbers->place().has_value()) {
      const absl::Status fresh = numbers->CheckFile();
      if (!fresh.ok()) return Prefixed(file_, fresh);
      in_files[name] = *numbers->place();
      continue;
    }
    absl::StatusOr<std::shared_ptr<const Array>> array = numbers->Read();
    if (!array.ok()) return Prefixed(file_, array.status());
    if (numbers->are_in_file()) {  // large, and in another form: one at a time
      BRAID_RETURN_IF_ERROR(session.Set(name, **array));
    } else {
      values[name] = held.emplace_back(*std::move(array)).get();
    }
  }
  if (!has_any) {
    return absl::FailedPreconditionError(absl::StrCat(
        file_, ": no compiled job has one of its ", variables_.size(),
        " variables; Compile a job that applies it, and fetch what it makes, before LoadInto"));
  }
  BRAID_RETURN_IF_ERROR(session.SetFromFiles(in_files));
  return session.Set(values);
}

}  // namespace braid::onnx
