// What the operators of attention share, of ONNX and of ONNX Runtime: which keys a query sees,
// scores that are capped, masked and handed out, rotary embeddings of tables of cosines. Operands
// are [batch, heads, time, depth].
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/functional.h"

namespace braid::onnx {

// [batch, time, heads * depth] as [batch, heads, time, depth]; INVALID_ARGUMENT if that is not what
// x is.
absl::StatusOr<Tensor> SplitHeads(Tensor x, int64_t heads);
// And back.
Tensor MergeHeads(Tensor x);

// Query i of `queries` stands at i + offset, and sees the keys from `left` before its place to
// `right` behind it.
struct Window {
  LogicalGraph& graph;
  int64_t queries = 0, keys = 0;
  int64_t offset = 0;
  Tensor offsets = {};  // i64 [batch], instead of `offset`
  std::optional<int64_t> left = std::nullopt, right = std::nullopt;  // else all
};
// True where a query may look: [queries, keys], or [batch, 1, queries, keys] with offsets; none if
// all see all.
Tensor SeenIn(const Window& window);
// True at the keys before `lengths`, which are integers [batch]: [batch, 1, 1, keys].
Tensor SeenBefore(Tensor lengths, int64_t keys);
// x of integers, plus a number.
Tensor Shifted(Tensor x, int64_t by);
// The masks of which there are any. None, if there are none.
Tensor Both(Tensor seen_a, Tensor seen_b);

enum class ScoresOutput {
  kNone,
  kProducts,  // scaled
  kCapped,
  kMasked,
  kWeights
};

struct AttendOptions {
  Tensor seen = {};     // bool, true where a query may look; broadcasts to the scores
  Tensor added = {};    // to the scores, of q's type
  bool causal = false;  // queries and keys end together
  std::optional<double> scale = std::nullopt;
  double softcap = 0;  // scores become softcap * tanh(scores / softcap)
  Tensor sinks = {};   // [heads]: the score of a key of each head that has no value
  std::optional<DType> softmax = std::nullopt;  // the type in which it is computed; else q's
  ScoresOutput scores = ScoresOutput::kNone;
};
struct Attended {
  Tensor y;
  Tensor scores;  // [batch, heads, query time, key time] as the options say, else none
};
// INVALID_ARGUMENT if queries, keys and values of these shapes do not belong together. Heads are a
// multiple of the keys' heads, of which neighbours share one.
absl::Status CheckHeads(const Shape& q, const Shape& k, const Shape& v);
// A query that sees no key gives zeros. Where no scores are asked for, capped or have sinks, the
// weights never exist as a tensor.
absl::StatusOr<Attended> Attend(Tensor q, Tensor k, Tensor v, const AttendOptions& options);

// `cache` with `update` put on an axis behind that of the batch, from starts[b] on: both have the
// same size on all others. starts are integers [batch].
struct PutOptions {
  int64_t axis = 2;
  bool around = false;  // what reaches over the end goes to the front
};
Tensor PutAt(Tensor cache, Tensor update, Tensor starts, const PutOptions& options);

// The parts of attention, for graphs that change the scores: q k^T, scaled; and weights times v.
Tensor ScaledProducts(Tensor q, Tensor k, std::optional<double> scale);
Tensor WeighValues(Tensor weights, Tensor v);

// Turns the pairs of x's first 2 * pairs elements by angles whose cosines and sines are [batch,
// time, pairs], or [1, time, pairs]; the others stay. Pairs are elements 2 i and 2 i + 1 if
// `interleaved`, else i and pairs + i.
struct Angles {
  Tensor cosines, sines;
  bool interleaved = false;
};
Tensor Rotate(Tensor x, const Angles& angles);

}  // namespace braid::onnx
