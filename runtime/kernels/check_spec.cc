#include "runtime/kernels/check_spec.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Types and bounds of the attributes follow from the operator's own samples.
absl::Status CheckAttrs(const OpDef& op, const Attrs& attrs) {
  for (size_t i = 0; i < op.samples().size(); ++i) {
    for (const auto& [name, value] : op.samples()[i].attrs.values()) {
      const auto found = attrs.values().find(name);
      if (found == attrs.values().end()) {
        bool is_needed = true;
        for (const OpSample& sample : op.samples()) is_needed &= sample.attrs.Has(name);
        if (!is_needed) continue;
        return absl::InvalidArgumentError(
            absl::StrFormat("attribute '%s' is missing in '%s'; the operator needs one like '%s'",
                            name, attrs.ToString(), Attrs({{name, value}}).ToString()));
      }
      if (found->second.index() != value.index()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "the attribute '%s' has another type than the operator's '%s'",
            Attrs({{name, found->second}}).ToString(), Attrs({{name, value}}).ToString()));
      }
    }
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

absl::Status CheckTypes(const OpDef& op, const KernelSpec& spec) {
  std::vector<TensorType> inputs, outputs;
  for (const OperandSpec& input : spec.inputs) inputs.push_back({input.dtype, input.logical});
  for (const OperandSpec& output : spec.outputs) outputs.push_back({output.dtype, output.logical});
  ASSIGN_OR_RETURN(const std::vector<TensorType> inferred,
                   op.InferTypes({.attrs = spec.attrs, .inputs = inputs, .outputs = {}}));
  if (inferred == outputs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("the outputs are (%s); of (%s) come (%s)",
                                                    TypesToString(outputs), TypesToString(inputs),
                                                    TypesToString(inferred)));
}

}  // namespace

absl::Status CheckKernelSpec(const OpDef& op, const KernelSpec& spec) {
  absl::Status status = CheckAttrs(op, spec.attrs);
  for (const auto* operands : {&spec.inputs, &spec.outputs}) {
    for (const OperandSpec& operand : *operands) status.Update(CheckRegion(operand));
  }
  if (status.ok()) status = CheckTypes(op, spec);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrFormat("%s '%s': %s", spec.op, spec.name,
                                                     std::string(status.message())));
}

}  // namespace braid
