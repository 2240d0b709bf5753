// cuDNN's convolutions, of operands that lie as Braid's do: batch, channels, space, or with the
// channels last, where the taps of the weights come before these, too. The library opens its other
// files itself, beside its own.
#include <cudnn.h>

#include <cstdio>
#include <mutex>

#include "runtime/kernels/cuda/cudnn_convolution.h"
#include "runtime/kernels/cuda/libraries.h"
#include "runtime/kernels/cuda/library_plans.h"
#include "runtime/kernels/cuda/shared_library.h"

namespace braid::cuda {
namespace {

using Side = ConvolutionSide;

// Functions of the same major version as the header's.
constexpr char kFile[] = "libcudnn.so." BRAID_TEXT_OF(CUDNN_MAJOR);

struct Functions {
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnGetErrorString) name_status;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnCreateTensorDescriptor) create_tensor;
  decltype(&cudnnDestroyTensorDescriptor) destroy_tensor;
  decltype(&cudnnSetTensorNdDescriptor) set_tensor;
  decltype(&cudnnCreateFilterDescriptor) create_filter;
  decltype(&cudnnDestroyFilterDescriptor) destroy_filter;
  decltype(&cudnnSetFilterNdDescriptor) set_filter;
  decltype(&cudnnCreateConvolutionDescriptor) create_convolution;
  decltype(&cudnnDestroyConvolutionDescriptor) destroy_convolution;
  decltype(&cudnnSetConvolutionNdDescriptor) set_convolution;
  decltype(&cudnnSetConvolutionGroupCount) set_groups;
  decltype(&cudnnSetConvolutionMathType) set_math;
  decltype(&cudnnGetConvolutionForwardAlgorithm_v7) choose_output;
  decltype(&cudnnGetConvolutionBackwardDataAlgorithm_v7) choose_input;
  decltype(&cudnnGetConvolutionBackwardFilterAlgorithm_v7) choose_weights;
  decltype(&cudnnGetConvolutionForwardWorkspaceSize) work_of_output;
  decltype(&cudnnGetConvolutionBackwardDataWorkspaceSize) work_of_input;
  decltype(&cudnnGetConvolutionBackwardFilterWorkspaceSize) work_of_weights;
  decltype(&cudnnConvolutionForward) compute_output;
  decltype(&cudnnConvolutionBackwardData) compute_input;
  decltype(&cudnnConvolutionBackwardFilter) compute_weights;
};

bool FindAll(FunctionFinder finder, Functions& f) {
  return finder.Find("cudnnCreate", f.create)
      .Find("cudnnDestroy", f.destroy)
      .Find("cudnnGetErrorString", f.name_status)
      .Find("cudnnSetStream", f.set_stream)
      .Find("cudnnCreateTensorDescriptor", f.create_tensor)
      .Find("cudnnDestroyTensorDescriptor", f.destroy_tensor)
      .Find("cudnnSetTensorNdDescriptor", f.set_tensor)
      .Find("cudnnCreateFilterDescriptor", f.create_filter)
      .Find("cudnnDestroyFilterDescriptor", f.destroy_filter)
      .Find("cudnnSetFilterNdDescriptor", f.set_filter)
      .Find("cudnnCreateConvolutionDescriptor", f.create_convolution)
      .Find("cudnnDestroyConvolutionDescriptor", f.destroy_convolution)
      .Find("cudnnSetConvolutionNdDescriptor", f.set_convolution)
      .Find("cudnnSetConvolutionGroupCount", f.set_groups)
      .Find("cudnnSetConvolutionMathType", f.set_math)
      .Find("cudnnGetConvolutionForwardAlgorithm_v7", f.choose_output)
      .Find("cudnnGetConvolutionBackwardDataAlgorithm_v7", f.choose_input)
      .Find("cudnnGetConvolutionBackwardFilterAlgorithm_v7", f.choose_weights)
      .Find("cudnnGetConvolutionForwardWorkspaceSize", f.work_of_output)
      .Find("cudnnGetConvolutionBackwardDataWorkspaceSize", f.work_of_input)
      .Find("cudnnGetConvolutionBackwardFilterWorkspaceSize", f.work_of_weights)
      .Find("cudnnConvolutionForward", f.compute_output)
      .Find("cudnnConvolutionBackwardData", f.compute_input)
      .Find("cudnnConvolutionBackwardFilter", f.compute_weights)
      .has_all();
}

// What a plan depends on.
struct Key {
  int64_t side, dtype, is_rounded, is_wide, by_winograd, channels_last;
  int64_t batch, groups, in, out;
  int64_t size[kSpatialAxes], windows[kSpatialAxes], kernel[kSpatialAxes];
  int64_t stride[kSpatialAxes], dilation[kSpatialAxes], pad[kSpatialAxes];
};

Key KeyOf(const Queue& queue, const ConvolutionLaunch& launch) {
  Key key = {
      .side = static_cast<int64_t>(launch.side),
      .dtype = static_cast<int64_t>(launch.dtype),
      .is_rounded = queue.rounds_to_tf32 && launch.dtype == DType::kF32,
      .is_wide = launch.wide_result,
      .by_winograd = queue.sums_by_winograd && !queue.rounds_to_tf32 && launch.dtype == DType::kF32,
      .channels_last = launch.channels_last,
      .batch = launch.batch,
      .groups = launch.groups,
      .in = launch.in,
      .out = launch.out};
  for (int i = 0; i < kSpatialAxes; ++i) {
    const ConvolutionAxis& axis = launch.axes[i];
    key.size[i] = axis.size;
    key.windows[i] = axis.windows;
    key.kernel[i] = axis.kernel;
    key.stride[i] = axis.stride;
    key.dilation[i] = axis.dilation;
    key.pad[i] = axis.pad_begin;
  }
  return key;
}

// The library pads both ends alike, and derives the number of windows. What follows the last window
// is read by none, so that pad_end may differ as long as the number is the same.
bool HasItsWindows(const ConvolutionAxis& axis) {
  const int64_t reach = int64_t{axis.dilation} * (axis.kernel - 1) + 1;
  const int64_t padded = int64_t{axis.size} + 2 * int64_t{axis.pad_begin};
  return axis.pad_begin >= 0 && padded >= reach &&
         axis.windows == (padded - reach) / axis.stride + 1;
}

// The library reads 16 bytes at a time, and counts by 32 bits. f64 is for comparing runs: it stays
// with our own kernels, whose sums are the same on every card.
bool CanTake(const ConvolutionLaunch& launch) {
  if (launch.dtype == DType::kF64) return false;
  for (const int64_t elements : {launch.x_elements(), launch.w_elements(), launch.y_elements()}) {
    if (elements < 1 || elements > INT32_MAX) return false;
  }
  for (const ConvolutionAxis& axis : launch.axes) {
    if (!HasItsWindows(axis)) return false;
  }
  intptr_t bits = reinterpret_cast<intptr_t>(launch.result);
  if (!launch.wide_result) {
    bits |= reinterpret_cast<intptr_t>(launch.first) | reinterpret_cast<intptr_t>(launch.second);
  }
  return bits % 16 == 0;
}

}  // namespace

struct CudnnPlan {
  bool exists = false;  // false: the library has no way for it
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  int algorithm = 0;  // of the side's enumeration
};

struct Cudnn {
  void* file = nullptr;
  Functions f = {};
  cudnnHandle_t handle = nullptr;
  std::mutex mutex;  // of the handle, which has one stream at a time
  LibraryPlans<Key, CudnnPlan> plans;
};

namespace {

cudnnDataType_t TypeOf(const Key& key) {
  if (key.is_wide) return CUDNN_DATA_FLOAT;
  switch (static_cast<DType>(key.dtype)) {
    case DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    case DType::kF16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// The library sums products in f32. Those of f32 are not to be rounded before (to TF32, for the
// matrix units) unless the user says so. Where narrow operands were widened this is welcome: TF32
// has their bits, all of them, so that their products are the same.
cudnnMathType_t MathOf(const Key& key) {
  if (key.is_wide || key.is_rounded) return CUDNN_DEFAULT_MATH;
  return static_cast<DType>(key.dtype) == DType::kF32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
}

constexpr int kMaxDims = 2 + kSpatialAxes;

// Dense, of `outer` and `inner` and of the last axes of space; `inner` lies last if it is to.
struct Dims {
  int sizes[kMaxDims], strides[kMaxDims];
};
Dims DimsOf(int64_t outer, int64_t inner, const int64_t* space, int count, bool is_inner_last) {
  Dims dims;
  dims.sizes[0] = static_cast<int>(outer);
  dims.sizes[1] = static_cast<int>(inner);
  for (int i = 0; i < count - 2; ++i) dims.sizes[2 + i] = static_cast<int>(space[i]);
  int stride = 1;
  const auto put = [&](int d) {
    dims.strides[d] = stride;
    stride *= dims.sizes[d];
  };
  if (is_inner_last) put(1);
  for (int d = count - 1; d >= 2; --d) put(d);
  if (!is_inner_last) put(1);
  put(0);
  return dims;
}

// The library wants two axes of space at least; the first of three may be without work.
int FirstAxis(const Key& key) {
  return key.size[0] == 1 && key.windows[0] == 1 && key.kernel[0] == 1 && key.pad[0] == 0 ? 1 : 0;
}

bool Describe(const Functions& f, const Key& key, CudnnPlan& plan) {
  const auto is_done = [](cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS; };
  if (!is_done(f.create_tensor(&plan.x)) || !is_done(f.create_tensor(&plan.y)) ||
      !is_done(f.create_filter(&plan.w)) || !is_done(f.create_convolution(&plan.convolution))) {
    return false;
  }
  const cudnnDataType_t type = TypeOf(key);
  const int axis = FirstAxis(key), axes = kSpatialAxes - axis, count = 2 + axes;
  const bool is_last = key.channels_last != 0;
  const Dims x = DimsOf(key.batch, key.groups * key.in, key.size + axis, count, is_last);
  const Dims y = DimsOf(key.batch, key.groups * key.out, key.windows + axis, count, is_last);
  const Dims w = DimsOf(key.groups * key.out, key.in, key.kernel + axis, count, is_last);
  const cudnnTensorFormat_t of_weights = is_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  int pad[kSpatialAxes], stride[kSpatialAxes], dilation[kSpatialAxes];
  for (int i = 0; i < axes; ++i) {
    pad[i] = static_cast<int>(key.pad[axis + i]);
    stride[i] = static_cast<int>(key.stride[axis + i]);
    dilation[i] = static_cast<int>(key.dilation[axis + i]);
  }
  return is_done(f.set_tensor(plan.x, type, count, x.sizes, x.strides)) &&
         is_done(f.set_tensor(plan.y, type, count, y.sizes, y.strides)) &&
         is_done(f.set_filter(plan.w, type, of_weights, count, w.sizes)) &&
         is_done(f.set_convolution(plan.convolution, axes, pad, stride, dilation,
                                   CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)) &&
         is_done(f.set_groups(plan.convolution, static_cast<int>(key.groups))) &&
         is_done(f.set_math(plan.convolution, MathOf(key)));
}

// Algorithms that sum the products themselves. Those that transform tiles (Winograd, Fourier) round
// each sum by the largest numbers of its tile, and transform in TF32 or in narrow numbers what is
// exact otherwise; those of Winograd serve f32, where the user lets them.
bool SumsProducts(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_GEMM;
}
bool SumsProducts(cudnnConvolutionBwdDataAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
}
bool SumsProducts(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
}

bool IsWinograd(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED;
}
bool IsWinograd(cudnnConvolutionBwdDataAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD ||
         algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED;
}
bool IsWinograd(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED;
}

// Sets the plan's algorithm to the first that may be used of those which `list` gives, best first;
// false if there is none. An algorithm goes together with the arithmetic that was listed with it.
template <class Listed, class List, class WorkOf>
bool Choose(const Functions& f, const Key& key, size_t work_bytes, CudnnPlan& plan, List list,
            WorkOf work_of) {
  constexpr int kMost = 32;  // there are up to 8, each with up to 4 kinds of arithmetic
  Listed listed[kMost];
  int count = 0;
  if (list(kMost, &count, listed) != CUDNN_STATUS_SUCCESS) return false;
  for (int i = 0; i < count && i < kMost; ++i) {
    const Listed& way = listed[i];
    if (way.status != CUDNN_STATUS_SUCCESS || way.determinism != CUDNN_DETERMINISTIC ||
        way.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) {
      continue;
    }
    if (!SumsProducts(way.algo) && !(key.by_winograd != 0 && IsWinograd(way.algo))) continue;
    const bool is_free = MathOf(key) != CUDNN_FMA_MATH;
    if (is_free && f.set_math(plan.convolution, way.mathType) != CUDNN_STATUS_SUCCESS) continue;
    size_t needed = 0;
    if (work_of(way.algo, &needed) != CUDNN_STATUS_SUCCESS || needed > work_bytes) continue;
    plan.algorithm = static_cast<int>(way.algo);
    return true;
  }
  return false;
}

bool ChooseForSide(const Cudnn& cudnn, const Key& key, size_t work_bytes, CudnnPlan& plan) {
  const Functions& f = cudnn.f;
  const auto handle = cudnn.handle;
  const auto x = plan.x, y = plan.y;
  const auto w = plan.w;
  const auto convolution = plan.convolution;
  switch (static_cast<Side>(key.side)) {
    case Side::kOutput:
      return Choose<cudnnConvolutionFwdAlgoPerf_t>(
          f, key, work_bytes, plan,
          [&](int most, int* count, auto* listed) {
            return f.choose_output(handle, x, w, convolution, y, most, count, listed);
          },
          [&](auto algorithm, size_t* bytes) {
            return f.work_of_output(handle, x, w, convolution, y, algorithm, bytes);
          });
    case Side::kInput:
      return Choose<cudnnConvolutionBwdDataAlgoPerf_t>(
          f, key, work_bytes, plan,
          [&](int most, int* count, auto* listed) {
            return f.choose_input(handle, w, y, convolution, x, most, count, listed);
          },
          [&](auto algorithm, size_t* bytes) {
            return f.work_of_input(handle, w, y, convolution, x, algorithm, bytes);
          });
    case Side::kWeights:
      return Choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
          f, key, work_bytes, plan,
          [&](int most, int* count, auto* listed) {
            return f.choose_weights(handle, x, y, convolution, w, most, count, listed);
          },
          [&](auto algorithm, size_t* bytes) {
            return f.work_of_weights(handle, x, y, convolution, w, algorithm, bytes);
          });
  }
  return false;
}

CudnnPlan MakePlan(Cudnn& cudnn, const Key& key, size_t work_bytes) {
  const std::lock_guard<std::mutex> lock(cudnn.mutex);
  CudnnPlan plan;
  plan.exists = Describe(cudnn.f, key, plan) && ChooseForSide(cudnn, key, work_bytes, plan);
  return plan;
}

void Destroy(const Functions& f, const CudnnPlan& plan) {
  for (cudnnTensorDescriptor_t tensor : {plan.x, plan.y}) {
    if (tensor != nullptr) f.destroy_tensor(tensor);
  }
  if (plan.w != nullptr) f.destroy_filter(plan.w);
  if (plan.convolution != nullptr) f.destroy_convolution(plan.convolution);
}

}  // namespace

Cudnn* OpenCudnn(const char* folders, char* text, size_t text_bytes) {
  text[0] = 0;
  void* const file = OpenSharedLibrary(kFile, folders, text, text_bytes);
  if (file == nullptr) return nullptr;
  auto* cudnn = new Cudnn{.file = file};
  if (FindAll({file, text, text_bytes}, cudnn->f)) {
    const cudnnStatus_t status = cudnn->f.create(&cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS) return cudnn;
    std::snprintf(text, text_bytes, "%s did not start on this device: %s", kFile,
                  cudnn->f.name_status(status));
  }
  CloseSharedLibrary(file);
  delete cudnn;
  return nullptr;
}

void CloseCudnn(Cudnn* library) {
  if (library == nullptr) return;
  library->plans.ForEach([&](const CudnnPlan& plan) { Destroy(library->f, plan); });
  library->f.destroy(library->handle);
  CloseSharedLibrary(library->file);
  delete library;
}

const CudnnPlan* FindCudnnPlan(const Queue& queue, const ConvolutionLaunch& launch) {
  if (queue.libraries == nullptr) return nullptr;
  Cudnn* const cudnn = static_cast<const Libraries*>(queue.libraries)->cudnn;
  if (cudnn == nullptr || !CanTake(launch)) return nullptr;
  const auto work_bytes = static_cast<size_t>(launch.LibraryBytes());
  const CudnnPlan& plan = cudnn->plans.Find(
      KeyOf(queue, launch), [&](const Key& key) { return MakePlan(*cudnn, key, work_bytes); });
  return plan.exists ? &plan : nullptr;
}

Error ConvolveWithoutBias(const Queue& queue, const ConvolutionLaunch& launch,
                          const CudnnPlan& plan) {
  Cudnn& cudnn = *static_cast<const Libraries*>(queue.libraries)->cudnn;
  const Functions& f = cudnn.f;
  const float one = 1, zero = 0;
  const auto bytes = static_cast<size_t>(launch.LibraryBytes());
  const std::lock_guard<std::mutex> lock(cudnn.mutex);
  cudnnStatus_t status = f.set_stream(cudnn.handle, static_cast<cudaStream_t>(queue.stream));
  if (status != CUDNN_STATUS_SUCCESS) return kLibraryFailed;
  switch (launch.side) {
    case Side::kOutput:
      status =
          f.compute_output(cudnn.handle, &one, plan.x, launch.first, plan.w, launch.second,
                           plan.convolution, static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm),
                           launch.work, bytes, &zero, plan.y, launch.result);
      break;
    case Side::kInput:
      status = f.compute_input(cudnn.handle, &one, plan.w, launch.second, plan.y, launch.first,
                               plan.convolution,
                               static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm),
                               launch.work, bytes, &zero, plan.x, launch.result);
      break;
    case Side::kWeights:
      status = f.compute_weights(cudnn.handle, &one, plan.x, launch.first, plan.y, launch.second,
                                 plan.convolution,
                                 static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm),
                                 launch.work, bytes, &zero, plan.w, launch.result);
      break;
  }
  return status == CUDNN_STATUS_SUCCESS ? kDone : kLibraryFailed;
}

}  // namespace braid::cuda
