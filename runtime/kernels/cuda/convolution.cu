// Kernels of convolutions: cuDNN's where the device has it, else our own. Those copy nothing into
// the columns of a matrix first: the tiles' loads find the elements in the images.
#include "runtime/kernels/cuda/convolution.h"
#include "runtime/kernels/cuda/cudnn_convolution.h"
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/divisor.h"
#include "runtime/kernels/cuda/pointwise.h"
#include "runtime/kernels/cuda/rearrange.h"
#include "runtime/kernels/cuda/tile_product.h"

namespace braid::cuda {
namespace {

// A number taken apart: which box of three axes, and where in it.
struct BoxPlace {
  int32_t box;
  int32_t at[kSpatialAxes];
};
struct Box {
  Divisor all, plane, row;  // elements of the box, of its inner two axes, of the innermost one

  __device__ __forceinline__ BoxPlace Find(int32_t number) const {
    BoxPlace place;
    place.box = Quotient(number, all);
    number = Remainder(number, place.box, all);
    place.at[0] = Quotient(number, plane);
    number = Remainder(number, place.at[0], plane);
    place.at[1] = Quotient(number, row);
    place.at[2] = Remainder(number, place.at[1], row);
    return place;
  }
};

// `sizes` of at least 1 each, unless nothing is looked for in the box.
Box MakeBox(int64_t outer, int64_t middle, int64_t inner) {
  const auto divisor = [](int64_t size) { return MakeDivisor(size < 1 ? 1 : size); };
  return {divisor(outer * middle * inner), divisor(middle * inner), divisor(inner)};
}

struct Geometry {
  int32_t size[kSpatialAxes], windows[kSpatialAxes];
  int32_t stride[kSpatialAxes], dilation[kSpatialAxes], pad[kSpatialAxes];
  Divisor by_stride[kSpatialAxes];
  Box pixel_box, window_box, tap_box;
  int64_t pixels, all_windows, taps;
  int32_t groups, in, out;
  // Between neighbours in space, in x and in y; between channels it is the other way round.
  int64_t x_pixel, y_window;

  __device__ __forceinline__ int64_t x_channel() const { return x_pixel == 1 ? pixels : 1; }
  __device__ __forceinline__ int64_t y_channel() const { return y_window == 1 ? all_windows : 1; }
};

Geometry GeometryOf(const ConvolutionLaunch& launch) {
  Geometry g;
  const ConvolutionAxis* axes = launch.axes;
  for (int i = 0; i < kSpatialAxes; ++i) {
    g.size[i] = axes[i].size;
    g.windows[i] = axes[i].windows;
    g.stride[i] = axes[i].stride;
    g.dilation[i] = axes[i].dilation;
    g.pad[i] = axes[i].pad_begin;
    g.by_stride[i] = MakeDivisor(axes[i].stride);
  }
  g.pixel_box = MakeBox(axes[0].size, axes[1].size, axes[2].size);
  g.window_box = MakeBox(axes[0].windows, axes[1].windows, axes[2].windows);
  g.tap_box = MakeBox(axes[0].kernel, axes[1].kernel, axes[2].kernel);
  g.pixels = launch.pixels();
  g.all_windows = launch.windows();
  g.taps = launch.taps();
  g.groups = launch.groups;
  g.in = launch.in;
  g.out = launch.out;
  g.x_pixel = launch.channels_last ? int64_t{launch.groups} * launch.in : 1;
  g.y_window = launch.channels_last ? int64_t{launch.groups} * launch.out : 1;
  return g;
}

// Offsets are of elements, -1 outside of an operand.
constexpr int64_t kOutside = -1;

// Of the weights, an output's row: [out, in * taps].
template <class T>
struct WeightRows : AlongDepth {
  using Number = Compute<T>;
  using RowPlace = int64_t;
  using Loads = GatheredLoads<WeightRows>;
  const T* data;
  int64_t out, depth_size;

  __device__ __forceinline__ int64_t row(int64_t product, int64_t row) const {
    return row < 0 ? kOutside : (product * out + row) * depth_size;
  }
  __device__ __forceinline__ int64_t depth(int64_t k) const { return k; }
  __device__ __forceinline__ Number At(int64_t row, int64_t k) const {
    return row < 0 ? Number(0) : Load(data + row + k);
  }
};

// Of the weights, an input's taps of all outputs: [in, out * taps].
template <class T>
struct WeightColumns {
  using Number = Compute<T>;
  using RowPlace = int64_t;
  using Loads = GatheredLoads<WeightColumns>;
  const T* data;
  int64_t in, out, taps;
  Divisor by_taps;
  bool is_along_depth;  // several taps lie side by side

  __device__ __forceinline__ int Row(int load) const {
    return is_along_depth ? AlongDepth::Row(load) : AlongRows::Row(load);
  }
  __device__ __forceinline__ int Depth(int load) const {
    return is_along_depth ? AlongDepth::Depth(load) : AlongRows::Depth(load);
  }
  __device__ __forceinline__ int64_t row(int64_t product, int64_t row) const {
    return row < 0 ? kOutside : (product * out * in + row) * taps;
  }
  __device__ __forceinline__ int64_t depth(int64_t k) const {
    const int32_t output = Quotient(static_cast<int32_t>(k), by_taps);
    return output * in * taps + (k - output * taps);
  }
  __device__ __forceinline__ Number At(int64_t row, int64_t depth) const {
    return row < 0 ? Number(0) : Load(data + row + depth);
  }
};

// What a window or a tap adds to the place of the element of x that a window reads by a tap. The
// sum of two such is outside of x if it is so on one of the axes.
struct Addend {
  int64_t offset;
  int32_t at[kSpatialAxes];
};
// Together with anything outside.
constexpr int32_t kFarOutside = -(1 << 30);

template <class T>
struct Image {
  const T* data;
  Geometry g;

  __device__ __forceinline__ int64_t OffsetOf(const int32_t (&at)[kSpatialAxes]) const {
    return ((static_cast<int64_t>(at[0]) * g.size[1] + at[1]) * g.size[2] + at[2]) * g.x_pixel;
  }
  // Of a window of all images; of the first group.
  __device__ __forceinline__ Addend Window(int64_t number) const {
    const BoxPlace place = g.window_box.Find(static_cast<int32_t>(number));
    Addend window;
    for (int i = 0; i < kSpatialAxes; ++i) window.at[i] = place.at[i] * g.stride[i] - g.pad[i];
    window.offset = place.box * (g.pixels * g.groups * g.in) + OffsetOf(window.at);
    return window;
  }
  // Of a tap of all channels of a group.
  __device__ __forceinline__ Addend Tap(int64_t number) const {
    const BoxPlace place = g.tap_box.Find(static_cast<int32_t>(number));
    Addend tap;
    for (int i = 0; i < kSpatialAxes; ++i) tap.at[i] = place.at[i] * g.dilation[i];
    tap.offset = place.box * g.x_channel() + OffsetOf(tap.at);
    return tap;
  }
  __device__ __forceinline__ int64_t GroupOffset(int64_t product) const {
    return product * g.in * g.x_channel();
  }
  __device__ __forceinline__ Compute<T> Read(const Addend& a, const Addend& b) const {
    bool is_inside = true;
    for (int i = 0; i < kSpatialAxes; ++i) {
      is_inside =
          is_inside && static_cast<uint32_t>(a.at[i] + b.at[i]) < static_cast<uint32_t>(g.size[i]);
    }
    return is_inside ? Load(data + a.offset + b.offset) : Compute<T>(0);
  }
};

// Of x, what the windows read: columns are windows, the depth is taps.
template <class T>
struct WindowColumns : AlongRows {
  using Number = Compute<T>;
  using RowPlace = Addend;
  using Loads = GatheredLoads<WindowColumns>;
  Image<T> image;

  __device__ __forceinline__ Addend row(int64_t product, int64_t row) const {
    Addend window = image.Window(row < 0 ? 0 : row);
    window.offset += image.GroupOffset(product);
    if (row < 0) window.at[0] = kFarOutside;
    return window;
  }
  __device__ __forceinline__ Addend depth(int64_t k) const { return image.Tap(k); }
  __device__ __forceinline__ Number At(const Addend& row, const Addend& depth) const {
    return image.Read(row, depth);
  }
};
// The same, where columns are taps and the depth is windows.
template <class T>
struct TapColumns : AlongDepth {
  using Number = Compute<T>;
  using RowPlace = Addend;
  using Loads = GatheredLoads<TapColumns>;
  Image<T> image;

  __device__ __forceinline__ Addend row(int64_t product, int64_t row) const {
    Addend tap = image.Tap(row < 0 ? 0 : row);
    tap.offset += image.GroupOffset(product);
    if (row < 0) tap.at[0] = kFarOutside;
    return tap;
  }
  __device__ __forceinline__ Addend depth(int64_t k) const { return image.Window(k); }
  __device__ __forceinline__ Number At(const Addend& row, const Addend& depth) const {
    return image.Read(row, depth);
  }
};

// Of y, the gradients of an output's channel: [out, batch * windows].
template <class T>
struct OutputRows : AlongDepth {
  using Number = Compute<T>;
  using RowPlace = int64_t;
  using Loads = GatheredLoads<OutputRows>;
  const T* data;
  int64_t channels, out, windows;  // channels: of all groups
  int64_t channel, window;         // between neighbours
  Divisor by_windows;

  __device__ __forceinline__ int64_t row(int64_t product, int64_t row) const {
    return row < 0 ? kOutside : (product * out + row) * channel;
  }
  __device__ __forceinline__ int64_t depth(int64_t k) const {
    const int64_t image = Quotient(static_cast<int32_t>(k), by_windows);
    return image * (channels - window) * windows + k * window;
  }
  __device__ __forceinline__ Number At(int64_t row, int64_t depth) const {
    return row < 0 ? Number(0) : Load(data + row + depth);
  }
};

// Of y, what a pixel is given by the windows that read it: columns are pixels of all images, the
// depth is taps of the outputs' channels.
template <class T>
struct PixelColumns : AlongRows {
  using Number = Compute<T>;
  using RowPlace = Addend;
  using Loads = GatheredLoads<PixelColumns>;
  const T* data;
  Geometry g;

  __device__ __forceinline__ Addend row(int64_t product, int64_t row) const {
    const BoxPlace place = g.pixel_box.Find(static_cast<int32_t>(row < 0 ? 0 : row));
    Addend pixel;
    for (int i = 0; i < kSpatialAxes; ++i) pixel.at[i] = place.at[i] + g.pad[i];
    pixel.offset = static_cast<int64_t>(place.box) * g.groups * g.out * g.all_windows +
                   product * g.out * g.y_channel();
    if (row < 0) pixel.at[0] = -1;  // before all windows
    return pixel;
  }
  __device__ __forceinline__ Addend depth(int64_t k) const {
    const BoxPlace place = g.tap_box.Find(static_cast<int32_t>(k));
    Addend tap;
    for (int i = 0; i < kSpatialAxes; ++i) tap.at[i] = place.at[i] * g.dilation[i];
    tap.offset = place.box * g.y_channel();
    return tap;
  }
  __device__ __forceinline__ Number At(const Addend& pixel, const Addend& tap) const {
    int64_t offset = 0;
    for (int i = 0; i < kSpatialAxes; ++i) {
      const int32_t from_start = pixel.at[i] - tap.at[i];
      if (from_start < 0) return Number(0);
      const int32_t window = Quotient(from_start, g.by_stride[i]);
      if (window >= g.windows[i] || Remainder(from_start, window, g.by_stride[i]) != 0) {
        return Number(0);
      }
      offset = offset * g.windows[i] + window;
    }
    return Load(data + pixel.offset + tap.offset + offset * g.y_window);
  }
};

// [images, channels, inner], or with the channels last, where a product's columns are [images,
// inner] and its rows channels of its group; or, with one image, a dense matrix for each product.
template <class T>
struct ChannelResult {
  void* data;
  const void* bias;  // of the channels; null without one
  bool is_wide;      // both are f32
  int64_t groups, rows, inner;
  bool channels_last;
  Divisor by_inner;

  // The first of the product's channels.
  __device__ __forceinline__ int64_t Start(int64_t product) const { return product * rows; }
  __device__ __forceinline__ void Put(int64_t start, int64_t row, int64_t column,
                                      Compute<T> value) const {
    const int64_t image = Quotient(static_cast<int32_t>(column), by_inner);
    const int64_t channel = start + row;
    const int64_t at = channels_last ? column * (groups * rows) + channel
                                     : (image * (groups * rows - 1) + channel) * inner + column;
    if (is_wide) {
      if (bias != nullptr) value += static_cast<const float*>(bias)[channel];
      static_cast<float*>(data)[at] = static_cast<float>(value);
    } else {
      if (bias != nullptr) value += Load(static_cast<const T*>(bias) + channel);
      Store(static_cast<T*>(data) + at, value);
    }
  }
};

template <class T>
ChannelResult<T> ResultOf(const ConvolutionLaunch& launch, int64_t rows, int64_t inner,
                          bool channels_last) {
  return {.data = launch.result,
          .bias = launch.bias,
          .is_wide = launch.wide_result,
          .groups = launch.groups,
          .rows = rows,
          .inner = inner,
          .channels_last = channels_last,
          .by_inner = MakeDivisor(inner < 1 ? 1 : inner)};
}

template <class T>
Error ComputeOutput(const Queue& queue, const ConvolutionLaunch& launch) {
  const ProductShape shape = launch.Shape();
  WeightRows<T> w;
  w.data = static_cast<const T*>(launch.second);
  w.out = launch.out;
  w.depth_size = shape.depth;
  WindowColumns<T> x;
  x.image = {static_cast<const T*>(launch.first), GeometryOf(launch)};
  const ChannelResult<T> y =
      ResultOf<T>(launch, launch.out, launch.windows(), launch.channels_last);
  return IsThin(shape) ? LaunchByThreads(queue, shape, w, x, y)
                       : LaunchProduct(queue, shape, w, x, y, launch.work);
}

template <class T>
Error ComputeInput(const Queue& queue, const ConvolutionLaunch& launch) {
  const ProductShape shape = launch.Shape();
  const WeightColumns<T> w = {.data = static_cast<const T*>(launch.second),
                              .in = launch.in,
                              .out = launch.out,
                              .taps = launch.taps(),
                              .by_taps = MakeDivisor(launch.taps()),
                              .is_along_depth = launch.taps() > 1};
  PixelColumns<T> y;
  y.data = static_cast<const T*>(launch.first);
  y.g = GeometryOf(launch);
  const ChannelResult<T> x = ResultOf<T>(launch, launch.in, launch.pixels(), launch.channels_last);
  return IsThin(shape) ? LaunchByThreads(queue, shape, w, y, x)
                       : LaunchProduct(queue, shape, w, y, x, launch.work);
}

template <class T>
Error ComputeWeights(const Queue& queue, const ConvolutionLaunch& launch) {
  const ProductShape shape = launch.Shape();
  OutputRows<T> y;
  y.data = static_cast<const T*>(launch.second);
  y.channels = int64_t{launch.groups} * launch.out;
  y.out = launch.out;
  y.windows = launch.windows();
  y.channel = launch.channels_last ? 1 : y.windows;
  y.window = launch.channels_last ? y.channels : 1;
  y.by_windows = MakeDivisor(launch.windows());
  TapColumns<T> x;
  x.image = {static_cast<const T*>(launch.first), GeometryOf(launch)};
  const ChannelResult<T> w =
      ResultOf<T>(launch, launch.out, shape.columns, /*channels_last=*/false);
  if (!IsThin(shape)) return LaunchProduct(queue, shape, y, x, w, launch.work);
  constexpr int64_t kShallow = 64;  // as good as nothing to share among a block's threads
  return shape.depth < kShallow ? LaunchByThreads(queue, shape, y, x, w)
                                : LaunchByBlocks(queue, shape, y, x, w);
}

Error Widen(const Queue& queue, DType dtype, const void* narrow, void* wide, int64_t elements) {
  PointwiseLaunch cast = {.out_type = DType::kF32, .types = {dtype}};
  cast.output = wide;
  cast.inputs[0] = narrow;
  cast.walk.elements = elements;
  return MakePointwiseTable().cast(queue, cast);
}

// Between weights as Braid has them, [groups * out, in, taps], and as the library has them where
// channels are last, [groups * out, taps, in].
Error MoveTaps(const Queue& queue, const ConvolutionLaunch& launch, const void* from, void* to,
               bool is_to_library) {
  const int64_t rows = int64_t{launch.groups} * launch.out, in = launch.in, taps = launch.taps();
  const int64_t element = launch.dtype == DType::kF32 || launch.wide_result ? 4 : 2;
  CopyLaunch copy = {.to = to, .from = from, .element_bytes = element};
  copy.walk = {.elements = launch.w_elements(), .rank = 3, .size = {rows, in, taps}};
  const int64_t own[] = {in * taps, taps, 1}, of_library[] = {in * taps, 1, in};
  for (int d = 0; d < 3; ++d) {
    copy.walk.stride[0][d] = is_to_library ? of_library[d] : own[d];
    copy.walk.stride[1][d] = is_to_library ? own[d] : of_library[d];
  }
  return MakeRearrangeTable().copy(queue, copy);
}

// To y [batch, channels, windows], or with the channels last, in place.
Error AddBias(const Queue& queue, const ConvolutionLaunch& launch) {
  const DType dtype = launch.wide_result ? DType::kF32 : launch.dtype;
  const int64_t channels = int64_t{launch.groups} * launch.out, windows = launch.windows();
  PointwiseLaunch sum = {
      .op = static_cast<int32_t>(simd::BinaryOp::kAdd), .out_type = dtype, .types = {dtype, dtype}};
  sum.output = launch.result;
  sum.inputs[0] = launch.result;
  sum.inputs[1] = launch.bias;
  if (launch.channels_last) {
    sum.walk = {.elements = launch.y_elements(),
                .rank = 2,
                .size = {launch.batch * windows, channels},
                .stride = {{channels, 1}, {channels, 1}, {0, 1}}};
  } else {
    sum.walk = {
        .elements = launch.y_elements(),
        .rank = 3,
        .size = {launch.batch, channels, windows},
        .stride = {{channels * windows, windows, 1}, {channels * windows, windows, 1}, {0, 1}}};
  }
  return MakePointwiseTable().binary(queue, sum);
}

// cuDNN writes the type that it reads: operands of a wide result are widened first, which loses
// nothing, and neither does what the plan then lets the matrix units do with them.
Error ConvolveByCudnn(const Queue& queue, const ConvolutionLaunch& launch, const CudnnPlan& plan) {
  ConvolutionLaunch now = launch;
  char* const first = static_cast<char*>(launch.work);
  char* const second = first + launch.WidenedBytes(launch.first_elements());
  char* const taps = second + launch.WidenedBytes(launch.second_elements());
  now.work = taps + launch.TapsBytes();
  Error error = kDone;
  if (launch.wide_result) {
    now.first = first;
    now.second = second;
    error = Widen(queue, launch.dtype, launch.first, first, launch.first_elements());
    if (error != kDone) return error;
    error = Widen(queue, launch.dtype, launch.second, second, launch.second_elements());
    if (error != kDone) return error;
  }
  const bool moves_taps = launch.TapsBytes() > 0;
  const bool makes_weights = launch.side == ConvolutionSide::kWeights;
  if (moves_taps && makes_weights) now.result = taps;
  if (moves_taps && !makes_weights) {
    error = MoveTaps(queue, launch, now.second, taps, /*is_to_library=*/true);
    if (error != kDone) return error;
    now.second = taps;
  }
  error = ConvolveWithoutBias(queue, now, plan);
  if (error != kDone) return error;
  if (moves_taps && makes_weights) {
    return MoveTaps(queue, launch, taps, launch.result, /*is_to_library=*/false);
  }
  return launch.bias == nullptr ? kDone : AddBias(queue, launch);
}

Error Convolve(const Queue& queue, const ConvolutionLaunch& launch) {
  if (const CudnnPlan* plan = FindCudnnPlan(queue, launch)) {
    return ConvolveByCudnn(queue, launch, *plan);
  }
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    switch (launch.side) {
      case ConvolutionSide::kOutput:
        return ComputeOutput<T>(queue, launch);
      case ConvolutionSide::kInput:
        return ComputeInput<T>(queue, launch);
      case ConvolutionSide::kWeights:
        return ComputeWeights<T>(queue, launch);
    }
    return kNoSuchType;
  });
}

}  // namespace

ConvolutionTable MakeConvolutionTable() { return {.convolve = Convolve}; }

}  // namespace braid::cuda
