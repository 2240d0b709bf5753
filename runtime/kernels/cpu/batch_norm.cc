// channel_sum, batch_moment, batch_norm and its gradients. Space is a row of one channel; where it
// is short (or there is none) an image's channels are one row, with the channels' numbers spread
// over it.
#include "runtime/kernels/cpu/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/blocked.h"
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

constexpr int64_t kShortRow = 16;
constexpr int64_t kImageBlock = 64;  // images whose sums are joined in T, for accuracy over many

struct Layout {
  int64_t images = 0, channels = 0, space = 0;  // here
  double count = 1;  // elements of a channel in the batch, wherever they are
  bool is_short = false;

  int64_t row() const { return channels * space; }
};

// A micro-batch is a batch of its own.
Layout LayoutOf(const OperandSpec& x) {
  Layout layout;
  const AxisView view = ViewAround(x.shape(), 1);
  layout.images = view.outer;
  layout.channels = view.size;
  layout.space = view.inner;
  layout.is_short = layout.space < kShortRow;
  layout.count = static_cast<double>(x.micro_batch_axis == 0 ? x.micro_batch_stride : x.logical[0]);
  for (int axis = 2; axis < x.logical.rank(); ++axis) layout.count *= x.logical[axis];
  layout.count = std::max(layout.count, 1.0);
  return layout;
}

// Numbers per channel, as scalars or spread over an image's row.
template <class T>
class ChannelNumbers {
 public:
  explicit ChannelNumbers(const Layout& layout)
      : space_(layout.is_short ? std::max<int64_t>(1, layout.space) : 1),
        values_(layout.channels * space_) {}

  T operator[](int64_t channel) const { return values_[channel * space_]; }
  const T* spread() const { return values_.data(); }
  // value(channel) for each.
  template <class F>
  void Set(F value) {
    const auto channels = static_cast<int64_t>(values_.size()) / space_;
    for (int64_t c = 0; c < channels; ++c) {
      std::fill_n(values_.data() + c * space_, space_, static_cast<T>(value(c)));
    }
  }

 private:
  int64_t space_;
  std::vector<T> values_;
};

// Sums per channel: blocks of images in T, their total in double.
template <class T>
class ChannelSums {
 public:
  explicit ChannelSums(const Layout& layout)
      : layout_(layout), total_(layout.channels), block_(layout.is_short ? layout.row() : 0) {}

  void Clear() { std::fill(total_.begin(), total_.end(), 0); }
  void Add(int64_t channel, T value) { total_[channel] += static_cast<double>(value); }
  T* block() { return block_.data(); }  // short rows: an addend per element
  void JoinBlock() {
    for (int64_t c = 0, i = 0; c < layout_.channels; ++c) {
      for (int64_t end = i + layout_.space; i < end; ++i) {
        total_[c] += static_cast<double>(block_[i]);
        block_[i] = 0;
      }
    }
  }
  void Store(T* to, const ChannelNumbers<T>* factor = nullptr) const {
    for (int64_t c = 0; c < layout_.channels; ++c) {
      const double scale = factor == nullptr ? 1 : static_cast<double>((*factor)[c]);
      to[c] = static_cast<T>(total_[c] * scale);
    }
  }

 private:
  Layout layout_;
  std::vector<double> total_;
  std::vector<T> block_;
};

// image(i) for every image, and join() after each block of them.
template <class Image, class Join>
void ForEachBlock(int64_t images, Image image, Join join) {
  for (int64_t begin = 0; begin < images; begin += kImageBlock) {
    for (int64_t i = begin; i < std::min(images, begin + kImageBlock); ++i) image(i);
    join();
  }
}

template <class T>
KernelOr MakeSum(const KernelSpec& spec, ElementType<T>) {
  const Layout layout = LayoutOf(spec.inputs[0]);
  const auto& loops = simd::BestLoops<simd::RowLoops<T>>();
  return MakeKernel([=, sums = ChannelSums<T>(layout)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    sums.Clear();
    const auto image = [&](int64_t i) {
      const T* row = x + i * layout.row();
      if (layout.is_short) {
        loops.add_scaled(row, T{1}, sums.block(), layout.row());
        return;
      }
      for (int64_t c = 0; c < layout.channels; ++c, row += layout.space) {
        sums.Add(c, loops.sum(row, layout.space));
      }
    };
    ForEachBlock(layout.images, image, [&] {
      if (layout.is_short) sums.JoinBlock();
    });
    sums.Store(Output<T>(run, 0));
  });
}

template <class T>
KernelOr MakeMoment(const KernelSpec& spec, ElementType<T>) {
  const Layout layout = LayoutOf(spec.inputs[0]);
  const auto& loops = simd::BestLoops<simd::NormLoops<T>>();
  return MakeKernel([=, mean = ChannelNumbers<T>(layout),
                     sums = ChannelSums<T>(layout)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* sum = Input<T>(run, 1);
    mean.Set([&](int64_t c) { return sum[c] / layout.count; });
    sums.Clear();
    const auto image = [&](int64_t i) {
      const T* row = x + i * layout.row();
      if (layout.is_short) {
        loops.add_centered_squares(row, mean.spread(), sums.block(), layout.row());
        return;
      }
      for (int64_t c = 0; c < layout.channels; ++c, row += layout.space) {
        sums.Add(c, loops.centered_square_sum(row, mean[c], layout.space));
      }
    };
    ForEachBlock(layout.images, image, [&] {
      if (layout.is_short) sums.JoinBlock();
    });
    sums.Store(Output<T>(run, 0));
  });
}

// Mean and 1 / sqrt(variance + epsilon), from inputs 1 and 2: themselves, or the batch's sums.
template <class T>
struct Statistics {
  Statistics(const Layout& layout, const Attrs& attrs, bool is_training)
      : epsilon(attrs.Double("epsilon")),
        divisor(is_training ? layout.count : 1),
        mean(layout),
        rstd(layout) {}

  void Read(const KernelRun& run) {
    const T* first = Input<T>(run, 1);
    const T* second = Input<T>(run, 2);
    mean.Set([&](int64_t c) { return first[c] / divisor; });
    rstd.Set([&](int64_t c) { return 1 / std::sqrt(second[c] / divisor + epsilon); });
  }

  double epsilon, divisor;
  ChannelNumbers<T> mean, rstd;
};

template <class T>
constexpr simd::Type kLoopType = sizeof(T) == 4 ? simd::Type::kF32 : simd::Type::kF64;

// The norm itself, row by row: a row of one channel, or of an image where these are short.
template <class T>
class Norm {
 public:
  Norm(const Layout& layout, const KernelSpec& spec, bool is_training)
      : statistics(layout, spec.attrs, is_training),
        layout_(layout),
        factor_(layout),
        addend_(layout),
        rectifies_(Flag(spec.attrs, "relu")),
        buffer_(layout.is_short ? layout.row() : layout.space) {}

  // `gamma` and `beta` are read only by Row and, if there is a rectifier, by Passed.
  void Read(const KernelRun& run, const T* gamma, const T* beta) {
    statistics.Read(run);
    if (gamma == nullptr) return;
    factor_.Set([&](int64_t c) { return gamma[c] * statistics.rstd[c]; });
    if (beta != nullptr) addend_.Set([&](int64_t c) { return beta[c]; });
  }

  // y of the row x; `more`, unless it is null, is added before the rectifier.
  void Row(int64_t channel, const T* x, const T* more, T* y) {
    const auto n = static_cast<int64_t>(buffer_.size());
    Normalize(channel, x, more == nullptr ? y : buffer_.data());
    if (more != nullptr) add_(buffer_.data(), more, y, n);
    if (rectifies_) relu_(y, y, n, 0);
  }
  // dy of the row where the rectifier let x through.
  const T* Passed(int64_t channel, const T* x, const T* dy) {
    if (!rectifies_) return dy;
    Normalize(channel, x, buffer_.data());
    relu_grad_(buffer_.data(), dy, buffer_.data(), static_cast<int64_t>(buffer_.size()));
    return buffer_.data();
  }

  bool rectifies() const { return rectifies_; }
  const ChannelNumbers<T>& factor() const { return factor_; }  // gamma * rstd
  Statistics<T> statistics;

 private:
  void Normalize(int64_t channel, const T* x, T* y) const {
    const ChannelNumbers<T>& mean = statistics.mean;
    if (layout_.is_short) {
      loops_.centered_scale_each(x, mean.spread(), factor_.spread(), addend_.spread(), y,
                                 layout_.row());
    } else {
      loops_.centered_scale(x, mean[channel], factor_[channel], addend_[channel], y, layout_.space);
    }
  }
  static simd::BinaryFn BinaryLoop(simd::BinaryOp op) {
    return simd::BestLoops<simd::ElementwiseLoops>().binary[static_cast<int>(op)][static_cast<int>(
        kLoopType<T>)][static_cast<int>(simd::Form::kVectorVector)];
  }

  Layout layout_;
  const simd::NormLoops<T>& loops_ = simd::BestLoops<simd::NormLoops<T>>();
  simd::BinaryFn add_ = BinaryLoop(simd::BinaryOp::kAdd);
  simd::BinaryFn relu_grad_ = BinaryLoop(simd::BinaryOp::kReluGrad);
  simd::UnaryFn relu_ =
      simd::BestLoops<simd::ElementwiseLoops>()
          .unary[static_cast<int>(simd::UnaryOp::kRelu)][static_cast<int>(kLoopType<T>)];
  ChannelNumbers<T> factor_, addend_;
  bool rectifies_;
  std::vector<T> buffer_;
};

template <class T>
KernelOr MakeBatchNorm(const KernelSpec& spec, ElementType<T>) {
  const Layout layout = LayoutOf(spec.inputs[0]);
  const bool adds = spec.inputs.size() > 5;
  return MakeKernel([=, norm = Norm<T>(layout, spec, Flag(spec.attrs, "training"))](
                        const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* more = adds ? Input<T>(run, 5) : nullptr;
    T* y = Output<T>(run, 0);
    norm.Read(run, Input<T>(run, 3), Input<T>(run, 4));
    const int64_t rows = layout.is_short ? 1 : layout.channels;
    const int64_t n = layout.is_short ? layout.row() : layout.space;
    for (int64_t i = 0, at = 0; i < layout.images; ++i) {
      for (int64_t c = 0; c < rows; ++c, at += n) {
        norm.Row(c, x + at, adds ? more + at : nullptr, y + at);
      }
    }
  });
}

template <class T>
KernelOr MakeBatchNormSums(const KernelSpec& spec, ElementType<T>) {
  const Layout layout = LayoutOf(spec.inputs[0]);
  const auto& loops = simd::BestLoops<simd::NormLoops<T>>();
  return MakeKernel([=, norm = Norm<T>(layout, spec, Flag(spec.attrs, "training")),
                     dots = ChannelSums<T>(layout),
                     sums = ChannelSums<T>(layout)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* dy = Input<T>(run, 3);
    const bool rectifies = norm.rectifies();
    norm.Read(run, rectifies ? Input<T>(run, 4) : nullptr, rectifies ? Input<T>(run, 5) : nullptr);
    const ChannelNumbers<T>& mean = norm.statistics.mean;
    dots.Clear();
    sums.Clear();
    const auto image = [&](int64_t i) {
      int64_t at = i * layout.row();
      if (layout.is_short) {
        loops.add_centered_dots(x + at, mean.spread(), norm.Passed(0, x + at, dy + at),
                                sums.block(), dots.block(), layout.row());
        return;
      }
      for (int64_t c = 0; c < layout.channels; ++c, at += layout.space) {
        T sum, dot;
        loops.centered_dot(x + at, mean[c], norm.Passed(c, x + at, dy + at), layout.space, &sum,
                           &dot);
        sums.Add(c, sum);
        dots.Add(c, dot);
      }
    };
    ForEachBlock(layout.images, image, [&] {
      if (!layout.is_short) return;
      sums.JoinBlock();
      dots.JoinBlock();
    });
    dots.Store(Output<T>(run, 0), &norm.statistics.rstd);
    sums.Store(Output<T>(run, 1));
  });
}

template <class T>
KernelOr MakeBatchNormInputGrad(const KernelSpec& spec, ElementType<T>) {
  const Layout layout = LayoutOf(spec.inputs[0]);
  const auto& loops = simd::BestLoops<simd::NormLoops<T>>();
  return MakeKernel([=, norm = Norm<T>(layout, spec, /*is_training=*/true),
                     of_x = ChannelNumbers<T>(layout),
                     addend = ChannelNumbers<T>(layout)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* dy = Input<T>(run, 4);
    const T* dgamma = Input<T>(run, 5);
    const T* dbeta = Input<T>(run, 6);
    T* dx = Output<T>(run, 0);
    norm.Read(run, Input<T>(run, 3), norm.rectifies() ? Input<T>(run, 7) : nullptr);
    const ChannelNumbers<T>&mean = norm.statistics.mean, &rstd = norm.statistics.rstd;
    const ChannelNumbers<T>& of_dy = norm.factor();
    of_x.Set([&](int64_t c) { return -of_dy[c] * rstd[c] * dgamma[c] / layout.count; });
    addend.Set([&](int64_t c) { return -of_dy[c] * dbeta[c] / layout.count; });
    for (int64_t i = 0, at = 0; i < layout.images; ++i) {
      if (layout.is_short) {
        loops.centered_grad_each(x + at, mean.spread(), norm.Passed(0, x + at, dy + at),
                                 {of_dy.spread(), of_x.spread(), addend.spread()}, dx + at,
                                 layout.row());
        at += layout.row();
        continue;
      }
      for (int64_t c = 0; c < layout.channels; ++c, at += layout.space) {
        loops.centered_grad(x + at, mean[c], norm.Passed(c, x + at, dy + at),
                            {of_dy[c], of_x[c], addend[c]}, dx + at, layout.space);
      }
    }
  });
}

}  // namespace

absl::Status RegisterBatchNormKernels(KernelRegistry& registry) {
  const auto add = [&](const char* name, BatchNormPart part, auto make) {
    const KernelFactory plain =
        Widened(ForFloats([make](const auto& s, auto type) { return make(s, type); }));
    const KernelFactory blocked =
        Widened([part](const KernelSpec& spec) { return PlanBlockedBatchNorm(part, spec); });
    return registry.Register(name, ForEachGroup(part, FirstSupported({blocked, Unblocked(plain)})));
  };
  using Part = BatchNormPart;
  BRAID_RETURN_IF_ERROR(
      add("channel_sum", Part::kSum, [](const auto& s, auto type) { return MakeSum(s, type); }));
  BRAID_RETURN_IF_ERROR(add("batch_moment", Part::kMoment,
                            [](const auto& s, auto type) { return MakeMoment(s, type); }));
  BRAID_RETURN_IF_ERROR(add("batch_norm", Part::kNorm,
                            [](const auto& s, auto type) { return MakeBatchNorm(s, type); }));
  BRAID_RETURN_IF_ERROR(add("batch_norm_sums", Part::kSums,
                            [](const auto& s, auto type) { return MakeBatchNormSums(s, type); }));
  return add("batch_norm_dx", Part::kInputGradient,
             [](const auto& s, auto type) { return MakeBatchNormInputGrad(s, type); });
}

}  // namespace braid::cpu
