// How a family makes its kernels: a factory resolves shapes and picks loops once, and returns a
// function object that only runs them.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kernels/kernel.h"
#include "runtime/kernels/spec_views.h"

namespace braid::cpu {

// F: void or absl::Status (const KernelRun&).
template <class F>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(F function) : function_(std::move(function)) {}
  absl::Status Run(const KernelRun& run) override {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, const KernelRun&>>) {
      function_(run);
      return absl::OkStatus();
    } else {
      return function_(run);
    }
  }

 private:
  F function_;
};

template <class F>
std::unique_ptr<Kernel> MakeKernel(F function) {
  return std::make_unique<FunctionKernel<F>>(std::move(function));
}

// F: void (const KernelRun&, begin, size); see Kernel::RunPart.
template <class F>
class PointwiseKernel final : public Kernel {
 public:
  PointwiseKernel(F function, int64_t size, int64_t step)
      : function_(std::move(function)), size_(size), step_(step) {}
  absl::Status Run(const KernelRun& run) override {
    function_(run, int64_t{0}, size_);
    return absl::OkStatus();
  }
  OpParts parts() const override { return {.elements = size_, .step = step_}; }
  void RunPart(const KernelRun& run, int64_t begin, int64_t size) override {
    function_(run, begin, size);
  }

 private:
  F function_;
  int64_t size_, step_;
};

template <class F>
std::unique_ptr<Kernel> MakePointwise(int64_t size, int64_t step, F function) {
  return std::make_unique<PointwiseKernel<F>>(std::move(function), size, step);
}
template <class F>
std::unique_ptr<Kernel> MakePointwise(int64_t size, F function) {
  return MakePointwise(size, 1, std::move(function));
}

// Of what is chosen: its memory() says what it will need, its Allocate() takes that, and then it
// runs as MakeKernel's functions do.
template <class Chosen>
PlannedKernel PlanKernel(std::shared_ptr<Chosen> chosen) {  // shared by copies of `make`
  const KernelMemory memory = chosen->memory();
  return {.memory = memory, .make = [chosen = std::move(chosen)] {
            chosen->Allocate();
            return MakeKernel([chosen](const KernelRun& run) { return (*chosen)(run); });
          }};
}

template <class T>
const T* Input(const KernelRun& run, int index) {
  return static_cast<const T*>(run.inputs[index]);
}
template <class T>
T* MutableInput(const KernelRun& run, int index) {
  return static_cast<T*>(run.inputs[index]);
}
template <class T>
T* Output(const KernelRun& run, int index) {
  return static_cast<T*>(run.outputs[index]);
}

// As NoKernelForTypes says.
absl::Status UnsupportedTypes(const KernelSpec& spec);

// What a factory that is written for one element type gets as its second argument.
template <class T>
struct ElementType {
  using type = T;
};

// Calls make(spec, ElementType<T>) for the T (float, double) that all floating operands have.
// Factories for narrow types are made of it by Widened. What it returns is a kernel or, of those
// that keep memory, a PlannedKernel.
template <class Make>
KernelFactory ForFloats(Make make) {
  return [make](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    bool any_f32 = false, any_f64 = false, any_narrow = false;
    for (const auto* operands : {&spec.inputs, &spec.outputs}) {
      for (const OperandSpec& operand : *operands) {
        any_f32 |= operand.dtype == DType::kF32;
        any_f64 |= operand.dtype == DType::kF64;
        any_narrow |= IsNarrow(operand.dtype);
      }
    }
    if (any_f32 == any_f64 || any_narrow) return UnsupportedTypes(spec);
    const auto plan = [&](auto type) {
      return KernelFactory([make, type](const KernelSpec& each) { return make(each, type); })
          .PlanKernel(spec);
    };
    return any_f32 ? plan(ElementType<float>()) : plan(ElementType<double>());
  };
}

// Makes bf16 and f16 operands f32 for `factory`'s kernel: copies in before, copies out after, also
// of the inputs listed in `mutated`.
KernelFactory Widened(KernelFactory factory, std::vector<int> mutated = {});

// The first kernel that is not UNIMPLEMENTED. All but the last say so when they are planned.
KernelFactory FirstSupported(std::vector<KernelFactory> factories);

}  // namespace braid::cpu
