// rotary: rows of [.., depth] rotated pair by pair, by angles of the row's position.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/index_error.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/rotary_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Cosines and sines of the angles of some positions, computed in double: pair i turns by
// position * base^(-2 i / depth).
template <class T>
class Angles {
 public:
  Angles(const Attrs& attrs, int64_t pairs, int64_t positions)
      : inverse_(Flag(attrs, "inverse")),
        frequencies_(pairs),
        cos_(pairs * positions),
        sin_(pairs * positions) {
    const double base = attrs.Double("base");
    for (int64_t i = 0; i < pairs; ++i) {
      frequencies_[i] = std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs));
    }
  }

  // `row` becomes the angles of `position`.
  void Set(int64_t row, int64_t position) {
    const auto pairs = static_cast<int64_t>(frequencies_.size());
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      cos_[row * pairs + i] = static_cast<T>(std::cos(angle));
      sin_[row * pairs + i] = static_cast<T>(inverse_ ? -std::sin(angle) : std::sin(angle));
    }
  }
  const T* cos(int64_t row) const { return cos_.data() + row * frequencies_.size(); }
  const T* sin(int64_t row) const { return sin_.data() + row * frequencies_.size(); }

 private:
  bool inverse_;
  std::vector<double> frequencies_;
  std::vector<T> cos_, sin_;
};

template <class T>
KernelOr MakeRotary(const KernelSpec& spec, ElementType<T>) {
  const bool has_positions = spec.inputs.size() == 2;
  if (has_positions && !IsIndexType(spec.inputs[1].dtype)) return UnsupportedTypes(spec);
  const OperandSpec& x = spec.inputs[0];
  const int axis = static_cast<int>(spec.attrs.Int("axis")), rank = x.shape().rank();
  const AxisView view = ViewAround(x.shape(), axis);
  const int64_t depth = x.shape()[rank - 1];
  if (depth == 0) return MakeKernel([](const KernelRun&) {});
  // Positions [batch, time]: the outer axes are the batch and what lies inside it.
  const int64_t batch = has_positions && spec.inputs[1].shape().rank() == 2 ? x.shape()[0] : 1;
  const int64_t outer_in_batch = batch == 0 ? 0 : view.outer / batch;
  const bool is_i64 = has_positions && spec.inputs[1].dtype == DType::kI64;
  const auto& loops = simd::BestLoops<simd::RotaryLoops<T>>();
  const auto rotate = Flag(spec.attrs, "interleaved") ? loops.rotate_pairs : loops.rotate_halves;
  const int64_t offset = spec.attrs.Int("offset");
  // Positions that count up stay as they are from run to run, but for the micro-batch.
  return MakeKernel([=, angles = Angles<T>(spec.attrs, depth / 2, has_positions ? 1 : view.size),
                     known = std::optional<int64_t>()](const KernelRun& run) mutable {
    const T* from = Input<T>(run, 0);
    T* to = Output<T>(run, 0);
    const int64_t first = offset + OffsetAt(x, axis, run.micro_batch);
    if (!has_positions && known != first) {
      for (int64_t t = 0; t < view.size; ++t) angles.Set(t, first + t);
      known = first;
    }
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < view.size; ++t) {
        const int64_t row = has_positions ? 0 : t;
        if (has_positions) angles.Set(0, IndexReader{run.inputs[1], is_i64}[b * view.size + t]);
        for (int64_t outer = b * outer_in_batch; outer < (b + 1) * outer_in_batch; ++outer) {
          const int64_t begin = (outer * view.size + t) * view.inner;
          for (int64_t at = begin; at < begin + view.inner; at += depth) {
            rotate(from + at, angles.cos(row), angles.sin(row), to + at, depth / 2);
          }
        }
      }
    }
  });
}

}  // namespace

absl::Status RegisterRotaryKernels(KernelRegistry& registry) {
  return registry.Register(
      "rotary", Widened(ForFloats([](const auto& s, auto type) { return MakeRotary(s, type); })));
}

}  // namespace braid::cpu
