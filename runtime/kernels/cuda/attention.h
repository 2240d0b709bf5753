// Launches of attention, its gradients, the cached form, rotary embeddings.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Where a head's rows lie in an operand [batch, heads, time, depth], or with time before heads: in
// elements.
struct HeadStrides {
  int64_t batch = 0, head = 0, row = 0;
};

// An additive or bool mask that broadcasts to [batch, heads, query time, key time].
struct AttentionMask {
  const void* terms = nullptr;  // null: none
  bool is_bool = false;
  int64_t strides[4] = {};  // in elements, 0 where it is broadcast
};

// Query i sees the first `by_first` + i of so many keys, or, if it is not causal, all.
struct KeysSeen {
  int64_t keys = 0;
  bool is_causal = false;
  int64_t by_first = 0;
};

// The part of an attention that a device has.
struct AttentionPart {
  DType dtype = DType::kF32;
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, depth = 0, value_depth = 0;
  int64_t group = 1;                          // heads of q per head of k, of the whole
  int64_t first_head = 0, first_kv_head = 0;  // of the whole's heads
  HeadStrides q, k, v, o;
  double scale = 1;
  KeysSeen seen;
  AttentionMask mask;
};

// Attention over keys of which the first ones may be cached: position of them, in operands with
// the same rows but `cache` of them; then there are position + queries keys, and query i sees
// position + 1 + i.
inline constexpr int kCachePosition = 5, kRowsPosition = 2;  // inputs that may be wrong
struct KeyValueCache {
  const void *k = nullptr, *v = nullptr;
  HeadStrides k_at, v_at;
  const void* position = nullptr;  // null: there is no cache
  bool position_is_i64 = false;
  int64_t size = 0;
};

struct AttentionLaunch {
  AttentionPart part;
  KeyValueCache cache;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;  // of what is computed with; null: not wanted
};

// Logarithms of sums or their gradients: of the type that is computed with, or of the operands'.
struct AttentionRows {
  const void* values = nullptr;  // null: zeros
  bool is_narrow = false;
};

struct AttentionGradLaunch {
  AttentionPart part;
  const void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *d_o = nullptr;
  AttentionRows lse, dlse;
  void* delta = nullptr;  // scratch: a number of what is computed with for each row of lse
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  void* dmask = nullptr;
};

// Rows [outer, rows, bytes] to `position` of [outer, size, bytes].
struct WriteRowsLaunch {
  int64_t outer = 0, rows = 0, size = 0, bytes = 0;
  void* to = nullptr;
  const void* from = nullptr;
  const void* position = nullptr;
  bool position_is_i64 = false;
};

// x [batch, outer, time, inner, depth]; positions [batch, time] if there are any.
struct RotaryLaunch {
  DType dtype = DType::kF32;
  int64_t batch = 0, outer = 0, time = 0, inner = 0, depth = 0;
  double base = 1;
  bool is_interleaved = false, is_inverse = false;
  int64_t first = 0;  // position of time 0 if they count up
  const void* positions = nullptr;
  bool positions_are_i64 = false;
  const void* x = nullptr;
  void* y = nullptr;
};

struct AttentionTable {
  Error (*attention)(const Queue&, const AttentionLaunch&);
  Error (*attention_grad)(const Queue&, const AttentionGradLaunch&);
  Error (*attention_mask_grad)(const Queue&, const AttentionGradLaunch&);
  Error (*write_rows)(const Queue&, const WriteRowsLaunch&);
  Error (*rotary)(const Queue&, const RotaryLaunch&);
};
AttentionTable MakeAttentionTable();

// The table's, by source.
Error LaunchAttentionGrad(const Queue& queue, const AttentionGradLaunch& launch);
Error LaunchAttentionMaskGrad(const Queue& queue, const AttentionGradLaunch& launch);
Error LaunchWriteRows(const Queue& queue, const WriteRowsLaunch& launch);
Error LaunchRotary(const Queue& queue, const RotaryLaunch& launch);

}  // namespace braid::cuda
