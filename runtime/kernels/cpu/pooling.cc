// max_pool, avg_pool and their gradients: plane by plane (one image's channel, or a block of
// channels side by side), row of windows by row. What a row of windows reads is first joined over
// the outer axes, row by contiguous row, and then along the innermost one.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "graph/ops/window.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/blocked.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/window_loops.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Which elements the windows of one axis read: first, first + step, ..., `count` of them. Taps that
// fall on padding are left out.
struct WindowElements {
  int64_t first = 0, count = 0;
};

// Tap by tap of windows that slide: windows [begin, end) read existing elements, window o reads
// element o * stride + shift.
struct Tap {
  int64_t begin, end, shift;
};

struct PoolAxis {
  int64_t size = 1;
  int64_t step = 1;                     // dilation
  std::vector<WindowElements> windows;  // by window
  std::vector<double> divisors;         // by window
  int64_t stride = 0;                   // 0: windows have no common stride (adaptive)
  std::vector<Tap> taps;                // if they have

  int64_t num_windows() const { return static_cast<int64_t>(windows.size()); }
};

enum class Divisor { kElements, kPadded, kOne };

PoolAxis SlidingAxis(int64_t size, int64_t num_windows, const WindowAxis& axis, Divisor divisor) {
  PoolAxis result = {.size = size, .step = axis.dilation, .stride = axis.stride};
  for (int64_t t = 0; t < axis.kernel; ++t) {
    const int64_t shift = t * axis.dilation - axis.pad_begin;
    const int64_t low = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
    const int64_t high = shift >= size ? 0 : (size - 1 - shift) / axis.stride + 1;
    const Tap tap = {std::min(low, num_windows), std::min(high, num_windows), shift};
    if (tap.begin < tap.end) result.taps.push_back(tap);
  }
  for (int64_t o = 0; o < num_windows; ++o) {
    const int64_t start = o * axis.stride - axis.pad_begin;
    const int64_t skipped = start >= 0 ? 0 : (-start + axis.dilation - 1) / axis.dilation;
    const int64_t limit = start >= size ? 0 : (size - 1 - start) / axis.dilation + 1;
    const int64_t count = std::max<int64_t>(0, std::min(axis.kernel, limit) - skipped);
    result.windows.push_back({start + skipped * axis.dilation, count});
    // Taps on padding count, those that ceil_mode puts beyond it do not.
    const int64_t inside = (size + axis.pad_end - 1 - start) / axis.dilation + 1;
    const int64_t taps = divisor == Divisor::kElements ? count : std::min(axis.kernel, inside);
    result.divisors.push_back(
        divisor == Divisor::kOne ? 1 : static_cast<double>(std::max<int64_t>(1, taps)));
  }
  return result;
}

// Window o covers [floor(o * size / n), ceil((o + 1) * size / n)).
PoolAxis AdaptiveAxis(int64_t size, int64_t num_windows, Divisor divisor) {
  PoolAxis result = {.size = size};
  for (int64_t o = 0; o < num_windows; ++o) {
    const int64_t begin = o * size / num_windows;
    const int64_t end = ((o + 1) * size + num_windows - 1) / num_windows;
    result.windows.push_back({begin, end - begin});
    result.divisors.push_back(divisor == Divisor::kOne ? 1 : static_cast<double>(end - begin));
  }
  return result;
}

// Three axes; those that are missing stand in front.
struct Pooling {
  PoolAxis axes[3] = {};
  int64_t planes = 0;
  int64_t lanes = 1;  // channels of a plane, innermost

  int64_t x_row() const { return axes[2].size * lanes; }
  int64_t y_row() const { return axes[2].num_windows() * lanes; }
  int64_t x_plane() const { return axes[0].size * axes[1].size * x_row(); }
  int64_t y_plane() const { return axes[0].num_windows() * axes[1].num_windows() * y_row(); }

  // f(row of windows, its divisor over the outer axes, its windows on these).
  template <class F>
  void ForEachRow(F f) const {
    int64_t row = 0;
    for (int64_t i = 0; i < axes[0].num_windows(); ++i) {
      for (int64_t j = 0; j < axes[1].num_windows(); ++j, ++row) {
        f(row, axes[0].divisors[i] * axes[1].divisors[j], axes[0].windows[i], axes[1].windows[j]);
      }
    }
  }
  // f(offset in the plane) for each row of elements that a row of windows reads.
  template <class F>
  void ForEachElementRow(const WindowElements& outer, const WindowElements& middle, F f) const {
    for (int64_t i = 0; i < outer.count; ++i) {
      const int64_t at = (outer.first + i * axes[0].step) * axes[1].size;
      for (int64_t j = 0; j < middle.count; ++j) {
        f((at + middle.first + j * axes[1].step) * x_row());
      }
    }
  }
  // f(offset in the row of elements, their stride, offset in the row of windows, count): what its
  // windows read, each element of each window once.
  template <class F>
  void ForEachInRow(F f) const {
    const PoolAxis& inner = axes[2];
    for (const Tap& tap : inner.taps) {
      if (lanes == 1) {
        f(tap.begin * inner.stride + tap.shift, inner.stride, tap.begin, tap.end - tap.begin);
        continue;
      }
      for (int64_t o = tap.begin; o < tap.end; ++o) {
        f((o * inner.stride + tap.shift) * lanes, 1, o * lanes, lanes);
      }
    }
    if (inner.stride > 0) return;
    for (int64_t o = 0; o < inner.num_windows(); ++o) {
      for (int64_t i = 0; i < inner.windows[o].count; ++i) {
        f((inner.windows[o].first + i) * lanes, 1, o * lanes, lanes);
      }
    }
  }
};

Pooling PoolingOf(const KernelSpec& spec, int64_t lanes, const Shape& x, const Shape& y) {
  const Attrs& attrs = spec.attrs;
  Divisor divisor = Divisor::kElements;
  if (attrs.Has("divisor") && attrs.String("divisor") == "padded") divisor = Divisor::kPadded;
  if (attrs.Has("divisor") && attrs.String("divisor") == "one") divisor = Divisor::kOne;
  Pooling pooling = {.planes = x[0] * x[1] / lanes, .lanes = lanes};
  std::vector<WindowAxis> windows;
  // The operator's definition has checked them.
  if (attrs.Has("kernel")) windows = *WindowsOf(attrs, attrs.Ints("kernel"));
  const int space = x.rank() - 2;
  for (int i = 0; i < 3; ++i) {
    const int from = i - (3 - space);
    if (from < 0) {
      pooling.axes[i] = SlidingAxis(1, 1, {}, divisor);
    } else if (windows.empty()) {
      pooling.axes[i] = AdaptiveAxis(x[from + 2], y[from + 2], divisor);
    } else {
      pooling.axes[i] = SlidingAxis(x[from + 2], y[from + 2], windows[from], divisor);
    }
  }
  return pooling;
}

// Windows of two by two elements side by side, most networks' pooling, have loops of their own: the
// rows of all planes stand one under the other.
struct Halving {
  int64_t rows = 0;   // of windows
  int64_t width = 0;  // elements of a row

  // f(row of windows, count), for as many at a time as stay in the cache.
  template <class F>
  void ForEachPart(F f) const {
    for (int64_t row = 0; row < rows; row += part()) f(row, std::min(part(), rows - row));
  }
  int64_t part() const { return std::max<int64_t>(1, 1024 / width); }
};

std::optional<Halving> HalvingOf(const Pooling& pooling) {
  const auto is_halved = [](const PoolAxis& axis) {
    const int64_t n = axis.num_windows();
    return axis.stride == 2 && axis.size == 2 * n && axis.taps.size() == 2 &&
           axis.taps[0].shift == 0 && axis.taps[1].shift == 1 && n > 0;
  };
  if (pooling.lanes != 1 || pooling.axes[0].size != 1 || pooling.axes[0].num_windows() != 1 ||
      !is_halved(pooling.axes[1]) || !is_halved(pooling.axes[2])) {
    return std::nullopt;
  }
  return Halving{.rows = pooling.planes * pooling.axes[1].num_windows(),
                 .width = pooling.axes[2].size};
}

// The largest of each window of a plane, and where it is.
template <class T>
class ArgMaxRows {
 public:
  explicit ArgMaxRows(const Pooling& pooling)
      : pooling_(pooling),
        loop_(simd::BestLoops<simd::WindowLoops<T>>().arg_max_strided),
        best_(pooling.y_row()),
        index_(pooling.y_row()) {}

  // f(row of windows, largest elements, their positions in the plane or -1).
  template <class F>
  void ForEachRow(const T* x, F f) {
    pooling_.ForEachRow(
        [&](int64_t row, double, const WindowElements& outer, const WindowElements& middle) {
          std::fill(best_.begin(), best_.end(), -std::numeric_limits<T>::infinity());
          std::fill(index_.begin(), index_.end(), -1);
          pooling_.ForEachElementRow(outer, middle, [&](int64_t at) {
            pooling_.ForEachInRow([&](int64_t from, int64_t stride, int64_t to, int64_t n) {
              loop_(x + at + from, stride, static_cast<int32_t>(at + from), best_.data() + to,
                    index_.data() + to, n);
            });
          });
          f(row, best_.data(), index_.data());
        });
  }

 private:
  Pooling pooling_;
  decltype(simd::WindowLoops<T>::arg_max_strided) loop_;
  std::vector<T> best_;
  std::vector<int32_t> index_;
};

template <class T>
KernelOr MakeMaxPoolWithIndices(const Pooling& pooling) {
  return MakeKernel([pooling, rows = ArgMaxRows<T>(pooling)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    T* y = Output<T>(run, 0);
    auto* indices = Output<int64_t>(run, 1);
    const int64_t n = pooling.y_row();
    for (int64_t plane = 0; plane < pooling.planes; ++plane) {
      rows.ForEachRow(x, [&](int64_t row, const T* best, const int32_t* index) {
        std::copy_n(best, n, y + row * n);
        std::copy_n(index, n, indices + row * n);
      });
      x += pooling.x_plane();
      y += pooling.y_plane();
      indices += pooling.y_plane();
    }
  });
}

// Joins what windows read by Join::Rows (contiguous) and Join::Strided.
template <class T>
struct JoinMax {
  const simd::WindowLoops<T>& loops = simd::BestLoops<simd::WindowLoops<T>>();
  const T identity = -std::numeric_limits<T>::infinity();
  void operator()(const T* x, int64_t stride, T* y, int64_t n) const {
    loops.max_strided(x, stride, y, n);
  }
};
template <class T>
struct JoinSum {
  const simd::WindowLoops<T>& loops = simd::BestLoops<simd::WindowLoops<T>>();
  const T identity = 0;
  void operator()(const T* x, int64_t stride, T* y, int64_t n) const {
    loops.add_strided(x, stride, y, n);
  }
};

// One plane: the windows' joined elements, divided if `divides`.
template <class T, class Join>
void PoolPlane(const Pooling& pooling, const Join& join, bool divides, const T* x, T* joined,
               T* y) {
  const PoolAxis& inner = pooling.axes[2];
  const int64_t lanes = pooling.lanes;
  pooling.ForEachRow(
      [&](int64_t row, double divisor, const WindowElements& outer, const WindowElements& middle) {
        const T* from = joined;
        if (outer.count * middle.count == 1) {
          pooling.ForEachElementRow(outer, middle, [&](int64_t at) { from = x + at; });
        } else {
          bool is_first = true;
          std::fill_n(joined, outer.count * middle.count == 0 ? pooling.x_row() : 0, join.identity);
          pooling.ForEachElementRow(outer, middle, [&](int64_t at) {
            if (std::exchange(is_first, false)) {
              std::copy_n(x + at, pooling.x_row(), joined);
            } else {
              join(x + at, 1, joined, pooling.x_row());
            }
          });
        }
        T* to = y + row * pooling.y_row();
        std::fill_n(to, pooling.y_row(), join.identity);
        pooling.ForEachInRow([&](int64_t element, int64_t stride, int64_t window, int64_t n) {
          join(from + element, stride, to + window, n);
        });
        for (int64_t o = 0; divides && o < inner.num_windows(); ++o) {
          const T count = static_cast<T>(divisor * inner.divisors[o]);
          for (int64_t lane = 0; lane < lanes; ++lane) to[o * lanes + lane] /= count;
        }
      });
}

template <class T, class Join>
KernelOr MakePool(const Pooling& pooling, Join join, bool divides) {
  return MakeKernel([=, joined = std::vector<T>(pooling.x_row())](const KernelRun& run) mutable {
    for (int64_t plane = 0; plane < pooling.planes; ++plane) {
      PoolPlane(pooling, join, divides, Input<T>(run, 0) + plane * pooling.x_plane(), joined.data(),
                Output<T>(run, 0) + plane * pooling.y_plane());
    }
  });
}

template <class T>
KernelOr MakeMaxPool(const KernelSpec& spec, int64_t lanes, ElementType<T>) {
  const Pooling pooling = PoolingOf(spec, lanes, spec.inputs[0].shape(), spec.outputs[0].shape());
  if (Flag(spec.attrs, "with_indices")) return MakeMaxPoolWithIndices<T>(pooling);
  if (const auto halving = HalvingOf(pooling)) {
    const auto loop = simd::BestLoops<simd::WindowLoops<T>>().max_2x2;
    std::vector<T> scratch(halving->part() * halving->width);
    return MakeKernel([=, halving = *halving](const KernelRun& run) mutable {
      const int64_t width = halving.width;
      halving.ForEachPart([&](int64_t row, int64_t count) {
        loop(Input<T>(run, 0) + 2 * row * width, count, width, scratch.data(),
             Output<T>(run, 0) + row * width / 2);
      });
    });
  }
  return MakePool<T>(pooling, JoinMax<T>(), /*divides=*/false);
}

template <class T>
KernelOr MakeAveragePool(const KernelSpec& spec, int64_t lanes, ElementType<T>) {
  return MakePool<T>(PoolingOf(spec, lanes, spec.inputs[0].shape(), spec.outputs[0].shape()),
                     JoinSum<T>(), /*divides=*/spec.attrs.String("divisor") != "one");
}

// Finds the largest elements again: it costs a pass, and saves keeping their positions until then.
template <class T>
KernelOr MakeMaxPoolGrad(const KernelSpec& spec, int64_t lanes, ElementType<T>) {
  const Pooling pooling = PoolingOf(spec, lanes, spec.inputs[0].shape(), spec.inputs[1].shape());
  if (const auto halving = HalvingOf(pooling)) {
    const auto loop = simd::BestLoops<simd::WindowLoops<T>>().max_2x2_grad;
    std::vector<T> scratch(2 * halving->part() * halving->width);
    return MakeKernel([=, halving = *halving](const KernelRun& run) mutable {
      const int64_t width = halving.width;
      halving.ForEachPart([&](int64_t row, int64_t count) {
        loop(Input<T>(run, 0) + 2 * row * width, Input<T>(run, 1) + row * width / 2, count, width,
             scratch.data(), Output<T>(run, 0) + 2 * row * width);
      });
    });
  }
  return MakeKernel([pooling, rows = ArgMaxRows<T>(pooling)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* dy = Input<T>(run, 1);
    T* dx = Output<T>(run, 0);
    const int64_t n = pooling.y_row();
    for (int64_t plane = 0; plane < pooling.planes; ++plane) {
      std::fill_n(dx, pooling.x_plane(), T{0});
      rows.ForEachRow(x, [&](int64_t row, const T*, const int32_t* index) {
        for (int64_t o = 0; o < n; ++o) {
          if (index[o] >= 0) dx[index[o]] += dy[row * n + o];
        }
      });
      x += pooling.x_plane();
      dy += pooling.y_plane();
      dx += pooling.x_plane();
    }
  });
}

template <class T>
KernelOr MakeAveragePoolGrad(const KernelSpec& spec, int64_t lanes, ElementType<T>) {
  const Pooling pooling = PoolingOf(spec, lanes, spec.outputs[0].shape(), spec.inputs[0].shape());
  const auto& window_loops = simd::BestLoops<simd::WindowLoops<T>>();
  const auto& row_loops = simd::BestLoops<simd::RowLoops<T>>();
  return MakeKernel([=, scaled = std::vector<T>(pooling.y_row()),
                     spread = std::vector<T>(pooling.x_row())](const KernelRun& run) mutable {
    const PoolAxis& inner = pooling.axes[2];
    for (int64_t plane = 0; plane < pooling.planes; ++plane) {
      const T* dy = Input<T>(run, 0) + plane * pooling.y_plane();
      T* dx = Output<T>(run, 0) + plane * pooling.x_plane();
      std::fill_n(dx, pooling.x_plane(), T{0});
      pooling.ForEachRow([&](int64_t row, double divisor, const WindowElements& outer,
                             const WindowElements& middle) {
        const T* from = dy + row * pooling.y_row();
        for (int64_t o = 0; o < inner.num_windows(); ++o) {
          const T count = static_cast<T>(divisor * inner.divisors[o]);
          for (int64_t at = o * lanes; at < (o + 1) * lanes; ++at) scaled[at] = from[at] / count;
        }
        std::fill(spread.begin(), spread.end(), T{0});
        pooling.ForEachInRow([&](int64_t element, int64_t stride, int64_t window, int64_t n) {
          window_loops.scatter_strided(scaled.data() + window, spread.data() + element, stride, n);
        });
        pooling.ForEachElementRow(outer, middle, [&](int64_t at) {
          row_loops.add_scaled(spread.data(), T{1}, dx + at, pooling.x_row());
        });
      });
    }
  });
}

// `make` for operands whose channels all come in blocks, else for plain ones.
template <class Make>
KernelFactory ForLayouts(Make make) {
  const KernelFactory plain = Unblocked(Widened(ForFloats(
      [make](const KernelSpec& spec, auto type) { return make(spec, /*lanes=*/1, type); })));
  const KernelFactory blocked = [make](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    BRAID_ASSIGN_OR_RETURN(const PlainSpec without, PlainSpecOf(spec));
    const auto all = [](const std::vector<bool>& are) {
      return std::all_of(are.begin(), are.end(), [](bool is) { return is; });
    };
    if (!all(without.inputs) || !all(without.outputs)) return UnsupportedTypes(spec);
    const int64_t channels = without.spec.inputs[0].logical[1];
    const int64_t lanes = compiler::ChannelsInBlock(channels, without.block);
    return ForFloats(
               [make, lanes](const KernelSpec& each, auto type) { return make(each, lanes, type); })
        .PlanKernel(without.spec);
  };
  return FirstSupported({blocked, plain});
}

}  // namespace

absl::Status RegisterPoolingKernels(KernelRegistry& registry) {
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name, ForLayouts(make));
  };
  BRAID_RETURN_IF_ERROR(add("max_pool", [](const auto& spec, int64_t lanes, auto type) {
    return MakeMaxPool(spec, lanes, type);
  }));
  BRAID_RETURN_IF_ERROR(add("max_pool_grad", [](const auto& spec, int64_t lanes, auto type) {
    return MakeMaxPoolGrad(spec, lanes, type);
  }));
  BRAID_RETURN_IF_ERROR(add("avg_pool", [](const auto& spec, int64_t lanes, auto type) {
    return MakeAveragePool(spec, lanes, type);
  }));
  return add("avg_pool_grad", [](const auto& spec, int64_t lanes, auto type) {
    return MakeAveragePoolGrad(spec, lanes, type);
  });
}

}  // namespace braid::cpu
