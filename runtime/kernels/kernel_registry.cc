#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/op_registry.h"
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

absl::StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Create(const KernelSpec& spec) const {
  const auto found = factories_.find(spec.op);
  if (found == factories_.end() && base_ == nullptr) {
    return absl::NotFoundError(absl::StrFormat(
        "%s '%s': no kernel is registered for this op on this device", spec.op, spec.name));
  }
  absl::StatusOr<std::unique_ptr<Kernel>> kernel =
      found == factories_.end() ? base_->Create(spec) : found->second(spec);
  if (kernel.ok() && wrap_) kernel = wrap_(spec, *std::move(kernel));
  return kernel;
}

bool KernelRegistry::Has(std::string_view op) const {
  return factories_.contains(op) || (base_ != nullptr && base_->Has(op));
}

}  // namespace braid
