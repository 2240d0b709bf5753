// The operators as functions: what users, gradients and passes build graphs with. Each call
// appends an op to the graph of its operands and checks shapes there and then. If an operand is
// invalid nothing is appended and the results are invalid. Axes may be negative: -1 is the last.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/attrs.h"
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
Tensor Scale(Tensor x, double factor, SourceLocation where = Here());  // factor * x
Tensor Shift(Tensor x, double value, SourceLocation where = Here());   // x + value
Tensor Clip(Tensor x, double low, double high, SourceLocation where = Here());
Tensor Cast(Tensor x, DType dtype, SourceLocation where = Here());  // x itself if it has dtype
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
inline Tensor operator+(TensorOperand a, double b) { return Shift(a.tensor, b, a.where); }
inline Tensor operator+(double a, TensorOperand b) { return Shift(b.tensor, a, b.where); }
inline Tensor operator-(TensorOperand a, double b) { return Shift(a.tensor, -b, a.where); }
inline Tensor operator-(double a, TensorOperand b) {
  return Shift(Neg(b.tensor, b.where), a, b.where);
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
// Axis i of the result is axis perm[i] of x.
Tensor Transpose(Tensor x, std::vector<int64_t> perm, SourceLocation where = Here());
// The box at begin[i] of size[i] on each axis; a size of -1: to the end.
Tensor Slice(Tensor x, std::vector<int64_t> begin, std::vector<int64_t> size,
             SourceLocation where = Here());
// Zeros around x: before[i] and after[i] on axis i.
Tensor Pad(Tensor x, std::vector<int64_t> before, std::vector<int64_t> after,
           SourceLocation where = Here());
Tensor Concat(const std::vector<Tensor>& xs, int64_t axis, SourceLocation where = Here());
// Parts of the given sizes, which must add up to the axis.
std::vector<Tensor> Split(Tensor x, std::vector<int64_t> sizes, int64_t axis,
                          SourceLocation where = Here());
Tensor BroadcastTo(Tensor x, Shape shape, SourceLocation where = Here());

// ---- Reductions ---------------------------------------------------------------------------------

struct ReduceOptions {
  std::vector<int64_t> axes = {};  // empty: all
  bool keep_dims = false;          // reduced axes stay, with size 1
};
Tensor ReduceSum(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceMean(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceMax(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceMin(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor Sum(Tensor x, SourceLocation where = Here());   // of all elements
Tensor Mean(Tensor x, SourceLocation where = Here());  // of all elements; bools count as 0 and 1
// i32 indices of the largest element along `axis`, which disappears; the first one of equals.
Tensor ArgMax(Tensor x, int64_t axis = -1, SourceLocation where = Here());

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

// ---- Softmax and losses -------------------------------------------------------------------------

struct SoftmaxOptions {
  bool causal = false;  // of x [..., n, c]: row i sees columns 0 .. i
  double scale = 1;     // softmax(scale * x)
};
Tensor Softmax(Tensor x, SoftmaxOptions options = {}, SourceLocation where = Here());  // last axis
Tensor LogSoftmax(Tensor x, SourceLocation where = Here());                            // last axis
// -log softmax(logits)[label] for logits [..., c]: [...]. Labels are class numbers, i32 or i64
// [...], or probabilities [..., c] that sum to 1. The classes may be split over devices.
Tensor SoftmaxCrossEntropy(Tensor logits, Tensor labels, SourceLocation where = Here());

// ---- Normalization ------------------------------------------------------------------------------

struct LayerNormOptions {
  double epsilon = 1e-5;
};
// (x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis; x [..., c], gamma and
// beta [c]. Ba et al., arXiv 1607.06450.
Tensor LayerNorm(Tensor x, Tensor gamma, Tensor beta, LayerNormOptions options = {},
                 SourceLocation where = Here());

// ---- Indexing -----------------------------------------------------------------------------------

struct GatherOptions {
  int64_t axis = 0;
};
// table [p.., n, q..], indices (i32 or i64) [i..] into axis n: [p.., i.., q..].
Tensor Gather(Tensor table, Tensor indices, GatherOptions options = {},
              SourceLocation where = Here());
// table [n, c], indices [i..]: [i.., c].
Tensor Embedding(Tensor table, Tensor indices, SourceLocation where = Here());
// indices [i..]: [i.., depth], 1 at the index and 0 elsewhere.
Tensor OneHot(Tensor indices, int64_t depth, DType dtype = DType::kF32,
              SourceLocation where = Here());
// a where condition, else b; the three broadcast.
Tensor Where(Tensor condition, Tensor a, Tensor b, SourceLocation where = Here());

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
// A value that the host feeds.
Tensor Input(LogicalGraph& graph, std::string name, TensorType type, SourceLocation where = Here());
struct ReadOptions {
  std::string dataset = {};  // spec, see runtime/data
  int64_t batch = 1;
  bool shuffle = false;
  std::string key = {};                // readers of one key see one order of samples
  std::vector<int64_t> fields = {};    // which fields of a sample
  std::vector<TensorType> types = {};  // of each field's whole batch: [batch, ...]
};
// One tensor per field.
std::vector<Tensor> Read(LogicalGraph& graph, ReadOptions options, SourceLocation where = Here());
// Sends x to the host under `name`.
void Fetch(Tensor x, std::string name, SourceLocation where = Here());
// d loss / d x of the job's Minimize, usable as any Tensor; the autograd pass puts the value here.
Tensor GradientOf(Tensor x, SourceLocation where = Here());

// ---- Where values live --------------------------------------------------------------------------

// The same value, laid out as `sbp` from here on.
Tensor ToSbp(Tensor x, NdSbp sbp, SourceLocation where = Here());
// The same value on the devices of `placement`.
Tensor ToPlacement(Tensor x, Placement placement, SourceLocation where = Here());

}  // namespace braid
