#include "tests/bench/operator_times.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "graph/op_def.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<braid::TensorType> LocalTypes(const std::vector<braid::OperandSpec>& operands) {
  std::vector<braid::TensorType> types;
  for (const braid::OperandSpec& operand : operands) {
    types.push_back({operand.dtype, operand.shape()});
  }
  return types;
}

// "matmul f32[1024, 256] f32[256, 64] tb": operator, operands and what is transposed.
std::string NameOf(const braid::KernelSpec& spec) {
  std::string name = spec.op;
  for (const braid::TensorType& type : LocalTypes(spec.inputs)) name += " " + type.ToString();
  for (const char* flag : {"transpose_a", "transpose_b"}) {
    if (spec.attrs.Has(flag) && spec.attrs.Bool(flag)) name += std::string(" ") + flag;
  }
  return name;
}

}  // namespace

class OperatorTimes::Measured final : public braid::Kernel {
 public:
  Measured(std::unique_ptr<braid::Kernel> kernel, Entry* entry)
      : kernel_(std::move(kernel)), entry_(*entry) {}

  absl::Status Run(const braid::KernelRun& run) override {
    const auto begin = Clock::now();
    absl::Status status = kernel_->Run(run);
    entry_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    ++entry_.calls;
    return status;
  }

 private:
  std::unique_ptr<braid::Kernel> kernel_;
  Entry& entry_;
};

void OperatorTimes::Watch(const braid::OpRegistry& operators, braid::KernelRegistry& kernels) {
  kernels.WrapAll(
      [this, &operators](const braid::KernelSpec& spec, std::unique_ptr<braid::Kernel> kernel) {
        Entry& entry = entries_[NameOf(spec)];
        const auto inputs = LocalTypes(spec.inputs), outputs = LocalTypes(spec.outputs);
        const braid::OpDef* op = operators.Find(spec.op);
        if (op != nullptr) {
          entry.flops = op->CountFlops({.attrs = spec.attrs, .inputs = inputs, .outputs = outputs});
        }
        return std::make_unique<Measured>(std::move(kernel), &entry);
      });
}

void OperatorTimes::Reset() {
  for (auto& [name, entry] : entries_) entry.calls = 0, entry.seconds = 0;
}

void OperatorTimes::Print(int64_t steps, double step_seconds) const {
  std::vector<std::pair<std::string, Entry>> sorted(entries_.begin(), entries_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double all = step_seconds * static_cast<double>(steps);
  double inside = 0;
  std::printf("%8s %9s %7s %9s  %s\n", "calls", "ms", "share", "GFLOP/s", "a step");
  for (const auto& [name, entry] : sorted) {
    if (entry.calls == 0) continue;
    inside += entry.seconds;
    std::printf("%8.0f %9.3f %6.1f%% %9.1f  %s\n",
                static_cast<double>(entry.calls) / static_cast<double>(steps),
                1e3 * entry.seconds / static_cast<double>(steps), 100 * entry.seconds / all,
                entry.flops * static_cast<double>(entry.calls) / entry.seconds / 1e9, name.c_str());
  }
  std::printf("%8s %9.3f %6.1f%% %9s  outside kernels\n", "",
              1e3 * (all - inside) / static_cast<double>(steps), 100 * (all - inside) / all, "");
}

}  // namespace bench
