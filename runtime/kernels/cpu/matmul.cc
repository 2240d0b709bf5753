// matmul, matmul_add, matmul_integer and tensordot.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/integer_products.h"
#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

absl::Status CheckTypes(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype, result = spec.outputs[0].dtype;
  const bool has_gemm =
      dtype == DType::kF32 || dtype == DType::kF64 || (dtype == DType::kBF16 && HasBFloat16Gemm());
  const bool fits = result == dtype || (dtype == DType::kBF16 && result == DType::kF32);
  if (!has_gemm || !fits || spec.inputs[1].dtype != dtype) return UnsupportedTypes(spec);
  return absl::OkStatus();
}

absl::Status Disagree(const KernelSpec& spec) {
  return absl::InternalError(
      absl::StrFormat("%s '%s': the local shapes %s, %s and %s do not belong together", spec.op,
                      spec.name, spec.inputs[0].shape().ToString(),
                      spec.inputs[1].shape().ToString(), spec.outputs[0].shape().ToString()));
}

// Byte offsets of the matrices of one product of a batch.
struct BatchEntry {
  int64_t a, b, c;
};

std::vector<BatchEntry> OneProduct() { return {{0, 0, 0}}; }

// Offsets for every leading index of c; an operand with a leading size of 1, or without that
// dimension, repeats.
std::vector<BatchEntry> BatchEntries(const Shape& a, const Shape& b, const Shape& c,
                                     const GemmShape& gemm) {
  const auto bytes = static_cast<int64_t>(SizeOf(gemm.dtype));
  std::vector<BatchEntry> entries = OneProduct();
  int64_t a_stride = gemm.m * gemm.k * bytes, b_stride = gemm.k * gemm.n * bytes;
  int64_t c_stride =
      gemm.m * gemm.n * (gemm.wide_result ? static_cast<int64_t>(sizeof(float)) : bytes);
  // From the innermost leading axis out: each repeats what is there so far.
  for (int i = 3; i <= c.rank(); ++i) {
    const int64_t size = c[c.rank() - i];
    const int64_t a_size = i <= a.rank() ? a[a.rank() - i] : 1;
    const int64_t b_size = i <= b.rank() ? b[b.rank() - i] : 1;
    std::vector<BatchEntry> next;
    next.reserve(entries.size() * size);
    for (int64_t index = 0; index < size; ++index) {
      for (const BatchEntry& entry : entries) {
        next.push_back({entry.a + (a_size == 1 ? 0 : index * a_stride),
                        entry.b + (b_size == 1 ? 0 : index * b_stride),
                        entry.c + index * c_stride});
      }
    }
    entries = std::move(next);
    a_stride *= a_size;
    b_stride *= b_size;
    c_stride *= size;
  }
  return entries;
}

// A product, or those of a batch one after the other.
class Products {
 public:
  // `entries` are made when memory is taken.
  Products(const GemmShape& gemm, std::function<std::vector<BatchEntry>()> entries)
      : product_(ChooseGemm(gemm)), make_entries_(std::move(entries)) {}

  KernelMemory memory() const { return product_->memory(); }
  void Allocate() {
    product_->Allocate();
    entries_ = make_entries_();
  }
  void operator()(const KernelRun& run) {
    const auto* a = static_cast<const char*>(run.inputs[0]);
    const auto* b = static_cast<const char*>(run.inputs[1]);
    auto* c = static_cast<char*>(run.outputs[0]);
    for (const BatchEntry& entry : entries_) product_->Run(a + entry.a, b + entry.b, c + entry.c);
  }

 private:
  const std::unique_ptr<Gemm> product_;
  const std::function<std::vector<BatchEntry>()> make_entries_;
  std::vector<BatchEntry> entries_;
};

GemmShape TypesAndThreads(const KernelSpec& spec) {
  GemmShape gemm;
  gemm.dtype = spec.inputs[0].dtype;
  gemm.wide_result = spec.outputs[0].dtype != gemm.dtype;
  gemm.threads = spec.threads;
  gemm.work = spec.work;
  return gemm;
}

PlanOr PlanMatmul(const KernelSpec& spec) {
  BRAID_RETURN_IF_ERROR(CheckTypes(spec));
  const Shape& a = spec.inputs[0].shape();
  const Shape& b = spec.inputs[1].shape();
  const Shape& c = spec.outputs[0].shape();
  GemmShape gemm = TypesAndThreads(spec);
  gemm.transpose_a = Flag(spec.attrs, "transpose_a");
  gemm.transpose_b = Flag(spec.attrs, "transpose_b");
  gemm.m = c[c.rank() - 2];
  gemm.n = c[c.rank() - 1];
  gemm.k = gemm.transpose_a ? a[a.rank() - 2] : a[a.rank() - 1];
  const int64_t a_m = gemm.transpose_a ? a[a.rank() - 1] : a[a.rank() - 2];
  const int64_t b_k = gemm.transpose_b ? b[b.rank() - 1] : b[b.rank() - 2];
  const int64_t b_n = gemm.transpose_b ? b[b.rank() - 2] : b[b.rank() - 1];
  if (a_m != gemm.m || b_k != gemm.k || b_n != gemm.n) return Disagree(spec);

  const bool merges_rows = b.rank() == 2 && !gemm.transpose_a;
  if (merges_rows) {
    // Leading dimensions of a are just more rows.
    for (int i = 0; i < c.rank() - 2; ++i) gemm.m *= c[i];
  }
  return PlanKernel(std::make_shared<Products>(
      gemm, [=] { return merges_rows ? OneProduct() : BatchEntries(a, b, c, gemm); }));
}

// c += addend, of rows of `columns`; a step of 0 adds one row to all.
template <class T>
void AddRows(T* c, const T* addend, int64_t rows, int64_t columns, int64_t step) {
  for (int64_t r = 0; r < rows; ++r, c += columns, addend += step) {
    for (int64_t i = 0; i < columns; ++i) c[i] += addend[i];
  }
}

// A product of f32 or f64, and what is added to it.
class ProductAndAddends {
 public:
  ProductAndAddends(PlannedKernel product, const KernelSpec& spec)
      : product_(std::move(product)), is_f64_(spec.outputs[0].dtype == DType::kF64) {
    const Shape& c = spec.outputs[0].shape();
    columns_ = c[c.rank() - 1];
    rows_ = columns_ == 0 ? 0 : c.num_elements() / columns_;
    for (size_t i = 2; i < spec.inputs.size(); ++i) {
      steps_.push_back(spec.inputs[i].shape().rank() == 1 ? 0 : columns_);
    }
  }

  KernelMemory memory() const { return product_.memory; }
  absl::Status Allocate() {
    BRAID_ASSIGN_OR_RETURN(kernel_, product_.make());
    return absl::OkStatus();
  }
  absl::Status operator()(const KernelRun& run) {
    BRAID_RETURN_IF_ERROR(kernel_->Run(run));
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (is_f64_) {
        Add<double>(run, i);
      } else {
        Add<float>(run, i);
      }
    }
    return absl::OkStatus();
  }

 private:
  template <class T>
  void Add(const KernelRun& run, size_t i) const {
    AddRows(Output<T>(run, 0), Input<T>(run, static_cast<int>(i) + 2), rows_, columns_, steps_[i]);
  }

  const PlannedKernel product_;
  const bool is_f64_;
  int64_t rows_ = 0, columns_ = 0;
  std::vector<int64_t> steps_;  // of the addends, from row to row
  std::unique_ptr<Kernel> kernel_;
};

PlanOr PlanMatmulAdd(const KernelSpec& spec) {
  KernelSpec product = spec;
  product.inputs.resize(2);
  BRAID_ASSIGN_OR_RETURN(PlannedKernel planned, PlanMatmul(product));
  auto both = std::make_shared<ProductAndAddends>(std::move(planned), spec);
  const KernelMemory memory = both->memory();
  return PlannedKernel{.memory = memory,
                       .make = [both]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
                         BRAID_RETURN_IF_ERROR(both->Allocate());
                         return MakeKernel([both](const KernelRun& run) { return (*both)(run); });
                       }};
}

PlanOr PlanTensordot(const KernelSpec& spec) {
  BRAID_RETURN_IF_ERROR(CheckTypes(spec));
  const Shape& a = spec.inputs[0].shape();
  const Shape& b = spec.inputs[1].shape();
  const Shape& c = spec.outputs[0].shape();
  GemmShape gemm = TypesAndThreads(spec);
  gemm.transpose_a = true;
  gemm.m = c[0];
  gemm.n = c[1];
  gemm.k = 1;
  for (int i = 0; i + 1 < a.rank(); ++i) gemm.k *= a[i];
  if (a.num_elements() != gemm.k * gemm.m || b.num_elements() != gemm.k * gemm.n) {
    return Disagree(spec);
  }
  return PlanKernel(std::make_shared<Products>(gemm, [] { return OneProduct(); }));
}

// bf16 runs as it is where the machine has instructions for it.
KernelFactory WidenedWithoutGemm(KernelFactory factory) {
  return [narrow = factory, wide = Widened(factory)](const KernelSpec& spec) -> PlanOr {
    const bool is_bf16 =
        spec.inputs[0].dtype == DType::kBF16 && spec.inputs[1].dtype == DType::kBF16;
    return (is_bf16 && HasBFloat16Gemm() ? narrow : wide).PlanKernel(spec);
  };
}

}  // namespace

absl::Status RegisterMatmulKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("matmul", WidenedWithoutGemm(PlanMatmul)));
  BRAID_RETURN_IF_ERROR(registry.Register("matmul_add", Widened(PlanMatmulAdd)));
  const auto axis = [](const KernelSpec& spec) { return Flag(spec.attrs, "transpose_b") ? 0 : 1; };
  BRAID_RETURN_IF_ERROR(registry.Register(
      "matmul_integer", FirstSupported({PlanIntegerMatmul, ByFloatingKernels(PlanMatmul, axis)})));
  return registry.Register("tensordot", WidenedWithoutGemm(PlanTensordot));
}

}  // namespace braid::cpu
