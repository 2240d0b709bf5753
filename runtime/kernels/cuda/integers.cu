// Products of bytes less their zero points, a thread for each result. They are exact and not tuned.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/integers.h"

namespace braid::cuda {
namespace {

__device__ __forceinline__ int32_t ByteAt(const void* bytes, int64_t i, bool is_signed) {
  return is_signed ? static_cast<const int8_t*>(bytes)[i] : static_cast<const uint8_t*>(bytes)[i];
}

// Sums wrap around, as unsigned numbers do.
__global__ void __launch_bounds__(kThreads) ByteProductKernel(ByteProductLaunch l) {
  const ConvolutionAxis &d = l.axes[0], &h = l.axes[1], &w = l.axes[2];
  const int64_t pixels = int64_t{d.size} * h.size * w.size;
  const int64_t windows = int64_t{d.windows} * h.windows * w.windows;
  const int64_t outputs = l.groups * l.out, all = l.batch * outputs * windows;
  const int32_t zero_of_x = l.zero_of_x == nullptr ? 0 : ByteAt(l.zero_of_x, 0, l.x_is_signed);
  for (int64_t i = FirstIndex(); i < all; i += IndexStep()) {
    const int64_t window = i % windows, output = i / windows % outputs;
    const int64_t image = i / windows / outputs, group = output / l.out;
    const int64_t zero_at = l.has_zero_per_output ? output : 0;
    const int32_t zero_of_w =
        l.zeros_of_w == nullptr ? 0 : ByteAt(l.zeros_of_w, zero_at, l.w_is_signed);
    const int64_t at_w = window % w.windows * w.stride - w.pad_begin;
    const int64_t at_h = window / w.windows % h.windows * h.stride - h.pad_begin;
    const int64_t at_d = window / w.windows / h.windows * d.stride - d.pad_begin;
    uint32_t sum = 0;
    for (int64_t c = 0; c < l.in; ++c) {
      const int64_t plane = (image * l.groups * l.in + group * l.in + c) * pixels;
      int64_t weight = output * l.w_output + c * l.w_input;
      for (int32_t td = 0; td < d.kernel; ++td) {
        for (int32_t th = 0; th < h.kernel; ++th) {
          for (int32_t tw = 0; tw < w.kernel; ++tw, ++weight) {
            const int64_t pd = at_d + int64_t{td} * d.dilation;
            const int64_t ph = at_h + int64_t{th} * h.dilation;
            const int64_t pw = at_w + int64_t{tw} * w.dilation;
            const bool is_outside =
                pd < 0 || pd >= d.size || ph < 0 || ph >= h.size || pw < 0 || pw >= w.size;
            if (is_outside) continue;
            const int64_t pixel = plane + (pd * h.size + ph) * w.size + pw;
            const int32_t x = ByteAt(l.x, pixel, l.x_is_signed) - zero_of_x;
            sum += static_cast<uint32_t>(x * (ByteAt(l.w, weight, l.w_is_signed) - zero_of_w));
          }
        }
      }
    }
    l.y[i] = static_cast<int32_t>(sum);
  }
}

Error Multiply(const Queue& queue, const ByteProductLaunch& launch) {
  int64_t results = launch.batch * launch.groups * launch.out;
  for (const ConvolutionAxis& axis : launch.axes) results *= axis.windows;
  if (results == 0) return kDone;
  return Launch(queue, BlocksFor(queue, results), kThreads, ByteProductKernel, launch);
}

}  // namespace

IntegerTable MakeIntegerTable() { return {.multiply = Multiply}; }

}  // namespace braid::cuda
