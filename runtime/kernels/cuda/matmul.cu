// Kernels of matmul, matmul_add and tensordot: cuBLASLt's where the device has it, else tiles of
// our own.
#include "runtime/kernels/cuda/cublas_lt.h"
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/matmul.h"
#include "runtime/kernels/cuda/tile_product.h"

namespace braid::cuda {
namespace {

// A dense matrix of each product of the batch: element (row, k) is at
// row * row_stride + k * depth_stride, and one of the strides is 1.
template <class T, int kOperand>
struct DenseOperand {
  using Number = Compute<T>;

  const T* data;
  int64_t row_stride, depth_stride;
  Walk batch;

  class Loads {
   public:
    __device__ __forceinline__ Loads(const DenseOperand& operand, int64_t product, int64_t first,
                                     int64_t rows)
        : depth_stride_(operand.depth_stride),
          is_along_depth_(operand.depth_stride == 1),
          rows_(static_cast<int>(rows - first < kTile ? rows - first : kTile)) {
      const T* matrix = operand.data + OffsetsOf<3>(operand.batch, product).at[kOperand];
      const int row = Row(0), depth = Depth(0);
      data_ = matrix + (first + row) * operand.row_stride + depth * depth_stride_;
      // From one load to the next, either the row grows or the depth.
      step_ = is_along_depth_ ? (Row(1) - row) * operand.row_stride
                              : (Depth(1) - depth) * depth_stride_;
    }
    __device__ __forceinline__ void Load(int64_t begin, int64_t end,
                                         Number (&values)[kLoads]) const {
      const T* from = data_ + begin * depth_stride_;
      for (int i = 0; i < kLoads; ++i) {
        const bool is_inside = Row(i) < rows_ && begin + Depth(i) < end;
        values[i] = is_inside ? braid::cuda::Load(from + i * step_) : Number(0);
      }
    }
    __device__ __forceinline__ int Row(int load) const {
      return is_along_depth_ ? AlongDepth::Row(load) : AlongRows::Row(load);
    }
    __device__ __forceinline__ int Depth(int load) const {
      return is_along_depth_ ? AlongDepth::Depth(load) : AlongRows::Depth(load);
    }

   private:
    const T* data_;
    int64_t depth_stride_, step_;
    bool is_along_depth_;
    int rows_;  // that exist, of the tile's
  };
};

template <class T>
struct DenseResult {
  void* data;
  bool is_wide;
  int64_t columns;
  Walk batch;
  const void* row;     // MatmulLaunch::row
  const void* addend;  // MatmulLaunch::addend

  __device__ __forceinline__ int64_t Start(int64_t product) const {
    return OffsetsOf<3>(batch, product).at[2];
  }
  __device__ __forceinline__ void Put(int64_t start, int64_t line, int64_t column,
                                      Compute<T> value) const {
    const int64_t at = start + line * columns + column;
    if (is_wide) {
      Sum(static_cast<float>(value), static_cast<float*>(data), at, column);
    } else {
      Sum(value, static_cast<T*>(data), at, column);
    }
  }

 private:
  template <class Stored>
  __device__ __forceinline__ void Sum(Compute<Stored> value, Stored* to, int64_t at,
                                      int64_t column) const {
    if (row != nullptr) value += Load(static_cast<const Stored*>(row) + column);
    if (addend != nullptr) value += Load(static_cast<const Stored*>(addend) + at);
    Store(to + at, value);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    AddRowKernel(T* c, const T* row, int64_t columns, int64_t elements) {
  for (int64_t i = FirstIndex(); i < elements; i += IndexStep()) {
    Store(c + i, Load(c + i) + Load(row + i % columns));
  }
}

// c += the row.
Error AddRow(const Queue& queue, const MatmulLaunch& launch) {
  const int64_t elements = launch.shape.rows * launch.shape.columns;
  return VisitFloating(launch.wide_result ? DType::kF32 : launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    return Launch(queue, BlocksFor(queue, elements), kThreads, AddRowKernel<T>,
                  static_cast<T*>(launch.c), static_cast<const T*>(launch.row),
                  launch.shape.columns, elements);
  });
}

Error MultiplyMatrices(const Queue& queue, const MatmulLaunch& launch) {
  if (launch.shape.elements() == 0) return kDone;
  if (const LtPlan* plan = FindLtPlan(queue, launch)) return Multiply(queue, launch, *plan);
  if (launch.row != nullptr) {  // not in the library's way
    MatmulLaunch rest = launch;
    rest.row = nullptr;
    if (const LtPlan* plan = FindLtPlan(queue, rest)) {
      const Error error = Multiply(queue, rest, *plan);
      return error == kDone ? AddRow(queue, launch) : error;
    }
  }
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    const ProductShape& shape = launch.shape;
    const DenseOperand<T, 0> a = {.data = static_cast<const T*>(launch.a),
                                  .row_stride = launch.transpose_a ? 1 : shape.depth,
                                  .depth_stride = launch.transpose_a ? shape.rows : 1,
                                  .batch = launch.batch};
    const DenseOperand<T, 1> b = {.data = static_cast<const T*>(launch.b),
                                  .row_stride = launch.transpose_b ? shape.depth : 1,
                                  .depth_stride = launch.transpose_b ? 1 : shape.columns,
                                  .batch = launch.batch};
    const DenseResult<T> c = {.data = launch.c,
                              .is_wide = launch.wide_result,
                              .columns = shape.columns,
                              .batch = launch.batch,
                              .row = launch.row,
                              .addend = launch.addend};
    return LaunchProduct(queue, shape, a, b, c, launch.work);
  });
}

}  // namespace

MatmulTable MakeMatmulTable() { return {.multiply = MultiplyMatrices}; }

}  // namespace braid::cuda
