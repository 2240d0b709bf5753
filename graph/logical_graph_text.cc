// The text form of a LogicalGraph: ToString and Parse.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "graph/logical_graph.h"
#include "graph/op_registry.h"
#include "graph/text_reader.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// "(a, b)" from the texts of the elements.
template <typename T, typename ToText>
std::string ListToString(const std::vector<T>& list, ToText to_text) {
  auto append = [&to_text](std::string* out, const T& element) { out->append(to_text(element)); };
  return absl::StrCat("(", absl::StrJoin(list, ", ", append), ")");
}

template <typename T>
std::string SbpsToString(const std::vector<T>& list) {
  return ListToString(list, [](const T& sbp) { return sbp.ToString(); });
}

std::string LocationToString(const SourceLocation& location) {
  return location.file.empty() ? "" : absl::StrCat(" at ", location.ToString());
}

std::string OpToString(const LogicalGraph& graph, const Op& op) {
  std::string text;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "%", op.outputs[i], ":",
                    graph.type(op.outputs[i]).ToString());
  }
  if (!op.outputs.empty()) absl::StrAppend(&text, " = ");
  absl::StrAppend(&text, op.type, " ", Quote(op.name), " ",
                  ListToString(op.inputs, [](TensorId id) { return absl::StrCat("%", id); }));
  if (!op.attrs.values().empty()) absl::StrAppend(&text, " {", op.attrs.ToString(), "}");
  if (op.placement) absl::StrAppend(&text, " on=", op.placement->ToString());
  if (op.acts_per_step != 1) absl::StrAppend(&text, " acts_per_step=", op.acts_per_step);
  if (!op.input_micro_batch_sbp.empty() || !op.output_micro_batch_sbp.empty()) {
    absl::StrAppend(&text, " micro_batches=", SbpsToString(op.input_micro_batch_sbp), "->",
                    SbpsToString(op.output_micro_batch_sbp));
  }
  if (!op.input_sbp.empty() || !op.output_sbp.empty()) {
    absl::StrAppend(&text, " sbp=", SbpsToString(op.input_sbp), "->", SbpsToString(op.output_sbp));
  }
  if (std::any_of(op.hints.begin(), op.hints.end(),
                  [](const std::optional<NdSbp>& hint) { return hint.has_value(); })) {
    absl::StrAppend(&text, " hint=", ListToString(op.hints, [](const std::optional<NdSbp>& hint) {
      return hint ? hint->ToString() : "-";
    }));
  }
  if (op.forward != kNone) absl::StrAppend(&text, " fwd=", Quote(graph.op(op.forward).name));
  if (op.block != 0) absl::StrAppend(&text, " block=", op.block);
  if (op.is_again) absl::StrAppend(&text, " again");
  return text + LocationToString(op.location);
}

std::string MinimizeToString(const LogicalGraph& graph, const MinimizeRequest& request) {
  std::string text =
      absl::StrCat("@minimize loss=%", request.loss, " optimizer=", Quote(request.optimizer));
  if (!request.attrs.values().empty()) absl::StrAppend(&text, " {", request.attrs.ToString(), "}");
  if (request.learning_rate != kNone) absl::StrAppend(&text, " lr=%", request.learning_rate);
  if (request.loss_scale != kNone) absl::StrAppend(&text, " scale=%", request.loss_scale);
  if (!request.variables.empty()) {
    absl::StrAppend(&text, " variables=", ListToString(request.variables, [&graph](OpId id) {
      return Quote(graph.op(id).name);
    }));
  }
  if (request.clip_global_norm != 0) {
    absl::StrAppend(&text, " ", Attrs({{"clip", request.clip_global_norm}}).ToString());
  }
  if (request.micro_batches != 1) {
    absl::StrAppend(&text, " micro_batches=", request.micro_batches);
  }
  if (!request.groups.empty()) {
    absl::StrAppend(&text, " groups=", ListToString(request.groups, [](const VariableGroup& group) {
      Attrs attrs = {{"names", group.names}, {"rate", group.rate}, {"frozen", group.is_frozen}};
      if (group.weight_decay.has_value()) attrs.Set("weight_decay", *group.weight_decay);
      return absl::StrCat("{", attrs.ToString(), "}");
    }));
  }
  if (request.first_bucket_bytes.has_value()) {
    absl::StrAppend(&text, " first_bucket=", *request.first_bucket_bytes);
  }
  if (request.bucket_bytes.has_value()) absl::StrAppend(&text, " bucket=", *request.bucket_bytes);
  return text + LocationToString(request.location);
}

// "(...)": calls read_element for each.
template <typename ReadElement>
absl::Status ReadList(TextReader& reader, ReadElement read_element) {
  BRAID_RETURN_IF_ERROR(reader.Expect("("));
  for (bool is_first = true; !reader.Consume(")"); is_first = false) {
    if (!is_first) BRAID_RETURN_IF_ERROR(reader.Expect(","));
    BRAID_RETURN_IF_ERROR(read_element());
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadSbps(TextReader& reader, std::vector<T>* list) {
  return ReadList(reader, [&]() -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(list->emplace_back(), T::Read(reader));
    return absl::OkStatus();
  });
}

template <typename T>
absl::Status ReadSignature(TextReader& reader, std::vector<T>* inputs, std::vector<T>* outputs) {
  BRAID_RETURN_IF_ERROR(ReadSbps(reader, inputs));
  BRAID_RETURN_IF_ERROR(reader.Expect("->"));
  return ReadSbps(reader, outputs);
}

absl::StatusOr<TensorId> ReadTensorId(TextReader& reader) {
  BRAID_RETURN_IF_ERROR(reader.Expect("%"));
  BRAID_ASSIGN_OR_RETURN(int64_t id, reader.Int());
  constexpr int64_t kMaxId = 1 << 30;
  if (id < 0 || id > kMaxId) {
    return absl::InvalidArgumentError(absl::StrCat("%", id, " is no tensor"));
  }
  return static_cast<TensorId>(id);
}

absl::StatusOr<int> ReadCount(TextReader& reader) {
  BRAID_ASSIGN_OR_RETURN(int64_t count, reader.Int());
  constexpr int64_t kMaxCount = 1 << 30;
  if (count < 1 || count > kMaxCount) {
    return absl::InvalidArgumentError(absl::StrCat(count, " is no count"));
  }
  return static_cast<int>(count);
}

absl::StatusOr<int64_t> ReadBytes(TextReader& reader) {
  BRAID_ASSIGN_OR_RETURN(const int64_t bytes, reader.Int());
  if (bytes >= 1) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(bytes, " is no number of bytes"));
}

absl::StatusOr<Attrs> ReadAttrs(TextReader& reader) {  // behind the '{'
  BRAID_ASSIGN_OR_RETURN(Attrs attrs, Attrs::Read(reader));
  BRAID_RETURN_IF_ERROR(reader.Expect("}"));
  return attrs;
}

// Behind "at": the rest of the line is "file:line".
absl::StatusOr<SourceLocation> ReadLocation(TextReader& reader, std::set<std::string>* files) {
  std::string_view text = reader.Rest();
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return absl::InvalidArgumentError("expected file:line behind at");
  }
  TextReader line_reader(text.substr(colon + 1));
  BRAID_ASSIGN_OR_RETURN(int64_t line, line_reader.Int());
  BRAID_RETURN_IF_ERROR(line_reader.ExpectEnd());
  const std::string& file = *files->emplace(text.substr(0, colon)).first;
  return SourceLocation{file, static_cast<int>(line)};
}

// What a line says by name; resolved once all lines are read.
struct ParsedOp {
  Op op;
  std::vector<TensorType> output_types;
  std::optional<std::string> forward;
  int line = 0;
};
struct ParsedMinimize {
  MinimizeRequest request;
  std::vector<std::string> variables;
  int line = 0;
};

absl::StatusOr<ParsedOp> ReadOp(TextReader& reader, std::set<std::string>* files) {
  ParsedOp parsed;
  Op& op = parsed.op;
  if (reader.Peek() == '%') {
    do {
      BRAID_ASSIGN_OR_RETURN(op.outputs.emplace_back(), ReadTensorId(reader));
      BRAID_RETURN_IF_ERROR(reader.Expect(":"));
      BRAID_ASSIGN_OR_RETURN(parsed.output_types.emplace_back(), TensorType::Read(reader));
    } while (reader.Consume(","));
    BRAID_RETURN_IF_ERROR(reader.Expect("="));
  }
  BRAID_ASSIGN_OR_RETURN(op.type, reader.Word());
  BRAID_ASSIGN_OR_RETURN(op.name, reader.Quoted());
  BRAID_RETURN_IF_ERROR(ReadList(reader, [&]() -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(op.inputs.emplace_back(), ReadTensorId(reader));
    return absl::OkStatus();
  }));
  while (!reader.AtEnd()) {
    if (reader.Consume("{")) {
      BRAID_ASSIGN_OR_RETURN(op.attrs, ReadAttrs(reader));
    } else if (reader.Consume("on=")) {
      BRAID_ASSIGN_OR_RETURN(op.placement, Placement::Read(reader));
    } else if (reader.Consume("acts_per_step=")) {
      BRAID_ASSIGN_OR_RETURN(op.acts_per_step, ReadCount(reader));
    } else if (reader.Consume("micro_batches=")) {
      BRAID_RETURN_IF_ERROR(
          ReadSignature(reader, &op.input_micro_batch_sbp, &op.output_micro_batch_sbp));
    } else if (reader.Consume("sbp=")) {
      BRAID_RETURN_IF_ERROR(ReadSignature(reader, &op.input_sbp, &op.output_sbp));
    } else if (reader.Consume("hint=")) {
      BRAID_RETURN_IF_ERROR(ReadList(reader, [&]() -> absl::Status {
        op.hints.emplace_back();
        if (reader.Consume("-")) return absl::OkStatus();
        BRAID_ASSIGN_OR_RETURN(op.hints.back(), NdSbp::Read(reader));
        return absl::OkStatus();
      }));
    } else if (reader.Consume("fwd=")) {
      BRAID_ASSIGN_OR_RETURN(parsed.forward, reader.Quoted());
    } else if (reader.Consume("block=")) {
      BRAID_ASSIGN_OR_RETURN(op.block, ReadCount(reader));
    } else if (reader.Consume("again")) {
      op.is_again = true;
    } else if (reader.Consume("at ")) {
      BRAID_ASSIGN_OR_RETURN(op.location, ReadLocation(reader, files));
    } else {
      return reader.Error(
          "{, on=, acts_per_step=, micro_batches=, sbp=, hint=, fwd=, block=, again or at");
    }
  }
  if (op.hints.size() > op.outputs.size()) {
    return absl::InvalidArgumentError("there are more hints than outputs");
  }
  op.hints.resize(op.outputs.size());
  return parsed;
}

// Null if it is not there or of another type.
template <typename T>
const T* ValueOf(const Attrs& attrs, std::string_view name) {
  const auto found = attrs.values().find(name);
  return found == attrs.values().end() ? nullptr : std::get_if<T>(&found->second);
}

absl::StatusOr<VariableGroup> ReadGroup(TextReader& reader) {
  BRAID_RETURN_IF_ERROR(reader.Expect("{"));
  BRAID_ASSIGN_OR_RETURN(const Attrs attrs, ReadAttrs(reader));
  const auto* const names = ValueOf<std::string>(attrs, "names");
  const auto* const rate = ValueOf<double>(attrs, "rate");
  const auto* const is_frozen = ValueOf<bool>(attrs, "frozen");
  if (names == nullptr || rate == nullptr || is_frozen == nullptr) {
    return reader.Error("a group's frozen=, names= and rate=");
  }
  VariableGroup group = {.names = *names, .rate = *rate, .is_frozen = *is_frozen};
  const auto* const decay = ValueOf<double>(attrs, "weight_decay");
  if (decay != nullptr) group.weight_decay = *decay;
  return group;
}

absl::StatusOr<ParsedMinimize> ReadMinimize(TextReader& reader, std::set<std::string>* files) {
  ParsedMinimize parsed;
  MinimizeRequest& request = parsed.request;
  while (!reader.AtEnd()) {
    if (reader.Consume("loss=")) {
      BRAID_ASSIGN_OR_RETURN(request.loss, ReadTensorId(reader));
    } else if (reader.Consume("optimizer=")) {
      BRAID_ASSIGN_OR_RETURN(request.optimizer, reader.Quoted());
    } else if (reader.Consume("{")) {
      BRAID_ASSIGN_OR_RETURN(request.attrs, ReadAttrs(reader));
    } else if (reader.Consume("lr=")) {
      BRAID_ASSIGN_OR_RETURN(request.learning_rate, ReadTensorId(reader));
    } else if (reader.Consume("scale=")) {
      BRAID_ASSIGN_OR_RETURN(request.loss_scale, ReadTensorId(reader));
    } else if (reader.Consume("variables=")) {
      BRAID_RETURN_IF_ERROR(ReadList(reader, [&]() -> absl::Status {
        BRAID_ASSIGN_OR_RETURN(parsed.variables.emplace_back(), reader.Quoted());
        return absl::OkStatus();
      }));
    } else if (reader.Consume("clip=")) {
      BRAID_ASSIGN_OR_RETURN(std::string value, reader.Word());
      BRAID_ASSIGN_OR_RETURN(Attrs clip, Attrs::Parse(absl::StrCat("clip=", value)));
      const double* norm = std::get_if<double>(&clip.values().at("clip"));
      if (norm == nullptr) return absl::InvalidArgumentError("clip= needs a decimal point");
      request.clip_global_norm = *norm;
    } else if (reader.Consume("micro_batches=")) {
      BRAID_ASSIGN_OR_RETURN(request.micro_batches, ReadCount(reader));
    } else if (reader.Consume("groups=")) {
      BRAID_RETURN_IF_ERROR(ReadList(reader, [&]() -> absl::Status {
        BRAID_ASSIGN_OR_RETURN(request.groups.emplace_back(), ReadGroup(reader));
        return absl::OkStatus();
      }));
    } else if (reader.Consume("first_bucket=")) {
      BRAID_ASSIGN_OR_RETURN(request.first_bucket_bytes, ReadBytes(reader));
    } else if (reader.Consume("bucket=")) {
      BRAID_ASSIGN_OR_RETURN(request.bucket_bytes, ReadBytes(reader));
    } else if (reader.Consume("at ")) {
      BRAID_ASSIGN_OR_RETURN(request.location, ReadLocation(reader, files));
    } else {
      return reader.Error(
          "loss=, optimizer=, {, lr=, scale=, variables=, clip=, micro_batches=, groups=, "
          "first_bucket=, bucket= or at");
    }
  }
  if (request.loss == kNone) return reader.Error("loss=");
  return parsed;
}

absl::Status InLine(int line, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", line, ": ", std::string(status.message())));
}

// All lines of a text, before they are joined.
struct ParsedText {
  std::shared_ptr<std::set<std::string>> files = std::make_shared<std::set<std::string>>();
  std::vector<ParsedOp> ops;
  std::vector<ParsedMinimize> minimize;
  std::map<TensorId, std::pair<TensorId, int>> gradients;  // with the line
  bool training = false;
};

absl::Status ReadTextLine(TextReader& reader, int line, ParsedText& text) {
  if (reader.Consume("@minimize")) {
    BRAID_ASSIGN_OR_RETURN(ParsedMinimize parsed, ReadMinimize(reader, text.files.get()));
    parsed.line = line;
    text.minimize.push_back(std::move(parsed));
  } else if (reader.Consume("@gradient")) {
    BRAID_ASSIGN_OR_RETURN(TensorId of, ReadTensorId(reader));
    BRAID_RETURN_IF_ERROR(reader.Expect("="));
    BRAID_ASSIGN_OR_RETURN(TensorId gradient, ReadTensorId(reader));
    if (!text.gradients.emplace(of, std::pair(gradient, line)).second) {
      return absl::InvalidArgumentError(absl::StrCat("%", of, " has two gradients"));
    }
  } else if (reader.Consume("@training")) {
    text.training = true;
  } else {
    BRAID_ASSIGN_OR_RETURN(ParsedOp parsed, ReadOp(reader, text.files.get()));
    parsed.line = line;
    text.ops.push_back(std::move(parsed));
  }
  return reader.ExpectEnd();
}

absl::StatusOr<ParsedText> ReadText(std::string_view text) {
  ParsedText parsed;
  int line_number = 0;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(std::string(text), '\n'))) {
    ++line_number;
    TextReader reader(line);
    if (reader.AtEnd() || reader.Peek() == '#') continue;
    absl::Status status = ReadTextLine(reader, line_number, parsed);
    if (!status.ok()) return InLine(line_number, status);
  }
  return parsed;
}

// Joins what the lines say of each other, when all ops are in the graph.
class Joining {
 public:
  Joining(LogicalGraph& graph, const std::map<std::string, OpId>& ids) : graph_(graph), ids_(ids) {}

  absl::Status JoinOp(const ParsedOp& parsed) {
    Op& op = graph_.mutable_op(parsed.op.id);
    std::vector<TensorType> input_types;
    for (TensorId input : op.inputs) {
      BRAID_RETURN_IF_ERROR(CheckTensor(input));
      input_types.push_back(graph_.type(input));
    }
    if (parsed.forward) {
      BRAID_ASSIGN_OR_RETURN(op.forward, FindOp(*parsed.forward));
    }
    const OpDef* def = graph_.registry().Find(op.type);
    if (def == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("no operator '", op.type, "' is registered"));
    }
    if (!op.input_micro_batch_sbp.empty() || !op.output_micro_batch_sbp.empty())
      return absl::OkStatus();
    BRAID_ASSIGN_OR_RETURN(
        std::vector<TensorType> types,
        def->InferTypes({.attrs = op.attrs, .inputs = input_types, .outputs = {}}));
    if (types == parsed.output_types) return absl::OkStatus();
    auto to_text = [](const TensorType& type) { return type.ToString(); };
    return absl::InvalidArgumentError(absl::StrCat(op.type, " '", op.name, "': the outputs are ",
                                                   ListToString(types, to_text), ", the text says ",
                                                   ListToString(parsed.output_types, to_text)));
  }

  absl::Status JoinMinimize(ParsedMinimize& parsed) {
    BRAID_RETURN_IF_ERROR(CheckTensor(parsed.request.loss));
    BRAID_RETURN_IF_ERROR(CheckTensor(parsed.request.learning_rate));
    BRAID_RETURN_IF_ERROR(CheckTensor(parsed.request.loss_scale));
    for (const std::string& name : parsed.variables) {
      BRAID_ASSIGN_OR_RETURN(parsed.request.variables.emplace_back(), FindOp(name));
    }
    graph_.minimize().push_back(std::move(parsed.request));
    return absl::OkStatus();
  }

  absl::Status JoinGradient(TensorId of, TensorId gradient) {
    for (TensorId id : {of, gradient}) BRAID_RETURN_IF_ERROR(CheckTensor(id));
    graph_.gradients()[of] = gradient;
    return absl::OkStatus();
  }

 private:
  absl::Status CheckTensor(TensorId id) const {
    if (id == kNone || static_cast<size_t>(id) < graph_.tensors().size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("there is no %", id));
  }
  absl::StatusOr<OpId> FindOp(const std::string& name) const {
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    return absl::InvalidArgumentError(absl::StrCat("there is no op ", Quote(name)));
  }

  LogicalGraph& graph_;
  const std::map<std::string, OpId>& ids_;
};

}  // namespace

std::string SourceLocation::ToString() const {
  if (file.empty()) return "";
  std::string_view last = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  return absl::StrCat(std::string(last), ":", line);
}

std::string TensorType::ToString() const {
  return absl::StrCat(std::string(braid::ToString(dtype)), shape.ToString());
}

absl::StatusOr<TensorType> TensorType::Read(TextReader& reader) {
  BRAID_ASSIGN_OR_RETURN(std::string word, reader.Word());
  std::optional<DType> dtype = ParseDType(word);
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("'", word, "' is no element type"));
  BRAID_RETURN_IF_ERROR(reader.Expect("["));
  std::vector<int64_t> dims;
  while (!reader.Consume("]")) {
    if (!dims.empty()) BRAID_RETURN_IF_ERROR(reader.Expect(","));
    BRAID_ASSIGN_OR_RETURN(dims.emplace_back(), reader.Int());
    if (dims.back() < 0) return absl::InvalidArgumentError("a dimension is negative");
  }
  return TensorType{*dtype, Shape(std::move(dims))};
}

std::string LogicalGraph::ToString() const {
  std::string text;
  for (const Op& op : ops_) absl::StrAppend(&text, OpToString(*this, op), "\n");
  for (const MinimizeRequest& request : minimize_) {
    absl::StrAppend(&text, MinimizeToString(*this, request), "\n");
  }
  for (auto [of, gradient] : gradients_) {
    absl::StrAppend(&text, "@gradient %", of, " = %", gradient, "\n");
  }
  if (training) absl::StrAppend(&text, "@training\n");
  return text;
}

absl::StatusOr<LogicalGraph> LogicalGraph::Parse(std::string_view text,
                                                 const OpRegistry* registry) {
  BRAID_ASSIGN_OR_RETURN(ParsedText parsed_text, ReadText(text));
  LogicalGraph graph(registry);
  graph.training = parsed_text.training;
  size_t num_tensors = 0;
  for (const ParsedOp& parsed : parsed_text.ops) num_tensors += parsed.op.outputs.size();
  graph.tensors_.resize(num_tensors);
  std::map<std::string, OpId> ids;
  for (ParsedOp& parsed : parsed_text.ops) {
    parsed.op.id = static_cast<OpId>(graph.ops_.size());
    if (!ids.emplace(parsed.op.name, parsed.op.id).second) {
      return InLine(parsed.line, absl::InvalidArgumentError(absl::StrCat("there are two ops named ",
                                                                         Quote(parsed.op.name))));
    }
    graph.names_.emplace(parsed.op.name, 1);
    for (size_t i = 0; i < parsed.op.outputs.size(); ++i) {
      TensorId output = parsed.op.outputs[i];
      if (static_cast<size_t>(output) >= num_tensors || graph.tensors_[output].producer != kNone) {
        return InLine(parsed.line,
                      absl::InvalidArgumentError(absl::StrCat(
                          "%", output, " comes twice, or the tensors are not numbered from 0")));
      }
      graph.tensors_[output] = {parsed.output_types[i], parsed.op.id, static_cast<int>(i)};
    }
    graph.ops_.push_back(parsed.op);
  }

  Joining joining(graph, ids);
  for (const ParsedOp& parsed : parsed_text.ops) {
    absl::Status status = joining.JoinOp(parsed);
    if (!status.ok()) return InLine(parsed.line, status);
  }
  BRAID_RETURN_IF_ERROR(graph.DeriveMirrorings());
  for (ParsedMinimize& parsed : parsed_text.minimize) {
    absl::Status status = joining.JoinMinimize(parsed);
    if (!status.ok()) return InLine(parsed.line, status);
  }
  for (const auto& [of, gradient_and_line] : parsed_text.gradients) {
    absl::Status status = joining.JoinGradient(of, gradient_and_line.first);
    if (!status.ok()) return InLine(gradient_and_line.second, status);
  }
  graph.files_ = std::move(parsed_text.files);
  return graph;
}

}  // namespace braid
