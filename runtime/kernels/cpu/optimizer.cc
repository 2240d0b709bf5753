// The updates of variables: sgd_update, momentum_update, adam_update (the formulas of torch.optim's
// SGD, Adam and AdamW), assign.
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/loops.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// A scalar operand whose type need not be the variable's.
double ReadScalar(DType dtype, const void* data) {
  switch (dtype) {
    case DType::kF32:
      return *static_cast<const float*>(data);
    case DType::kF64:
      return *static_cast<const double*>(data);
    case DType::kI32:
      return *static_cast<const int32_t*>(data);
    default:
      return static_cast<double>(*static_cast<const int64_t*>(data));
  }
}

// make(spec, ElementType<T>) for the T that the variable and its `same` - 1 following operands
// have.
template <class Make>
KernelOr ForVariable(const KernelSpec& spec, int same, Make make) {
  const DType dtype = spec.inputs[0].dtype;
  for (int i = 1; i < same; ++i) {
    if (spec.inputs[i].dtype != dtype) return UnsupportedTypes(spec);
  }
  for (size_t i = same; i < spec.inputs.size(); ++i) {
    const DType scalar = spec.inputs[i].dtype;
    if (scalar != DType::kF32 && scalar != DType::kF64 && scalar != DType::kI32 &&
        scalar != DType::kI64) {
      return UnsupportedTypes(spec);
    }
  }
  if (dtype == DType::kF32) return make(spec, ElementType<float>());
  if (dtype == DType::kF64) return make(spec, ElementType<double>());
  return UnsupportedTypes(spec);
}

template <class T>
KernelOr MakeSgd(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::Rows<T>(simd::BestLoops()).sgd;
  const DType lr_type = spec.inputs[2].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  simd::SgdParameters parameters = {};
  parameters.weight_decay = Number(spec.attrs, "weight_decay", 0);
  return MakeKernel([=](const KernelRun& run) {
    simd::SgdParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[2]);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), n, now);
  });
}

template <class T>
KernelOr MakeMomentum(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::Rows<T>(simd::BestLoops()).momentum;
  const DType lr_type = spec.inputs[3].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  simd::SgdParameters parameters = {};
  parameters.weight_decay = Number(spec.attrs, "weight_decay", 0);
  parameters.momentum = spec.attrs.Double("momentum");
  parameters.nesterov = Flag(spec.attrs, "nesterov");
  return MakeKernel([=](const KernelRun& run) {
    simd::SgdParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[3]);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), MutableInput<T>(run, 2), n, now);
  });
}

template <class T>
KernelOr MakeAdam(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::Rows<T>(simd::BestLoops()).adam;
  const DType lr_type = spec.inputs[4].dtype, step_type = spec.inputs[5].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  simd::AdamParameters parameters = {};
  parameters.beta1 = spec.attrs.Double("beta1");
  parameters.beta2 = spec.attrs.Double("beta2");
  parameters.epsilon = spec.attrs.Double("epsilon");
  parameters.weight_decay = Number(spec.attrs, "weight_decay", 0);
  parameters.decoupled = Flag(spec.attrs, "decoupled");
  return MakeKernel([=](const KernelRun& run) {
    simd::AdamParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[4]);
    const double t = ReadScalar(step_type, run.inputs[5]) + 1;
    now.bias_correction1 = 1 - std::pow(now.beta1, t);
    now.bias_correction2 = 1 - std::pow(now.beta2, t);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), MutableInput<T>(run, 2),
         MutableInput<T>(run, 3), n, now);
  });
}

KernelOr MakeAssign(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != spec.inputs[1].dtype) return UnsupportedTypes(spec);
  const int64_t bytes =
      spec.inputs[0].num_elements() * static_cast<int64_t>(SizeOf(spec.inputs[0].dtype));
  return MakeKernel([bytes](const KernelRun& run) {
    if (bytes > 0 && run.inputs[0] != run.inputs[1]) {
      std::memcpy(run.inputs[0], run.inputs[1], bytes);
    }
  });
}

}  // namespace

absl::Status RegisterOptimizerKernels(KernelRegistry& registry) {
  RETURN_IF_ERROR(registry.Register("sgd_update", Widened(
                                                      [](const KernelSpec& spec) {
                                                        return ForVariable(
                                                            spec, 2, [](const auto& s, auto type) {
                                                              return MakeSgd(s, type);
                                                            });
                                                      },
                                                      {0})));
  RETURN_IF_ERROR(registry.Register("momentum_update",
                                    Widened(
                                        [](const KernelSpec& spec) {
                                          return ForVariable(spec, 3, [](const auto& s, auto type) {
                                            return MakeMomentum(s, type);
                                          });
                                        },
                                        {0, 2})));
  RETURN_IF_ERROR(registry.Register("adam_update", Widened(
                                                       [](const KernelSpec& spec) {
                                                         return ForVariable(
                                                             spec, 4, [](const auto& s, auto type) {
                                                               return MakeAdam(s, type);
                                                             });
                                                       },
                                                       {0, 2, 3})));
  return registry.Register("assign", MakeAssign);
}

}  // namespace braid::cpu
