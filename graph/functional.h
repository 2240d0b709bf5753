// The operators as functions: what users, gradients and passes build graphs with. Each call
// appends an op to the graph of its operands and checks shapes there and then. If an operand is
// invalid nothing is appended and the results are invalid. Axes may be negative: -1 is the last.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/attrs.h"
#include "graph/functions/losses.h"
#include "graph/functions/math.h"
#include "graph/functions/mirrored.h"
#include "graph/functions/reduce.h"
#include "graph/logical_graph.h"

namespace braid {

// ---- Any operator -------------------------------------------------------------------------------

// Appends a use of any registered operator that has inputs; a user's own operator is called so.
std::vector<Tensor> ApplyAll(std::string_view type, const std::vector<Tensor>& inputs,
                             Attrs attrs = {}, SourceLocation where = Here());
// The same, for an operator with one output.
Tensor Apply(std::string_view type, const std::vector<Tensor>& inputs, Attrs attrs = {},
             SourceLocation where = Here());

// ---- Arithmetic: a and b broadcast by numpy's rules and have one dtype --------------------------

Tensor Add(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Sub(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Mul(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Div(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Pow(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Pow(Tensor a, double exponent, SourceLocation where = Here());
Tensor Maximum(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Minimum(Tensor a, Tensor b, SourceLocation where = Here());

// bool results. Integers of different width compare as i64.
Tensor Equal(Tensor a, Tensor b, SourceLocation where = Here());
Tensor NotEqual(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Less(Tensor a, Tensor b, SourceLocation where = Here());
Tensor LessEqual(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Greater(Tensor a, Tensor b, SourceLocation where = Here());
Tensor GreaterEqual(Tensor a, Tensor b, SourceLocation where = Here());
// On bools.
Tensor LogicalAnd(Tensor a, Tensor b, SourceLocation where = Here());
Tensor LogicalOr(Tensor a, Tensor b, SourceLocation where = Here());
Tensor LogicalNot(Tensor x, SourceLocation where = Here());

// ---- One operand, element by element ------------------------------------------------------------

Tensor Identity(Tensor x, SourceLocation where = Here());
Tensor Neg(Tensor x, SourceLocation where = Here());
Tensor Exp(Tensor x, SourceLocation where = Here());
Tensor Log(Tensor x, SourceLocation where = Here());
Tensor Sqrt(Tensor x, SourceLocation where = Here());
Tensor Rsqrt(Tensor x, SourceLocation where = Here());
Tensor Tanh(Tensor x, SourceLocation where = Here());
Tensor Sigmoid(Tensor x, SourceLocation where = Here());
Tensor Relu(Tensor x, SourceLocation where = Here());
struct GeluOptions {
  bool approximate = false;  // the tanh form of Hendrycks and Gimpel, arXiv 1606.08415
};
Tensor Gelu(Tensor x, GeluOptions options = {}, SourceLocation where = Here());
Tensor Abs(Tensor x, SourceLocation where = Here());
Tensor Square(Tensor x, SourceLocation where = Here());
Tensor Reciprocal(Tensor x, SourceLocation where = Here());
Tensor Sign(Tensor x, SourceLocation where = Here());
Tensor Scale(Tensor x, double factor, SourceLocation where = Here());     // factor * x
Tensor AddScalar(Tensor x, double value, SourceLocation where = Here());  // x + value
// x within [low, high]; either may be infinite. Whole numbers stay whole: their bounds are rounded
// inwards.
Tensor Clip(Tensor x, double low, double high, SourceLocation where = Here());
struct CastOptions {            // to floats of 8 bits
  bool saturate = true;         // what is too large: the largest number; else infinity or NaN
  std::string rounding = "up";  // of f8e8m0: up, down or nearest
};
// x itself if it has dtype. From a floating to an integer type: towards zero, clamped to its range;
// of whole numbers that do not fit the lowest bits stay.
Tensor Cast(Tensor x, DType dtype, SourceLocation where = Here());
Tensor Cast(Tensor x, DType dtype, CastOptions options, SourceLocation where = Here());
Tensor BitCast(Tensor x, DType dtype, SourceLocation where = Here());  // the same bits
// The value of x, through which no gradient flows.
Tensor StopGradient(Tensor x, SourceLocation where = Here());

// ---- Operators on Tensors and numbers -----------------------------------------------------------

// A Tensor with the line on which it became an operand, so that `a + b` knows its line.
struct TensorOperand {
  TensorOperand(Tensor t, SourceLocation w = Here()) : tensor(t), where(w) {}  // NOLINT: converts
  Tensor tensor;
  SourceLocation where;
};
inline Tensor operator+(TensorOperand a, TensorOperand b) {
  return Add(a.tensor, b.tensor, a.where);
}
inline Tensor operator-(TensorOperand a, TensorOperand b) {
  return Sub(a.tensor, b.tensor, a.where);
}
inline Tensor operator*(TensorOperand a, TensorOperand b) {
  return Mul(a.tensor, b.tensor, a.where);
}
inline Tensor operator/(TensorOperand a, TensorOperand b) {
  return Div(a.tensor, b.tensor, a.where);
}
inline Tensor operator-(TensorOperand a) { return Neg(a.tensor, a.where); }
inline Tensor operator+(TensorOperand a, double b) { return AddScalar(a.tensor, b, a.where); }
inline Tensor operator+(double a, TensorOperand b) { return AddScalar(b.tensor, a, b.where); }
inline Tensor operator-(TensorOperand a, double b) { return AddScalar(a.tensor, -b, a.where); }
inline Tensor operator-(double a, TensorOperand b) {
  return AddScalar(Neg(b.tensor, b.where), a, b.where);
}
inline Tensor operator*(TensorOperand a, double b) { return Scale(a.tensor, b, a.where); }
inline Tensor operator*(double a, TensorOperand b) { return Scale(b.tensor, a, b.where); }
inline Tensor operator/(TensorOperand a, double b) { return Scale(a.tensor, 1 / b, a.where); }
inline Tensor operator/(double a, TensorOperand b) {
  return Scale(Reciprocal(b.tensor, b.where), a, b.where);
}

// ---- Layout -------------------------------------------------------------------------------------

// One dim of `shape` may be -1: what is left. The number of elements stays.
Tensor Reshape(Tensor x, Shape shape, SourceLocation where = Here());
// [64, 28, 28] -> [64, 784]: merges `first_axis` and all that follow.
Tensor Flatten(Tensor x, int64_t first_axis = 1, SourceLocation where = Here());
Tensor ExpandDims(Tensor x, int64_t axis, SourceLocation where = Here());  // a dim of 1 at `axis`
Tensor Squeeze(Tensor x, int64_t axis, SourceLocation where = Here());     // which must be 1
Tensor Squeeze(Tensor x, SourceLocation where = Here());                   // every dim of 1
// Axis i of the result is axis perm[i] of x.
Tensor Transpose(Tensor x, std::vector<int64_t> perm, SourceLocation where = Here());
// The box at begin[i] of size[i] on each axis; a size of -1: to the end.
Tensor Slice(Tensor x, std::vector<int64_t> begin, std::vector<int64_t> size,
             SourceLocation where = Here());
// The same, in steps: elements begin[i] + k * step[i] for k < size[i]; a step may be negative. A
// size of -1: as many as there are.
Tensor Slice(Tensor x, std::vector<int64_t> begin, std::vector<int64_t> size,
             std::vector<int64_t> step, SourceLocation where = Here());
struct SliceRange {
  std::optional<int64_t> begin = std::nullopt;  // none: from the first one (the last, backwards)
  std::optional<int64_t> end = std::nullopt;    // not in it; none: all that are left
  int64_t step = 1;
};
// x[begin:end:step] of Python on each of `axes`: negative bounds count from the end, what is
// outside is cut off.
Tensor SliceAxes(Tensor x, std::vector<int64_t> axes, const std::vector<SliceRange>& ranges,
                 SourceLocation where = Here());
Tensor SliceAxis(Tensor x, int64_t axis, SliceRange range, SourceLocation where = Here());
enum class PadMode {
  kConstant,
  kReflect,  // c b | a b c | b a: the first and last elements are the mirrors
  kEdge,     // a a | a b c | c c
  kWrap      // b c | a b c | a b
};
struct PadOptions {
  PadMode mode = PadMode::kConstant;
  double value = 0;                    // of kConstant
  std::vector<int64_t> interior = {};  // of kConstant: so many between neighbours on each axis
};
// before[i] and after[i] elements around x on axis i; negative ones cut x.
Tensor Pad(Tensor x, std::vector<int64_t> before, std::vector<int64_t> after,
           PadOptions options = {}, SourceLocation where = Here());
// x repeated repeats[i] times along axis i: a b -> a b a b. Missing leading axes are added.
Tensor Tile(Tensor x, std::vector<int64_t> repeats, SourceLocation where = Here());
// Every slice along `axis` repeated: a b -> a a b b.
Tensor RepeatInterleave(Tensor x, int64_t repeats, int64_t axis, SourceLocation where = Here());
Tensor Flip(Tensor x, std::vector<int64_t> axes, SourceLocation where = Here());  // last one first
// Element i of axis axes[j] goes to i + shifts[j], around the end.
Tensor Roll(Tensor x, std::vector<int64_t> shifts, std::vector<int64_t> axes,
            SourceLocation where = Here());
// x [.., m, n] with zeros above (Tril) or below (Triu) the diagonal that starts at column
// `diagonal`, of row -diagonal if it is negative.
Tensor Tril(Tensor x, int64_t diagonal = 0, SourceLocation where = Here());
Tensor Triu(Tensor x, int64_t diagonal = 0, SourceLocation where = Here());
// Elements x[.., i, .., i, ..] of two axes of one size, as the last axis: [n, m, n] -> [m, n].
Tensor Diagonal(Tensor x, int64_t axis_a, int64_t axis_b, SourceLocation where = Here());
enum class DepthOrder { kDepthColumnRow, kColumnRowDepth };  // DCR and CRD of ONNX
// [n, c * b * b, h, w] -> [n, c, h * b, w * b] with blocks of b = `block`: Shi et al., arXiv
// 1609.05158 (CRD; DCR has the block's place before the depth).
Tensor DepthToSpace(Tensor x, int64_t block, DepthOrder order = DepthOrder::kDepthColumnRow,
                    SourceLocation where = Here());
// The inverse of DepthToSpace.
Tensor SpaceToDepth(Tensor x, int64_t block, DepthOrder order = DepthOrder::kDepthColumnRow,
                    SourceLocation where = Here());
Tensor Concat(const std::vector<Tensor>& xs, int64_t axis, SourceLocation where = Here());
// Parts of the given sizes, which must add up to the axis.
std::vector<Tensor> Split(Tensor x, std::vector<int64_t> sizes, int64_t axis,
                          SourceLocation where = Here());
Tensor BroadcastTo(Tensor x, Shape shape, SourceLocation where = Here());

// ---- Matrices -----------------------------------------------------------------------------------

struct MatMulOptions {
  bool transpose_a = false;  // the last two axes of a
  bool transpose_b = false;
};
// a [..., m, k] times b [k, n], or b [..., k, n] whose leading dims equal or broadcast with a's:
// [..., m, n].
Tensor MatMul(Tensor a, Tensor b, MatMulOptions options = {}, SourceLocation where = Here());
// a [..., m], b [..., n] with equal leading dims: the sum over these of the outer products, [m, n].
Tensor Tensordot(Tensor a, Tensor b, SourceLocation where = Here());
// Einstein's summation, as numpy writes it: "bij,bjk->bik" multiplies and sums over letters that
// are not in the result. A letter twice in an operand is its diagonal; "..." are leading dims that
// broadcast; without "->" the result has the letters that stand once, in alphabetical order, after
// the dims of "...". Operands are contracted two at a time, the pair with the fewest products
// first.
Tensor Einsum(std::string_view equation, const std::vector<Tensor>& operands,
              SourceLocation where = Here());

// ---- Softmax ------------------------------------------------------------------------------------

struct SoftmaxOptions {
  bool causal = false;  // of x [..., n, c]: row i sees columns 0 .. i
  double scale = 1;     // softmax(scale * x)
};
Tensor Softmax(Tensor x, SoftmaxOptions options = {}, SourceLocation where = Here());  // last axis
Tensor LogSoftmax(Tensor x, SourceLocation where = Here());                            // last axis

// ---- Normalization ------------------------------------------------------------------------------

struct LayerNormOptions {
  double epsilon = 1e-5;
};
// (x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis; x [..., c], gamma and
// beta [c]. Ba et al., arXiv 1607.06450.
Tensor LayerNorm(Tensor x, Tensor gamma, Tensor beta, LayerNormOptions options = {},
                 SourceLocation where = Here());

struct RmsNormOptions {
  double epsilon = 1e-5;
};
// x / sqrt(mean(x^2) + epsilon) * gamma over the last axis; x [..., c], gamma [c]. Zhang and
// Sennrich, arXiv 1910.07467.
Tensor RmsNorm(Tensor x, Tensor gamma, RmsNormOptions options = {}, SourceLocation where = Here());

// ---- Attention ----------------------------------------------------------------------------------

struct DotProductAttentionOptions {
  // Broadcasts to [batch, heads, query time, key time]: bool, true where a query may look, or of
  // q's dtype, added to the scaled scores.
  Tensor mask = {};
  // Queries and keys end together: query i of tq sees keys 0 .. i + tk - tq of tk. So the queries
  // of the latest steps fit to a cache of all keys.
  bool causal = false;
  std::optional<double> scale = std::nullopt;  // of the scores; else 1 / sqrt(depth)
  bool time_first = false;                     // operands are [batch, time, heads, depth]
};
// softmax(scale * q k^T + mask) v: q [batch, heads, tq, depth], k [batch, kv heads, tk, depth], v
// [batch, kv heads, tk, e] -> [batch, heads, tq, e]. The heads are a multiple of the kv heads:
// neighbours share one (Ainslie et al., arXiv 2305.13245). Needs memory for one row of scores per
// head, not for all. A query that sees no key gives zeros. Vaswani et al., arXiv 1706.03762; Dao et
// al., arXiv 2205.14135.
Tensor DotProductAttention(Tensor q, Tensor k, Tensor v, DotProductAttentionOptions options = {},
                           SourceLocation where = Here());

struct CachedAttentionOptions {
  Tensor keys = {}, values = {};               // of earlier steps: [batch, cache, heads, depth]
  Tensor position = {};                        // i32 or i64 []: so many of them are seen
  std::optional<double> scale = std::nullopt;  // of the scores; else 1 / sqrt(depth)
};
// Attention of the `time` tokens from `position` on: query i sees the first `position` cached keys
// and keys 0 .. i; q, k, v are [batch, time, heads, depth]. The caches stay as they are, WriteRows
// adds k and v to them. Inference only: it has no gradient.
Tensor CachedAttention(Tensor q, Tensor k, Tensor v, CachedAttentionOptions options,
                       SourceLocation where = Here());

struct RotaryOptions {
  Tensor positions = {};  // i32 or i64 [time] or [batch, time]; else offset, offset + 1, ...
  int64_t offset = 0;     // unused with positions
  double base = 10000;
  bool interleaved = false;  // pairs are elements 2 i and 2 i + 1, else i and depth / 2 + i
  int64_t time_axis = 2;     // x is [batch, heads, time, depth]; 1 if time comes before heads
};
// Turns pair i of each row of x by position * base^(-2 i / depth), so that the product of a query
// and a key depends on how far apart they are. The last axis, depth, is even. Su et al., arXiv
// 2104.09864.
Tensor Rotary(Tensor x, RotaryOptions options = {}, SourceLocation where = Here());

// ---- Indexing -----------------------------------------------------------------------------------

// Indices are i32, i64 or u8; negative ones count from the end, others that are outside are errors
// of the step. Gradients go to tables and updates.

struct GatherOptions {
  int64_t axis = 0;
};
// table [p.., n, q..], indices [i..] into axis n: [p.., i.., q..].
Tensor Gather(Tensor table, Tensor indices, GatherOptions options = {},
              SourceLocation where = Here());
// table [n, c], indices [i..]: [i.., c].
Tensor Embedding(Tensor table, Tensor indices, SourceLocation where = Here());
enum class BagMode { kSum, kMean, kMax };
struct EmbeddingBagOptions {
  BagMode mode = BagMode::kSum;
  Tensor weights = {};  // [batch, n] of the table's dtype, with kSum only
  // This index counts as no member of a bag; a bag without members gives zeros.
  std::optional<int64_t> padding_index = std::nullopt;
};
// table [rows, c], indices (i32 or i64) [batch, n], a bag per row: [batch, c]. Between stands
// [batch, n, c].
Tensor EmbeddingBag(Tensor table, Tensor indices, EmbeddingBagOptions options = {},
                    SourceLocation where = Here());
// indices [i..]: [i.., depth], 1 at the index and 0 elsewhere.
Tensor OneHot(Tensor indices, int64_t depth, DType dtype = DType::kF32,
              SourceLocation where = Here());
struct OneHotOptions {
  int64_t axis = -1;  // of the result
  DType dtype = DType::kF32;
};
Tensor OneHot(Tensor indices, int64_t depth, OneHotOptions options, SourceLocation where = Here());
// table and indices of one rank, indices' dims not above the table's but at `axis`:
// y[i, j, ..] = table[indices[i, j, ..], j, ..] for axis 0. The shape is the indices'.
Tensor GatherElements(Tensor table, Tensor indices, int64_t axis, SourceLocation where = Here());
// The same, after dims of 1 of either were broadcast on the other axes.
Tensor TakeAlong(Tensor table, Tensor indices, int64_t axis, SourceLocation where = Here());
// table [b.., n.., q..], indices [b.., i.., k] of positions on the k axes n: [b.., i.., q..]; b are
// `batch_dims` axes.
Tensor GatherNd(Tensor table, Tensor indices, int64_t batch_dims = 0,
                SourceLocation where = Here());
// What happens where an update meets an element. Updates are taken in the order of their indices:
// of several that replace one element, the last one stays.
enum class ScatterReduction { kReplace, kAdd, kMul, kMax, kMin };
struct ScatterElementsOptions {
  int64_t axis = 0;
  ScatterReduction reduction = ScatterReduction::kReplace;
};
// table with updates [i..] put where GatherElements would read them with indices [i..].
Tensor ScatterElements(Tensor table, Tensor indices, Tensor updates,
                       ScatterElementsOptions options = {}, SourceLocation where = Here());
struct ScatterNdOptions {
  int64_t batch_dims = 0;
  ScatterReduction reduction = ScatterReduction::kReplace;
};
// table with updates put where GatherNd would read them.
Tensor ScatterNd(Tensor table, Tensor indices, Tensor updates, ScatterNdOptions options = {},
                 SourceLocation where = Here());
// table [p.., n, q..] with updates [p.., i.., q..] added to the slices that indices [i..] name.
Tensor IndexAdd(Tensor table, Tensor indices, Tensor updates, int64_t axis = 0,
                SourceLocation where = Here());
// a where condition, else b; the three broadcast.
Tensor Where(Tensor condition, Tensor a, Tensor b, SourceLocation where = Here());

// ---- Convolution and pooling: x [n, c, space...] with 1 to 3 axes of space
// ----------------------- Lists in the options have an entry per axis of space; one entry stands
// for all axes, none for strides and dilations of 1 and paddings of 0. Batch and channels may be
// split over devices, space may not: windows would reach into the neighbours' parts.

// Paddings that make ceil(size / stride) windows of each axis; an odd element goes behind (kUpper)
// or in front (kLower). kNone: as padding and padding_end say.
enum class SamePadding { kNone, kUpper, kLower };

struct ConvOptions {
  std::vector<int64_t> strides = {};
  std::vector<int64_t> dilations = {};    // distance between the elements that a window reads
  std::vector<int64_t> padding = {};      // zeros in front
  std::vector<int64_t> padding_end = {};  // zeros behind; as `padding` if empty
  SamePadding same = SamePadding::kNone;
  int64_t groups = 1;  // of channels that see only each other; c for a depthwise convolution
};
// w [o, c / groups, kernel...], bias [o]: [n, o, windows...] with
// floor((size + paddings - dilation (kernel - 1) - 1) / stride) + 1 windows. A correlation: the
// kernel is not flipped.
Tensor Conv(Tensor x, Tensor w, ConvOptions options = {}, SourceLocation where = Here());
Tensor Conv(Tensor x, Tensor w, Tensor bias, ConvOptions options = {},
            SourceLocation where = Here());

struct ConvTransposeOptions {
  std::vector<int64_t> strides = {};
  std::vector<int64_t> dilations = {};
  std::vector<int64_t> padding = {};         // of the result, taken off in front
  std::vector<int64_t> padding_end = {};     // and behind; as `padding` if empty
  std::vector<int64_t> output_padding = {};  // added behind, less than the stride
  int64_t groups = 1;
};
// The transpose of Conv as a linear map (what its gradient does), w [c, o / groups, kernel...]:
// [n, o, (size - 1) stride + dilation (kernel - 1) + 1 - paddings + output_padding, ...].
Tensor ConvTranspose(Tensor x, Tensor w, ConvTransposeOptions options = {},
                     SourceLocation where = Here());
Tensor ConvTranspose(Tensor x, Tensor w, Tensor bias, ConvTransposeOptions options = {},
                     SourceLocation where = Here());

struct PoolOptions {
  std::vector<int64_t> kernel = {};
  std::vector<int64_t> strides = {};  // as `kernel` if empty
  std::vector<int64_t> dilations = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> padding_end = {};  // as `padding` if empty
  SamePadding same = SamePadding::kNone;
  bool ceil_mode = false;          // a last window that is not whole counts too
  bool count_include_pad = false;  // means only: padding counts as zeros
};
Tensor MaxPool(Tensor x, PoolOptions options, SourceLocation where = Here());
// And the largest elements' i64 positions in their channel's space, [0, product of space).
std::array<Tensor, 2> MaxPoolWithIndices(Tensor x, PoolOptions options,
                                         SourceLocation where = Here());
Tensor AvgPool(Tensor x, PoolOptions options, SourceLocation where = Here());
// (sum of |x|^p)^(1/p) of each window.
Tensor LpPool(Tensor x, double p, PoolOptions options, SourceLocation where = Here());
// As many windows as `sizes` says: window i of s over n elements is [floor(i n / s),
// ceil((i + 1) n / s)).
Tensor AdaptiveAvgPool(Tensor x, std::vector<int64_t> sizes, SourceLocation where = Here());
Tensor AdaptiveMaxPool(Tensor x, std::vector<int64_t> sizes, SourceLocation where = Here());
// Over all of space, which keeps its axes, of size 1.
Tensor GlobalAvgPool(Tensor x, SourceLocation where = Here());
Tensor GlobalMaxPool(Tensor x, SourceLocation where = Here());

// ---- Normalization of x [n, c, space...] by channels
// ---------------------------------------------

struct BatchNormOptions {
  double epsilon = 1e-5;
  // Training only: this many equal runs of neighbouring images are normalized each by its own
  // statistics, on whatever devices ("ghost batches": Hoffer et al., arXiv 1705.08741). Divides the
  // batch, and is a multiple of the micro-batches; if it is also one of the devices times the
  // micro-batches, no statistics are exchanged. 0: the whole batch, or each micro-batch.
  int64_t groups = 0;
};
// (x - mean) / sqrt(variance + epsilon) * gamma + beta, the last four [c]. Ioffe and Szegedy, arXiv
// 1502.03167.
Tensor BatchNorm(Tensor x, Tensor gamma, Tensor beta, Tensor mean, Tensor variance,
                 BatchNormOptions options = {}, SourceLocation where = Here());
// By the statistics of the whole batch, wherever its parts are; of each micro-batch by itself.
// variance is the mean of squares (biased). If micro-batches or groups are used, mean and variance
// as outputs are the means of theirs.
struct BatchNormResult {
  Tensor y, mean, variance;
};
BatchNormResult BatchNormTraining(Tensor x, Tensor gamma, Tensor beta,
                                  BatchNormOptions options = {}, SourceLocation where = Here());
struct GroupNormOptions {
  int64_t groups = 1;
  double epsilon = 1e-5;
};
// By mean and variance of each group of neighbouring channels of each image; gamma and beta [c].
// Wu and He, arXiv 1803.08494.
Tensor GroupNorm(Tensor x, Tensor gamma, Tensor beta, GroupNormOptions options = {},
                 SourceLocation where = Here());
struct InstanceNormOptions {
  double epsilon = 1e-5;
};
// GroupNorm with a group for each channel. Ulyanov et al., arXiv 1607.08022.
Tensor InstanceNorm(Tensor x, Tensor gamma, Tensor beta, InstanceNormOptions options = {},
                    SourceLocation where = Here());
struct LocalResponseNormOptions {
  int64_t size = 5;  // neighbouring channels
  double alpha = 1e-4, beta = 0.75, bias = 1;
};
// x / (bias + alpha / size * sum of squares of `size` channels around)^beta. Krizhevsky et al.,
// NIPS 2012.
Tensor LocalResponseNorm(Tensor x, LocalResponseNormOptions options = {},
                         SourceLocation where = Here());

// ---- Interpolation
// -------------------------------------------------------------------------------

// Names and formulas of the ONNX operator Resize, version 13 (and half_pixel_symmetric of 19).
struct InterpolateOptions {
  std::vector<int64_t> axes = {};   // empty: all behind the first two
  std::vector<int64_t> sizes = {};  // of the result, per axis; else floor(size * scale)
  std::vector<double> scales = {};  // from x to the result; else by the sizes
  std::string mode = "nearest";     // nearest, linear, cubic
  // half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric,
  // tf_half_pixel_for_nn, tf_crop_and_resize
  std::string coordinates = "half_pixel";
  std::string rounding = "round_prefer_floor";  // nearest: or floor, ceil, round_prefer_ceil
  double cubic = -0.75;                         // Keys' a
  bool exclude_outside = false;                 // cubic: elements beyond the ends have no weight
  std::vector<double> begin = {}, end = {};     // tf_crop_and_resize: of the region, in [0, 1]
  double outside = 0;                           // tf_crop_and_resize: the value beyond the ends
};
// `axes` of x resized; the others stay. nearest also of integers and bools.
Tensor Interpolate(Tensor x, InterpolateOptions options, SourceLocation where = Here());

// ---- Order --------------------------------------------------------------------------------------

// Along one axis, NaNs above all numbers, equal elements by their index.
struct Ordered {
  Tensor values;
  Tensor indices;  // i32: where they stood
};
struct SortOptions {
  int64_t axis = -1;
  bool descending = false;
};
Ordered Sort(Tensor x, SortOptions options = {}, SourceLocation where = Here());
Tensor ArgSort(Tensor x, SortOptions options = {}, SourceLocation where = Here());
struct TopKOptions {
  int64_t axis = -1;
  bool largest = true;  // else the smallest
};
// The k largest, the largest first.
Ordered TopK(Tensor x, int64_t k, TopKOptions options = {}, SourceLocation where = Here());

// ---- Random numbers and sources -----------------------------------------------------------------

// Zeroes a fraction `rate` of the elements and scales the others by 1 / (1 - rate); the identity in
// jobs that do not train. Srivastava et al., JMLR 15, 2014.
Tensor Dropout(Tensor x, double rate, SourceLocation where = Here());

struct ConstantOptions {
  DType dtype = DType::kF32;
  Shape shape = {};
};
Tensor Constant(LogicalGraph& graph, double value, ConstantOptions options = {},
                SourceLocation where = Here());
constexpr int64_t kMaxLiteralElements = 1 << 16;
// A table of numbers that the plan holds: the elements in C order, of floating types the bits of
// each as an f64. At most kMaxLiteralElements; larger ones are variables.
Tensor Literal(LogicalGraph& graph, TensorType type, std::vector<int64_t> elements,
               SourceLocation where = Here());
struct RandomUniformOptions {
  DType dtype = DType::kF32;
  double low = 0;
  double high = 1;
};
// New numbers every step.
Tensor RandomUniform(LogicalGraph& graph, Shape shape, RandomUniformOptions options = {},
                     SourceLocation where = Here());
struct RandomNormalOptions {
  DType dtype = DType::kF32;
  double mean = 0;
  double stddev = 1;
};
Tensor RandomNormal(LogicalGraph& graph, Shape shape, RandomNormalOptions options = {},
                    SourceLocation where = Here());
// 0, 1, 2, ... along `axis`, the same on all others.
Tensor Iota(LogicalGraph& graph, TensorType type, int64_t axis = 0, SourceLocation where = Here());
// start, start + delta, ... `count` of them.
struct RangeOptions {
  double start = 0;
  double delta = 1;
  DType dtype = DType::kI64;
};
Tensor Range(LogicalGraph& graph, int64_t count, RangeOptions options = {},
             SourceLocation where = Here());
// [rows, columns] with 1 at (i, i + diagonal) and 0 elsewhere.
struct EyeOptions {
  int64_t diagonal = 0;
  DType dtype = DType::kF32;
};
Tensor Eye(LogicalGraph& graph, int64_t rows, int64_t columns, EyeOptions options = {},
           SourceLocation where = Here());
// The number of steps that the job has run before this one: i64[].
Tensor Step(LogicalGraph& graph, SourceLocation where = Here());

// ---- Inputs, variables, outputs -----------------------------------------------------------------

struct VariableOptions {
  std::string name = {};  // under the current scope
  DType dtype = DType::kF32;
  Shape shape = {};
  std::string init = "zeros";   // zeros, ones, constant, uniform, normal
  double value = 0;             // constant
  double low = 0, high = 0;     // uniform
  double mean = 0, stddev = 0;  // normal
  bool trainable = true;
  std::optional<NdSbp> sbp = std::nullopt;
};
// A value that lives from step to step. Its name is unique: a second one is ALREADY_EXISTS.
Tensor Variable(LogicalGraph& graph, VariableOptions options, SourceLocation where = Here());
// Overwrites a variable at the end of the step.
void Assign(Tensor variable, Tensor value, SourceLocation where = Here());
// Overwrites a part of a variable at the end of the step: rows [.., n, ..] go to [.., position ..
// position + n - 1, ..] on `axis`. position is i32 or i64 [].
void WriteRows(Tensor variable, Tensor rows, Tensor position, int64_t axis,
               SourceLocation where = Here());
// A value that the host feeds.
Tensor Input(LogicalGraph& graph, std::string name, TensorType type, SourceLocation where = Here());
struct ReadOptions {
  std::string dataset = {};  // spec, see runtime/data
  int64_t batch = 1;
  bool shuffle = false;
  std::string key = {};                // readers of one key see one order of samples
  std::vector<int64_t> fields = {};    // which fields of a sample
  std::vector<TensorType> types = {};  // of each field's whole batch: [batch, ...]
  // Where a batch would reach over the end of an epoch: "": it goes on with the next one; "drop":
  // it is left out; "pad": it is filled up with samples of the same epoch.
  std::string last = {};
  uint64_t fingerprint = 0;  // of the data, which every node must have; 0: not compared
};
// One tensor per field.
std::vector<Tensor> Read(LogicalGraph& graph, ReadOptions options, SourceLocation where = Here());
// Sends x to the host under `name`.
void Fetch(Tensor x, std::string name, SourceLocation where = Here());
// d loss / d x of the job's Minimize, usable as any Tensor; the autograd pass puts the value here.
Tensor GradientOf(Tensor x, SourceLocation where = Here());
// `a` if the job trains, else `b`, of the same type; what only the other one needs is not computed.
Tensor IfTraining(Tensor a, Tensor b, SourceLocation where = Here());

// ---- Where values live --------------------------------------------------------------------------

// The same value, laid out as `sbp` from here on.
Tensor ToSbp(Tensor x, NdSbp sbp, SourceLocation where = Here());
// The same value on the devices of `placement`.
Tensor ToPlacement(Tensor x, Placement placement, SourceLocation where = Here());

}  // namespace braid
