#include "runtime/variable_store.h"

#include <variant>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

// In the device's stream.
absl::Status Fill(Device& device, const VariableSpec& variable, std::byte* bytes) {
  const Attrs& init = variable.init;
  const auto number = [&](const char* name) -> absl::StatusOr<double> {
    const auto found = init.values().find(name);
    if (found != init.values().end() && std::holds_alternative<double>(found->second)) {
      return init.Double(name);
    }
    return absl::InvalidArgumentError(
        absl::StrFormat("variable '%s': its attributes (%s) have no number '%s'", variable.name,
                        init.ToString(), name));
  };
  const auto found = init.values().find("init");
  if (found == init.values().end() || !std::holds_alternative<std::string>(found->second)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s': its attributes (%s) have no text 'init': zeros, ones, constant, uniform or "
        "normal",
        variable.name, init.ToString()));
  }
  const std::string& kind = init.String("init");
  KernelSpec spec;
  spec.name = variable.name;
  spec.seed = variable.seed;
  spec.outputs = {variable.layout};
  spec.attrs.Set("dtype", variable.layout.dtype);
  spec.attrs.Set("shape", variable.layout.logical.dims());
  if (kind == "zeros" || kind == "ones" || kind == "constant") {
    spec.op = "constant";
    double value = kind == "ones" ? 1.0 : 0.0;
    if (kind == "constant") {
      BRAID_ASSIGN_OR_RETURN(value, number("value"));
    }
    spec.attrs.Set("value", value);
  } else if (kind == "uniform") {
    spec.op = "random_uniform";
    BRAID_ASSIGN_OR_RETURN(const double low, number("low"));
    spec.attrs.Set("low", low);
    BRAID_ASSIGN_OR_RETURN(const double high, number("high"));
    spec.attrs.Set("high", high);
  } else if (kind == "normal") {
    spec.op = "random_normal";
    BRAID_ASSIGN_OR_RETURN(const double mean, number("mean"));
    spec.attrs.Set("mean", mean);
    BRAID_ASSIGN_OR_RETURN(const double stddev, number("stddev"));
    spec.attrs.Set("stddev", stddev);
  } else {
    return absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s': init is \"%s\"; zeros, ones, constant, uniform or normal was expected",
        variable.name, kind));
  }
  BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, device.kernels().Create(spec));
  void* output = bytes;
  Stream& stream = device.stream(StreamKind::kCompute);
  stream.SetName(nullptr);
  return kernel->Run({.stream = &stream, .outputs = &output});
}

}  // namespace

void VariableStore::BeginWriting() {
  MutexLock lock(writers_mutex_);
  ++writers_;
  epoch_.store(0, std::memory_order_release);
}

void VariableStore::EndWriting() {
  MutexLock lock(writers_mutex_);
  if (--writers_ == 0) epoch_.store(++last_epoch_, std::memory_order_release);
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
    return it->second.memory.data();
  }
  Device& home = *(*devices_)[device];
  absl::StatusOr<Memory> memory =
      home.Allocate(MemoryKind::kOwn, static_cast<uint64_t>(BytesOf(layout)));
  if (!memory.ok()) {
    return absl::Status(
        memory.status().code(),
        absl::StrFormat("variable '%s' on device %d: %s; split it over more devices", name, device,
                        std::string(memory.status().message())));
  }
  BRAID_RETURN_IF_ERROR(Fill(home, variable, memory->data()));
  const Entry& entry = entries_.emplace(key, Entry{layout, *std::move(memory)}).first->second;
  return entry.memory.data();
}

std::byte* VariableStore::Find(int device, const std::string& name) const {
  const auto it = entries_.find(std::make_pair(device, name));
  return it == entries_.end() ? nullptr : it->second.memory.data();
}

uint64_t VariableStore::bytes(int device) const {
  uint64_t sum = 0;
  for (const auto& [key, entry] : entries_) {
    if (key.first == device) sum += static_cast<uint64_t>(BytesOf(entry.layout));
  }
  return sum;
}

}  // namespace braid
