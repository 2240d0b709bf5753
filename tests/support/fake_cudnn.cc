// A cuDNN in the host's memory, as a file that is opened in the place of the real one: it reads
// what its callers describe, and sums convolutions as they are written. Among what it proposes are
// ways that Braid must not take.
#include <cudnn.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/base/half.h"

// Rank 4 or 5, dense; here always five dimensions.
struct cudnnTensorStruct {
  cudnnDataType_t type;
  int sizes[5], strides[5];
  bool is_last;  // the second dimension lies last
  int elements() const { return sizes[0] * strides[0]; }
  int space() const { return sizes[2] * sizes[3] * sizes[4]; }
  // Where in it, and where that lies, of an element of the last three dimensions.
  int At(int element, int d) const {
    for (int i = 4; i > d; --i) element /= sizes[i];
    return element % sizes[d];
  }
  int OffsetOf(int element) const {
    return At(element, 2) * strides[2] + At(element, 3) * strides[3] + At(element, 4) * strides[4];
  }
};
struct cudnnFilterStruct : cudnnTensorStruct {};
struct cudnnConvolutionStruct {
  int pad[3], stride[3], dilation[3], groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnContext {};

namespace {

constexpr size_t kWorkBytes = 1 << 20;
int computed = 0, living = 0, by_winograd = 0;

template <class T>
cudnnStatus_t Create(T** made) {
  *made = new T();
  ++living;
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t Destroy(T* made) {
  delete made;
  --living;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Describe(cudnnTensorStruct& tensor, cudnnDataType_t type, int rank, const int* sizes,
                       const int* strides, bool is_last) {
  if (rank < 4 || rank > 5) return CUDNN_STATUS_BAD_PARAM;
  tensor.type = type;
  tensor.is_last = is_last;
  int stride = 1;
  bool is_dense = true;
  for (const int d : is_last ? std::array{1, 4, 3, 2, 0} : std::array{4, 3, 2, 1, 0}) {
    const bool is_given = d != 2 || rank == 5;
    const int from = d < 2 ? d : d - (5 - rank);
    tensor.sizes[d] = is_given ? sizes[from] : 1;
    tensor.strides[d] = stride;
    stride *= tensor.sizes[d];
    is_dense = is_dense && tensor.sizes[d] >= 1 &&
               (!is_given || strides == nullptr || strides[from] == tensor.strides[d]);
  }
  return is_dense ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
// In either order.
cudnnStatus_t DescribeTensor(cudnnTensorStruct& tensor, cudnnDataType_t type, int rank,
                             const int* sizes, const int* strides) {
  const bool is_plain = Describe(tensor, type, rank, sizes, strides, false) == CUDNN_STATUS_SUCCESS;
  return is_plain ? CUDNN_STATUS_SUCCESS : Describe(tensor, type, rank, sizes, strides, true);
}

// As the matrix units do, unless the caller forbids it.
float AsTf32(float number) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(number) + 0x1000u) & ~0x1fffu);
}

std::vector<float> Read(const cudnnTensorStruct& tensor, const void* data, cudnnMathType_t math) {
  std::vector<float> numbers(tensor.elements());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (tensor.type == CUDNN_DATA_FLOAT) {
      const float number = static_cast<const float*>(data)[i];
      numbers[i] = math == CUDNN_FMA_MATH ? number : AsTf32(number);
    } else {
      const uint16_t bits = static_cast<const uint16_t*>(data)[i];
      numbers[i] = tensor.type == CUDNN_DATA_HALF ? braid::Float16BitsToFloat(bits)
                                                  : braid::BFloat16BitsToFloat(bits);
    }
  }
  return numbers;
}

void Write(const cudnnTensorStruct& tensor, void* data, const std::vector<double>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto sum = static_cast<float>(sums[i]);
    if (tensor.type == CUDNN_DATA_FLOAT) {
      static_cast<float*>(data)[i] = sum;
    } else {
      static_cast<uint16_t*>(data)[i] = tensor.type == CUDNN_DATA_HALF
                                            ? braid::FloatToFloat16Bits(sum)
                                            : braid::FloatToBFloat16Bits(sum);
    }
  }
}

// f(x's element, w's, y's) for each product that the convolution sums.
template <class F>
void ForEachProduct(const cudnnTensorStruct& x, const cudnnTensorStruct& w,
                    const cudnnTensorStruct& y, const cudnnConvolutionStruct& c, F f) {
  const int outs = w.sizes[0] / c.groups, taps = w.space(), windows = y.space();
  for (int row = 0; row < y.sizes[0] * y.sizes[1]; ++row) {
    const int image = row / y.sizes[1], out = row % y.sizes[1];
    for (int at = 0; at < windows * taps; ++at) {
      const int window = at / taps, tap = at % taps;
      int offset = 0;
      bool is_inside = true;
      for (int d = 2; d < 5; ++d) {
        const int place =
            y.At(window, d) * c.stride[d - 2] + w.At(tap, d) * c.dilation[d - 2] - c.pad[d - 2];
        is_inside = is_inside && place >= 0 && place < x.sizes[d];
        offset += place * x.strides[d];
      }
      for (int in = 0; is_inside && in < w.sizes[1]; ++in) {
        const int channel = out / outs * w.sizes[1] + in;
        f(image * x.strides[0] + channel * x.strides[1] + offset,
          out * w.strides[0] + in * w.strides[1] + w.OffsetOf(tap),
          image * y.strides[0] + out * y.strides[1] + y.OffsetOf(window));
      }
    }
  }
}

// Whether the three belong together: windows are as many as the library derives, and channels lie
// in the same place. (In a tensor of one pixel or one channel this is everywhere.)
bool Fits(const cudnnTensorStruct& x, const cudnnTensorStruct& w, const cudnnTensorStruct& y,
          const cudnnConvolutionStruct& c) {
  bool fits = x.type == w.type && x.type == y.type && x.sizes[0] == y.sizes[0] &&
              x.sizes[1] == c.groups * w.sizes[1] && y.sizes[1] == w.sizes[0];
  const auto has_place = [](const cudnnTensorStruct& tensor) {
    return tensor.sizes[1] > 1 && tensor.space() > 1;
  };
  for (const cudnnTensorStruct* tensor : {&x, &y}) {
    fits = fits && (!has_place(*tensor) || !has_place(w) || tensor->is_last == w.is_last);
  }
  fits = fits && (!has_place(x) || !has_place(y) || x.is_last == y.is_last);
  for (int d = 2; d < 5; ++d) {
    const int reach = (w.sizes[d] - 1) * c.dilation[d - 2] + 1;
    fits = fits && y.sizes[d] == (x.sizes[d] + 2 * c.pad[d - 2] - reach) / c.stride[d - 2] + 1;
  }
  return fits;
}

template <class Listed, class Algorithm>
cudnnStatus_t List(std::vector<Algorithm> forbidden, Algorithm allowed, cudnnMathType_t math,
                   int most, int* count, Listed* listed) {
  const auto determinism = [&](Algorithm algorithm) {
    return algorithm == forbidden[0] ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
  };
  std::vector<Listed> all;
  const auto add = [&](Algorithm algorithm, cudnnStatus_t status, cudnnMathType_t with) {
    all.push_back({.algo = algorithm,
                   .status = status,
                   .memory = kWorkBytes,
                   .determinism = determinism(algorithm),
                   .mathType = with});
  };
  for (const Algorithm algorithm : forbidden) add(algorithm, CUDNN_STATUS_SUCCESS, math);
  add(allowed, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_FMA_MATH);
  add(allowed, CUDNN_STATUS_SUCCESS, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION);
  add(allowed, CUDNN_STATUS_SUCCESS, CUDNN_TENSOR_OP_MATH);
  *count = 0;
  for (; *count < most && *count < static_cast<int>(all.size()); ++*count) {
    listed[*count] = all[*count];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetWork(size_t* bytes) {
  *bytes = kWorkBytes;
  return CUDNN_STATUS_SUCCESS;
}

// With the arithmetic that was listed, or none but f32's own.
bool HasWay(cudnnDataType_t type, cudnnMathType_t math) {
  return math == CUDNN_TENSOR_OP_MATH || (math == CUDNN_FMA_MATH && type == CUDNN_DATA_FLOAT);
}

bool CountWinograd(bool is_winograd) {
  if (is_winograd) ++by_winograd;
  return is_winograd;
}

// Both ends of the memory that the caller lends are written to.
cudnnStatus_t UseWork(void* work, size_t bytes, const void* beta, bool is_allowed) {
  if (!is_allowed || bytes < kWorkBytes || *static_cast<const float*>(beta) != 0) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  std::memset(work, 0xff, kWorkBytes);
  std::memset(static_cast<char*>(work) + bytes - kWorkBytes, 0xff, kWorkBytes);
  ++computed;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

int FakeCudnnComputed() { return computed; }
int FakeCudnnLiving() { return living; }
int FakeCudnnByWinograd() { return by_winograd; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return Create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return Destroy(handle); }
const char* cudnnGetErrorString(cudnnStatus_t) { return "a status"; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* x) { return Create(x); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t x) { return Destroy(x); }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t x, cudnnDataType_t type, int rank,
                                         const int sizes[], const int strides[]) {
  return DescribeTensor(*x, type, rank, sizes, strides);
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* w) { return Create(w); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t w) { return Destroy(w); }
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t w, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int rank, const int sizes[]) {
  if (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_BAD_PARAM;
  return Describe(*w, type, rank, sizes, nullptr, format == CUDNN_TENSOR_NHWC);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* c) {
  return Create(c);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c) {
  return Destroy(c);
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int axes,
                                              const int pad[], const int stride[],
                                              const int dilation[], cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT) return CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < 3; ++i) {
    const int from = i - (3 - axes);
    c->pad[i] = from < 0 ? 0 : pad[from];
    c->stride[i] = from < 0 ? 1 : stride[from];
    c->dilation[i] = from < 0 ? 1 : dilation[from];
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups) {
  c->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math) {
  c->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t c,
                                                     cudnnTensorDescriptor_t y, int most,
                                                     int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* listed) {
  if (!Fits(*x, *w, *y, *c)) return CUDNN_STATUS_BAD_PARAM;
  return List({CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
               CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD},
              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, c->math, most, count, listed);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t x, int most, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* listed) {
  if (!Fits(*x, *w, *y, *c)) return CUDNN_STATUS_BAD_PARAM;
  return List({CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
               CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED},
              CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, c->math, most, count, listed);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t w, int most, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* listed) {
  if (!Fits(*x, *w, *y, *c)) return CUDNN_STATUS_BAD_PARAM;
  return List({CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
               CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED},
              CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, c->math, most, count, listed);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t,
    cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_GEMM) return SetWork(bytes);
  *bytes = SIZE_MAX;  // more than anybody lends
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
    cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t, size_t* bytes) {
  return SetWork(bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
    cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t, size_t* bytes) {
  return SetWork(bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x,
                                      const void* x_data, cudnnFilterDescriptor_t w,
                                      const void* w_data, cudnnConvolutionDescriptor_t c,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* work, size_t bytes,
                                      const void* beta, cudnnTensorDescriptor_t y, void* y_data) {
  const bool is_winograd = CountWinograd(algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD);
  const bool is_allowed =
      (algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM || is_winograd) &&
      HasWay(x->type, c->math);
  const cudnnStatus_t status = UseWork(work, bytes, beta, is_allowed);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const auto a = Read(*x, x_data, c->math), b = Read(*w, w_data, c->math);
  std::vector<double> sums(y->elements());
  ForEachProduct(*x, *w, *y, *c,
                 [&](int in, int tap, int out) { sums[out] += double{a[in]} * b[tap]; });
  Write(*y, y_data, sums);
  return status;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void*, cudnnFilterDescriptor_t w,
                                           const void* w_data, cudnnTensorDescriptor_t y,
                                           const void* y_data, cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* work,
                                           size_t bytes, const void* beta,
                                           cudnnTensorDescriptor_t x, void* x_data) {
  const bool is_winograd =
      CountWinograd(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED);
  const bool is_allowed =
      (algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 || is_winograd) && HasWay(x->type, c->math);
  const cudnnStatus_t status = UseWork(work, bytes, beta, is_allowed);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const auto a = Read(*w, w_data, c->math), b = Read(*y, y_data, c->math);
  std::vector<double> sums(x->elements());
  ForEachProduct(*x, *w, *y, *c,
                 [&](int in, int tap, int out) { sums[in] += double{a[tap]} * b[out]; });
  Write(*x, x_data, sums);
  return status;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x,
                                             const void* x_data, cudnnTensorDescriptor_t y,
                                             const void* y_data, cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* work,
                                             size_t bytes, const void* beta,
                                             cudnnFilterDescriptor_t w, void* w_data) {
  const bool is_winograd =
      CountWinograd(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED);
  const bool is_allowed =
      (algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 || is_winograd) && HasWay(x->type, c->math);
  const cudnnStatus_t status = UseWork(work, bytes, beta, is_allowed);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const auto a = Read(*x, x_data, c->math), b = Read(*y, y_data, c->math);
  std::vector<double> sums(w->elements());
  ForEachProduct(*x, *w, *y, *c,
                 [&](int in, int tap, int out) { sums[tap] += double{a[in]} * b[out]; });
  Write(*w, w_data, sums);
  return status;
}

}  // extern "C"
