#include "graph/factor_rule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace braid {
namespace {

std::string SbpsToString(const std::vector<Sbp>& sbps) {
  auto append = [](std::string* out, const Sbp& sbp) { out->append(sbp.ToString()); };
  return absl::StrCat("(", absl::StrJoin(sbps, ", ", append), ")");
}

int AxisOf(const std::vector<int>& axes, size_t operand) {
  return operand < axes.size() ? axes[operand] : Factor::kAbsent;
}

// Whether equal parts of the factor are equal parts of every axis that it stands in.
bool CanSplit(const Factor& factor, const OpContext& context, int64_t parts) {
  if (factor.size == Factor::kWholeAxis || factor.size % parts == 0) return true;
  const auto is_whole = [&](const std::vector<int>& axes, std::span<const TensorType> types) {
    for (size_t i = 0; i < types.size(); ++i) {
      const int axis = AxisOf(axes, i);
      if (axis != Factor::kAbsent && types[i].shape[axis] != factor.size) return false;
    }
    return true;
  };
  return is_whole(factor.inputs, context.inputs) && is_whole(factor.outputs, context.outputs);
}

std::vector<Sbp> Split(const std::vector<int>& axes, size_t operands, Sbp otherwise) {
  std::vector<Sbp> sbps;
  for (size_t i = 0; i < operands; ++i) {
    const int axis = AxisOf(axes, i);
    sbps.push_back(axis == Factor::kAbsent ? otherwise : sbp::S(axis));
  }
  return sbps;
}

// Of bools and of coded numbers there are no sums.
bool LeavesAddendsWithoutSum(const SbpSignature& signature, std::span<const TensorType> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool has_no_sum = outputs[i].dtype == DType::kBool || IsCoded(outputs[i].dtype);
    if (signature.outputs[i] == sbp::P && has_no_sum) return true;
  }
  return false;
}

}  // namespace

std::string SbpSignature::ToString() const {
  return absl::StrCat(SbpsToString(inputs), "->", SbpsToString(outputs));
}

std::vector<SbpSignature> FactorRule::Signatures(const OpContext& context, int64_t parts) const {
  const size_t num_inputs = context.inputs.size(), num_outputs = context.outputs.size();
  std::vector<SbpSignature> signatures;
  const auto add_addends = [&](SbpSignature& signature, Sbp partial) {
    for (const int input : addends) {
      if (input >= static_cast<int>(num_inputs)) continue;
      if (!signature.inputs[input].is_split()) signature.inputs[input] = partial;
    }
  };
  for (const Factor& factor : factors) {
    if (!CanSplit(factor, context, parts)) continue;
    SbpSignature signature = {Split(factor.inputs, num_inputs, sbp::B),
                              Split(factor.outputs, num_outputs, factor.partial)};
    if (LeavesAddendsWithoutSum(signature, context.outputs)) continue;
    if (std::any_of(signature.outputs.begin(), signature.outputs.end(),
                    [](const Sbp& sbp) { return sbp.is_partial(); })) {
      add_addends(signature, factor.partial);
    }
    signatures.push_back(std::move(signature));
  }
  for (const Passage& passage : passages) {
    const std::vector<int>& inputs = passage.inputs;
    if (std::any_of(inputs.begin(), inputs.end(),
                    [&](int input) { return input >= static_cast<int>(num_inputs); })) {
      continue;
    }
    SbpSignature signature = {
        std::vector<Sbp>(num_inputs, inputs.empty() ? passage.partial : sbp::B),
        std::vector<Sbp>(num_outputs, passage.partial)};
    for (const int input : inputs) signature.inputs[input] = passage.partial;
    add_addends(signature, passage.partial);
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

}  // namespace braid
