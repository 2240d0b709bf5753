// Matrix products by tiles in shared memory, of operands that are gathered as they are read: dense
// matrices, or the windows of a convolution.
//
// A block computes a tile of the result, [kTile, kTile], and goes through the operands' depth in
// steps of kTileDepth. Each of its 16 x 16 threads computes 4 x 4 elements. While a step is
// multiplied, the next one's elements are on their way into registers, and then into the other one
// of two buffers, so that the threads meet once a step.
#pragma once

#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/product_shape.h"

namespace braid::cuda {

inline constexpr int kPart = 4;                               // rows and columns of a thread
inline constexpr int kLoads = kTile * kTileDepth / kThreads;  // elements of an operand per thread
static_assert(kTile / kPart * (kTile / kPart) == kThreads);

// What an operand's elements in a tile are numbered by: `row` is a row of a, or a column of b. So
// that neighbouring threads read what lies side by side, they share a tile along its rows, or along
// the depth.
struct AlongRows {
  __device__ __forceinline__ static int Row(int /*load*/) { return threadIdx.x % kTile; }
  __device__ __forceinline__ static int Depth(int load) {
    return threadIdx.x / kTile + load * (kThreads / kTile);
  }
};
struct AlongDepth {
  __device__ __forceinline__ static int Row(int load) {
    return threadIdx.x / kTileDepth + load * (kThreads / kTileDepth);
  }
  __device__ __forceinline__ static int Depth(int /*load*/) { return threadIdx.x % kTileDepth; }
};

// The elements that a thread loads of an Operand with these members:
//   using Number: what is multiplied;
//   Row(load), Depth(load): as of the two above, of which it may be derived;
//   RowPlace row(product, row), which is -1 outside; DepthPlace depth(k);
//   Number At(row place, depth place): 0 where the row is outside.
template <class Operand>
class GatheredLoads {
 public:
  using Number = typename Operand::Number;

  __device__ __forceinline__ GatheredLoads(const Operand& operand, int64_t product, int64_t first,
                                           int64_t rows)
      : operand_(operand) {
    for (int i = 0; i < kLoads; ++i) {
      const int64_t row = first + operand.Row(i);
      rows_[i] = operand.row(product, row < rows ? row : -1);
    }
  }
  __device__ __forceinline__ void Load(int64_t begin, int64_t end, Number (&values)[kLoads]) const {
    for (int i = 0; i < kLoads; ++i) {
      const int64_t k = begin + operand_.Depth(i);
      values[i] = k < end ? operand_.At(rows_[i], operand_.depth(k)) : Number(0);
    }
  }
  __device__ __forceinline__ int Row(int load) const { return operand_.Row(load); }
  __device__ __forceinline__ int Depth(int load) const { return operand_.Depth(load); }

 private:
  const Operand& operand_;
  typename Operand::RowPlace rows_[kLoads];
};

template <class Number>
struct alignas(16) PartOfRow {
  Number values[kPart];
};

// One operand's tile, for two steps. A part more than there are sets neighbours in depth in other
// banks.
inline constexpr int kParts = kTile / kPart + 1;
template <class Number>
using TileMemory = PartOfRow<Number>[2][kTileDepth][kParts];

template <class Loads, class Number>
__device__ __forceinline__ void FillTile(const Loads& loads, const Number (&values)[kLoads],
                                         PartOfRow<Number> (*step)[kParts]) {
  for (int i = 0; i < kLoads; ++i) {
    const int row = loads.Row(i);
    step[loads.Depth(i)][row / kPart].values[row % kPart] = values[i];
  }
}

// sums += a's tile times b's, over the depth [begin, end). All threads of the block meet.
template <class ALoads, class BLoads, class Number>
__device__ __forceinline__ void MultiplySteps(const ALoads& a, const BLoads& b, int64_t begin,
                                              int64_t end, Number (&sums)[kPart][kPart]) {
  __shared__ TileMemory<Number> a_tiles;
  __shared__ TileMemory<Number> b_tiles;
  const int row_part = threadIdx.x / (kTile / kPart), column_part = threadIdx.x % (kTile / kPart);
  Number a_values[kLoads], b_values[kLoads];
  a.Load(begin, end, a_values);
  b.Load(begin, end, b_values);
  FillTile(a, a_values, a_tiles[0]);
  FillTile(b, b_values, b_tiles[0]);
  __syncthreads();
  int step = 0;
  for (int64_t k = begin; k < end; k += kTileDepth) {
    const bool has_next = k + kTileDepth < end;
    if (has_next) {
      a.Load(k + kTileDepth, end, a_values);
      b.Load(k + kTileDepth, end, b_values);
    }
    for (int i = 0; i < kTileDepth; ++i) {
      const PartOfRow<Number> a_part = a_tiles[step][i][row_part];
      const PartOfRow<Number> b_part = b_tiles[step][i][column_part];
      for (int row = 0; row < kPart; ++row) {
        for (int column = 0; column < kPart; ++column) {
          sums[row][column] += a_part.values[row] * b_part.values[column];
        }
      }
    }
    step ^= 1;
    if (has_next) {
      FillTile(a, a_values, a_tiles[step]);
      FillTile(b, b_values, b_tiles[step]);
    }
    __syncthreads();
  }
}

// Which part of which product a block computes; blocks side by side share columns, of which there
// is more to read.
struct TileOfBlock {
  int64_t product, split, row, column;
  __device__ __forceinline__ explicit TileOfBlock(const ProductShape& shape) {
    int64_t at = blockIdx.x;
    const int64_t row_tiles = shape.row_tiles(), column_tiles = shape.column_tiles();
    row = at % row_tiles * kTile;
    at /= row_tiles;
    column = at % column_tiles * kTile;
    at /= column_tiles;
    split = at % shape.splits;
    product = at / shape.splits;
  }
};

// A and B: operands with a type Loads (as GatheredLoads). Result: Start(product), Put(start, row,
// column, value).
// `partial`: of the splits' sums; null where there is one split, whose sums are the result.
template <class A, class B, class Result>
__global__ void __launch_bounds__(kThreads, 2)
    MultiplyTiles(ProductShape shape, A a, B b, Result result, typename A::Number* partial) {
  using Number = typename A::Number;
  const TileOfBlock tile(shape);
  const int64_t steps = (shape.depth + kTileDepth - 1) / kTileDepth;
  const int64_t depth = (steps + shape.splits - 1) / shape.splits * kTileDepth;
  const int64_t begin = tile.split * depth;
  const int64_t end = begin + depth < shape.depth ? begin + depth : shape.depth;
  const typename A::Loads a_loads(a, tile.product, tile.row, shape.rows);
  const typename B::Loads b_loads(b, tile.product, tile.column, shape.columns);
  Number sums[kPart][kPart] = {};
  if (begin < end) MultiplySteps(a_loads, b_loads, begin, end, sums);

  const int64_t first_row = tile.row + threadIdx.x / (kTile / kPart) * kPart;
  const int64_t first_column = tile.column + threadIdx.x % (kTile / kPart) * kPart;
  const int64_t part = (tile.split * shape.products + tile.product) * shape.rows * shape.columns;
  const int64_t start = result.Start(tile.product);
  for (int j = 0; j < kPart; ++j) {
    const int64_t column = first_column + j;
    for (int i = 0; i < kPart; ++i) {
      const int64_t row = first_row + i;
      if (row >= shape.rows || column >= shape.columns) continue;
      if (partial != nullptr) {
        partial[part + row * shape.columns + column] = sums[i][j];
      } else {
        result.Put(start, row, column, sums[i][j]);
      }
    }
  }
}

template <class Number, class Result>
__global__ void __launch_bounds__(kThreads)
    SumSplits(ProductShape shape, const Number* partial, Result result) {
  const int64_t n = shape.elements();
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    Number sum = 0;
    for (int split = 0; split < shape.splits; ++split) sum += partial[split * n + i];
    const int64_t line = i / shape.columns;
    const int64_t product = line / shape.rows;
    result.Put(result.Start(product), line - product * shape.rows, i - line * shape.columns, sum);
  }
}

// A thread for each element of the result, for products of so few rows or columns that tiles would
// be nearly empty.
template <class A, class B, class Result>
__global__ void __launch_bounds__(kThreads)
    MultiplyByThreads(ProductShape shape, A a, B b, Result result) {
  const int64_t n = shape.elements();
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const int64_t line = i / shape.columns, column = i - line * shape.columns;
    const int64_t product = line / shape.rows, row = line - product * shape.rows;
    const auto a_row = a.row(product, row);
    const auto b_row = b.row(product, column);
    typename A::Number sum = 0;
    for (int64_t k = 0; k < shape.depth; ++k) {
      sum += a.At(a_row, a.depth(k)) * b.At(b_row, b.depth(k));
    }
    result.Put(result.Start(product), row, column, sum);
  }
}

// A block for each: the same, where the depth is large.
template <class A, class B, class Result>
__global__ void __launch_bounds__(kThreads)
    MultiplyByBlocks(ProductShape shape, A a, B b, Result result) {
  const int64_t n = shape.elements();
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const int64_t line = i / shape.columns, column = i - line * shape.columns;
    const int64_t product = line / shape.rows, row = line - product * shape.rows;
    const auto a_row = a.row(product, row);
    const auto b_row = b.row(product, column);
    typename A::Number sum = 0;
    for (int64_t k = threadIdx.x; k < shape.depth; k += blockDim.x) {
      sum += a.At(a_row, a.depth(k)) * b.At(b_row, b.depth(k));
    }
    sum = BlockJoin(sum, SumOf(), typename A::Number(0));
    if (threadIdx.x == 0) result.Put(result.Start(product), row, column, sum);
  }
}

// `work` has SplitBytes(shape, sizeof(A::Number)).
template <class A, class B, class Result>
Error LaunchProduct(const Queue& queue, const ProductShape& shape, const A& a, const B& b,
                    const Result& result, void* work) {
  using Number = typename A::Number;
  if (shape.elements() == 0) return kDone;
  Number* const partial = shape.splits == 1 ? nullptr : static_cast<Number*>(work);
  const int64_t blocks = shape.products * shape.splits * shape.row_tiles() * shape.column_tiles();
  const Error error = LaunchBlocks(queue, static_cast<unsigned>(blocks), kThreads,
                                   MultiplyTiles<A, B, Result>, shape, a, b, result, partial);
  if (error != kDone || partial == nullptr) return error;
  return Launch(queue, BlocksFor(queue, shape.elements()), kThreads, SumSplits<Number, Result>,
                shape, partial, result);
}

template <class A, class B, class Result>
Error LaunchByThreads(const Queue& queue, const ProductShape& shape, const A& a, const B& b,
                      const Result& result) {
  if (shape.elements() == 0) return kDone;
  return Launch(queue, BlocksFor(queue, shape.elements()), kThreads,
                MultiplyByThreads<A, B, Result>, shape, a, b, result);
}
template <class A, class B, class Result>
Error LaunchByBlocks(const Queue& queue, const ProductShape& shape, const A& a, const B& b,
                     const Result& result) {
  if (shape.elements() == 0) return kDone;
  const int threads = shape.depth < kThreads ? 32 : kThreads;
  return LaunchBlocks(queue, BlocksFor(queue, shape.elements(), 1), threads,
                      MultiplyByBlocks<A, B, Result>, shape, a, b, result);
}

}  // namespace braid::cuda
