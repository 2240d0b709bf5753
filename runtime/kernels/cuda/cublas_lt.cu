// cuBLASLt. Its matrices are stored by columns, so that what is stored by rows is their transpose
// there: c = a b is computed as c^T = b^T a^T, and the library's first operand is b.
#include <cublasLt.h>

#include <cstdio>

#include "runtime/kernels/cuda/cublas_lt.h"
#include "runtime/kernels/cuda/libraries.h"
#include "runtime/kernels/cuda/library_plans.h"
#include "runtime/kernels/cuda/shared_library.h"

namespace braid::cuda {
namespace {

// Functions of the same major version as the header's.
constexpr char kFile[] = "libcublasLt.so." BRAID_TEXT_OF(CUBLAS_VER_MAJOR);

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmulDescCreate) create_product;
  decltype(&cublasLtMatmulDescDestroy) destroy_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) create_matrix;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_matrix;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_matrix;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
};

bool FindAll(FunctionFinder finder, Functions& f) {
  return finder.Find("cublasLtCreate", f.create)
      .Find("cublasLtDestroy", f.destroy)
      .Find("cublasLtMatmul", f.matmul)
      .Find("cublasLtMatmulAlgoGetHeuristic", f.choose)
      .Find("cublasLtMatmulDescCreate", f.create_product)
      .Find("cublasLtMatmulDescDestroy", f.destroy_product)
      .Find("cublasLtMatmulDescSetAttribute", f.set_product)
      .Find("cublasLtMatrixLayoutCreate", f.create_matrix)
      .Find("cublasLtMatrixLayoutDestroy", f.destroy_matrix)
      .Find("cublasLtMatrixLayoutSetAttribute", f.set_matrix)
      .Find("cublasLtMatmulPreferenceCreate", f.create_preference)
      .Find("cublasLtMatmulPreferenceDestroy", f.destroy_preference)
      .Find("cublasLtMatmulPreferenceSetAttribute", f.set_preference)
      .has_all();
}

// What a plan depends on.
struct Key {
  int64_t dtype, is_rounded, is_wide, transpose_a, transpose_b;
  int64_t rows, columns, depth;
  int64_t count;         // of the products that one call computes
  int64_t strides[3];    // of them: a, b and c
  int64_t alignment[3];  // of a, b and c with its addend, in bytes: kAligned or one element's
  int64_t has_row;
};
constexpr int64_t kAligned = 16;

// The dimension of the batch whose products one call computes: the longest.
int CallDimension(const Walk& batch) {
  int longest = 0;
  for (int d = 1; d < batch.rank; ++d) {
    if (batch.size[d] > batch.size[longest]) longest = d;
  }
  return longest;
}

int64_t BytesOf(DType floating) {
  return floating == DType::kF64 ? 8 : (floating == DType::kF32 ? 4 : 2);
}

// `launch`'s operands start at multiples of an element.
Key KeyOf(const Queue& queue, const MatmulLaunch& launch) {
  const ProductShape& shape = launch.shape;
  const Walk& batch = launch.batch;
  Key key = {.dtype = static_cast<int64_t>(launch.dtype),
             .is_rounded = queue.rounds_to_tf32 && launch.dtype == DType::kF32,
             .is_wide = launch.wide_result,
             .transpose_a = launch.transpose_a,
             .transpose_b = launch.transpose_b,
             .rows = shape.rows,
             .columns = shape.columns,
             .depth = shape.depth,
             .count = 1,
             .has_row = launch.row != nullptr};
  const int dimension = CallDimension(batch);
  if (batch.rank > 0) key.count = batch.size[dimension];
  const auto bytes = BytesOf(launch.dtype);
  const int64_t result_bytes = launch.wide_result ? 4 : bytes;
  const void* const data[] = {launch.a, launch.b, launch.c};
  for (int i = 0; i < 3; ++i) {
    if (batch.rank > 0) key.strides[i] = batch.stride[i][dimension];
    const int64_t element = i < 2 ? bytes : result_bytes;
    auto bits = static_cast<int64_t>(reinterpret_cast<intptr_t>(data[i]));
    if (i == 2) bits |= static_cast<int64_t>(reinterpret_cast<intptr_t>(launch.addend));
    for (int d = 0; d < batch.rank; ++d) bits |= batch.stride[i][d] * element;
    key.alignment[i] = bits % kAligned == 0 ? kAligned : element;
  }
  return key;
}

}  // namespace

struct LtPlan {
  bool exists = false;  // false: the library has no way for it
  int64_t count = 1;    // Key::count
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

struct CublasLt {
  void* file = nullptr;
  Functions f = {};
  cublasLtHandle_t handle = nullptr;
  LibraryPlans<Key, LtPlan> plans;
};

namespace {

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// Of a batch, [columns, rows] in the library's words.
cublasLtMatrixLayout_t MakeMatrix(const CublasLt& lt, DType dtype, int64_t rows, int64_t columns,
                                  int64_t count, int64_t stride) {
  cublasLtMatrixLayout_t matrix = nullptr;
  if (lt.f.create_matrix(&matrix, TypeOf(dtype), static_cast<uint64_t>(columns),
                         static_cast<uint64_t>(rows), columns) != CUBLAS_STATUS_SUCCESS) {
    return nullptr;
  }
  if (count > 1) {
    const auto number = static_cast<int32_t>(count);
    lt.f.set_matrix(matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &number, sizeof number);
    lt.f.set_matrix(matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  }
  return matrix;
}

// Sets the plan's algorithm; false if there is none.
bool Choose(const CublasLt& lt, const Key& key, LtPlan& plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  if (lt.f.create_preference(&preference) != CUBLAS_STATUS_SUCCESS) return false;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    lt.f.set_preference(preference, name, &value, sizeof value);
  };
  const auto alignment = [&](int i) { return static_cast<uint32_t>(key.alignment[i]); };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(MatmulLaunch::kLibraryBytes));
  // Partial sums are added up in a fixed order, and not rounded to narrow numbers before.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(1));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(0));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(2));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(2));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const cublasStatus_t status =
      lt.f.choose(lt.handle, plan.product, plan.first, plan.second, plan.result, plan.result,
                  preference, 1, &found, &count);
  lt.f.destroy_preference(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count < 1 || found.state != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  plan.algorithm = found.algo;
  return true;
}

// `row`: MatmulLaunch's, which the library wants to see before it chooses.
LtPlan MakePlan(const CublasLt& lt, const Key& key, const void* row) {
  LtPlan plan = {.count = key.count};
  const auto dtype = static_cast<DType>(key.dtype);
  const bool is_f64 = dtype == DType::kF64;
  const cublasComputeType_t f32 =
      key.is_rounded ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  if (lt.f.create_product(&plan.product, is_f64 ? CUBLAS_COMPUTE_64F : f32,
                          is_f64 ? CUDA_R_64F : CUDA_R_32F) != CUBLAS_STATUS_SUCCESS) {
    plan.product = nullptr;
    return plan;
  }
  const cublasOperation_t first = key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  lt.f.set_product(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  lt.f.set_product(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  if (key.has_row != 0) {
    // The library's rows are this one's columns.
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    if (lt.f.set_product(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) !=
            CUBLAS_STATUS_SUCCESS ||
        lt.f.set_product(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row, sizeof row) !=
            CUBLAS_STATUS_SUCCESS) {
      return plan;
    }
  }
  plan.first = MakeMatrix(lt, dtype, key.transpose_b ? key.columns : key.depth,
                          key.transpose_b ? key.depth : key.columns, key.count, key.strides[1]);
  plan.second = MakeMatrix(lt, dtype, key.transpose_a ? key.depth : key.rows,
                           key.transpose_a ? key.rows : key.depth, key.count, key.strides[0]);
  plan.result = MakeMatrix(lt, key.is_wide ? DType::kF32 : dtype, key.rows, key.columns, key.count,
                           key.strides[2]);
  plan.exists = plan.first != nullptr && plan.second != nullptr && plan.result != nullptr &&
                Choose(lt, key, plan);
  return plan;
}

void Destroy(const CublasLt& lt, const LtPlan& plan) {
  for (cublasLtMatrixLayout_t matrix : {plan.first, plan.second, plan.result}) {
    if (matrix != nullptr) lt.f.destroy_matrix(matrix);
  }
  if (plan.product != nullptr) lt.f.destroy_product(plan.product);
}

}  // namespace

CublasLt* OpenCublasLt(const char* folders, char* text, size_t text_bytes) {
  text[0] = 0;
  void* const file = OpenSharedLibrary(kFile, folders, text, text_bytes);
  if (file == nullptr) return nullptr;
  auto* lt = new CublasLt{.file = file};
  if (FindAll({file, text, text_bytes}, lt->f)) {
    const cublasStatus_t status = lt->f.create(&lt->handle);
    if (status == CUBLAS_STATUS_SUCCESS) return lt;
    std::snprintf(text, text_bytes, "%s did not start on this device: cuBLAS status %d", kFile,
                  static_cast<int>(status));
  }
  CloseSharedLibrary(file);
  delete lt;
  return nullptr;
}

void CloseCublasLt(CublasLt* library) {
  if (library == nullptr) return;
  library->plans.ForEach([&](const LtPlan& plan) { Destroy(*library, plan); });
  library->f.destroy(library->handle);
  CloseSharedLibrary(library->file);
  delete library;
}

const LtPlan* FindLtPlan(const Queue& queue, const MatmulLaunch& launch) {
  if (queue.libraries == nullptr || launch.shape.depth == 0) return nullptr;
  CublasLt* const lt = static_cast<const Libraries*>(queue.libraries)->cublas_lt;
  if (lt == nullptr) return nullptr;
  const Key key = KeyOf(queue, launch);
  if (key.count > INT32_MAX) return nullptr;
  const LtPlan& plan =
      lt->plans.Find(key, [&](const Key& of) { return MakePlan(*lt, of, launch.row); });
  return plan.exists ? &plan : nullptr;
}

Error Multiply(const Queue& queue, const MatmulLaunch& launch, const LtPlan& plan) {
  const CublasLt& lt = *static_cast<const Libraries*>(queue.libraries)->cublas_lt;
  const bool is_f64 = launch.dtype == DType::kF64;
  const double one_f64 = 1, zero_f64 = 0;
  const float one_f32 = 1, zero_f32 = 0;
  const void* const one = is_f64 ? static_cast<const void*>(&one_f64) : &one_f32;
  const void* const zero = is_f64 ? static_cast<const void*>(&zero_f64) : &zero_f32;
  const auto bytes = BytesOf(launch.dtype);
  const int64_t result_bytes = launch.wide_result ? 4 : bytes;
  const Walk& batch = launch.batch;
  const int dimension = CallDimension(batch);
  if (launch.row != nullptr &&
      lt.f.set_product(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &launch.row,
                       sizeof launch.row) != CUBLAS_STATUS_SUCCESS) {
    return kLibraryFailed;
  }
  for (int64_t call = 0; call < batch.elements / plan.count; ++call) {
    int64_t offsets[3] = {};
    int64_t rest = call;
    for (int d = batch.rank - 1; d >= 0; --d) {
      if (d == dimension) continue;
      for (int i = 0; i < 3; ++i) offsets[i] += rest % batch.size[d] * batch.stride[i][d];
      rest /= batch.size[d];
    }
    const auto* a = static_cast<const char*>(launch.a) + offsets[0] * bytes;
    const auto* b = static_cast<const char*>(launch.b) + offsets[1] * bytes;
    auto* c = static_cast<char*>(launch.c) + offsets[2] * result_bytes;
    const bool adds = launch.addend != nullptr;
    const cublasStatus_t status = lt.f.matmul(
        lt.handle, plan.product, one, b, plan.first, a, plan.second, adds ? one : zero,
        adds ? launch.addend : c, plan.result, c, plan.result, &plan.algorithm, launch.work,
        MatmulLaunch::kLibraryBytes, static_cast<cudaStream_t>(queue.stream));
    if (status != CUBLAS_STATUS_SUCCESS) return kLibraryFailed;
  }
  return kDone;
}

}  // namespace braid::cuda
