// channel_sum, batch_moment, batch_norm and its gradients where channels come in blocks: a block of
// an image is a run of pixels, each with the block's channels side by side.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/batch_norm.h"
#include "runtime/kernels/cpu/blocked.h"
#include "runtime/kernels/cpu/lane_loops.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

static_assert(compiler::kNarrowBlock == simd::kFewLanes);
static_assert(compiler::kWideBlock == simd::kManyLanes);
constexpr int64_t kPixelRun = 256;  // whose sums are joined in T, for accuracy over many

struct Layout {
  int64_t images = 0, blocks = 0, pixels = 0;  // here
  int64_t block = 0;                           // channels of one
  double count = 1;                 // elements of a channel in the batch, wherever they are
  double epsilon = 0, divisor = 1;  // of the statistics that come in

  int64_t channels() const { return blocks * block; }
};

// A micro-batch is a batch of its own. `spec` is plain.
Layout LayoutOf(const KernelSpec& spec, int64_t block, bool is_training) {
  const OperandSpec& x = spec.inputs[0];
  const AxisView view = ViewAround(x.shape(), 1);
  Layout layout = {
      .images = view.outer, .blocks = view.size / block, .pixels = view.inner, .block = block};
  layout.count = static_cast<double>(x.micro_batch_axis == 0 ? x.micro_batch_stride : x.logical[0]);
  for (int axis = 2; axis < x.logical.rank(); ++axis) layout.count *= x.logical[axis];
  layout.count = std::max(layout.count, 1.0);
  layout.epsilon = Number(spec.attrs, "epsilon", 0);
  layout.divisor = is_training ? layout.count : 1;
  return layout;
}

// f(first channel, offset) for the pixels of each block of each image.
template <class F>
void ForEachBlock(const Layout& layout, F f) {
  int64_t at = 0;
  for (int64_t image = 0; image < layout.images; ++image) {
    for (int64_t block = 0; block < layout.blocks; ++block) {
      f(block * layout.block, at);
      at += layout.pixels * layout.block;
    }
  }
}
// The same in runs of at most kPixelRun pixels: f(first channel, offset, pixels).
template <class F>
void ForEachRun(const Layout& layout, F f) {
  ForEachBlock(layout, [&](int64_t channel, int64_t at) {
    for (int64_t pixel = 0; pixel < layout.pixels; pixel += kPixelRun) {
      f(channel, at + pixel * layout.block, std::min(kPixelRun, layout.pixels - pixel));
    }
  });
}

// Mean and 1 / sqrt(variance + epsilon), from inputs 1 and 2: themselves, or the batch's sums.
template <class T>
struct Statistics {
  explicit Statistics(const Layout& layout)
      : layout(layout), mean(layout.channels()), rstd(layout.channels()) {}

  void Read(const KernelRun& run) {
    const T* first = Input<T>(run, 1);
    const T* second = Input<T>(run, 2);
    for (size_t c = 0; c < mean.size(); ++c) {
      mean[c] = static_cast<T>(first[c] / layout.divisor);
      rstd[c] = static_cast<T>(1 / std::sqrt(second[c] / layout.divisor + layout.epsilon));
    }
  }

  Layout layout;
  std::vector<T> mean, rstd;
};

template <class T>
KernelOr MakeSum(const KernelSpec& spec, int64_t block, ElementType<T>) {
  const Layout layout = LayoutOf(spec, block, /*is_training=*/true);
  const auto& loops = simd::BestLoops<simd::BlockLoops<T>>().of(block);
  return MakeKernel(
      [=, total = std::vector<double>(layout.channels())](const KernelRun& run) mutable {
        const T* x = Input<T>(run, 0);
        std::fill(total.begin(), total.end(), 0);
        ForEachRun(layout, [&](int64_t channel, int64_t at, int64_t pixels) {
          T sum[simd::kManyLanes];
          loops.lane_sum(x + at, pixels, sum);
          for (int64_t l = 0; l < layout.block; ++l) total[channel + l] += sum[l];
        });
        std::copy(total.begin(), total.end(), Output<T>(run, 0));
      });
}

template <class T>
KernelOr MakeMoment(const KernelSpec& spec, int64_t block, ElementType<T>) {
  const Layout layout = LayoutOf(spec, block, /*is_training=*/true);
  const auto& loops = simd::BestLoops<simd::BlockLoops<T>>().of(block);
  return MakeKernel([=, mean = std::vector<T>(layout.channels()),
                     total = std::vector<double>(layout.channels())](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* sums = Input<T>(run, 1);
    for (size_t c = 0; c < mean.size(); ++c) mean[c] = static_cast<T>(sums[c] / layout.count);
    std::fill(total.begin(), total.end(), 0);
    ForEachRun(layout, [&](int64_t channel, int64_t at, int64_t pixels) {
      T sum[simd::kManyLanes];
      loops.lane_square_sum(x + at, mean.data() + channel, pixels, sum);
      for (int64_t l = 0; l < layout.block; ++l) total[channel + l] += sum[l];
    });
    std::copy(total.begin(), total.end(), Output<T>(run, 0));
  });
}

// What normalizes a block's pixels, and rectifies them if attribute relu says so.
template <class T>
class Norm {
 public:
  Norm(const Layout& layout, const KernelSpec& spec)
      : statistics_(layout), factor_(layout.channels()), rectifies_(Flag(spec.attrs, "relu")) {}

  // `gamma` may be null where nothing is scaled.
  void Read(const KernelRun& run, const T* gamma) {
    statistics_.Read(run);
    if (gamma == nullptr) return;
    for (size_t c = 0; c < factor_.size(); ++c) factor_[c] = gamma[c] * rstd()[c];
  }
  // Without `beta`, which only a rectifier asks for, x is centered but not shifted.
  simd::LaneScale<T> At(int64_t channel, const T* beta) const {
    const T* addend = beta == nullptr ? mean().data() : beta;
    return {mean().data() + channel, factor_.data() + channel, addend + channel, rectifies_};
  }
  bool rectifies() const { return rectifies_; }
  const std::vector<T>& mean() const { return statistics_.mean; }
  const std::vector<T>& rstd() const { return statistics_.rstd; }
  const std::vector<T>& factor() const { return factor_; }  // gamma * rstd

 private:
  Statistics<T> statistics_;
  std::vector<T> factor_;
  bool rectifies_;
};

template <class T>
KernelOr MakeNorm(const KernelSpec& spec, int64_t block, ElementType<T>) {
  const Layout layout = LayoutOf(spec, block, Flag(spec.attrs, "training"));
  const auto& loops = simd::BestLoops<simd::BlockLoops<T>>().of(block);
  const bool adds = spec.inputs.size() > 5;
  return MakeKernel([=, norm = Norm<T>(layout, spec)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* beta = Input<T>(run, 4);
    T* y = Output<T>(run, 0);
    norm.Read(run, Input<T>(run, 3));
    ForEachBlock(layout, [&](int64_t channel, int64_t at) {
      const T* more = adds ? Input<T>(run, 5) + at : nullptr;
      loops.lane_scale(x + at, norm.At(channel, beta), more, y + at, layout.pixels);
    });
  });
}

template <class T>
KernelOr MakeSums(const KernelSpec& spec, int64_t block, ElementType<T>) {
  const Layout layout = LayoutOf(spec, block, Flag(spec.attrs, "training"));
  const auto& loops = simd::BestLoops<simd::BlockLoops<T>>().of(block);
  return MakeKernel([=, norm = Norm<T>(layout, spec), sums = std::vector<double>(layout.channels()),
                     dots = std::vector<double>(layout.channels())](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* dy = Input<T>(run, 3);
    const T* beta = norm.rectifies() ? Input<T>(run, 5) : nullptr;
    norm.Read(run, norm.rectifies() ? Input<T>(run, 4) : nullptr);
    std::fill(sums.begin(), sums.end(), 0);
    std::fill(dots.begin(), dots.end(), 0);
    ForEachRun(layout, [&](int64_t channel, int64_t at, int64_t pixels) {
      simd::LaneSums<T> part;
      loops.lane_dot(x + at, norm.At(channel, beta), dy + at, pixels, &part);
      for (int64_t l = 0; l < layout.block; ++l) {
        sums[channel + l] += part.sum[l];
        dots[channel + l] += part.dot[l];
      }
    });
    T* dgamma = Output<T>(run, 0);
    T* dbeta = Output<T>(run, 1);
    for (size_t c = 0; c < sums.size(); ++c) {
      dgamma[c] = static_cast<T>(dots[c] * norm.rstd()[c]);
      dbeta[c] = static_cast<T>(sums[c]);
    }
  });
}

template <class T>
KernelOr MakeInputGradient(const KernelSpec& spec, int64_t block, ElementType<T>) {
  const Layout layout = LayoutOf(spec, block, /*is_training=*/true);
  const auto& loops = simd::BestLoops<simd::BlockLoops<T>>().of(block);
  return MakeKernel([=, norm = Norm<T>(layout, spec), of_x = std::vector<T>(layout.channels()),
                     addend = std::vector<T>(layout.channels())](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* dy = Input<T>(run, 4);
    const T* dgamma = Input<T>(run, 5);
    const T* dbeta = Input<T>(run, 6);
    const T* beta = norm.rectifies() ? Input<T>(run, 7) : nullptr;
    T* dx = Output<T>(run, 0);
    norm.Read(run, Input<T>(run, 3));
    const std::vector<T>& of_dy = norm.factor();
    for (size_t c = 0; c < of_dy.size(); ++c) {
      of_x[c] = static_cast<T>(-of_dy[c] * norm.rstd()[c] * dgamma[c] / layout.count);
      addend[c] = static_cast<T>(-of_dy[c] * dbeta[c] / layout.count);
    }
    ForEachBlock(layout, [&](int64_t channel, int64_t at) {
      loops.lane_grad(x + at, norm.At(channel, beta), dy + at,
                      {of_dy.data() + channel, of_x.data() + channel, addend.data() + channel},
                      dx + at, layout.pixels);
    });
  });
}

}  // namespace

absl::StatusOr<PlannedKernel> PlanBlockedBatchNorm(BatchNormPart part, const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(spec));
  const auto all_blocked = [](const std::vector<OperandSpec>& operands,
                              const std::vector<bool>& is_blocked) {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].logical.rank() > 1 && !is_blocked[i]) return false;
    }
    return true;
  };
  const bool has_loops = plain.block != compiler::kWholeBlock &&
                         all_blocked(spec.inputs, plain.inputs) &&
                         all_blocked(spec.outputs, plain.outputs);
  if (!has_loops) {
    return UnsupportedTypes(spec);
  }
  const KernelFactory factory =
      ForFloats([part, block = plain.block](const KernelSpec& spec, auto type) -> KernelOr {
        switch (part) {
          case BatchNormPart::kSum:
            return MakeSum(spec, block, type);
          case BatchNormPart::kMoment:
            return MakeMoment(spec, block, type);
          case BatchNormPart::kNorm:
            return MakeNorm(spec, block, type);
          case BatchNormPart::kSums:
            return MakeSums(spec, block, type);
          case BatchNormPart::kInputGradient:
            return MakeInputGradient(spec, block, type);
        }
        return UnsupportedTypes(spec);
      });
  return factory.PlanKernel(plain.spec);
}

}  // namespace braid::cpu
