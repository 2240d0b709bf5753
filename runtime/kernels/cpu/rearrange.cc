// slice, pad in all its modes, its gradient, and triangle. Slice and pad map an axis of one tensor
// onto an axis of the other in runs with a fixed step; what they copy are the boxes that runs of
// all axes make together.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/strided.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using Ints = std::vector<int64_t>;

// Elements at + k * step of one axis, k in [0, size).
struct Progression {
  int64_t at = 0, step = 1;
};
// Element k of `in` becomes element k of `out`. The step of `out` is positive; that of `in` may be
// negative, or 0: the same element again and again.
struct Run {
  int64_t size = 0;
  Progression in, out;
};
using Runs = std::vector<Run>;

int64_t CeilDiv(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
int64_t Modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

// Narrows [first, last) to the k whose at + k * step is inside [begin, end).
void Narrow(const Progression& p, int64_t begin, int64_t end, int64_t& first, int64_t& last) {
  if (p.step == 0) {
    if (p.at < begin || p.at >= end) last = first;
  } else if (p.step > 0) {
    first = std::max(first, CeilDiv(begin - p.at, p.step));
    last = std::min(last, CeilDiv(end - p.at, p.step));
  } else {
    first = std::max(first, CeilDiv(p.at - end + 1, -p.step));
    last = std::min(last, CeilDiv(p.at - begin + 1, -p.step));
  }
}

// What of the runs is in both local parts, in their own indices.
Runs Local(const Runs& runs, const Interval& in, const Interval& out) {
  Runs local;
  for (Run run : runs) {
    int64_t first = 0, last = run.size;
    Narrow(run.in, in.offset, in.offset + in.size, first, last);
    Narrow(run.out, out.offset, out.offset + out.size, first, last);
    if (first >= last) continue;
    run.size = last - first;
    run.in.at += first * run.in.step - in.offset;
    run.out.at += first * run.out.step - out.offset;
    local.push_back(run);
  }
  return local;
}

// One axis of a pad, and its inverse: `n` elements with `before` and `after` around them.
struct AxisPad {
  std::string mode;
  int64_t n = 0, before = 0, padded = 0, interior = 0;
};

// The runs whose outputs are in [begin, end).
Runs PadRuns(const AxisPad& pad, int64_t begin, int64_t end) {
  const int64_t n = pad.n;
  if (n == 0) return {};
  if (pad.mode == "constant") {
    return {{.size = n, .in = {0, 1}, .out = {pad.before, pad.interior + 1}}};
  }
  const int64_t middle = std::clamp<int64_t>(pad.before, 0, pad.padded);
  const int64_t behind = std::clamp<int64_t>(pad.before + n, 0, pad.padded);
  if (pad.mode == "edge" || n == 1) {
    return {{.size = middle, .in = {0, 0}, .out = {0, 1}},
            {.size = behind - middle, .in = {middle - pad.before, 1}, .out = {middle, 1}},
            {.size = pad.padded - behind, .in = {n - 1, 0}, .out = {behind, 1}}};
  }
  Runs runs;
  const int64_t period = pad.mode == "reflect" ? 2 * (n - 1) : n;
  for (int64_t at = begin; at < end;) {
    const int64_t phase = Modulo(at - pad.before, period);
    Run run = {.size = n - phase, .in = {phase, 1}, .out = {at, 1}};
    if (phase >= n) run = {period - phase, {period - phase, -1}, {at, 1}};  // on the way back
    run.size = std::min(run.size, end - at);
    at += run.size;
    runs.push_back(run);
  }
  return runs;
}

// The runs of an axis whose outputs are in [begin, end), in logical indices.
using RunsOf = std::function<Runs(int axis, int64_t begin, int64_t end)>;

// A box of elements: per axis, sizes and strides of both sides in elements.
struct Box {
  Ints sizes;
  BoxCopy::Side in, out;
};

// The boxes that move elements in one act, and whether they write all of the output.
struct Boxes {
  std::vector<Box> list;
  bool covers = true;
};

Boxes BoxesIn(const OperandSpec& in, const OperandSpec& out, int64_t act, const RunsOf& runs_of) {
  Boxes boxes;
  boxes.list.push_back({});
  const Ints in_strides = DenseStrides(in.shape()), out_strides = DenseStrides(out.shape());
  for (int axis = 0; axis < out.shape().rank(); ++axis) {
    const Interval from = {OffsetAt(in, axis, act), in.shape()[axis]};
    const Interval to = {OffsetAt(out, axis, act), out.shape()[axis]};
    const Runs runs = Local(runs_of(axis, to.offset, to.offset + to.size), from, to);
    int64_t covered = 0;
    std::vector<Box> longer;
    for (const Run& run : runs) covered += run.size;
    for (const Box& box : boxes.list) {
      for (const Run& run : runs) {
        Box& next = longer.emplace_back(box);
        next.sizes.push_back(run.size);
        next.in.strides.push_back(run.in.step * in_strides[axis]);
        next.in.offset += run.in.at * in_strides[axis];
        next.out.strides.push_back(run.out.step * out_strides[axis]);
        next.out.offset += run.out.at * out_strides[axis];
      }
    }
    boxes.covers = boxes.covers && covered == to.size;
    boxes.list = std::move(longer);
  }
  return boxes;
}

// What a kernel made of one act's boxes, for every act: made when the act runs for the first time.
// Where both operands move together, all acts are as the first.
template <class Plan>
class PlanPerAct {
 public:
  PlanPerAct(const OperandSpec& in, const OperandSpec& out, std::function<Plan(int64_t)> make)
      : moves_(in.micro_batch_axis != out.micro_batch_axis ||
               in.micro_batch_stride != out.micro_batch_stride),
        make_(std::move(make)) {
    plans_.push_back(make_(0));
  }
  const Plan& At(int64_t act) {
    if (!moves_) return plans_[0];
    while (static_cast<int64_t>(plans_.size()) <= act) {
      plans_.push_back(make_(static_cast<int64_t>(plans_.size())));
    }
    return plans_[act];
  }

 private:
  bool moves_;
  std::function<Plan(int64_t)> make_;
  std::vector<Plan> plans_;
};

// ---- copies: slice and pad ----------------------------------------------------------------------

struct Copies {
  std::vector<BoxCopy> boxes = {};
  bool covers = true;
};

// The bytes of one element.
struct Element {
  char bytes[8] = {};
  bool is_zero = true;
};

Element ElementOf(DType dtype, double value) {
  const uint64_t bits = BitsOf(dtype, value);
  // A NaN of integers is stored as 0.
  Element element = {.is_zero = value == 0 || (value != value && !IsFloating(dtype))};
  std::memcpy(element.bytes, &bits, sizeof(bits));
  return element;
}

void Fill(const Element& element, size_t size, int64_t n, char* out) {
  if (element.is_zero) {
    std::memset(out, 0, n * size);
    return;
  }
  for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * size, element.bytes, size);
}

KernelOr MakeCopies(const KernelSpec& spec, const Element& background, RunsOf runs_of) {
  const OperandSpec in = spec.inputs[0], out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  const size_t size = SizeOf(out.dtype);
  const int64_t n = out.num_elements();
  PlanPerAct<Copies> plans(in, out, [=](int64_t act) {
    Boxes boxes = BoxesIn(in, out, act, runs_of);
    Copies copies = {.covers = boxes.covers};
    for (Box& box : boxes.list) {
      copies.boxes.emplace_back(std::move(box.sizes), std::move(box.in), std::move(box.out), size);
    }
    return copies;
  });
  return MakeKernel([=, plans = std::move(plans)](const KernelRun& run) mutable {
    const Copies& copies = plans.At(run.micro_batch);
    if (!copies.covers && n > 0) Fill(background, size, n, Output<char>(run, 0));
    for (const BoxCopy& box : copies.boxes) box.Run(run.inputs[0], run.outputs[0]);
  });
}

KernelOr MakeSlice(const KernelSpec& spec) {
  const Ints begin = spec.attrs.Ints("begin"), size = spec.attrs.Ints("size");
  const Ints step = spec.attrs.Has("step") ? spec.attrs.Ints("step") : Ints(begin.size(), 1);
  return MakeCopies(spec, {}, [=](int axis, int64_t, int64_t) {
    return Runs{{.size = size[axis], .in = {begin[axis], step[axis]}, .out = {0, 1}}};
  });
}

// `inner` is the tensor without the padding, `padded` that with it.
std::vector<AxisPad> PadsOf(const Attrs& attrs, const OperandSpec& inner,
                            const OperandSpec& padded) {
  std::vector<AxisPad> pads;
  for (int axis = 0; axis < inner.logical.rank(); ++axis) {
    pads.push_back({.mode = attrs.Has("mode") ? attrs.String("mode") : "constant",
                    .n = inner.logical[axis],
                    .before = attrs.Ints("before")[axis],
                    .padded = padded.logical[axis],
                    .interior = attrs.Has("interior") ? attrs.Ints("interior")[axis] : 0});
  }
  return pads;
}

RunsOf RunsOfPads(std::vector<AxisPad> pads) {
  return [pads = std::move(pads)](int axis, int64_t begin, int64_t end) {
    return PadRuns(pads[axis], begin, end);
  };
}

// Padding that repeats a short axis very often would be made of very many boxes.
absl::Status CheckBoxes(const KernelSpec& spec, const std::vector<AxisPad>& pads,
                        const OperandSpec& padded) {
  constexpr double kMost = 1 << 20;
  double boxes = 1;
  for (size_t i = 0; i < pads.size(); ++i) {
    const AxisPad& pad = pads[i];
    if (pad.mode == "constant" || pad.n <= 1) continue;
    const auto size = static_cast<double>(padded.shape()[static_cast<int>(i)]);
    boxes *= pad.mode == "edge" ? 3 : size / static_cast<double>(pad.n - 1) + 2;
  }
  if (boxes <= kMost) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "%s '%s': an axis is repeated so often that the padding has %.0f pieces; %.0f are possible, "
      "use a tile",
      spec.op, spec.name, boxes, kMost));
}

KernelOr MakePad(const KernelSpec& spec) {
  const OperandSpec &in = spec.inputs[0], &out = spec.outputs[0];
  const std::vector<AxisPad> pads = PadsOf(spec.attrs, in, out);
  BRAID_RETURN_IF_ERROR(CheckBoxes(spec, pads, out));
  const Element background = ElementOf(out.dtype, Number(spec.attrs, "value", 0));
  return MakeCopies(spec, background, RunsOfPads(pads));
}

// ---- sums: the gradient of pad ------------------------------------------------------------------

// to[..] += from[..] over a box, in the order of its elements.
template <class T>
void AddBox(const Box& box, size_t dim, const T* from, T* to) {
  // The sides are those of the pad: its output is read, its input is written.
  const int64_t n = box.sizes[dim], read = box.out.strides[dim], write = box.in.strides[dim];
  if (dim + 1 < box.sizes.size()) {
    for (int64_t i = 0; i < n; ++i) AddBox(box, dim + 1, from + i * read, to + i * write);
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i * write] += from[i * read];
}

template <class T>
KernelOr MakePadGrad(const KernelSpec& spec, ElementType<T>) {
  const OperandSpec dy = spec.inputs[0], dx = spec.outputs[0];
  const int64_t n = dx.num_elements();
  if (dy.shape().rank() == 0) {
    return MakeKernel([](const KernelRun& run) { *Output<T>(run, 0) = *Input<T>(run, 0); });
  }
  const std::vector<AxisPad> pads = PadsOf(spec.attrs, dx, dy);
  BRAID_RETURN_IF_ERROR(CheckBoxes(spec, pads, dy));
  PlanPerAct<Boxes> plans(dx, dy, [=, runs_of = RunsOfPads(pads)](int64_t act) {
    return BoxesIn(dx, dy, act, runs_of);
  });
  return MakeKernel([=, plans = std::move(plans)](const KernelRun& run) mutable {
    const T* from = Input<T>(run, 0);
    T* to = Output<T>(run, 0);
    std::fill_n(to, n, T{0});
    for (const Box& box : plans.At(run.micro_batch).list) {
      AddBox(box, 0, from + box.out.offset, to + box.in.offset);
    }
  });
}

// ---- triangle -----------------------------------------------------------------------------------

KernelOr MakeTriangle(const KernelSpec& spec) {
  const OperandSpec in = spec.inputs[0], out = spec.outputs[0];
  if (in.dtype != out.dtype) return UnsupportedTypes(spec);
  const int rank = in.shape().rank();
  const int64_t rows = in.shape()[rank - 2], columns = in.shape()[rank - 1];
  const int64_t matrices = rows * columns == 0 ? 0 : in.num_elements() / (rows * columns);
  const auto size = static_cast<int64_t>(SizeOf(in.dtype));
  const bool upper = Flag(spec.attrs, "upper");
  const int64_t diagonal =
      std::clamp(spec.attrs.Int("diagonal"), -in.logical[rank - 2] - 1, in.logical[rank - 1] + 1);
  return MakeKernel([=](const KernelRun& run) {
    // The first column above the diagonal (of an upper triangle: on it), of local row 0.
    const int64_t edge = OffsetAt(in, rank - 2, run.micro_batch) + diagonal + (upper ? 0 : 1) -
                         OffsetAt(in, rank - 1, run.micro_batch);
    for (int64_t i = 0; i < matrices * rows; ++i) {
      const char* from = Input<char>(run, 0) + i * columns * size;
      char* to = Output<char>(run, 0) + i * columns * size;
      const int64_t cut = std::clamp<int64_t>(edge + i % rows, 0, columns);
      const int64_t keep = upper ? cut : 0, count = upper ? columns - cut : cut;
      if (from != to && count > 0) std::memcpy(to + keep * size, from + keep * size, count * size);
      std::memset(to + (upper ? 0 : cut * size), 0, (columns - count) * size);
    }
  });
}

}  // namespace

absl::Status RegisterRearrangeKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("slice", MakeSlice));
  BRAID_RETURN_IF_ERROR(registry.Register("pad", MakePad));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "pad_grad",
      Widened(ForFloats([](const auto& s, auto type) { return MakePadGrad(s, type); }))));
  return registry.Register("triangle", MakeTriangle);
}

}  // namespace braid::cpu
