// gather_elements, gather_nd, their gradients, scatter_elements, scatter_nd. Parts of a table that
// is split where it is indexed read zeros for places that are elsewhere, and write what falls into
// them. Updates are taken in the order of their positions, so that sums are always added in one
// order and of several that overwrite one place the last one stays.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/index_error.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/numbers.h"
#include "runtime/kernels/cpu/strided.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

constexpr int64_t kElsewhere = -1;

// Where the indices of a kernel point to. Both families have
// - row(): how many neighbouring elements one position stands for;
// - ForEach(run, data, f): f(position, place) for all positions in their order; place is where the
//   row begins in the local table, or kElsewhere.

// Indices of the table's rank: a position is one element.
class ElementPlaces {
 public:
  ElementPlaces(const KernelSpec& spec, const OperandSpec& table, const OperandSpec& indices)
      : spec_(spec),
        table_(table),
        indices_(indices),
        axis_(static_cast<int>(spec.attrs.Int("axis"))),
        strides_(DenseStrides(table.shape())) {}

  int64_t row() const { return 1; }

  template <class F>
  absl::Status ForEach(const KernelRun& run, const void* data, F f) const {
    if (indices_.num_elements() == 0) return absl::OkStatus();
    const IndexReader index = {data, indices_.dtype == DType::kI64};
    int64_t position = 0;
    int64_t wrong = Walk(run.micro_batch, index, 0, 0, position, f);
    if (wrong < 0) return absl::OkStatus();
    const int64_t all = table_.logical[axis_];
    const int64_t at = LogicalPosition(indices_, wrong, run.micro_batch);
    return IndexOutOfRange(spec_, {"index", index[wrong], at, -all, all});
  }

 private:
  // `place` counts the axes before `dim`, but for the indexed one. The position of a wrong index,
  // or -1.
  template <class F>
  int64_t Walk(int64_t act, const IndexReader& index, int dim, int64_t place, int64_t& position,
               F& f) const {
    const bool is_axis = dim == axis_, is_last = dim == indices_.shape().rank() - 1;
    const int64_t shift = is_axis ? 0 : OffsetAt(indices_, dim, act) - OffsetAt(table_, dim, act);
    const int64_t begin = OffsetAt(table_, axis_, act), all = table_.logical[axis_];
    for (int64_t i = 0; i < indices_.shape()[dim]; ++i) {
      int64_t at = place;
      if (!is_axis && place != kElsewhere) {
        const int64_t local = i + shift;
        const bool is_here = local >= 0 && local < table_.shape()[dim];
        at = is_here ? place + local * strides_[dim] : kElsewhere;
      }
      if (!is_last) {
        const int64_t wrong = Walk(act, index, dim + 1, at, position, f);
        if (wrong >= 0) return wrong;
        continue;
      }
      const int64_t chosen = FromStart(index[position], all);
      if (chosen < 0) return position;
      const int64_t local = chosen - begin;
      const bool is_here = at != kElsewhere && local >= 0 && local < table_.shape()[axis_];
      f(position++, is_here ? at + local * strides_[axis_] : kElsewhere);
    }
    return -1;
  }

  KernelSpec spec_;  // for errors
  OperandSpec table_, indices_;
  int axis_;
  std::vector<int64_t> strides_;
};

// The last axis of the indices is a position on axes of the table: what is behind them is a row.
class NdPlaces {
 public:
  NdPlaces(const KernelSpec& spec, const OperandSpec& table, const OperandSpec& indices)
      : spec_(spec), table_(table), indices_(indices) {
    const int rank = indices.shape().rank();
    batch_ = static_cast<int>(spec.attrs.Int("batch_dims"));
    indexed_ = static_cast<int>(indices.shape()[rank - 1]);
    strides_ = DenseStrides(table.shape());
    for (int i = 0; i < batch_; ++i) batches_ *= indices.shape()[i];
    for (int i = batch_; i < rank - 1; ++i) per_batch_ *= indices.shape()[i];
    for (int i = batch_; i < table.shape().rank(); ++i) batch_size_ *= table.shape()[i];
    for (int i = batch_ + indexed_; i < table.shape().rank(); ++i) row_ *= table.shape()[i];
  }

  int64_t row() const { return row_; }

  template <class F>
  absl::Status ForEach(const KernelRun& run, const void* data, F f) const {
    const IndexReader index = {data, indices_.dtype == DType::kI64};
    for (int64_t batch = 0; batch < batches_; ++batch) {
      for (int64_t i = 0; i < per_batch_; ++i) {
        const int64_t position = batch * per_batch_ + i;
        int64_t place = batch * batch_size_;
        for (int k = 0; k < indexed_; ++k) {
          const int axis = batch_ + k;
          const int64_t value = index[position * indexed_ + k], all = table_.logical[axis];
          const int64_t chosen = FromStart(value, all);
          if (chosen < 0) {
            const int64_t at = LogicalPosition(indices_, position * indexed_ + k, run.micro_batch);
            return IndexOutOfRange(spec_, {"index", value, at, -all, all});
          }
          const int64_t local = chosen - OffsetAt(table_, axis, run.micro_batch);
          const bool is_here = place != kElsewhere && local >= 0 && local < table_.shape()[axis];
          place = is_here ? place + local * strides_[axis] : kElsewhere;
        }
        f(position, place);
      }
    }
    return absl::OkStatus();
  }

 private:
  KernelSpec spec_;  // for errors
  OperandSpec table_, indices_;
  int batch_, indexed_;
  std::vector<int64_t> strides_;
  int64_t batches_ = 1, per_batch_ = 1, batch_size_ = 1, row_ = 1;
};

bool HasTypes(const KernelSpec& spec, int table, int indices) {
  return spec.outputs[0].dtype == spec.inputs[table].dtype &&
         IsIndexType(spec.inputs[indices].dtype);
}

// Elements are moved as words of their size.
template <class Make>
KernelOr ForSize(DType dtype, Make make) {
  switch (SizeOf(dtype)) {
    case 1:
      return make(uint8_t{});
    case 2:
      return make(uint16_t{});
    case 4:
      return make(uint32_t{});
    default:
      return make(uint64_t{});
  }
}

// (table, indices) -> rows.
template <class Places>
KernelOr MakeRead(const KernelSpec& spec) {
  if (!HasTypes(spec, 0, 1)) return UnsupportedTypes(spec);
  Places places(spec, spec.inputs[0], spec.inputs[1]);
  return ForSize(spec.outputs[0].dtype, [&](auto word) -> KernelOr {
    using Word = decltype(word);
    return MakeKernel([places = std::move(places)](const KernelRun& run) {
      const Word* table = Input<Word>(run, 0);
      Word* out = Output<Word>(run, 0);
      const int64_t row = places.row();
      return places.ForEach(run, run.inputs[1], [=](int64_t position, int64_t place) {
        Word* to = out + position * row;
        if (place == kElsewhere) {
          std::fill_n(to, row, Word{0});
        } else {
          std::copy_n(table + place, row, to);
        }
      });
    });
  });
}

// (indices, rows) -> a table of zeros with the rows added.
template <class Places, class T>
KernelOr MakeSum(const KernelSpec& spec, ElementType<T>) {
  if (!HasTypes(spec, 1, 0)) return UnsupportedTypes(spec);
  const int64_t total = spec.outputs[0].num_elements();
  Places places(spec, spec.outputs[0], spec.inputs[0]);
  return MakeKernel([places = std::move(places), total](const KernelRun& run) {
    const T* rows = Input<T>(run, 1);
    T* table = Output<T>(run, 0);
    const int64_t row = places.row();
    std::fill_n(table, total, T{0});
    return places.ForEach(run, run.inputs[0], [=](int64_t position, int64_t place) {
      if (place == kElsewhere) return;
      for (int64_t i = 0; i < row; ++i) {
        table[place + i] = AddWrapping(table[place + i], rows[position * row + i]);
      }
    });
  });
}

// (table, indices, rows) -> the table with the rows put in by join(old, new).
template <class Places, class T, class Join>
KernelOr MakeJoin(const KernelSpec& spec, Join join) {
  Places places(spec, spec.inputs[0], spec.inputs[1]);
  const int64_t total = spec.outputs[0].num_elements();
  return MakeKernel([places = std::move(places), total, join](const KernelRun& run) {
    const T* rows = Input<T>(run, 2);
    T* table = Output<T>(run, 0);
    const int64_t row = places.row();
    if (total > 0 && run.outputs[0] != run.inputs[0]) {
      std::memcpy(run.outputs[0], run.inputs[0], total * sizeof(T));
    }
    return places.ForEach(run, run.inputs[1], [=](int64_t position, int64_t place) {
      if (place == kElsewhere) return;
      for (int64_t i = 0; i < row; ++i) {
        table[place + i] = join(table[place + i], rows[position * row + i]);
      }
    });
  });
}

// As maximum and minimum: a NaN stays.
template <class T>
T Larger(T a, T b) {
  return a >= b || a != a ? a : b;
}
template <class T>
T Smaller(T a, T b) {
  return a <= b || a != a ? a : b;
}

template <class Places, class T>
KernelOr MakeReduced(const KernelSpec& spec, ElementType<T>) {
  const std::string& reduction = spec.attrs.String("reduction");
  if (reduction == "max") return MakeJoin<Places, T>(spec, Larger<T>);
  if (reduction == "min") return MakeJoin<Places, T>(spec, Smaller<T>);
  if constexpr (std::is_integral_v<T>) {
    // Wraps around.
    return MakeJoin<Places, T>(spec, [](T a, T b) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    });
  } else {
    return MakeJoin<Places, T>(spec, [](T a, T b) { return a * b; });
  }
}

template <class Places>
KernelFactory JoinKernel() {
  const KernelFactory reduced = Widened(
      ForNumbers([](const auto& spec, auto type) { return MakeReduced<Places>(spec, type); }));
  const KernelFactory replaced = [](const KernelSpec& spec) -> KernelOr {
    return ForSize(spec.outputs[0].dtype, [&](auto word) -> KernelOr {
      using Word = decltype(word);
      return MakeJoin<Places, Word>(spec, [](Word, Word replacement) { return replacement; });
    });
  };
  return [reduced, replaced](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    if (!HasTypes(spec, 0, 1) || spec.inputs[2].dtype != spec.inputs[0].dtype) {
      return UnsupportedTypes(spec);
    }
    return (spec.attrs.String("reduction") == "none" ? replaced : reduced).PlanKernel(spec);
  };
}

template <class Places>
KernelFactory SumKernel() {
  return Widened(
      ForNumbers([](const auto& spec, auto type) { return MakeSum<Places>(spec, type); }));
}

}  // namespace

absl::Status RegisterScatterKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("gather_elements", MakeRead<ElementPlaces>));
  BRAID_RETURN_IF_ERROR(registry.Register("gather_elements_grad", SumKernel<ElementPlaces>()));
  BRAID_RETURN_IF_ERROR(registry.Register("scatter_elements", JoinKernel<ElementPlaces>()));
  BRAID_RETURN_IF_ERROR(registry.Register("gather_nd", MakeRead<NdPlaces>));
  BRAID_RETURN_IF_ERROR(registry.Register("gather_nd_grad", SumKernel<NdPlaces>()));
  return registry.Register("scatter_nd", JoinKernel<NdPlaces>());
}

}  // namespace braid::cpu
