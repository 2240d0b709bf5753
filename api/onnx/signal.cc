// Signals: windows, Fourier transforms, bands of frequencies.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

constexpr int64_t kMaxSize = 1 << 24;

// The sum of terms[k] cos(2 pi k i / size) over k, for i in [0, size).
TranslateFunction CosineWindow(std::vector<double> terms) {
  return [terms](const NodeView& n) -> absl::StatusOr<Tensors> {
    BRAID_ASSIGN_OR_RETURN(const int64_t size, n.KnownInt(0));
    BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(n.Int("output_datatype", 1)));
    if (size < 0 || size > kMaxSize) return Wrong(absl::StrCat("the size is ", size));
    const int64_t period = std::max<int64_t>(1, n.Flag("periodic", true) ? size : size - 1);
    const Tensor i = Iota(n.graph(), {DType::kF64, {size}});
    Tensor sum = Constant(n.graph(), terms[0], {.dtype = DType::kF64, .shape = {size}});
    for (size_t k = 1; k < terms.size(); ++k) {
      const double step =
          2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(period);
      sum = Add(sum, Scale(Cos(Scale(i, step)), terms[k]));
    }
    return Tensors{Cast(sum, dtype)};
  };
}

// cos and sin of 2 pi i k / size for i in [0, size) and k in [0, bins): [size, bins].
struct Waves {
  Tensor cosine, sine;
};
Waves WavesOf(LogicalGraph& graph, int64_t size, int64_t bins, DType dtype) {
  const TensorType type{DType::kI64, {size, bins}};
  const Tensor product = Mul(Iota(graph, type, 0), Iota(graph, type, 1));
  // Whole turns are taken off while they are integers.
  const Tensor turn = Constant(graph, static_cast<double>(size), {.dtype = DType::kI64});
  const Tensor angle = Scale(Cast(Mod(product, turn), DType::kF64),
                             2 * std::numbers::pi / static_cast<double>(size));
  return {Cast(Cos(angle), dtype), Cast(Sin(angle), dtype)};
}

// `axis` of x cut off or filled up with zeros to `size`.
Tensor Resized(Tensor x, int64_t axis, int64_t size) {
  const Shape shape = x.shape();
  const int64_t now = shape[static_cast<int>(axis)];
  Ints zeros(shape.rank(), 0), sizes = shape.dims(), after = zeros;
  sizes[axis] = std::min(now, size);
  after[axis] = std::max<int64_t>(0, size - now);
  return Pad(Slice(x, zeros, sizes), zeros, after);
}

// An attribute before opset 20, then an input.
absl::StatusOr<int64_t> DftAxisOf(const NodeView& n) {
  if (n.opset() < 20) return n.Axis("axis", 1);
  int64_t axis = -2;
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(axis, n.KnownInt(2));
  }
  return NormalAxis(axis, n.rank());
}

// A Fourier transform of x [..., n..., parts], parts real or real and imaginary.
struct Transform {
  int64_t axis = 0;
  int64_t size = 1;  // of the signal: its axis is cut or filled up with zeros
  bool is_inverse = false;
  // Only the first half of the spectrum, as of a real signal; is_inverse: from that half to a real
  // signal.
  bool is_onesided = false;
};

absl::Status CheckTransform(const TensorType& x, const Transform& t) {
  const int rank = x.shape.rank();
  const int64_t parts = rank > 0 ? x.shape[rank - 1] : 0;
  if (rank < 2 || t.axis == rank - 1 || parts < 1 || parts > 2) {
    return Wrong(absl::StrCat("the signal is ", x.ToString(), " and the axis ", t.axis,
                              "; a last axis of 1 or 2 behind it is needed"));
  }
  constexpr int64_t kLongest = 1 << 14;
  if (t.size < 1 || t.size > kLongest) {
    return Lacking(absl::StrCat("a transform of size ", t.size));
  }
  if (t.is_inverse && t.is_onesided && parts != 2) {
    return Wrong(absl::StrCat("the spectrum is ", x.ToString(),
                              "; real and imaginary parts are "
                              "needed"));
  }
  return absl::OkStatus();
}

// Part `which` of x [.., parts]: [..].
Tensor Part(Tensor x, int64_t which) {
  return Squeeze(SliceAxis(x, -1, {.begin = which, .end = which + 1}), -1);
}

// x [.., bins, 2] -> real [.., size, 1]. The bins that are not there are the conjugates of those
// that are, so that these count twice, but for the first one, and the last one of an even size.
Tensor RealSignal(Tensor x, int64_t size) {
  const int64_t bins = size / 2 + 1;
  Ints weights;
  for (int64_t k = 0; k < bins; ++k) {
    const double count = k == 0 || 2 * k == size ? 1 : 2;
    weights.push_back(std::bit_cast<int64_t>(count / static_cast<double>(size)));
  }
  LogicalGraph& graph = *x.graph();
  const Tensor weight = Literal(graph, {x.dtype(), {bins}}, std::move(weights));
  const Waves waves = WavesOf(graph, size, bins, x.dtype());
  const auto sum = [&](int64_t which, Tensor wave) {
    return MatMul(Mul(Part(x, which), weight), wave, {.transpose_b = true});
  };
  const Tensor real = sum(0, waves.cosine);
  return ExpandDims(Sub(real, sum(1, waves.sine)), -1);
}

// x [.., n, parts] -> [.., bins, 2].
Tensor Spectrum(Tensor x, const Transform& t) {
  const int64_t parts = x.shape()[x.shape().rank() - 1];
  const int64_t bins = t.is_onesided ? t.size / 2 + 1 : t.size;
  const Waves waves = WavesOf(*x.graph(), t.size, bins, x.dtype());
  const Tensor sine = t.is_inverse ? waves.sine : Neg(waves.sine);
  Tensor real = MatMul(Part(x, 0), waves.cosine), imaginary = MatMul(Part(x, 0), sine);
  if (parts == 2) {
    real = Sub(real, MatMul(Part(x, 1), sine));
    imaginary = Add(imaginary, MatMul(Part(x, 1), waves.cosine));
  }
  const Tensor y = Concat({ExpandDims(real, -1), ExpandDims(imaginary, -1)}, -1);
  return t.is_inverse ? Scale(y, 1.0 / static_cast<double>(t.size)) : y;
}

// As products with matrices of waves: exact, and quick enough for the sizes that models have.
Tensor Transformed(Tensor signal, const Transform& t) {
  if (!signal.valid()) return signal;
  const int rank = signal.shape().rank();
  Ints perm(rank);  // the axis goes to the end
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[t.axis], perm[rank - 2]);
  const bool is_real = t.is_inverse && t.is_onesided;
  const Tensor x = Transpose(Resized(signal, t.axis, is_real ? t.size / 2 + 1 : t.size), perm);
  return Transpose(is_real ? RealSignal(x, t.size) : Spectrum(x, t), perm);
}

absl::StatusOr<Tensors> TranslateDft(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, DftAxisOf(n));
  Transform transform = {.axis = axis,
                         .size = n.shape()[static_cast<int>(axis)],
                         .is_inverse = n.Flag("inverse"),
                         .is_onesided = n.Flag("onesided")};
  if (transform.is_inverse && transform.is_onesided) transform.size = 2 * (transform.size - 1);
  if (n.HasInput(1)) {
    BRAID_ASSIGN_OR_RETURN(transform.size, n.KnownInt(1));
  }
  BRAID_RETURN_IF_ERROR(CheckTransform(n.type(0), transform));
  return Tensors{Transformed(n.in(0), transform)};
}

// Of x [batch, time, parts]: frames of input 3 elements (else as many as the window has), every
// input 1 elements, times the window, and transformed: [batch, frames, bins, 2].
absl::StatusOr<Tensors> TranslateStft(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t step, n.KnownInt(1));
  const Shape shape = n.shape();
  if (shape.rank() != 3) {
    return Wrong(
        absl::StrCat("the signal is ", shape.ToString(), "; [batch, time, 1 or 2] is needed"));
  }
  if (n.HasInput(2) && n.rank(2) != 1) {
    return Wrong(absl::StrCat("the window is ", n.shape(2).ToString(), "; one axis is needed"));
  }
  int64_t size = n.HasInput(2) ? n.shape(2)[0] : shape[1];
  if (n.HasInput(3)) {
    BRAID_ASSIGN_OR_RETURN(size, n.KnownInt(3));
  }
  if (step < 1 || size < 1 || size > shape[1] || (n.HasInput(2) && n.shape(2)[0] > size)) {
    return Wrong(absl::StrCat("the signal is ", shape.ToString(), ", frames of ", size,
                              " elements begin every ", step));
  }
  const Transform transform = {.axis = 2, .size = size, .is_onesided = n.Flag("onesided", true)};
  const int64_t frames = (shape[1] - size) / step + 1;
  BRAID_RETURN_IF_ERROR(CheckTransform({n.dtype(), {shape[0], frames, size, shape[2]}}, transform));
  const Tensor first = Range(n.graph(), frames, {.delta = static_cast<double>(step)});
  const Tensor at = Add(ExpandDims(first, 1), Iota(n.graph(), {DType::kI64, {1, size}}, 1));
  Tensor x = Gather(n.in(0), at, {.axis = 1});
  if (n.HasInput(2)) x = Mul(x, Reshape(Resized(n.in(2), 0, size), {size, 1}));
  return Tensors{Transformed(x, transform)};
}

// [frequencies of a spectrum, bands]: triangles on the scale of pitches that Mel named. Band i
// rises from edge i to edge i + 1 and falls to edge i + 2.
absl::StatusOr<std::vector<Value>> TranslateMelWeightMatrix(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t bands, n.KnownInt(0));
  BRAID_ASSIGN_OR_RETURN(const int64_t size, n.KnownInt(1));
  BRAID_ASSIGN_OR_RETURN(const int64_t rate, n.KnownInt(2));
  BRAID_ASSIGN_OR_RETURN(const double lowest, n.KnownFloat(3));
  BRAID_ASSIGN_OR_RETURN(const double highest, n.KnownFloat(4));
  BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(n.Int("output_datatype", 1)));
  const bool are_sizes = bands >= 0 && size >= 0 && bands <= kMaxSize && size <= kMaxSize;
  if (!are_sizes || rate < 1 || bands * (size / 2 + 1) > kMaxSize || !(lowest >= 0) ||
      !(highest >= lowest)) {
    return Wrong(absl::StrCat(bands, " bands from ", lowest, " to ", highest,
                              " Hz of a transform of size ", size, " at ", rate, " Hz"));
  }
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel(highest) - mel(lowest)) / static_cast<double>(bands + 2);
  Ints edges;  // places in the spectrum
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double hertz =
        700 * (std::pow(10, (mel(lowest) + static_cast<double>(i) * step) / 2595) - 1);
    const double place = static_cast<double>(size + 1) * hertz / static_cast<double>(rate);
    edges.push_back(static_cast<int64_t>(std::floor(place)));
  }
  const int64_t places = size / 2 + 1;
  if (edges.back() > places) {
    return Wrong(absl::StrCat("the spectrum ends below ", highest, " Hz"));
  }
  std::vector<double> weights(places * bands, 0);
  const auto set = [&](int64_t place, int64_t band, int64_t part, int64_t whole) {
    if (place >= places) return;
    weights[place * bands + band] = static_cast<double>(part) / static_cast<double>(whole);
  };
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t low = edges[band], middle = edges[band + 1], high = edges[band + 2];
    if (low == middle) set(middle, band, 1, 1);
    for (int64_t at = low; low < middle && at <= middle; ++at) {
      set(at, band, at - low, middle - low);
    }
    for (int64_t at = middle; at < high; ++at) set(at, band, high - at, high - middle);
  }
  return std::vector<Value>{ConstantOf(Array::FromVector({places, bands}, weights).As(dtype))};
}

}  // namespace

void AddSignal(Translators& all) {
  all.Add("HannWindow", {}, CosineWindow({0.5, -0.5}));
  // As the standard rounds them: 25 / 46 and 21 / 46.
  all.Add("HammingWindow", {}, CosineWindow({25.0 / 46, -21.0 / 46}));
  all.Add("BlackmanWindow", {}, CosineWindow({0.42, -0.5, 0.08}));
  all.Add("DFT", {1, 3}, TranslateDft);
  all.Add("STFT", {2, 4}, TranslateStft);
  all.AddValues("MelWeightMatrix", {5, 5}, TranslateMelWeightMatrix);
}

}  // namespace braid::onnx
