#include "runtime/kernels/cpu/make_kernel.h"

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

// Of the f32 copy.
int64_t WideElements(const OperandSpec& operand) {
  return IsNarrow(operand.dtype) ? operand.num_elements() : 0;
}

// A narrow operand and its f32 copy.
struct WideCopy {
  int index = 0;
  DType dtype = DType::kF32;
  std::vector<float> values;

  void Load(const simd::ElementwiseLoops& loops, const void* from) {
    const auto* narrow = static_cast<const uint16_t*>(from);
    const auto n = static_cast<int64_t>(values.size());
    (dtype == DType::kBF16 ? loops.bf16_to_f32 : loops.f16_to_f32)(narrow, values.data(), n);
  }
  void Store(const simd::ElementwiseLoops& loops, void* to) const {
    auto* narrow = static_cast<uint16_t*>(to);
    const auto n = static_cast<int64_t>(values.size());
    (dtype == DType::kBF16 ? loops.f32_to_bf16 : loops.f32_to_f16)(values.data(), narrow, n);
  }
};

class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(const KernelSpec& spec, const std::vector<int>& mutated,
                std::unique_ptr<Kernel> inner)
      : mutated_(mutated), inner_(std::move(inner)) {
    Prepare(spec.inputs, inputs_, input_pointers_);
    Prepare(spec.outputs, outputs_, output_pointers_);
  }

  // The spec that the kernel inside sees.
  static KernelSpec Wide(KernelSpec spec) {
    for (auto* operands : {&spec.inputs, &spec.outputs}) {
      for (OperandSpec& operand : *operands) {
        if (IsNarrow(operand.dtype)) operand.dtype = DType::kF32;
      }
    }
    return spec;
  }

  static KernelMemory MemoryOf(const KernelSpec& spec, KernelMemory memory_of_inner) {
    for (const auto* operands : {&spec.inputs, &spec.outputs}) {
      for (const OperandSpec& operand : *operands) {
        memory_of_inner.own += WideElements(operand) * static_cast<int64_t>(sizeof(float));
      }
    }
    return memory_of_inner;
  }

  absl::Status Run(const KernelRun& run) override {
    for (size_t i = 0; i < input_pointers_.size(); ++i) input_pointers_[i] = run.inputs[i];
    for (size_t i = 0; i < output_pointers_.size(); ++i) output_pointers_[i] = run.outputs[i];
    for (WideCopy& copy : inputs_) {
      copy.Load(loops_, run.inputs[copy.index]);
      input_pointers_[copy.index] = copy.values.data();
    }
    for (WideCopy& copy : outputs_) output_pointers_[copy.index] = copy.values.data();
    KernelRun wide = run;
    wide.inputs = input_pointers_.data();
    wide.outputs = output_pointers_.data();
    BRAID_RETURN_IF_ERROR(inner_->Run(wide));
    for (const WideCopy& copy : outputs_) copy.Store(loops_, run.outputs[copy.index]);
    for (const WideCopy& copy : inputs_) {
      for (int index : mutated_) {
        if (index == copy.index) copy.Store(loops_, run.inputs[index]);
      }
    }
    return absl::OkStatus();
  }

 private:
  static void Prepare(const std::vector<OperandSpec>& operands, std::vector<WideCopy>& copies,
                      std::vector<void*>& pointers) {
    pointers.resize(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!IsNarrow(operands[i].dtype)) continue;
      copies.push_back(
          {static_cast<int>(i), operands[i].dtype, std::vector<float>(WideElements(operands[i]))});
    }
  }

  const simd::ElementwiseLoops& loops_ = simd::BestLoops<simd::ElementwiseLoops>();
  std::vector<int> mutated_;
  std::vector<WideCopy> inputs_, outputs_;
  std::vector<void*> input_pointers_, output_pointers_;
  std::unique_ptr<Kernel> inner_;
};

}  // namespace

absl::Status UnsupportedTypes(const KernelSpec& spec) { return NoKernelForTypes("cpu", spec); }

KernelFactory Widened(KernelFactory factory, std::vector<int> mutated) {
  return [factory = std::move(factory),
          mutated = std::move(mutated)](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    bool any_narrow = false;
    for (const auto* operands : {&spec.inputs, &spec.outputs}) {
      for (const OperandSpec& operand : *operands) any_narrow |= IsNarrow(operand.dtype);
    }
    if (!any_narrow) return factory.PlanKernel(spec);
    // Errors name the types that were asked for.
    const auto name_types = [](const KernelSpec& of, absl::Status status) {
      return absl::IsUnimplemented(status) ? UnsupportedTypes(of) : status;
    };
    auto inner = factory.PlanKernel(WidenedKernel::Wide(spec));
    if (!inner.ok()) return name_types(spec, inner.status());
    const auto make = [spec, mutated, name_types,
                       make_inner =
                           std::move(inner->make)]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
      auto made = make_inner();
      if (!made.ok()) return name_types(spec, made.status());
      return std::make_unique<WidenedKernel>(spec, mutated, *std::move(made));
    };
    return PlannedKernel{.memory = WidenedKernel::MemoryOf(spec, inner->memory), .make = make};
  };
}

KernelFactory FirstSupported(std::vector<KernelFactory> factories) {
  return
      [factories = std::move(factories)](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
        absl::StatusOr<PlannedKernel> planned = UnsupportedTypes(spec);
        for (const KernelFactory& factory : factories) {
          if (absl::IsUnimplemented(planned.status())) planned = factory.PlanKernel(spec);
        }
        return planned;
      };
}

}  // namespace braid::cpu
