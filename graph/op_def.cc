#include "graph/op_def.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "graph/input_checks.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

bool FitsRanks(const std::vector<Sbp>& sbps, std::span<const TensorType> types) {
  CHECK_EQ(sbps.size(), types.size());
  for (size_t i = 0; i < sbps.size(); ++i) {
    if (sbps[i].is_split() && sbps[i].axis >= types[i].shape.rank()) return false;
  }
  return true;
}

absl::Status CheckTaken(const OpContext& context, const std::string& takes) {
  const auto first = [&](char letter) { return static_cast<int>(takes.find(letter)); };
  for (size_t i = 0; i < std::min(takes.size(), context.inputs.size()); ++i) {
    const int input = static_cast<int>(i);
    if (takes[i] == 'f') BRAID_RETURN_IF_ERROR(CheckFloating(context, input));
    if (takes[i] == 'i') BRAID_RETURN_IF_ERROR(CheckInteger(context, input));
    if (takes[i] == 'b') BRAID_RETURN_IF_ERROR(CheckBool(context, input));
    if (takes[i] == 'f' || takes[i] == 'x') {
      BRAID_RETURN_IF_ERROR(CheckSameDType(context, first(takes[i]), input));
    }
  }
  return absl::OkStatus();
}

// Whether it takes the sample with the inputs narrow that it says it keeps so, the others as they
// are.
absl::Status CheckKeepsNarrow(const OpDef& def, const OpSample& sample) {
  std::vector<TensorType> inputs = sample.inputs;
  for (const int input : def.keeps_narrow()) {
    const bool is_there = input >= 0 && input < static_cast<int>(inputs.size());
    if (is_there && inputs[input].dtype == DType::kF32) inputs[input].dtype = DType::kBF16;
  }
  return def.InferTypes({.attrs = sample.attrs, .inputs = inputs, .outputs = {}}).status();
}

absl::Status CheckFloatsAlike(const OpContext& context) {
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
  return absl::OkStatus();
}

}  // namespace

OpDef& OpDef::Rule(std::string_view text) {
  absl::StatusOr<braid::Rule> rule = braid::Rule::Parse(text);
  rule_status_ = rule.status();
  if (rule.ok()) rule_ = *std::move(rule);
  return *this;
}

OpDef& OpDef::Rule(std::function<std::string(const OpContext&)> text) {
  rule_text_ = std::move(text);
  return *this;
}

OpDef& OpDef::Rule(std::function<FactorRule(const OpContext&)> factors) {
  rule_factors_ = std::move(factors);
  return *this;
}

OpDef& OpDef::Takes(std::string_view dtypes) {
  takes_ = dtypes;
  return *this;
}

OpDef& OpDef::Gives(std::function<absl::StatusOr<DType>(const OpContext&)> dtype) {
  gives_ = std::move(dtype);
  return *this;
}

OpDef& OpDef::Gives(DType dtype) {
  return Gives([dtype](const OpContext&) { return dtype; });
}

OpDef& OpDef::Check(std::function<absl::Status(const OpContext&)> fn) {
  check_ = std::move(fn);
  return *this;
}

OpDef& OpDef::Linear(std::vector<int> inputs, When when) {
  passages_.push_back({{.inputs = std::move(inputs)}, std::move(when)});
  return *this;
}

OpDef& OpDef::PassesPartialMaxMin() {
  moves_elements_ = true;
  return Passes(sbp::Pmax, {0}).Passes(sbp::Pmin, {0});
}

OpDef& OpDef::Passes(Sbp partial, std::vector<int> inputs) {
  passages_.push_back({{.inputs = std::move(inputs), .partial = partial}, {}});
  return *this;
}

OpDef& OpDef::Addend(int input) {
  addends_.push_back(input);
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

OpDef& OpDef::MicroBatchSignatures(std::function<std::vector<SbpSignature>(const OpContext&)> fn) {
  micro_batch_signatures_ = std::move(fn);
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

OpDef& OpDef::KeepsNarrow(std::vector<int> inputs) {
  keeps_narrow_ = std::move(inputs);
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
  if (!infer_ && !rule_ && !rule_text_) return error("give a Rule or an Infer function");
  if (!infer_ && rule_) {
    if (const absl::Status follow = rule_->CheckShapesFollow(); !follow.ok()) {
      return error(std::string(follow.message()));
    }
  }
  if (takes_.find_first_not_of("fibx") != std::string::npos) {
    return error(absl::StrCat("it takes '", takes_, "'; the letters f, i, b and x say dtypes"));
  }
  if (!gradient_ && !no_gradient_) return error("give a Gradient, or say NoGradient");
  if (gradient_ && no_gradient_) return error("it has a Gradient and says NoGradient");
  if (samples_.empty() && !external_) return error("give a Sample, or say External");
  for (size_t i = 0; i < samples_.size(); ++i) {
    absl::StatusOr<std::vector<TensorType>> outputs =
        InferTypes({.attrs = samples_[i].attrs, .inputs = samples_[i].inputs, .outputs = {}});
    if (!outputs.ok()) {
      return error(absl::StrCat("sample ", i, ": ", std::string(outputs.status().message())));
    }
    if (const absl::Status kept = CheckKeepsNarrow(*this, samples_[i]); !kept.ok()) {
      return error(absl::StrCat(
          "sample ", i, " with narrow inputs, as KeepsNarrow says: ", std::string(kept.message())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> OpDef::InferTypes(const OpContext& context) const {
  if (!infer_) return TypesOfRule(context);
  BRAID_ASSIGN_OR_RETURN(std::vector<TensorType> types, infer_(context));
  // The rule must hold for what was inferred, because signatures follow from it.
  BRAID_RETURN_IF_ERROR(
      FactorsOf({.attrs = context.attrs, .inputs = context.inputs, .outputs = types}).status());
  return types;
}

absl::StatusOr<std::vector<TensorType>> OpDef::TypesOfRule(const OpContext& context) const {
  std::optional<braid::Rule> parsed;
  BRAID_ASSIGN_OR_RETURN(const braid::Rule* rule, RuleOf(context, parsed));
  BRAID_ASSIGN_OR_RETURN(std::vector<Shape> shapes, rule->InferShapes(context));
  BRAID_RETURN_IF_ERROR(takes_.empty() ? CheckFloatsAlike(context) : CheckTaken(context, takes_));
  if (check_) BRAID_RETURN_IF_ERROR(check_(context));
  const size_t like = takes_.find_first_of("fx");
  DType dtype = DType::kF32;
  if (gives_) {
    BRAID_ASSIGN_OR_RETURN(dtype, gives_(context));
  } else if (!context.inputs.empty()) {
    dtype = context.inputs[like == std::string::npos ? 0 : like].dtype;
  }
  std::vector<TensorType> types;
  for (Shape& shape : shapes) types.push_back({dtype, std::move(shape)});
  if (makes_narrow_ && context.attrs.Has("dtype")) {
    types[0].dtype = context.attrs.Type("dtype");
    const bool is_narrowed = dtype == DType::kF32 && IsNarrow(types[0].dtype);
    if (!is_narrowed && types[0].dtype != dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat("dtype is ", std::string(ToString(types[0].dtype)), " and the inputs are ",
                       std::string(ToString(dtype)),
                       "; the result has the inputs' dtype, or bf16 or f16 of f32"));
    }
  }
  return types;
}

absl::StatusOr<const braid::Rule*> OpDef::RuleOf(const OpContext& context,
                                                 std::optional<braid::Rule>& parsed) const {
  if (rule_text_) {
    BRAID_ASSIGN_OR_RETURN(parsed, braid::Rule::Parse(rule_text_(context)));
    return &*parsed;
  }
  CHECK(rule_.has_value()) << name_ << " has neither rule nor inference function";
  return &*rule_;
}

absl::StatusOr<FactorRule> OpDef::FactorsOf(const OpContext& context) const {
  FactorRule factors;
  if (rule_factors_) {
    factors = rule_factors_(context);
  } else if ((rule_ || rule_text_) && !signatures_) {
    std::optional<braid::Rule> parsed;
    BRAID_ASSIGN_OR_RETURN(const braid::Rule* rule, RuleOf(context, parsed));
    BRAID_ASSIGN_OR_RETURN(factors, rule->Factors(context));
  }
  for (const auto& [passage, when] : passages_) {
    if (!when || when(context)) factors.passages.push_back(passage);
  }
  factors.addends = addends_;
  return factors;
}

std::vector<SbpSignature> OpDef::LegalSignatures(const OpContext& context, int64_t parts) const {
  std::vector<SbpSignature> legal;
  auto add = [&](SbpSignature signature) {
    if (!FitsRanks(signature.inputs, context.inputs)) return;
    if (!FitsRanks(signature.outputs, context.outputs)) return;
    if (std::find(legal.begin(), legal.end(), signature) != legal.end()) return;
    legal.push_back(std::move(signature));
  };
  if (!no_broadcast_) {
    add({std::vector<Sbp>(context.inputs.size(), sbp::B),
         std::vector<Sbp>(context.outputs.size(), sbp::B)});
  }
  if (signatures_) {
    for (SbpSignature& signature : signatures_(context, parts)) add(std::move(signature));
  }
  const absl::StatusOr<FactorRule> factors = FactorsOf(context);
  CHECK(factors.ok()) << name_ << ": " << factors.status();  // InferTypes would have said it
  for (SbpSignature& signature : factors->Signatures(context, parts)) add(std::move(signature));
  return legal;
}

SbpSignature OpDef::MirroredSignature(const OpContext& context) const {
  if (mirrors_.has_value()) return *mirrors_;
  return {std::vector<Sbp>(context.inputs.size(), sbp::M),
          std::vector<Sbp>(context.outputs.size(), sbp::M)};
}

bool OpDef::IsPerMicroBatch(const OpContext& context) const {
  return micro_batch_signatures_ && !micro_batch_signatures_(context).empty();
}

std::vector<SbpSignature> OpDef::LegalMicroBatchSignatures(const OpContext& context,
                                                           int64_t parts) const {
  return IsPerMicroBatch(context) ? micro_batch_signatures_(context)
                                  : LegalSignatures(context, parts);
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
