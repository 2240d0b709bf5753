#include "runtime/variable_store.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/plan_read.h"

namespace braid {

void VariableStore::Free::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, std::align_val_t(64));
}

absl::StatusOr<std::byte*> VariableStore::Obtain(int device, const VariableSpec& variable) {
  const std::string& name = variable.name;
  const OperandSpec& layout = variable.layout;
  const auto key = std::make_pair(device, name);
  if (const auto it = entries_.find(key); it != entries_.end()) {
    const OperandSpec& have = it->second.layout;
    if (have.dtype != layout.dtype || have.logical != layout.logical ||
        have.region != layout.region) {
      return absl::FailedPreconditionError(
          absl::StrFormat("variable '%s' on device %d is %s%s holding %s; this job wants %s%s "
                          "holding %s; give both "
                          "jobs the same shape and layout",
                          name, device, std::string(ToString(have.dtype)), have.logical.ToString(),
                          have.region.ToString(), std::string(ToString(layout.dtype)),
                          layout.logical.ToString(), layout.region.ToString()));
    }
    return it->second.bytes.get();
  }
  const int64_t size = BytesOf(layout);
  auto* memory = static_cast<std::byte*>(
      ::operator new[](static_cast<size_t>(size) + 64, std::align_val_t(64), std::nothrow));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "variable '%s' needs %d bytes on device %d and the system has no more; split it over more "
        "devices",
        name, size, device));
  }
  Entry entry{layout, std::unique_ptr<std::byte[], Free>(memory)};
  RETURN_IF_ERROR(Fill(variable, memory));
  return entries_.emplace(key, std::move(entry)).first->second.bytes.get();
}

std::byte* VariableStore::Find(int device, const std::string& name) const {
  const auto it = entries_.find(std::make_pair(device, name));
  return it == entries_.end() ? nullptr : it->second.bytes.get();
}

uint64_t VariableStore::bytes(int device) const {
  uint64_t sum = 0;
  for (const auto& [key, entry] : entries_) {
    if (key.first == device) sum += static_cast<uint64_t>(BytesOf(entry.layout));
  }
  return sum;
}

absl::Status VariableStore::Fill(const VariableSpec& variable, std::byte* bytes) const {
  const Attrs& init = variable.init;
  const std::string& kind = init.String("init");
  KernelSpec spec;
  spec.name = variable.name;
  spec.seed = variable.seed;
  spec.outputs = {variable.layout};
  spec.attrs.Set("dtype", variable.layout.dtype);
  spec.attrs.Set("shape", variable.layout.logical.dims());
  if (kind == "zeros" || kind == "ones" || kind == "constant") {
    spec.op = "constant";
    spec.attrs.Set("value", kind == "zeros" ? 0.0 : kind == "ones" ? 1.0 : init.Double("value"));
  } else if (kind == "uniform") {
    spec.op = "random_uniform";
    spec.attrs.Set("low", init.Double("low"));
    spec.attrs.Set("high", init.Double("high"));
  } else if (kind == "normal") {
    spec.op = "random_normal";
    spec.attrs.Set("mean", init.Double("mean"));
    spec.attrs.Set("stddev", init.Double("stddev"));
  } else {
    return absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s': init is \"%s\"; zeros, ones, constant, uniform or normal was expected",
        variable.name, kind));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, kernels_->Create(spec));
  void* output = bytes;
  return kernel->Run({.outputs = &output});
}

}  // namespace braid
