// resize_axis and its gradient, from a table of elements and weights made once.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "graph/ops/resize.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/functions/resize_taps.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Element `at` of y: the sum over its taps of weight * x[index]; `outside` if it has none.
struct Taps {
  int per_element = 1;  // 1, 2 or 4; those of an element stand side by side
  std::vector<int64_t> index;
  std::vector<double> weight;
  std::vector<bool> is_outside;  // by element
  bool has_outside = false;      // any of them
  double outside = 0;
};

Taps TapsOf(const ResizeAttrs& a, int64_t in, int64_t out) {
  Taps taps;
  taps.outside = a.outside;
  taps.per_element = NumResizeTaps(a);
  taps.index.reserve(out * taps.per_element);
  taps.weight.reserve(out * taps.per_element);
  taps.is_outside.resize(out);
  for (int64_t at = 0; at < out; ++at) {
    const ResizeTaps<double> element = TapsOfElement<double>(a, at, in, out);
    taps.is_outside[at] = element.is_outside;
    taps.has_outside |= element.is_outside;
    for (int i = 0; i < taps.per_element; ++i) {
      taps.index.push_back(element.index[i]);
      taps.weight.push_back(element.weight[i]);
    }
  }
  return taps;
}

struct Resize {
  AxisView x, y;  // around the axis
  Taps taps;
};

absl::StatusOr<Resize> ResizeBetween(const KernelSpec& spec, const Shape& x, const Shape& y) {
  BRAID_ASSIGN_OR_RETURN(const ResizeAttrs attrs, ResizeOf(spec.attrs));
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  Resize resize = {.x = ViewAround(x, axis), .y = ViewAround(y, axis)};
  resize.taps = TapsOf(attrs, resize.x.size, resize.y.size);
  return resize;
}

// Elements of any type, copied.
template <class Word>
KernelOr MakeCopies(const Resize& resize) {
  return MakeKernel([resize](const KernelRun& run) {
    const Word* x = Input<Word>(run, 0);
    Word* y = Output<Word>(run, 0);
    const int64_t inner = resize.x.inner;
    const std::vector<int64_t>& index = resize.taps.index;
    for (int64_t outer = 0; outer < resize.x.outer; ++outer) {
      if (inner == 1) {
        for (int64_t at = 0; at < resize.y.size; ++at) y[at] = x[index[at]];
      } else {
        for (int64_t at = 0; at < resize.y.size; ++at) {
          std::memcpy(y + at * inner, x + index[at] * inner, inner * sizeof(Word));
        }
      }
      x += resize.x.size * inner;
      y += resize.y.size * inner;
    }
  });
}

// y's elements along x, as if none was outside.
template <int taps_per_element, class T>
void SumAlong(const T* x, const Taps& taps, T* y, int64_t size) {
  const int64_t* index = taps.index.data();
  const double* weight = taps.weight.data();
  for (int64_t at = 0; at < size; ++at, index += taps_per_element, weight += taps_per_element) {
    double sum = 0;
    for (int i = 0; i < taps_per_element; ++i) sum += weight[i] * x[index[i]];
    y[at] = static_cast<T>(sum);
  }
}

// Along the last axis.
template <class T>
KernelOr MakeRowSums(const Resize& resize) {
  return MakeKernel([=](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    T* y = Output<T>(run, 0);
    const Taps& taps = resize.taps;
    const int64_t size = resize.y.size;
    for (int64_t outer = 0; outer < resize.x.outer; ++outer, x += resize.x.size, y += size) {
      if (taps.per_element == 1) {
        SumAlong<1>(x, taps, y, size);
      } else if (taps.per_element == 2) {
        SumAlong<2>(x, taps, y, size);
      } else {
        SumAlong<kMostResizeTaps>(x, taps, y, size);
      }
      if (!taps.has_outside) continue;
      for (int64_t at = 0; at < size; ++at) {
        if (taps.is_outside[at]) y[at] = static_cast<T>(taps.outside);
      }
    }
  });
}

template <class T>
KernelOr MakeSums(const Resize& resize) {
  if (resize.x.inner == 1) return MakeRowSums<T>(resize);
  const auto centered_scale = simd::BestLoops<simd::NormLoops<T>>().centered_scale;
  const auto add_scaled = simd::BestLoops<simd::RowLoops<T>>().add_scaled;
  return MakeKernel([=](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    T* y = Output<T>(run, 0);
    const Taps& taps = resize.taps;
    const int64_t inner = resize.x.inner;
    for (int64_t outer = 0; outer < resize.x.outer; ++outer) {
      for (int64_t at = 0; at < resize.y.size; ++at, y += inner) {
        const int64_t* index = taps.index.data() + at * taps.per_element;
        const double* weight = taps.weight.data() + at * taps.per_element;
        if (taps.is_outside[at]) {
          std::fill_n(y, inner, static_cast<T>(taps.outside));
        } else {
          centered_scale(x + index[0] * inner, T{0}, static_cast<T>(weight[0]), T{0}, y, inner);
          for (int i = 1; i < taps.per_element; ++i) {
            if (weight[i] == 0) continue;
            add_scaled(x + index[i] * inner, static_cast<T>(weight[i]), y, inner);
          }
        }
      }
      x += resize.x.size * inner;
    }
  });
}

absl::StatusOr<Resize> ResizeOf(const KernelSpec& spec) {
  return ResizeBetween(spec, spec.inputs[0].shape(), spec.outputs[0].shape());
}

KernelOr MakeResizeByCopies(const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(const Resize resize, ResizeOf(spec));
  switch (SizeOf(spec.inputs[0].dtype)) {
    case 1:
      return MakeCopies<uint8_t>(resize);
    case 2:
      return MakeCopies<uint16_t>(resize);
    case 4:
      return MakeCopies<uint32_t>(resize);
    default:
      return MakeCopies<uint64_t>(resize);
  }
}

absl::StatusOr<PlannedKernel> PlanResize(const KernelSpec& spec) {
  const bool only_copies = spec.attrs.String("mode") == "nearest" &&
                           spec.attrs.String("coordinates") != "tf_crop_and_resize";
  if (only_copies) return KernelFactory(MakeResizeByCopies).PlanKernel(spec);
  return Widened(ForFloats([](const KernelSpec& each, auto type) -> KernelOr {
           BRAID_ASSIGN_OR_RETURN(const Resize resize, ResizeOf(each));
           return MakeSums<typename decltype(type)::type>(resize);
         }))
      .PlanKernel(spec);
}

template <class T>
KernelOr MakeResizeGrad(const KernelSpec& spec, ElementType<T>) {
  BRAID_ASSIGN_OR_RETURN(const Resize resize,
                         ResizeBetween(spec, spec.outputs[0].shape(), spec.inputs[0].shape()));
  const auto add_scaled = simd::BestLoops<simd::RowLoops<T>>().add_scaled;
  return MakeKernel([resize, add_scaled](const KernelRun& run) {
    const T* dy = Input<T>(run, 0);
    T* dx = Output<T>(run, 0);
    const Taps& taps = resize.taps;
    const int64_t inner = resize.x.inner;
    std::fill_n(dx, resize.x.outer * resize.x.size * inner, T{0});
    for (int64_t outer = 0; outer < resize.x.outer; ++outer) {
      for (int64_t at = 0; at < resize.y.size; ++at, dy += inner) {
        for (int i = 0; i < taps.per_element; ++i) {
          const int64_t tap = at * taps.per_element + i;
          const T weight = static_cast<T>(taps.weight[tap]);
          if (weight == T{0}) continue;
          if (inner == 1) {
            dx[taps.index[tap]] += weight * *dy;
          } else {
            add_scaled(dy, weight, dx + taps.index[tap] * inner, inner);
          }
        }
      }
      dx += resize.x.size * inner;
    }
  });
}

}  // namespace

absl::Status RegisterInterpolateKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("resize_axis", PlanResize));
  return registry.Register(
      "resize_axis_grad",
      Widened(ForFloats([](const auto& s, auto type) { return MakeResizeGrad(s, type); })));
}

}  // namespace braid::cpu
