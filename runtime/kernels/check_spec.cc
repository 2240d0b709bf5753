#include "runtime/kernels/check_spec.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

absl::Status CheckAttr(const Attrs& attrs, const Attrs& like, bool is_needed) {
  const auto& [name, value] = *like.values().begin();
  const auto found = attrs.values().find(name);
  if (found == attrs.values().end()) {
    if (!is_needed) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("attribute '%s' is missing in '%s'; the operator needs one like '%s'", name,
                        attrs.ToString(), like.ToString()));
  }
  if (found->second.index() == value.index()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the attribute '%s' has another type than the operator's '%s'",
                      Attrs({{name, found->second}}).ToString(), like.ToString()));
}

// Names and types of the attributes are those of the operator's own samples; what all of them have
// is needed, but for flags, which are false where they are absent.
absl::Status CheckAttrs(const OpDef& op, const Attrs& attrs) {
  for (const OpSample& sample : op.samples()) {
    for (const auto& [name, value] : sample.attrs.values()) {
      bool is_needed = !std::holds_alternative<bool>(value);
      for (const OpSample& other : op.samples()) is_needed &= other.attrs.Has(name);
      BRAID_RETURN_IF_ERROR(CheckAttr(attrs, {{name, value}}, is_needed));
    }
  }
  for (const auto& [name, value] : attrs.values()) {
    bool is_known = false;
    for (const OpSample& sample : op.samples()) is_known |= sample.attrs.Has(name);
    if (is_known) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "no sample of the operator has an attribute '%s'", Attrs({{name, value}}).ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckRegion(const OperandSpec& operand) {
  const auto rank = static_cast<size_t>(operand.logical.rank());
  bool is_inside =
      operand.region.offset.size() == rank && operand.region.size.dims().size() == rank;
  for (size_t axis = 0; is_inside && axis < rank; ++axis) {
    const int64_t offset = operand.region.offset[axis];
    const int64_t size = operand.region.size[static_cast<int>(axis)];
    const int64_t whole = operand.logical[static_cast<int>(axis)];
    is_inside = offset >= 0 && size >= 0 && offset <= whole && size <= whole - offset;
  }
  if (is_inside) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "an operand of size %s at %s is no part of a tensor %s", operand.region.size.ToString(),
      Shape(operand.region.offset).ToString(), operand.logical.ToString()));
}

std::string TypesToString(const std::vector<TensorType>& types) {
  return absl::StrJoin(
      types, ", ", [](std::string* out, const TensorType& type) { out->append(type.ToString()); });
}

std::vector<TensorType> TypesOf(const std::vector<OperandSpec>& operands) {
  std::vector<TensorType> types;
  for (const OperandSpec& operand : operands) types.push_back({operand.dtype, operand.logical});
  return types;
}

absl::Status CheckTypes(const OpDef& op, const KernelSpec& spec) {
  const std::vector<TensorType> inputs = TypesOf(spec.inputs), outputs = TypesOf(spec.outputs);
  BRAID_ASSIGN_OR_RETURN(const std::vector<TensorType> inferred,
                         op.InferTypes({.attrs = spec.attrs, .inputs = inputs, .outputs = {}}));
  if (inferred == outputs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("the outputs are (%s); of (%s) come (%s)",
                                                    TypesToString(outputs), TypesToString(inputs),
                                                    TypesToString(inferred)));
}

// ---- parts of tensors ---------------------------------------------------------------------------

// An axis of an operand; inputs come first.
struct Axis {
  const OperandSpec* operand = nullptr;
  int axis = 0;

  int64_t whole() const { return operand->logical[axis]; }
  int64_t offset() const { return operand->region.offset[axis]; }
  int64_t size() const { return operand->region.size[axis]; }
  bool is_cut() const { return size() != whole(); }
  bool IsIn(const std::vector<Axis>& axes) const {
    return std::any_of(axes.begin(), axes.end(), [this](const Axis& other) {
      return other.operand == operand && other.axis == axis;
    });
  }
};

std::vector<const OperandSpec*> OperandsOf(const KernelSpec& spec) {
  std::vector<const OperandSpec*> operands;
  for (const OperandSpec& input : spec.inputs) operands.push_back(&input);
  for (const OperandSpec& output : spec.outputs) operands.push_back(&output);
  return operands;
}

// The same share of two axes, which may have different lengths (reshape).
bool AreAlike(const Axis& a, const Axis& b) {
  return __int128{a.offset()} * b.whole() == __int128{b.offset()} * a.whole() &&
         __int128{a.size()} * b.whole() == __int128{b.size()} * a.whole();
}

// The axes that a signature splits, all at once.
std::vector<Axis> SplitAxes(const SbpSignature& signature, const KernelSpec& spec) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const Sbp& sbp = signature.inputs[i];
    if (sbp.is_split()) axes.push_back({&spec.inputs[i], sbp.axis});
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const Sbp& sbp = signature.outputs[i];
    if (sbp.is_split()) axes.push_back({&spec.outputs[i], sbp.axis});
  }
  return axes;
}

// Kernels take their sizes from one operand or another: where one holds a part of an axis, some
// signature says which parts the others hold.
absl::Status CheckParts(const OpDef& op, const KernelSpec& spec) {
  const std::vector<const OperandSpec*> operands = OperandsOf(spec);
  std::vector<Axis> cuts;
  bool are_alike = true;
  for (const OperandSpec* operand : operands) {
    are_alike = are_alike && operand->logical == operands[0]->logical &&
                operand->region == operands[0]->region;
    for (int axis = 0; axis < operand->logical.rank(); ++axis) {
      if (const Axis at{operand, axis}; at.is_cut()) cuts.push_back(at);
    }
  }
  if (cuts.empty() || are_alike) return absl::OkStatus();
  const std::vector<TensorType> inputs = TypesOf(spec.inputs), outputs = TypesOf(spec.outputs);
  std::vector<std::vector<Axis>> together;
  for (const SbpSignature& signature :
       op.LegalSignatures({.attrs = spec.attrs, .inputs = inputs, .outputs = outputs}, 1)) {
    together.push_back(SplitAxes(signature, spec));
  }
  for (const Axis& cut : cuts) {
    const bool is_legal =
        std::any_of(together.begin(), together.end(), [&](const std::vector<Axis>& axes) {
          return cut.IsIn(axes) && std::all_of(axes.begin(), axes.end(), [&](const Axis& other) {
                   return AreAlike(cut, other);
                 });
        });
    if (is_legal) continue;
    std::vector<std::string> regions;
    for (const OperandSpec* operand : operands) regions.push_back(operand->region.ToString());
    return absl::InvalidArgumentError(absl::StrFormat(
        "its operands hold %s; no signature of the operator splits axis %d of %s so",
        absl::StrJoin(regions, ", "), cut.axis, cut.operand->logical.ToString()));
  }
  return absl::OkStatus();
}

absl::Status Named(const KernelSpec& spec, const absl::Status& status) {
  if (status.ok()) return status;
  return Prefixed(absl::StrFormat("%s '%s'", spec.op, spec.name), status);
}

absl::Status CheckRegions(const KernelSpec& spec) {
  for (const auto* operands : {&spec.inputs, &spec.outputs}) {
    for (const OperandSpec& operand : *operands) BRAID_RETURN_IF_ERROR(CheckRegion(operand));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKernelSpec(const OpDef& op, const KernelSpec& spec) {
  absl::Status status = CheckAttrs(op, spec.attrs);
  if (status.ok()) status = CheckRegions(spec);
  if (status.ok()) status = CheckTypes(op, spec);
  if (status.ok()) status = CheckParts(op, spec);
  return Named(spec, status);
}

absl::Status CheckKernelForm(const KernelForm& form, const KernelSpec& spec) {
  absl::Status status = CheckRegions(spec);
  for (const auto& [name, value] : form.like.values()) {
    status.Update(CheckAttr(spec.attrs, {{name, value}}, /*is_needed=*/true));
  }
  if (spec.inputs.size() != form.inputs || spec.outputs.size() != form.outputs) {
    status = absl::InvalidArgumentError(
        absl::StrFormat("%d inputs and %d outputs; it takes %d and makes %d", spec.inputs.size(),
                        spec.outputs.size(), form.inputs, form.outputs));
  }
  return Named(spec, status);
}

}  // namespace braid
