#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/op_registry.h"
#include "runtime/base/status.h"
#include "runtime/kernels/check_spec.h"
#include "runtime/kernels/kernel.h"

namespace braid {

absl::Status KernelRegistry::Register(std::string op, KernelFactory factory) {
  if (!factories_.emplace(op, std::move(factory)).second) {
    return absl::AlreadyExistsError(absl::StrFormat("a kernel for op '%s' is registered", op));
  }
  return absl::OkStatus();
}

absl::Status KernelRegistry::Check(const KernelSpec& spec) const {
  if (base_ != nullptr) return base_->Check(spec);
  const OpDef* op = operators_ == nullptr ? nullptr : operators_->Find(spec.op);
  return op == nullptr ? absl::OkStatus() : CheckKernelSpec(*op, spec);
}

absl::StatusOr<PlannedKernel> KernelRegistry::Plan(const KernelSpec& spec) const {
  const auto found = factories_.find(spec.op);
  if (found == factories_.end() && base_ == nullptr) {
    return absl::NotFoundError(absl::StrFormat(
        "%s '%s': no kernel is registered for this op on this device", spec.op, spec.name));
  }
  BRAID_ASSIGN_OR_RETURN(PlannedKernel planned, found == factories_.end()
                                                    ? base_->Plan(spec)
                                                    : found->second.PlanKernel(spec));
  if (!wrap_) return planned;
  const auto make_wrapped =
      [spec, wrap = wrap_,
       make = std::move(planned.make)]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
    BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, make());
    return wrap(spec, std::move(kernel));
  };
  return PlannedKernel{.memory = planned.memory, .make = make_wrapped};
}

absl::StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Create(const KernelSpec& spec) const {
  BRAID_ASSIGN_OR_RETURN(const PlannedKernel planned, Plan(spec));
  return planned.make();
}

bool KernelRegistry::Has(std::string_view op) const {
  return factories_.contains(op) || (base_ != nullptr && base_->Has(op));
}

bool KernelRegistry::MayWrite(std::string_view op, int input) const {
  if (const OpDef* def = operators_ != nullptr ? operators_->Find(op) : nullptr) {
    return std::ranges::find(def->mutates(), input) != def->mutates().end();
  }
  return base_ == nullptr || base_->MayWrite(op, input);
}

}  // namespace braid
