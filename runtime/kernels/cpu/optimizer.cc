// The updates of variables: those of sgd, momentum, adam, rmsprop and adagrad (the formulas of
// torch.optim), lars and lamb (those of their papers), assign.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/index_error.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/update_loops.h"
#include "runtime/kernels/staleness.h"
#include "runtime/kernels/update_attrs.h"

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
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().sgd;
  const DType lr_type = spec.inputs[2].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  const simd::SgdParameters parameters = SgdParametersOf(spec.attrs);
  return MakeKernel([=](const KernelRun& run) {
    simd::SgdParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[2]);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), n, now);
  });
}

template <class T>
KernelOr MakeMomentum(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().momentum;
  const DType lr_type = spec.inputs[3].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  const simd::SgdParameters parameters = SgdParametersOf(spec.attrs);
  return MakeKernel([=](const KernelRun& run) {
    simd::SgdParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[3]);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), MutableInput<T>(run, 2), n, now);
  });
}

// Of adam and lamb, without the learning rate.
simd::AdamParameters AdamParametersAt(const Attrs& attrs, double step) {
  simd::AdamParameters parameters = AdamParametersOf(attrs);
  parameters.bias_correction1 = 1 - std::pow(parameters.beta1, step + 1);
  parameters.bias_correction2 = 1 - std::pow(parameters.beta2, step + 1);
  return parameters;
}

template <class T>
KernelOr MakeAdam(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().adam;
  const DType lr_type = spec.inputs[4].dtype, step_type = spec.inputs[5].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  return MakeKernel([=, attrs = spec.attrs](const KernelRun& run) {
    simd::AdamParameters now = AdamParametersAt(attrs, ReadScalar(step_type, run.inputs[5]));
    now.lr = ReadScalar(lr_type, run.inputs[4]);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), MutableInput<T>(run, 2),
         MutableInput<T>(run, 3), n, now);
  });
}

template <class T>
KernelOr MakeLamb(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().lamb;
  const DType lr_type = spec.inputs[4].dtype, step_type = spec.inputs[5].dtype;
  const DType ratio_type = spec.inputs[6].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  return MakeKernel([=, attrs = spec.attrs](const KernelRun& run) {
    simd::AdamParameters now = AdamParametersAt(attrs, ReadScalar(step_type, run.inputs[5]));
    now.lr = ReadScalar(lr_type, run.inputs[4]) * ReadScalar(ratio_type, run.inputs[6]);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), MutableInput<T>(run, 2),
         MutableInput<T>(run, 3), n, now);
  });
}

template <class T>
KernelOr MakeLambSquare(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().lamb_square;
  const DType step_type = spec.inputs[4].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  return MakeKernel([=, attrs = spec.attrs](const KernelRun& run) {
    *Output<T>(run, 0) =
        loop(Input<T>(run, 0), Input<T>(run, 1), Input<T>(run, 2), Input<T>(run, 3), n,
             AdamParametersAt(attrs, ReadScalar(step_type, run.inputs[4])));
  });
}

template <class T>
KernelOr MakeLars(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().lars;
  const DType lr_type = spec.inputs[3].dtype, ratio_type = spec.inputs[4].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  const simd::SgdParameters parameters = SgdParametersOf(spec.attrs);
  return MakeKernel([=](const KernelRun& run) {
    simd::SgdParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[3]) * ReadScalar(ratio_type, run.inputs[4]);
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), MutableInput<T>(run, 2), n, now);
  });
}

template <class T>
KernelOr MakeAdagrad(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().adagrad;
  const DType lr_type = spec.inputs[3].dtype, step_type = spec.inputs[4].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  const simd::AdagradParameters parameters = AdagradParametersOf(spec.attrs);
  const double lr_decay = spec.attrs.Double("lr_decay");
  return MakeKernel([=](const KernelRun& run) {
    simd::AdagradParameters now = parameters;
    now.lr =
        ReadScalar(lr_type, run.inputs[3]) / (1 + lr_decay * ReadScalar(step_type, run.inputs[4]));
    loop(MutableInput<T>(run, 0), Input<T>(run, 1), MutableInput<T>(run, 2), n, now);
  });
}

// The rows of a table that indices name, of those that are here, and the sum of each one's
// gradients, which are added in the order of the indices, as gather_grad adds them.
template <class T>
class RowsOfTable {
 public:
  explicit RowsOfTable(const KernelSpec& spec)
      : spec_(spec),
        size_(spec.inputs[0].shape()[0]),
        columns_(size_ == 0 ? 0 : spec.inputs[0].num_elements() / size_),
        sum_(columns_) {
    entries_.reserve(spec.inputs[1].num_elements());
  }

  // update(first element of the row, its gradient). `states` are other tables that it reads.
  template <class Update>
  absl::Status ForEach(const KernelRun& run, std::initializer_list<const T*> states,
                       Update update) {
    BRAID_RETURN_IF_ERROR(Sort(run));
    const T* table = Input<T>(run, 0);
    const T* gradients = Input<T>(run, 2);
    for (size_t i = 0; i < entries_.size();) {
      if (i + kRowsAhead < entries_.size()) {
        const int64_t ahead = entries_[i + kRowsAhead].first * columns_;
        __builtin_prefetch(table + ahead, 1);
        for (const T* state : states) __builtin_prefetch(state + ahead, 1);
      }
      const int64_t row = entries_[i].first;
      const T* gradient = gradients + entries_[i].second * columns_;
      size_t next = i + 1;
      if (next < entries_.size() && entries_[next].first == row) {
        std::copy_n(gradient, columns_, sum_.data());
        for (; next < entries_.size() && entries_[next].first == row; ++next) {
          add_scaled_(gradients + entries_[next].second * columns_, T{1}, sum_.data(), columns_);
        }
        gradient = sum_.data();
      }
      update(row * columns_, gradient);
      i = next;
    }
    return absl::OkStatus();
  }

  int64_t columns() const { return columns_; }

 private:
  absl::Status Sort(const KernelRun& run) {
    const OperandSpec& table = spec_.inputs[0];
    const OperandSpec& indices = spec_.inputs[1];
    const IndexReader index = {run.inputs[1], indices.dtype == DType::kI64};
    const int64_t offset = OffsetAt(table, 0, run.micro_batch), all = table.logical[0];
    const int64_t count = indices.num_elements();
    entries_.clear();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = FromStart(index[i], all);
      if (at < 0) {
        return IndexOutOfRange(
            spec_, {"index", index[i], LogicalPosition(indices, i, run.micro_batch), -all, all});
      }
      if (at >= offset && at < offset + size_) entries_.emplace_back(at - offset, i);
    }
    std::ranges::sort(entries_);
    return absl::OkStatus();
  }

  const KernelSpec spec_;
  const int64_t size_, columns_;
  std::vector<std::pair<int64_t, int64_t>> entries_;  // row, index of it
  std::vector<T> sum_;
  void (*const add_scaled_)(const T*, T, T*,
                            int64_t) = simd::BestLoops<simd::RowLoops<T>>().add_scaled;
};

// Of the rows' table and indices; all else are scalars, or states.
template <class Make>
KernelOr ForRows(const KernelSpec& spec, int states, Make make) {
  KernelSpec same = spec;  // with operands of the variable's type in front
  same.inputs.erase(same.inputs.begin() + 1);
  if (!IsIndexType(spec.inputs[1].dtype)) return UnsupportedTypes(spec);
  return ForVariable(same, 2 + states,
                     [&](const KernelSpec&, auto type) { return make(spec, type); });
}

template <class T>
KernelOr MakeSgdRows(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().sgd;
  const DType lr_type = spec.inputs[3].dtype;
  const simd::SgdParameters parameters = SgdParametersOf(spec.attrs);
  return MakeKernel([=, rows = RowsOfTable<T>(spec)](const KernelRun& run) mutable {
    simd::SgdParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[3]);
    T* table = MutableInput<T>(run, 0);
    return rows.ForEach(run, {}, [&](int64_t at, const T* gradient) {
      loop(table + at, gradient, rows.columns(), now);
    });
  });
}

template <class T>
KernelOr MakeAdagradRows(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().adagrad;
  const DType lr_type = spec.inputs[4].dtype, step_type = spec.inputs[5].dtype;
  const simd::AdagradParameters parameters = AdagradParametersOf(spec.attrs);
  const double lr_decay = spec.attrs.Double("lr_decay");
  return MakeKernel([=, rows = RowsOfTable<T>(spec)](const KernelRun& run) mutable {
    simd::AdagradParameters now = parameters;
    now.lr =
        ReadScalar(lr_type, run.inputs[4]) / (1 + lr_decay * ReadScalar(step_type, run.inputs[5]));
    T* table = MutableInput<T>(run, 0);
    T* sums = MutableInput<T>(run, 3);
    return rows.ForEach(run, {sums}, [&](int64_t at, const T* gradient) {
      loop(table + at, gradient, sums + at, rows.columns(), now);
    });
  });
}

template <class T>
KernelOr MakeAdamRows(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().adam;
  const DType lr_type = spec.inputs[5].dtype, step_type = spec.inputs[6].dtype;
  return MakeKernel(
      [=, attrs = spec.attrs, rows = RowsOfTable<T>(spec)](const KernelRun& run) mutable {
        simd::AdamParameters now = AdamParametersAt(attrs, ReadScalar(step_type, run.inputs[6]));
        now.lr = ReadScalar(lr_type, run.inputs[5]);
        now.lazy = true;
        T* table = MutableInput<T>(run, 0);
        T* m = MutableInput<T>(run, 3);
        T* v = MutableInput<T>(run, 4);
        return rows.ForEach(run, {m, v}, [&](int64_t at, const T* gradient) {
          loop(table + at, gradient, m + at, v + at, rows.columns(), now);
        });
      });
}

struct RmspropStates {
  bool has_mean, has_velocity;
  int count() const { return 1 + (has_mean ? 1 : 0) + (has_velocity ? 1 : 0); }
};

template <class T>
KernelOr MakeRmsprop(const KernelSpec& spec, RmspropStates states, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::UpdateLoops<T>>().rmsprop;
  const int lr_input = 2 + states.count();
  const DType lr_type = spec.inputs[lr_input].dtype;
  const int64_t n = spec.inputs[0].num_elements();
  const simd::RmspropParameters parameters = RmspropParametersOf(spec.attrs);
  return MakeKernel([=](const KernelRun& run) {
    simd::RmspropParameters now = parameters;
    now.lr = ReadScalar(lr_type, run.inputs[lr_input]);
    const simd::RmspropOperands<T> operands = {
        .var = MutableInput<T>(run, 0),
        .grad = Input<T>(run, 1),
        .square = MutableInput<T>(run, 2),
        .mean = states.has_mean ? MutableInput<T>(run, 3) : nullptr,
        .velocity = states.has_velocity ? MutableInput<T>(run, lr_input - 1) : nullptr};
    loop(operands, n, now);
  });
}

// An update that may have one input more, bool []: where it is false, nothing is done.
class ConditionalUpdate final : public Kernel {
 public:
  ConditionalUpdate(std::unique_ptr<Kernel> update, int condition)
      : update_(std::move(update)), condition_(condition) {}
  absl::Status Run(const KernelRun& run) override {
    return *Input<uint8_t>(run, condition_) != 0 ? update_->Run(run) : absl::OkStatus();
  }

 private:
  std::unique_ptr<Kernel> update_;
  int condition_;
};

KernelFactory MaybeConditional(KernelFactory factory) {
  return [factory = std::move(factory)](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    if (spec.inputs.back().dtype != DType::kBool) return factory.PlanKernel(spec);
    KernelSpec unconditional = spec;
    unconditional.inputs.pop_back();
    BRAID_ASSIGN_OR_RETURN(PlannedKernel update, factory.PlanKernel(unconditional));
    const auto make = [make_update = std::move(update.make),
                       condition = static_cast<int>(spec.inputs.size()) - 1]() -> KernelOr {
      BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> made, make_update());
      return std::make_unique<ConditionalUpdate>(std::move(made), condition);
    };
    return PlannedKernel{.memory = update.memory, .make = make};
  };
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

KernelOr MakeStaleness(const KernelSpec& spec) {
  return MakeKernel(
      [counter = StalenessCounter(spec.attrs.Int("workers"))](const KernelRun& run) mutable {
        *Output<int64_t>(run, 0) = counter.Count(run);
      });
}

}  // namespace

absl::Status RegisterOptimizerKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("staleness", MakeStaleness));
  // An update of a variable and its gradient with so many states, which it overwrites.
  const auto add = [&](const std::string& name, int states, auto make) {
    std::vector<int> mutated = {0};
    for (int i = 0; i < states; ++i) mutated.push_back(2 + i);
    const auto factory = [states, make](const KernelSpec& spec) {
      return ForVariable(spec, 2 + states, make);
    };
    return registry.Register(name, MaybeConditional(Widened(factory, std::move(mutated))));
  };
  BRAID_RETURN_IF_ERROR(
      add("sgd_update", 0, [](const auto& s, auto type) { return MakeSgd(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("momentum_update", 1, [](const auto& s, auto type) { return MakeMomentum(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("adam_update", 2, [](const auto& s, auto type) { return MakeAdam(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("lamb_update", 2, [](const auto& s, auto type) { return MakeLamb(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("lars_update", 1, [](const auto& s, auto type) { return MakeLars(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("adagrad_update", 1, [](const auto& s, auto type) { return MakeAdagrad(s, type); }));
  const auto add_rows = [&](const std::string& name, int states, auto make) {
    std::vector<int> mutated = {0};
    for (int i = 0; i < states; ++i) mutated.push_back(3 + i);
    const auto factory = [states, make](const KernelSpec& spec) {
      return ForRows(spec, states, make);
    };
    return registry.Register(name, MaybeConditional(Widened(factory, std::move(mutated))));
  };
  BRAID_RETURN_IF_ERROR(add_rows("sgd_rows_update", 0,
                                 [](const auto& s, auto type) { return MakeSgdRows(s, type); }));
  BRAID_RETURN_IF_ERROR(add_rows(
      "adagrad_rows_update", 1, [](const auto& s, auto type) { return MakeAdagradRows(s, type); }));
  BRAID_RETURN_IF_ERROR(add_rows("adam_rows_update", 2,
                                 [](const auto& s, auto type) { return MakeAdamRows(s, type); }));
  for (const bool has_mean : {false, true}) {
    for (const bool has_velocity : {false, true}) {
      const RmspropStates states = {has_mean, has_velocity};
      BRAID_RETURN_IF_ERROR(add(absl::StrCat("rmsprop", has_mean ? "_centered" : "",
                                             has_velocity ? "_momentum" : "", "_update"),
                                states.count(), [states](const auto& s, auto type) {
                                  return MakeRmsprop(s, states, type);
                                }));
    }
  }
  BRAID_RETURN_IF_ERROR(registry.Register("lamb_square", Widened([](const KernelSpec& spec) {
                                            return ForVariable(spec, 4,
                                                               [](const auto& s, auto type) {
                                                                 return MakeLambSquare(s, type);
                                                               });
                                          })));
  const KernelFactory assign = MakeAssign;
  return registry.Register(
      "assign",
      [assign, conditional = MaybeConditional(assign)](
          const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
        // A value of a variable that is bool itself is no condition.
        return (spec.inputs.size() == 2 ? assign : conditional).PlanKernel(spec);
      });
}

}  // namespace braid::cpu
