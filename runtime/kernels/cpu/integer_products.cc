#include "runtime/kernels/cpu/integer_products.h"

#include <glog/logging.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <dnnl.hpp>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/dnnl_call.h"
#include "runtime/kernels/cpu/dnnl_version.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {
namespace {

constexpr int32_t kMove = 128;  // from i8 to u8
// The inputs behind a and b.
constexpr int kZeroOfA = 2, kZerosOfB = 3;

bool HasBytes(const KernelSpec& spec) {
  const auto is_byte = [](const OperandSpec& operand) {
    return operand.dtype == DType::kU8 || operand.dtype == DType::kI8;
  };
  return std::ranges::all_of(spec.inputs, is_byte) && spec.outputs[0].dtype == DType::kI32;
}

// As signed or unsigned numbers, whichever they are.
int32_t ByteAt(const void* bytes, int64_t i, bool is_signed) {
  return is_signed ? static_cast<const int8_t*>(bytes)[i] : static_cast<const uint8_t*>(bytes)[i];
}

}  // namespace

bool IsExactForBytes(const std::string& implementation, int64_t terms) {
  const bool adds_in_32_bits =
      absl::StrContains(implementation, "vnni") || absl::StrContains(implementation, "amx_int8");
  // The others write by way of f32.
  constexpr int64_t kMostOfProduct = 255 * 128, kMostExact = int64_t{1} << 24;
  const bool is_of_blocks =
      absl::StrContains(implementation, "brg") || absl::StrContains(implementation, "brdgmm");
  return adds_in_32_bits && (is_of_blocks || terms * kMostOfProduct <= kMostExact);
}

// ---- operands

ByteOperands::ByteOperands(const KernelSpec& spec)
    : a_is_signed_(spec.inputs[0].dtype == DType::kI8),
      b_is_signed_(spec.inputs[1].dtype == DType::kI8),
      a_elements_(spec.inputs[0].num_elements()),
      b_elements_(spec.inputs[1].num_elements()),
      num_zeros_(spec.inputs.size() > kZerosOfB ? spec.inputs[kZerosOfB].num_elements() : 1),
      num_inputs_(spec.inputs.size()),
      may_have_zeros_of_b_(!b_is_signed_ || num_inputs_ > kZerosOfB) {}

int64_t ByteOperands::own_bytes() const {
  const int64_t zeros = may_have_zeros_of_b_ ? num_zeros_ : 0;
  return (a_is_signed_ ? a_elements_ : 0) + (b_is_signed_ ? 0 : b_elements_) +
         zeros * static_cast<int64_t>(sizeof(int32_t));
}

void ByteOperands::Allocate() {
  if (a_is_signed_) moved_a_.resize(a_elements_);
  if (!b_is_signed_) moved_b_.resize(b_elements_);
  if (may_have_zeros_of_b_) zeros_of_b_.resize(num_zeros_);
}

bool ByteOperands::Read(const KernelRun& run) {
  a_ = Input<uint8_t>(run, 0);
  if (a_is_signed_) {
    for (int64_t i = 0; i < a_elements_; ++i) moved_a_[i] = a_[i] ^ kMove;
    a_ = moved_a_.data();
  }
  const bool is_same = has_b_ && (run.unchanged_inputs & 2) != 0;
  has_b_ = true;
  const auto* b = Input<uint8_t>(run, 1);
  if (b_is_signed_) {
    b_ = reinterpret_cast<const int8_t*>(b);
  } else {
    for (int64_t i = 0; !is_same && i < b_elements_; ++i) {
      moved_b_[i] = static_cast<int8_t>(b[i] ^ kMove);
    }
    b_ = moved_b_.data();
  }
  const bool has_zero_of_a = num_inputs_ > kZeroOfA;
  zero_of_a_ = has_zero_of_a ? ByteAt(run.inputs[kZeroOfA], 0, a_is_signed_) : 0;
  if (a_is_signed_) zero_of_a_ += kMove;
  has_zeros_of_b_ = false;
  for (size_t i = 0; i < zeros_of_b_.size(); ++i) {
    const bool is_given = num_inputs_ > kZerosOfB;
    const int32_t zero = is_given ? ByteAt(run.inputs[kZerosOfB], i, b_is_signed_) : 0;
    zeros_of_b_[i] = b_is_signed_ ? zero : zero - kMove;
    has_zeros_of_b_ |= zeros_of_b_[i] != 0;
  }
  return !is_same;
}

// ---- convolution

WindowSums::WindowSums(const ConvolutionShape& shape, bool has_zeros_of_b)
    : shape_(shape),
      axes_(shape),
      windows_(axes_.num_windows()),
      pixels_(axes_.num_pixels()),
      outputs_(shape.groups * shape.out),
      has_zeros_of_b_(has_zeros_of_b) {
  for (int i = 0; i < kSpatialAxes; ++i) {
    const WindowAxis& axis = axes_.axis[i];
    std::map<std::vector<int64_t>, int64_t> known;
    for (int64_t o = 0; o < axes_.windows[i]; ++o) {
      std::vector<int64_t> taps;
      for (int64_t t = 0; t < axis.kernel; ++t) {
        const int64_t at = o * axis.stride - axis.pad_begin + t * axis.dilation;
        if (at >= 0 && at < axes_.size[i]) taps.push_back(t);
      }
      const auto [found, is_new] = known.emplace(taps, static_cast<int64_t>(known.size()));
      if (is_new) on_axis_[i].taps.push_back(std::move(taps));
      on_axis_[i].class_of.push_back(found->second);
    }
    classes_ *= static_cast<int64_t>(known.size());
  }
}

int64_t WindowSums::own_bytes() const {
  const int64_t elements = axes_.num_taps() + 2 * classes_ * outputs_ +
                           (has_zeros_of_b_ ? shape_.groups * (pixels_ + windows_) : 0);
  return elements * static_cast<int64_t>(sizeof(int32_t));
}

void WindowSums::Allocate() {
  of_tap_.resize(axes_.num_taps());
  weights_.resize(classes_ * outputs_);
  scaled_.resize(weights_.size());
  if (!has_zeros_of_b_) return;
  of_pixel_.resize(shape_.groups * pixels_);
  of_window_.resize(shape_.groups * windows_);
}

// f(class, its taps on each axis) for each, in order.
template <class F>
void WindowSums::ForEachClass(F f) const {
  int64_t i = 0;
  for (const auto& first : on_axis_[0].taps) {
    for (const auto& second : on_axis_[1].taps) {
      for (const auto& third : on_axis_[2].taps) f(i++, first, second, third);
    }
  }
}

// f(window, class, the windows' places on each axis) for each, in order.
template <class F>
void WindowSums::ForEachWindow(F f) const {
  const auto& [depth, rows, columns] = on_axis_;
  const auto num_rows = static_cast<int64_t>(rows.taps.size());
  const auto num_columns = static_cast<int64_t>(columns.taps.size());
  int64_t window = 0;
  for (int64_t i = 0; i < axes_.windows[0]; ++i) {
    for (int64_t j = 0; j < axes_.windows[1]; ++j) {
      const int64_t outer = (depth.class_of[i] * num_rows + rows.class_of[j]) * num_columns;
      for (int64_t k = 0; k < axes_.windows[2]; ++k) {
        f(window++, outer + columns.class_of[k], i, j, k);
      }
    }
  }
}

void WindowSums::Read(const int8_t* w) {
  is_scaled_ = false;
  const int64_t rows = axes_.axis[1].kernel, columns = axes_.axis[2].kernel;
  const int64_t num_taps = axes_.num_taps();
  for (int64_t o = 0; o < outputs_; ++o) {
    std::fill(of_tap_.begin(), of_tap_.end(), 0);
    for (int64_t c = 0; c < shape_.in; ++c, w += num_taps) {
      for (int64_t t = 0; t < num_taps; ++t) of_tap_[t] += w[t];
    }
    ForEachClass([&](int64_t of_class, const auto& first, const auto& second, const auto& third) {
      int32_t sum = 0;
      for (int64_t i : first) {
        for (int64_t j : second) {
          for (int64_t k : third) sum += of_tap_[(i * rows + j) * columns + k];
        }
      }
      weights_[of_class * outputs_ + o] = sum;
    });
  }
}

void WindowSums::AddUpPixels(const uint8_t* x, int32_t zero_of_a) {
  std::fill(of_pixel_.begin(), of_pixel_.end(), 0);
  for (int64_t g = 0; g < shape_.groups; ++g) {
    int32_t* const sums = of_pixel_.data() + g * pixels_;
    if (shape_.x_is_blocked) {  // one block of all channels
      const uint8_t* from = x + g * shape_.in;
      for (int64_t i = 0; i < pixels_; ++i, from += shape_.groups * shape_.in) {
        for (int64_t c = 0; c < shape_.in; ++c) sums[i] += from[c];
      }
      continue;
    }
    for (int64_t c = 0; c < shape_.in; ++c, x += pixels_) {
      for (int64_t i = 0; i < pixels_; ++i) sums[i] += x[i];
    }
  }
  const auto pixel_of = [this](int axis, int64_t window, int64_t tap) {
    const WindowAxis& a = axes_.axis[axis];
    return window * a.stride - a.pad_begin + tap * a.dilation;
  };
  ForEachWindow([&](int64_t window, int64_t, int64_t i, int64_t j, int64_t k) {
    const auto& first = on_axis_[0].taps_of(i);
    const auto& second = on_axis_[1].taps_of(j);
    const auto& third = on_axis_[2].taps_of(k);
    const size_t taps = first.size() * second.size() * third.size();
    const uint32_t zeros =
        static_cast<uint32_t>(taps * shape_.in) * static_cast<uint32_t>(zero_of_a);
    for (int64_t g = 0; g < shape_.groups; ++g) {
      uint32_t sum = 0 - zeros;
      for (int64_t ti : first) {
        for (int64_t tj : second) {
          const int64_t row = pixel_of(0, i, ti) * axes_.size[1] + pixel_of(1, j, tj);
          const int32_t* pixels = of_pixel_.data() + g * pixels_ + row * axes_.size[2];
          for (int64_t tk : third) sum += static_cast<uint32_t>(pixels[pixel_of(2, k, tk)]);
        }
      }
      of_window_[window * shape_.groups + g] = static_cast<int32_t>(sum);
    }
  });
}

void WindowSums::Scale(int32_t zero_of_a) {
  if (is_scaled_ && zero_of_a == scaled_by_) return;
  scaled_by_ = zero_of_a;
  is_scaled_ = true;
  for (size_t i = 0; i < weights_.size(); ++i) {
    scaled_[i] = static_cast<uint32_t>(zero_of_a) * static_cast<uint32_t>(weights_[i]);
  }
}

void WindowSums::Subtract(const ByteOperands& operands, int32_t* y) {
  const std::span<const int32_t> zeros = operands.zeros_of_b();
  if (operands.zero_of_a() == 0 && zeros.empty()) return;
  Scale(operands.zero_of_a());
  auto* to = reinterpret_cast<uint32_t*>(y);  // wraps around
  const int64_t o_step = shape_.y_is_blocked ? 1 : windows_;
  const int64_t window_step = shape_.y_is_blocked ? outputs_ : 1;
  for (int64_t n = 0; n < shape_.batch; ++n, to += windows_ * outputs_) {
    if (!zeros.empty()) AddUpPixels(operands.a() + n * shape_.x_elements(), operands.zero_of_a());
    ForEachWindow([&](int64_t i, int64_t of_class, int64_t, int64_t, int64_t) {
      const uint32_t* of = scaled_.data() + of_class * outputs_;
      uint32_t* at = to + i * window_step;
      if (o_step == 1) {
        for (int64_t o = 0; o < outputs_; ++o) at[o] -= of[o];
      } else {
        for (int64_t o = 0; o < outputs_; ++o) at[o * o_step] -= of[o];
      }
      if (zeros.empty()) return;
      const int32_t* pixels = of_window_.data() + i * shape_.groups;
      for (int64_t g = 0, o = 0; g < shape_.groups; ++g) {
        const auto sum = static_cast<uint32_t>(pixels[g]);
        for (int64_t j = 0; j < shape_.out; ++j, ++o) {
          at[o * o_step] -= sum * static_cast<uint32_t>(zeros[zeros.size() == 1 ? 0 : o]);
        }
      }
    });
  }
}

// ---- by floating kernels

namespace {

// Copies of the operands, and a kernel of theirs.
template <class T>
struct Copies {
  std::vector<T> a, b, c;
  std::unique_ptr<Kernel> kernel;

  Copies(const KernelSpec& spec, std::unique_ptr<Kernel> kernel)
      : a(spec.inputs[0].num_elements()),
        b(spec.inputs[1].num_elements()),
        c(spec.outputs[0].num_elements()),
        kernel(std::move(kernel)) {}

  absl::Status Run(const KernelRun& run) {
    void* inputs[] = {a.data(), b.data()};
    void* outputs[] = {c.data()};
    KernelRun of_copies = run;
    of_copies.inputs = inputs;
    of_copies.outputs = outputs;
    BRAID_RETURN_IF_ERROR(kernel->Run(of_copies));
    auto* to = Output<int32_t>(run, 0);
    for (size_t i = 0; i < c.size(); ++i) to[i] = static_cast<int32_t>(static_cast<int64_t>(c[i]));
    return absl::OkStatus();
  }
};

class FloatingBytesKernel final : public Kernel {
 public:
  FloatingBytesKernel(const KernelSpec& spec, int axis, std::unique_ptr<Kernel> narrow,
                      std::unique_ptr<Kernel> wide)
      : a_is_signed_(spec.inputs[0].dtype == DType::kI8),
        b_is_signed_(spec.inputs[1].dtype == DType::kI8),
        num_inputs_(spec.inputs.size()),
        inner_size_(ViewAround(spec.inputs[1].shape(), axis).inner),
        zeros_(num_inputs_ > kZerosOfB ? spec.inputs[kZerosOfB].num_elements() : 1),
        sizes_of_b_(spec.inputs[1].shape()[axis]),
        narrow_(spec, std::move(narrow)),
        wide_(spec, std::move(wide)) {}

  // The spec that a kernel inside sees.
  static KernelSpec Floating(KernelSpec spec, DType dtype) {
    spec.inputs.resize(2);
    for (OperandSpec& input : spec.inputs) input.dtype = dtype;
    spec.outputs[0].dtype = dtype;
    return spec;
  }
  static int64_t OwnBytes(const KernelSpec& spec, int axis) {
    const int64_t elements = spec.inputs[0].num_elements() + spec.inputs[1].num_elements() +
                             spec.outputs[0].num_elements();
    return elements * static_cast<int64_t>(sizeof(float) + sizeof(double)) +
           spec.inputs[1].shape()[axis] * static_cast<int64_t>(sizeof(int64_t));
  }

  absl::Status Run(const KernelRun& run) override {
    const bool has_same_zeros = !ReadZeros(run);
    const bool is_same = has_b_ && has_same_zeros && (run.unchanged_inputs & 2) != 0;
    if (!is_same) ReadB(run);
    has_b_ = true;
    KernelRun inner = run;
    inner.unchanged_inputs = is_same ? 2 : 0;
    if (fits_narrow_) {
      ReadA(run, narrow_.a);
      return narrow_.Run(inner);
    }
    ReadA(run, wide_.a);
    return wide_.Run(inner);
  }

 private:
  template <class T>
  void ReadA(const KernelRun& run, std::vector<T>& a) const {
    const int32_t zero = num_inputs_ > kZeroOfA ? ByteAt(run.inputs[kZeroOfA], 0, a_is_signed_) : 0;
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<T>(ByteAt(run.inputs[0], i, a_is_signed_) - zero);
    }
  }
  // Of b: whether they are others than before.
  bool ReadZeros(const KernelRun& run) {
    bool have_changed = false;
    for (size_t i = 0; num_inputs_ > kZerosOfB && i < zeros_.size(); ++i) {
      const int32_t zero = ByteAt(run.inputs[kZerosOfB], i, b_is_signed_);
      have_changed |= std::exchange(zeros_[i], zero) != zero;
    }
    return have_changed;
  }
  void ReadB(const KernelRun& run) {
    std::fill(sizes_of_b_.begin(), sizes_of_b_.end(), 0);
    for (size_t i = 0; i < wide_.b.size(); ++i) {
      const int64_t output = i / inner_size_ % sizes_of_b_.size();
      const int32_t zero = zeros_[zeros_.size() == 1 ? 0 : output];
      const int32_t number = ByteAt(run.inputs[1], i, b_is_signed_) - zero;
      narrow_.b[i] = static_cast<float>(number);
      wide_.b[i] = number;
      sizes_of_b_[output] += std::abs(number);
    }
    // The largest of a is 255 from its zero point, and f32 holds each whole number up to 2^24.
    constexpr int64_t kMostOfA = 255, kMostExact = int64_t{1} << 24;
    fits_narrow_ = std::ranges::all_of(sizes_of_b_,
                                       [](int64_t size) { return size * kMostOfA <= kMostExact; });
  }

  const bool a_is_signed_, b_is_signed_;
  const size_t num_inputs_;
  const int64_t inner_size_;         // b: [..., outputs, inner size]
  std::vector<int32_t> zeros_;       // of b
  std::vector<int64_t> sizes_of_b_;  // by output: the sum of what its numbers are without sign
  Copies<float> narrow_;
  Copies<double> wide_;
  bool has_b_ = false, fits_narrow_ = false;
};

}  // namespace

KernelFactory ByFloatingKernels(KernelFactory factory, std::function<int(const KernelSpec&)> axis) {
  return [factory = std::move(factory),
          axis = std::move(axis)](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    if (!HasBytes(spec)) return UnsupportedTypes(spec);
    BRAID_ASSIGN_OR_RETURN(PlannedKernel narrow,
                           factory.PlanKernel(FloatingBytesKernel::Floating(spec, DType::kF32)));
    BRAID_ASSIGN_OR_RETURN(PlannedKernel wide,
                           factory.PlanKernel(FloatingBytesKernel::Floating(spec, DType::kF64)));
    const KernelMemory memory = {.own = narrow.memory.own + wide.memory.own +
                                        FloatingBytesKernel::OwnBytes(spec, axis(spec)),
                                 .shared = std::max(narrow.memory.shared, wide.memory.shared)};
    const auto make = [spec, of_outputs = axis(spec), make_narrow = std::move(narrow.make),
                       make_wide =
                           std::move(wide.make)]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
      BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> in_f32, make_narrow());
      BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> in_f64, make_wide());
      return std::make_unique<FloatingBytesKernel>(spec, of_outputs, std::move(in_f32),
                                                   std::move(in_f64));
    };
    return PlannedKernel{.memory = memory, .make = make};
  };
}

// ---- matrices

namespace {

struct MatmulSizes {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_b = false;
};

// b is packed once a run, or once and for all while nobody writes to it.
class ByteMatmul {
 public:
  // Throws dnnl::error if there is no such primitive.
  ByteMatmul(const KernelSpec& spec, const MatmulSizes& sizes)
      : sizes_(sizes),
        threads_(spec.threads),
        operands_(spec),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    using Tag = dnnl::memory::format_tag;
    using Type = dnnl::memory::data_type;
    const DnnlThreads scope(threads_);
    plain_b_ =
        dnnl::memory::desc({sizes.k, sizes.n}, Type::s8, sizes.transpose_b ? Tag::ba : Tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    description_ =
        DescribeMatmul(engine_, dnnl::memory::desc({sizes.m, sizes.k}, Type::u8, Tag::ab),
                       dnnl::memory::desc({sizes.k, sizes.n}, Type::s8, Tag::any),
                       dnnl::memory::desc({sizes.m, sizes.n}, Type::s32, Tag::ab), attributes);
    pack_ = dnnl::reorder::primitive_desc(engine_, plain_b_, engine_, description_.weights_desc(),
                                          attributes);
  }

  bool is_exact() const { return IsExactForBytes(description_.impl_info_str(), sizes_.k); }
  KernelMemory memory() const {
    const size_t of_library = description_.scratchpad_desc().get_size() +
                              pack_.scratchpad_desc().get_size() +
                              description_.weights_desc().get_size();
    return {.own = static_cast<int64_t>(of_library) + operands_.own_bytes() +
                   sizes_.n * static_cast<int64_t>(sizeof(int32_t))};
  }
  void Allocate() {
    const DnnlThreads scope(threads_);
    operands_.Allocate();
    sums_.resize(sizes_.n);
    a_ = dnnl::memory(description_.src_desc(), engine_, nullptr);
    c_ = dnnl::memory(description_.dst_desc(), engine_, nullptr);
    b_ = dnnl::memory(plain_b_, engine_, nullptr);
    const dnnl::memory packed(description_.weights_desc(), engine_);
    call_ =
        DnnlCall(dnnl::matmul(description_),
                 {{DNNL_ARG_SRC, a_},
                  {DNNL_ARG_WEIGHTS, packed},
                  {DNNL_ARG_DST, c_},
                  {DNNL_ARG_SCRATCHPAD, dnnl::memory(description_.scratchpad_desc(), engine_)}});
    pack_call_ = DnnlCall(dnnl::reorder(pack_),
                          {{DNNL_ARG_FROM, b_},
                           {DNNL_ARG_TO, packed},
                           {DNNL_ARG_SCRATCHPAD, dnnl::memory(pack_.scratchpad_desc(), engine_)}});
  }

  void operator()(const KernelRun& run) {
    omp_set_num_threads(threads_);  // of this thread only
    if (operands_.Read(run)) {
      b_.set_data_handle(const_cast<int8_t*>(operands_.b()));
      pack_call_.Run(stream_);
      AddUp(operands_.b());
    }
    auto* c = Output<int32_t>(run, 0);
    a_.set_data_handle(const_cast<uint8_t*>(operands_.a()));
    c_.set_data_handle(c);
    call_.Run(stream_);
    Subtract(c);
  }

 private:
  // What zero points add.
  void Subtract(int32_t* c) const {
    const std::span<const int32_t> zeros = operands_.zeros_of_b();
    const int32_t zero_of_a = operands_.zero_of_a();
    if (zero_of_a == 0 && zeros.empty()) return;
    const uint8_t* a = operands_.a();
    auto* to = reinterpret_cast<uint32_t*>(c);  // wraps around
    const auto factor = static_cast<uint32_t>(zero_of_a);
    for (int64_t i = 0; i < sizes_.m; ++i, to += sizes_.n, a += sizes_.k) {
      for (int64_t j = 0; j < sizes_.n; ++j) to[j] -= factor * sums_[j];
      if (zeros.empty()) continue;
      uint32_t sum = 0 - static_cast<uint32_t>(sizes_.k) * factor;
      for (int64_t j = 0; j < sizes_.k; ++j) sum += a[j];
      for (int64_t j = 0; j < sizes_.n; ++j) {
        to[j] -= sum * static_cast<uint32_t>(zeros[zeros.size() == 1 ? 0 : j]);
      }
    }
  }
  // The columns of b.
  void AddUp(const int8_t* b) {
    std::fill(sums_.begin(), sums_.end(), 0);
    for (int64_t i = 0; sizes_.transpose_b && i < sizes_.n; ++i, b += sizes_.k) {
      int32_t sum = 0;
      for (int64_t j = 0; j < sizes_.k; ++j) sum += b[j];
      sums_[i] = static_cast<uint32_t>(sum);
    }
    for (int64_t i = 0; !sizes_.transpose_b && i < sizes_.k; ++i, b += sizes_.n) {
      for (int64_t j = 0; j < sizes_.n; ++j) sums_[j] += static_cast<uint32_t>(int32_t{b[j]});
    }
  }

  const MatmulSizes sizes_;
  const int threads_;
  ByteOperands operands_;
  std::vector<uint32_t> sums_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory::desc plain_b_;
  dnnl::matmul::primitive_desc description_;
  dnnl::reorder::primitive_desc pack_;
  dnnl::memory a_, b_, c_;
  DnnlCall call_, pack_call_;
};

}  // namespace

absl::StatusOr<PlannedKernel> PlanIntegerMatmul(const KernelSpec& spec) {
  if (!HasBytes(spec) || !HasByteProducts()) return UnsupportedTypes(spec);
  const Shape &a = spec.inputs[0].shape(), &c = spec.outputs[0].shape();
  MatmulSizes sizes = {.m = 1,
                       .n = c[c.rank() - 1],
                       .k = a[a.rank() - 1],
                       .transpose_b = Flag(spec.attrs, "transpose_b")};
  for (int i = 0; i + 1 < c.rank(); ++i) sizes.m *= c[i];
  if (sizes.m == 0 || sizes.n == 0 || sizes.k == 0) return UnsupportedTypes(spec);
  try {
    auto product = std::make_shared<ByteMatmul>(spec, sizes);
    if (product->is_exact()) return PlanKernel(std::move(product));
  } catch (const dnnl::error& error) {
    VLOG(1) << "no oneDNN product of bytes: " << error.what();
  }
  return UnsupportedTypes(spec);
}

}  // namespace braid::cpu
