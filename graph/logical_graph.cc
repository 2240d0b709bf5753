#include "graph/logical_graph.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"

namespace braid {
namespace {

// Attributes of ops.
constexpr char kMirroredDims[] = "mirrored_dims";
constexpr char kMirroredParts[] = "mirrored_parts";

}  // namespace

Tensor::Tensor(LogicalGraph* graph, TensorId id)
    : place_(graph == nullptr ? nullptr : graph->place_.Of(graph)), id_(id) {}

TensorType Tensor::type() const {
  if (!valid()) return {};
  return graph()->type(id_);
}

std::optional<Mirroring> Tensor::mirroring() const {
  return valid() ? graph()->tensor(id_).mirroring : std::nullopt;
}

void Mirroring::Set(Attrs& attrs) const {
  attrs.Set(kMirroredDims, static_cast<int64_t>(dims));
  attrs.Set(kMirroredParts, parts);
}

std::optional<Mirroring> Mirroring::Of(const Attrs& attrs) {
  if (!attrs.Has(kMirroredParts) || !attrs.Has(kMirroredDims)) return std::nullopt;
  return Mirroring{static_cast<uint64_t>(attrs.Int(kMirroredDims)), attrs.Int(kMirroredParts)};
}

void Mirroring::Clear(Attrs& attrs) {
  attrs.Remove(kMirroredDims);
  attrs.Remove(kMirroredParts);
}

std::string Mirroring::ToString() const {
  std::string text = absl::StrCat(parts, " values");
  if (dims == kAllDims) return text;
  std::vector<int> list;
  for (int dim = 0; dim < 64; ++dim) {
    if (IsOver(dim)) list.push_back(dim);
  }
  return absl::StrCat(text, ", over dimensions ", absl::StrJoin(list, ", "));
}

const VariableGroup* MinimizeRequest::GroupOf(const std::string& variable) const {
  for (const VariableGroup& group : groups) {
    if (fnmatch(group.names.c_str(), variable.c_str(), 0) == 0) return &group;
  }
  return nullptr;
}

LogicalGraph::Place::~Place() {
  if (shared_ != nullptr) shared_->graph = nullptr;
}

const std::shared_ptr<GraphPlace>& LogicalGraph::Place::Of(LogicalGraph* graph) {
  if (shared_ == nullptr) shared_ = std::make_shared<GraphPlace>(GraphPlace{graph});
  return shared_;
}

std::vector<Tensor> LogicalGraph::Append(std::string_view type, std::span<const Tensor> inputs,
                                         AppendOptions options) {
  const OpDef* def = registry_->Find(type);
  std::string base = options.name.empty() ? std::string(type) : options.name;
  std::string name = UniqueName(base);
  auto fail = [&](absl::StatusCode code, std::string_view message) {
    std::string where = options.location.ToString();
    Fail(absl::Status(code, absl::StrCat(std::string(type), " '", name, "': ", std::string(message),
                                         where.empty() ? "" : absl::StrCat(" (", where, ")"))));
    return std::vector<Tensor>(def == nullptr ? 1 : def->NominalOutputs(), Tensor(this, kNone));
  };
  if (def == nullptr) {
    return fail(absl::StatusCode::kNotFound, "no operator of this type is registered");
  }

  Op op;
  std::vector<TensorType> input_types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    // Unless an earlier error made it invalid (then that one is kept), this is a mistake by itself.
    if (!inputs[i].is_none() && inputs[i].graph() != this) {
      return fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("input ", i, " belongs to another job"));
    }
    if (!inputs[i].valid()) {
      return fail(absl::StatusCode::kInvalidArgument, absl::StrCat("input ", i, " is no tensor"));
    }
    op.inputs.push_back(inputs[i].id());
    input_types.push_back(inputs[i].type());
  }
  op.type = std::string(type);
  op.attrs = std::move(options.attrs);
  if (def->random() && inputs.empty() && !mirrorings_.empty()) mirrorings_.back().Set(op.attrs);
  const absl::StatusOr<std::optional<Mirroring>> mirroring = MirroringOf(op);
  if (!mirroring.ok()) {
    return fail(mirroring.status().code(), std::string(mirroring.status().message()));
  }
  for (int input : def->mutates()) {
    const Op& written = producer(op.inputs.at(input));
    if (!IsVariable(*this, written)) {
      return fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("input ", input, " is overwritten and must be a variable, but is ",
                               written.type, " '", written.name, "'"));
    }
  }
  absl::StatusOr<std::vector<TensorType>> output_types =
      def->InferTypes({.attrs = op.attrs, .inputs = input_types, .outputs = {}});
  if (!output_types.ok()) {
    return fail(output_types.status().code(), std::string(output_types.status().message()));
  }
  for (const TensorType& type : *output_types) {
    if (std::all_of(type.shape.begin(), type.shape.end(), [](int64_t n) { return n >= 0; })) {
      continue;
    }
    return fail(absl::StatusCode::kInvalidArgument,
                absl::StrCat("its result would be ", type.ToString(), "; no size is negative"));
  }
  if (options.hints.size() > output_types->size()) {
    return fail(absl::StatusCode::kInvalidArgument,
                absl::StrCat("there are ", options.hints.size(), " SBP hints for ",
                             output_types->size(), " outputs"));
  }

  op.location = options.location;
  op.placement = std::move(options.placement);
  if (!op.placement && !placements_.empty()) op.placement = placements_.back();
  if (mirroring->has_value()) MirrorInputs(*def, op);
  op.id = static_cast<OpId>(ops_.size());
  op.name = std::move(name);
  op.hints = std::move(options.hints);
  op.hints.resize(output_types->size());
  op.forward = current_forward_;
  op.block = open_blocks_ > 0 ? last_block_ : 0;
  std::vector<Tensor> outputs;
  for (TensorType& output_type : *output_types) {
    TensorId id = static_cast<TensorId>(tensors_.size());
    tensors_.push_back(
        {std::move(output_type), op.id, static_cast<int>(outputs.size()), *mirroring});
    op.outputs.push_back(id);
    outputs.emplace_back(this, id);
  }
  ++names_[ScopedName(base)];
  names_.emplace(op.name, 1);
  ops_.push_back(std::move(op));
  return outputs;
}

absl::StatusOr<std::optional<Mirroring>> LogicalGraph::MirroringOf(const Op& op) const {
  const OpDef& def = *registry_->Find(op.type);
  std::optional<Mirroring> joint;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const std::optional<Mirroring>& mirroring = tensor(op.inputs[i]).mirroring;
    if (!mirroring.has_value()) continue;
    if (joint.has_value() && *joint != *mirroring) {
      return absl::InvalidArgumentError(
          absl::StrCat("an input is mirrored (", joint->ToString(), "), and input ", i,
                       " otherwise (", mirroring->ToString(),
                       "); SumMirrored, MeanMirrored, Stack or FromRank make one value "
                       "of one of them"));
    }
    joint = mirroring;
  }
  if (def.mirrors().has_value()) {
    const bool leads_in = def.mirrors()->outputs[0].is_mirrored();
    if (leads_in == joint.has_value()) {
      return absl::InvalidArgumentError(leads_in ? "its input is mirrored already"
                                                 : "its input is not mirrored");
    }
    return leads_in ? Mirroring::Of(op.attrs) : std::nullopt;
  }
  if (op.inputs.empty()) return Mirroring::Of(op.attrs);
  const bool goes_to_own_hosts = def.role() == OpRole::kFetch && Mirroring::Of(op.attrs) == joint;
  if (joint.has_value() && !goes_to_own_hosts &&
      (!def.mutates().empty() || def.role() == OpRole::kFetch)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "one value is needed, and the input is mirrored: each device has its own (",
        joint->ToString(), "); SumMirrored, MeanMirrored, Stack or FromRank make one of them"));
  }
  return joint;
}

absl::Status LogicalGraph::DeriveMirrorings() {
  for (bool changed = true; changed;) {  // ops may stand before those that they read
    changed = false;
    for (const Op& op : ops_) {
      const absl::StatusOr<std::optional<Mirroring>> mirroring = MirroringOf(op);
      for (const TensorId output : op.outputs) {
        if (!mirroring.ok() || tensors_[output].mirroring == *mirroring) continue;
        tensors_[output].mirroring = *mirroring;
        changed = true;
      }
    }
  }
  for (const Op& op : ops_) {
    const absl::Status status = MirroringOf(op).status();
    if (status.ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op.type, " '", op.name, "': ", std::string(status.message())));
  }
  return absl::OkStatus();
}

void LogicalGraph::MirrorInputs(const OpDef& def, Op& op) {
  if (def.mirrors().has_value()) return;
  std::optional<Mirroring> mirroring;
  for (const TensorId input : op.inputs) {
    if (tensor(input).mirroring.has_value()) mirroring = tensor(input).mirroring;
  }
  for (TensorId& input : op.inputs) {
    if (tensor(input).mirroring.has_value()) continue;
    AppendOptions options = {.name = "mirror", .location = op.location, .placement = op.placement};
    mirroring->Set(options.attrs);
    input = Append1("mirror", std::array{Tensor(this, input)}, std::move(options)).id();
    CHECK_NE(input, kNone) << status_;
  }
}

Tensor LogicalGraph::Append1(std::string_view type, std::span<const Tensor> inputs,
                             AppendOptions options) {
  std::vector<Tensor> outputs = Append(type, inputs, std::move(options));
  return outputs.empty() ? Tensor(this, kNone) : outputs[0];
}

Tensor LogicalGraph::Fail(absl::Status status) {
  CHECK(!status.ok());
  if (status_.ok()) status_ = std::move(status);
  return Tensor(this, kNone);
}

void LogicalGraph::PushScope(std::string_view name) { scopes_.emplace_back(name); }

void LogicalGraph::PopScope() {
  CHECK(!scopes_.empty());
  scopes_.pop_back();
}

std::string LogicalGraph::ScopedName(std::string_view base) const {
  std::string name = absl::StrJoin(scopes_, ".");
  absl::StrAppend(&name, name.empty() ? "" : ".", std::string(base));
  return name;
}

std::string LogicalGraph::UniqueName(std::string_view base) const {
  std::string name = ScopedName(base);
  auto found = names_.find(name);
  if (found == names_.end()) return name;
  // The smaller suffixes were given out when the name was asked for before.
  for (int suffix = found->second;; ++suffix) {
    std::string candidate = absl::StrCat(name, "_", suffix);
    if (names_.find(candidate) == names_.end()) return candidate;
  }
}

void LogicalGraph::PushPlacement(std::optional<Placement> placement) {
  placements_.push_back(std::move(placement));
}

void LogicalGraph::PopPlacement() {
  CHECK(!placements_.empty());
  placements_.pop_back();
}

void LogicalGraph::PushBlock() {
  if (open_blocks_++ == 0) ++last_block_;
}

void LogicalGraph::PopBlock() {
  CHECK_GT(open_blocks_, 0);
  --open_blocks_;
}

std::optional<OpId> LogicalGraph::FindOp(std::string_view name) const {
  for (const Op& op : ops_) {
    if (op.name == name) return op.id;
  }
  return std::nullopt;
}

std::vector<std::vector<std::pair<OpId, int>>> LogicalGraph::Consumers() const {
  std::vector<std::vector<std::pair<OpId, int>>> consumers(tensors_.size());
  for (const Op& op : ops_) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      consumers[op.inputs[i]].emplace_back(op.id, static_cast<int>(i));
    }
  }
  return consumers;
}

void LogicalGraph::Prune(const std::vector<bool>& keep) {
  CHECK_EQ(keep.size(), ops_.size());
  // New ids; kNone for what goes.
  std::vector<OpId> new_op(ops_.size(), kNone);
  std::vector<TensorId> new_tensor(tensors_.size(), kNone);
  auto map_op = [&new_op](OpId id) { return id == kNone ? kNone : new_op[id]; };
  auto map_tensor = [&new_tensor](TensorId id) { return id == kNone ? kNone : new_tensor[id]; };

  OpId num_ops = 0;
  for (const Op& op : ops_) {
    if (keep[op.id]) new_op[op.id] = num_ops++;
  }
  std::vector<TensorInfo> tensors;
  for (size_t id = 0; id < tensors_.size(); ++id) {
    if (new_op[tensors_[id].producer] == kNone) continue;
    new_tensor[id] = static_cast<TensorId>(tensors.size());
    tensors.push_back(std::move(tensors_[id]));
    tensors.back().producer = new_op[tensors.back().producer];
  }
  tensors_ = std::move(tensors);

  std::vector<Op> ops;
  for (Op& op : ops_) {
    if (!keep[op.id]) continue;
    for (TensorId& input : op.inputs) {
      CHECK_NE(new_tensor[input], kNone)
          << op.name << " is kept, the producer of %" << input << " is not";
      input = new_tensor[input];
    }
    for (TensorId& output : op.outputs) output = new_tensor[output];
    op.id = new_op[op.id];
    op.forward = map_op(op.forward);
    ops.push_back(std::move(op));
  }
  ops_ = std::move(ops);
  current_forward_ = map_op(current_forward_);

  std::vector<MinimizeRequest> minimize;
  for (MinimizeRequest& request : minimize_) {
    if (map_tensor(request.loss) == kNone) continue;
    std::vector<OpId> variables;
    for (OpId variable : request.variables) {
      if (map_op(variable) != kNone) variables.push_back(map_op(variable));
    }
    // An empty list would mean every variable.
    if (variables.empty() && !request.variables.empty()) continue;
    request.variables = std::move(variables);
    request.loss = map_tensor(request.loss);
    CHECK(request.learning_rate == kNone || map_tensor(request.learning_rate) != kNone)
        << "the learning rate of a kept Minimize request goes";
    request.learning_rate = map_tensor(request.learning_rate);
    CHECK(request.loss_scale == kNone || map_tensor(request.loss_scale) != kNone)
        << "the loss scale of a kept Minimize request goes";
    request.loss_scale = map_tensor(request.loss_scale);
    minimize.push_back(std::move(request));
  }
  minimize_ = std::move(minimize);

  std::map<TensorId, TensorId> gradients;
  for (auto [of, gradient] : gradients_) {
    if (map_tensor(of) == kNone || map_tensor(gradient) == kNone) continue;
    gradients[map_tensor(of)] = map_tensor(gradient);
  }
  gradients_ = std::move(gradients);
}

void LogicalGraph::SortTopologically() {
  std::vector<OpId> keys(ops_.size());
  std::iota(keys.begin(), keys.end(), OpId{0});
  SortTopologically(keys);
}

void LogicalGraph::SortTopologically(const std::vector<OpId>& keys) {
  // Kahn's algorithm; of the ops that are ready, the first by key and in the old order goes next.
  std::vector<int> missing(ops_.size());
  using Ready = std::pair<OpId, OpId>;  // key, op
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (const Op& op : ops_) {
    missing[op.id] = static_cast<int>(op.inputs.size());
    if (op.inputs.empty()) ready.emplace(keys[op.id], op.id);
  }
  std::vector<std::vector<std::pair<OpId, int>>> consumers = Consumers();
  std::vector<OpId> new_op(ops_.size(), kNone);
  std::vector<OpId> order;
  while (!ready.empty()) {
    const OpId id = ready.top().second;
    ready.pop();
    new_op[id] = static_cast<OpId>(order.size());
    order.push_back(id);
    for (TensorId output : ops_[id].outputs) {
      for (auto [consumer, input] : consumers[output]) {
        if (--missing[consumer] == 0) ready.emplace(keys[consumer], consumer);
      }
    }
  }
  CHECK_EQ(order.size(), ops_.size()) << "the graph has a cycle";

  std::vector<Op> ops;
  for (OpId old : order) {
    Op& op = ops.emplace_back(std::move(ops_[old]));
    op.id = new_op[op.id];
    if (op.forward != kNone) op.forward = new_op[op.forward];
  }
  ops_ = std::move(ops);
  for (TensorInfo& tensor : tensors_) tensor.producer = new_op[tensor.producer];
  for (MinimizeRequest& request : minimize_) {
    for (OpId& variable : request.variables) variable = new_op[variable];
  }
  if (current_forward_ != kNone) current_forward_ = new_op[current_forward_];
}

}  // namespace braid
