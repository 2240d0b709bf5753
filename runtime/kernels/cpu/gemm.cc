#include "runtime/kernels/cpu/gemm.h"

#include <cblas.h>
#include <glog/logging.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <optional>

#include "runtime/base/mutex.h"
#include "runtime/kernels/cpu/dnnl_call.h"
#include "runtime/kernels/cpu/dnnl_version.h"
#include "runtime/kernels/cpu/for_each_item.h"
#include "runtime/kernels/cpu/product_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

// Of OpenBLAS; null where another library provides cblas.
extern "C" int openblas_get_parallel() __attribute__((weak));
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace braid::cpu {
namespace {

// OpenBLAS built without threads shares its work buffers without locks: two threads that multiply
// at the same time get wrong numbers. Then, and only then, they take turns. The lock belongs to the
// library, which the process has once, not to a session.
Mutex* BlasTurn() {
  constexpr int kSequential = 0;
  static Mutex turn;
  static const bool takes_turns =
      openblas_get_parallel != nullptr && openblas_get_parallel() == kSequential;
  return takes_turns ? &turn : nullptr;
}

// OpenBLAS with threads of its own would start a pool beside OpenMP's.
void KeepBlasToOneThread() {
  constexpr int kOwnThreads = 1;
  if (openblas_get_parallel != nullptr && openblas_get_parallel() == kOwnThreads) {
    openblas_set_num_threads(1);
  }
}

class EmptyGemm final : public Gemm {
 public:
  explicit EmptyGemm(const GemmShape& shape)
      : bytes_(shape.m * shape.n * SizeOf(shape.wide_result ? DType::kF32 : shape.dtype)) {}
  void Run(const void*, const void*, void* c) override {
    if (bytes_ > 0) std::memset(c, 0, bytes_);
  }

 private:
  size_t bytes_;
};

// c [n] = a [k] op(b) as a product of a vector: a product of matrices would pack all of b to use it
// once.
class BlasGemv final : public Gemm {
 public:
  explicit BlasGemv(const GemmShape& shape) : shape_(shape) { KeepBlasToOneThread(); }

  void Run(const void* a, const void* b, void* c) override {
    omp_set_num_threads(shape_.threads);  // of this thread only
    std::optional<MutexLock> turn;
    if (Mutex* mutex = BlasTurn(); mutex != nullptr) turn.emplace(*mutex);
    const auto trans = shape_.transpose_b ? CblasNoTrans : CblasTrans;
    const auto rows = static_cast<int>(shape_.transpose_b ? shape_.n : shape_.k);
    const auto columns = static_cast<int>(shape_.transpose_b ? shape_.k : shape_.n);
    if (shape_.dtype == DType::kF64) {
      cblas_dgemv(CblasRowMajor, trans, rows, columns, 1.0, static_cast<const double*>(b), columns,
                  static_cast<const double*>(a), 1, 0.0, static_cast<double*>(c), 1);
    } else {
      cblas_sgemv(CblasRowMajor, trans, rows, columns, 1.0f, static_cast<const float*>(b), columns,
                  static_cast<const float*>(a), 1, 0.0f, static_cast<float*>(c), 1);
    }
  }

 private:
  GemmShape shape_;
};

class BlasGemm final : public Gemm {
 public:
  explicit BlasGemm(const GemmShape& shape) : shape_(shape) { KeepBlasToOneThread(); }

  void Run(const void* a, const void* b, void* c) override {
    omp_set_num_threads(shape_.threads);  // of this thread only; OpenBLAS on OpenMP asks for it
    std::optional<MutexLock> turn;
    if (Mutex* mutex = BlasTurn(); mutex != nullptr) turn.emplace(*mutex);
    const auto trans_a = shape_.transpose_a ? CblasTrans : CblasNoTrans;
    const auto trans_b = shape_.transpose_b ? CblasTrans : CblasNoTrans;
    const auto m = static_cast<int>(shape_.m), n = static_cast<int>(shape_.n);
    const auto k = static_cast<int>(shape_.k);
    const int lda = shape_.transpose_a ? m : k, ldb = shape_.transpose_b ? k : n;
    if (shape_.dtype == DType::kF64) {
      cblas_dgemm(CblasRowMajor, trans_a, trans_b, m, n, k, 1.0, static_cast<const double*>(a), lda,
                  static_cast<const double*>(b), ldb, 0.0, static_cast<double*>(c), n);
    } else {
      cblas_sgemm(CblasRowMajor, trans_a, trans_b, m, n, k, 1.0f, static_cast<const float*>(a), lda,
                  static_cast<const float*>(b), ldb, 0.0f, static_cast<float*>(c), n);
    }
  }

 private:
  GemmShape shape_;
};

// c [m, n] of a [m, k] and the transpose of b [n, k] in f32, for few rows: b is read once, where a
// product of matrices would pack all of it to use it a few times.
class FewRowsGemm final : public Gemm {
 public:
  explicit FewRowsGemm(const GemmShape& shape) : shape_(shape) {}

  void Run(const void* a, const void* b, void* c) override {
    // So many rows of b that threads seldom wait for each other.
    constexpr int64_t kRowsAtOnce = 64;
    const auto multiply = simd::BestLoops<simd::ProductLoops<float>>().row_products;
    const int64_t parts = (shape_.n + kRowsAtOnce - 1) / kRowsAtOnce;
    ForEachItem(parts, shape_.threads, [&](int64_t part, int) {
      const int64_t begin = part * kRowsAtOnce;
      multiply({.rows = shape_.m,
                .n = std::min(kRowsAtOnce, shape_.n - begin),
                .k = shape_.k,
                .a = static_cast<const float*>(a),
                .a_row = shape_.k,
                .b = static_cast<const float*>(b) + begin * shape_.k,
                .b_row = shape_.k,
                .c = static_cast<float*>(c) + begin,
                .c_row = shape_.n});
    });
  }

 private:
  GemmShape shape_;
};

// oneDNN's plain gemm, which packs both operands on the way: weights change every step anyway.
class DnnlGemm final : public Gemm {
 public:
  explicit DnnlGemm(const GemmShape& shape) : shape_(shape) {}

  void Run(const void* a, const void* b, void* c) override {
    omp_set_num_threads(shape_.threads);  // of this thread only
    const int64_t lda = shape_.transpose_a ? shape_.m : shape_.k;
    const int64_t ldb = shape_.transpose_b ? shape_.k : shape_.n;
    const dnnl_status_t status =
        dnnl_sgemm(shape_.transpose_a ? 'T' : 'N', shape_.transpose_b ? 'T' : 'N', shape_.m,
                   shape_.n, shape_.k, 1.0f, static_cast<const float*>(a), lda,
                   static_cast<const float*>(b), ldb, 0.0f, static_cast<float*>(c), shape_.n);
    CHECK_EQ(status, dnnl_success)
        << "dnnl_sgemm " << shape_.m << "x" << shape_.n << "x" << shape_.k;
  }

 private:
  GemmShape shape_;
};

// oneDNN's matmul primitive, with its memory objects made in advance. Only its description, which
// is small, says how much scratch memory it needs.
class DnnlPrimitiveGemm final : public Gemm {
 public:
  // Throws dnnl::error if there is no such primitive.
  explicit DnnlPrimitiveGemm(const GemmShape& shape)
      : threads_(shape.threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const DnnlThreads scope(threads_);
    using Tag = dnnl::memory::format_tag;
    const auto type =
        shape.dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    const dnnl::memory::desc a({shape.m, shape.k}, type, shape.transpose_a ? Tag::ba : Tag::ab);
    const dnnl::memory::desc b({shape.k, shape.n}, type, shape.transpose_b ? Tag::ba : Tag::ab);
    const dnnl::memory::desc c({shape.m, shape.n},
                               shape.wide_result ? dnnl::memory::data_type::f32 : type, Tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    description_ = DescribeMatmul(engine_, a, b, c, attributes);
    a_ = dnnl::memory(a, engine_, nullptr);
    b_ = dnnl::memory(b, engine_, nullptr);
    c_ = dnnl::memory(c, engine_, nullptr);
  }

  KernelMemory memory() const override {
    return {.own = static_cast<int64_t>(description_.scratchpad_desc().get_size())};
  }
  void Allocate() override {
    const DnnlThreads scope(threads_);
    const dnnl::memory scratch(description_.scratchpad_desc(), engine_);
    call_ = DnnlCall(dnnl::matmul(description_), {{DNNL_ARG_SRC, a_},
                                                  {DNNL_ARG_WEIGHTS, b_},
                                                  {DNNL_ARG_DST, c_},
                                                  {DNNL_ARG_SCRATCHPAD, scratch}});
  }

  void Run(const void* a, const void* b, void* c) override {
    omp_set_num_threads(threads_);
    a_.set_data_handle(const_cast<void*>(a));
    b_.set_data_handle(const_cast<void*>(b));
    c_.set_data_handle(c);
    call_.Run(stream_);
  }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul::primitive_desc description_;
  dnnl::memory a_, b_, c_;
  DnnlCall call_;
};

// Null if oneDNN has no such primitive.
std::unique_ptr<Gemm> ChoosePrimitive(const GemmShape& shape) {
  try {
    return std::make_unique<DnnlPrimitiveGemm>(shape);
  } catch (const dnnl::error& error) {
    VLOG(1) << "no oneDNN matmul " << shape.m << "x" << shape.n << "x" << shape.k << ": "
            << error.what();
    return nullptr;
  }
}

// A level contains those below as bits; ONEDNN_MAX_CPU_ISA may hold it down.
bool HasLevel(dnnl::cpu_isa level) {
  const auto bits = static_cast<unsigned>(level);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

bool HasWideVectors() { return HasLevel(dnnl::cpu_isa::avx512_core); }

bool HasBFloat16Gemm() { return HasLevel(dnnl::cpu_isa::avx512_core_bf16); }

bool HasByteProducts() {
  return HasLevel(dnnl::cpu_isa::avx512_core_vnni) || HasLevel(dnnl::cpu_isa::avx2_vnni);
}

// oneDNN asks the operating system for the tiles when it looks for its level.
bool HasTiles() { return HasLevel(dnnl::cpu_isa::avx512_core_amx); }

namespace {

// True if there is nothing to multiply; then c is what it should be.
template <class T>
bool IsEmptyProduct(const TileProduct& product, T* c) {
  if (product.m > 0 && product.n > 0 && product.k > 0) return false;
  if (product.adds) return true;
  for (int64_t row = 0; row < product.m; ++row) {
    std::fill_n(c + row * product.c_stride, product.n, T{0});
  }
  return true;
}

template <class T, class BlasFunction>
void MultiplyByBlas(BlasFunction function, const TileProduct& product, const T* a, const T* b,
                    T* c) {
  static const bool keeps_to_one_thread = (KeepBlasToOneThread(), true);
  (void)keeps_to_one_thread;
  std::optional<MutexLock> turn;
  if (Mutex* mutex = BlasTurn(); mutex != nullptr) turn.emplace(*mutex);
  function(CblasRowMajor, product.transpose_a ? CblasTrans : CblasNoTrans,
           product.transpose_b ? CblasTrans : CblasNoTrans, static_cast<int>(product.m),
           static_cast<int>(product.n), static_cast<int>(product.k), T{1}, a,
           static_cast<int>(product.a_stride), b, static_cast<int>(product.b_stride),
           T{product.adds ? 1.0f : 0.0f}, c, static_cast<int>(product.c_stride));
}

}  // namespace

void MultiplyTiles(const TileProduct& product, const float* a, const float* b, float* c) {
  if (IsEmptyProduct(product, c)) return;
  omp_set_num_threads(1);
  // Measured: below about 64^3 OpenBLAS has the smaller fixed cost.
  if (product.m * product.n * product.k < 256 * 1024) {
    MultiplyByBlas(cblas_sgemm, product, a, b, c);
    return;
  }
  const dnnl_status_t status =
      dnnl_sgemm(product.transpose_a ? 'T' : 'N', product.transpose_b ? 'T' : 'N', product.m,
                 product.n, product.k, 1.0f, a, product.a_stride, b, product.b_stride,
                 product.adds ? 1.0f : 0.0f, c, product.c_stride);
  CHECK_EQ(status, dnnl_success) << "dnnl_sgemm " << product.m << "x" << product.n << "x"
                                 << product.k;
}

void MultiplyTiles(const TileProduct& product, const double* a, const double* b, double* c) {
  if (IsEmptyProduct(product, c)) return;
  omp_set_num_threads(1);
  MultiplyByBlas(cblas_dgemm, product, a, b, c);
}

std::unique_ptr<Gemm> ChooseGemm(const GemmShape& shape) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return std::make_unique<EmptyGemm>(shape);
  const bool is_vector = shape.m == 1 && shape.dtype != DType::kBF16;
  if (is_vector) return std::make_unique<BlasGemv>(shape);
  // Measured: up to 8 rows, unless b stays in the first-level cache.
  constexpr int64_t kFewRows = 8, kLeastElements = 1 << 15;
  const bool has_few_rows = shape.m <= kFewRows && shape.transpose_b && !shape.transpose_a &&
                            shape.n * shape.k >= kLeastElements;
  if (has_few_rows && shape.dtype == DType::kF32) {
    return std::make_unique<FewRowsGemm>(shape);
  }
  if (shape.dtype == DType::kF64) return std::make_unique<BlasGemm>(shape);
  if (shape.dtype == DType::kBF16) {
    auto gemm = ChooseTileGemm(shape);
    if (gemm == nullptr) gemm = ChoosePrimitive(shape);
    CHECK(gemm != nullptr) << "oneDNN has no bf16 matmul on a machine with bf16 instructions";
    return gemm;
  }
  // The libraries differ in the order of their sums. So that a row gets the same bits whatever
  // number of rows a device holds, as far as its library keeps them, large products are told apart
  // by what their layout does not change. Measured: of vectors and below about 80^3 OpenBLAS has
  // the smaller fixed cost, up to 2e6 if the output is narrow; above that oneDNN's primitive is
  // ahead where the output is narrow or b is transposed, else its plain gemm.
  const int64_t work = shape.m * shape.n * shape.k;
  const bool is_narrow = shape.n <= 16;
  const int64_t least_work = is_narrow ? 2'000'000 : 512 * 1024;
  if (shape.m <= 2 || shape.n == 1 || work < least_work) return std::make_unique<BlasGemm>(shape);
  if (is_narrow || shape.transpose_b) {
    if (auto gemm = ChoosePrimitive(shape)) return gemm;
  }
  return std::make_unique<DnnlGemm>(shape);
}

}  // namespace braid::cpu
