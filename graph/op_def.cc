#include "graph/op_def.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

std::vector<Shape> ShapesOf(std::span<const TensorType> types) {
  std::vector<Shape> shapes;
  for (const TensorType& type : types) shapes.push_back(type.shape);
  return shapes;
}

bool FitsRanks(const std::vector<Sbp>& sbps, std::span<const TensorType> types) {
  CHECK_EQ(sbps.size(), types.size());
  for (size_t i = 0; i < sbps.size(); ++i) {
    if (sbps[i].is_split() && sbps[i].axis >= types[i].shape.rank()) return false;
  }
  return true;
}

std::string SbpsToString(const std::vector<Sbp>& sbps) {
  auto append = [](std::string* out, const Sbp& sbp) { out->append(sbp.ToString()); };
  return absl::StrCat("(", absl::StrJoin(sbps, ", ", append), ")");
}

}  // namespace

std::string SbpSignature::ToString() const {
  return absl::StrCat(SbpsToString(inputs), "->", SbpsToString(outputs));
}

OpDef& OpDef::Rule(std::string_view text) {
  absl::StatusOr<braid::Rule> rule = braid::Rule::Parse(text);
  rule_status_ = rule.status();
  if (rule.ok()) rule_ = *std::move(rule);
  return *this;
}

OpDef& OpDef::Linear(std::vector<int> inputs) {
  linear_.push_back(std::move(inputs));
  return *this;
}

OpDef& OpDef::PassesPartialMaxMin() {
  passes_partial_max_min_ = true;
  return *this;
}

OpDef& OpDef::Infer(std::function<absl::StatusOr<std::vector<TensorType>>(const OpContext&)> fn) {
  infer_ = std::move(fn);
  return *this;
}

OpDef& OpDef::Signatures(
    std::function<std::vector<SbpSignature>(const OpContext&, int64_t parts)> fn) {
  signatures_ = std::move(fn);
  return *this;
}

OpDef& OpDef::TimeSignatures(std::function<std::vector<SbpSignature>(const OpContext&)> fn) {
  time_signatures_ = std::move(fn);
  return *this;
}

OpDef& OpDef::NoBroadcast() {
  no_broadcast_ = true;
  return *this;
}

OpDef& OpDef::Gradient(std::function<std::vector<Tensor>(const GradientContext&)> fn) {
  gradient_ = std::move(fn);
  return *this;
}

OpDef& OpDef::NoGradient() {
  no_gradient_ = true;
  return *this;
}

OpDef& OpDef::Flops(std::function<double(const OpContext&)> fn) {
  flops_ = std::move(fn);
  return *this;
}

OpDef& OpDef::Sample(OpSample sample) {
  samples_.push_back(std::move(sample));
  return *this;
}

OpDef& OpDef::External() {
  external_ = true;
  return *this;
}

OpDef& OpDef::Inplace(int input, int output) {
  inplace_.emplace_back(input, output);
  return *this;
}

OpDef& OpDef::Mutates(std::vector<int> inputs) {
  mutates_ = std::move(inputs);
  return *this;
}

OpDef& OpDef::NarrowInputs(std::vector<int> inputs) {
  narrow_inputs_ = std::move(inputs);
  return *this;
}

OpDef& OpDef::Random() {
  random_ = true;
  return *this;
}

absl::Status OpDef::Validate() const {
  auto error = [this](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("operator '", name_, "': ", why));
  };
  if (name_.empty()) return absl::InvalidArgumentError("an operator needs a name");
  if (!rule_status_.ok()) return error(std::string(rule_status_.message()));
  if (!rule_ && !infer_) return error("give a Rule or an Infer function");
  if (!gradient_ && !no_gradient_) return error("give a Gradient, or say NoGradient");
  if (gradient_ && no_gradient_) return error("it has a Gradient and says NoGradient");
  if (samples_.empty() && !external_) return error("give a Sample, or say External");
  for (size_t i = 0; i < samples_.size(); ++i) {
    absl::StatusOr<std::vector<TensorType>> outputs =
        InferTypes({.attrs = samples_[i].attrs, .inputs = samples_[i].inputs, .outputs = {}});
    if (!outputs.ok()) {
      return error(absl::StrCat("sample ", i, ": ", std::string(outputs.status().message())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> OpDef::InferTypes(const OpContext& context) const {
  if (infer_) return infer_(context);
  CHECK(rule_.has_value()) << name_ << " has neither rule nor inference function";
  ASSIGN_OR_RETURN(std::vector<Shape> shapes, rule_->InferShapes(ShapesOf(context.inputs)));
  const TensorType* floating = nullptr;
  for (const TensorType& type : context.inputs) {
    if (!IsFloating(type.dtype)) continue;
    if (floating != nullptr && floating->dtype != type.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("the inputs are ", floating->ToString(),
                                                     " and ", type.ToString(),
                                                     "; cast one to the other's element type"));
    }
    floating = &type;
  }
  std::vector<TensorType> types;
  for (Shape& shape : shapes) types.push_back({context.inputs[0].dtype, std::move(shape)});
  return types;
}

std::vector<SbpSignature> OpDef::LegalSignatures(const OpContext& context, int64_t parts) const {
  size_t num_inputs = context.inputs.size(), num_outputs = context.outputs.size();
  std::vector<SbpSignature> legal;
  auto add = [&](SbpSignature signature) {
    if (!FitsRanks(signature.inputs, context.inputs)) return;
    if (!FitsRanks(signature.outputs, context.outputs)) return;
    if (std::find(legal.begin(), legal.end(), signature) != legal.end()) return;
    legal.push_back(std::move(signature));
  };
  // All inputs B but for `sbp` where listed, all outputs `sbp`.
  auto pass_through = [&](const std::vector<int>& inputs, Sbp sbp) {
    SbpSignature signature{std::vector<Sbp>(num_inputs, sbp::B),
                           std::vector<Sbp>(num_outputs, sbp)};
    for (int input : inputs) {
      if (input >= static_cast<int>(num_inputs)) return;  // an optional input that is not given
      signature.inputs[input] = sbp;
    }
    add(std::move(signature));
  };

  if (!no_broadcast_) pass_through({}, sbp::B);
  if (signatures_) {
    for (SbpSignature& signature : signatures_(context, parts)) add(std::move(signature));
  } else if (rule_) {
    for (SbpSignature& signature : rule_->Signatures(ShapesOf(context.inputs))) {
      add(std::move(signature));
    }
  }
  for (const std::vector<int>& inputs : linear_) pass_through(inputs, sbp::P);
  if (passes_partial_max_min_) {
    pass_through({0}, sbp::Pmax);
    pass_through({0}, sbp::Pmin);
  }
  return legal;
}

bool OpDef::IsPerMicroBatch(const OpContext& context) const {
  return time_signatures_ && !time_signatures_(context).empty();
}

std::vector<SbpSignature> OpDef::LegalTimeSignatures(const OpContext& context,
                                                     int64_t parts) const {
  return IsPerMicroBatch(context) ? time_signatures_(context) : LegalSignatures(context, parts);
}

std::vector<Tensor> OpDef::BuildGradient(const GradientContext& context) const {
  CHECK(gradient_) << name_ << " has no gradient";
  std::vector<Tensor> gradients = gradient_(context);
  CHECK_EQ(gradients.size(), context.inputs.size())
      << "the gradient of " << name_ << " must return one tensor per input";
  return gradients;
}

double OpDef::CountFlops(const OpContext& context) const {
  if (flops_) return flops_(context);
  double elements = 0;
  for (const TensorType& type : context.outputs) {
    elements += static_cast<double>(type.shape.num_elements());
  }
  return elements;
}

int OpDef::NominalOutputs() const {
  if (!infer_ && rule_) return rule_->num_outputs();
  if (samples_.empty()) return 1;
  absl::StatusOr<std::vector<TensorType>> outputs =
      InferTypes({.attrs = samples_[0].attrs, .inputs = samples_[0].inputs, .outputs = {}});
  return outputs.ok() ? static_cast<int>(outputs->size()) : 1;
}

}  // namespace braid
