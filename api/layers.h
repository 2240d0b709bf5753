// Layers: functions that make the variables they need, named under the current scope. A layer
// without a name gets one that no other of the job has: linear, linear_1, ... A second layer of a
// name says .share = true and has the variables of the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/functional.h"
#include "graph/logical_graph.h"

namespace braid {

struct LinearOptions {
  std::string name = {};  // or linear, linear_1, ...
  bool share = false;
  bool bias = true;
  std::optional<NdSbp> weight = std::nullopt;  // layout of the weight; the bias follows its columns
  std::optional<double> stddev = std::nullopt;  // of a normal weight; else uniform +-1/sqrt(in)
};
// x [..., in] -> [..., features]: x * weight [in, features] + bias [features].
Tensor Linear(Tensor x, int64_t features, LinearOptions options = {},
              SourceLocation where = Here());

struct EmbeddingLayerOptions {
  std::string name = {};  // or embedding, embedding_1, ...
  bool share = false;
  DType dtype = DType::kF32;
  std::optional<NdSbp> weight = std::nullopt;
  // GPT-2's, for tables that a head shares; PyTorch's is 1, from which small models learn sooner.
  double stddev = 0.02;
};
// indices (i32 or i64) [i..] -> [i.., features], rows of a normal table [rows, features].
Tensor EmbeddingLayer(Tensor indices, int64_t rows, int64_t features,
                      EmbeddingLayerOptions options = {}, SourceLocation where = Here());

struct LayerNormLayerOptions {
  std::string name = {};  // or norm, norm_1, ...
  bool share = false;
  double epsilon = 1e-5;
};
// Layer normalisation of x [..., c] with variables gamma (ones) and beta (zeros) [c].
Tensor LayerNormLayer(Tensor x, LayerNormLayerOptions options = {}, SourceLocation where = Here());

struct ConvLayerOptions {
  std::string name = {};  // or conv, conv_1, ...
  bool share = false;
  std::vector<int64_t> kernel = {3};  // an entry per axis of space, or one for all
  std::vector<int64_t> strides = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilations = {};
  SamePadding same = SamePadding::kNone;
  int64_t groups = 1;
  bool bias = true;
  std::optional<NdSbp> weight = std::nullopt;   // layout; the bias follows its outputs, axis 0
  std::optional<double> stddev = std::nullopt;  // of a normal weight; else uniform, as the bias
};
// x [n, c, space...] -> [n, features, windows...] with 1 to 3 axes of space: Conv with variables
// weight [features, c / groups, kernel...] and bias [features], uniform +-1/sqrt(inputs of a
// feature).
Tensor ConvLayer(Tensor x, int64_t features, ConvLayerOptions options = {},
                 SourceLocation where = Here());

struct BatchNormLayerOptions {
  std::string name = {};  // or norm, norm_1, ...
  bool share = false;
  double epsilon = 1e-5;
  double momentum = 0.1;  // of the newest batch in the running statistics
  // By the batch's statistics, which move the running ones at the end of the step; false: by the
  // running ones, which stay. Nothing: the former in jobs that train, the latter in others.
  std::optional<bool> training = std::nullopt;
  // In job.Mirrored: by the batches of all devices together, as SyncBatchNorm of PyTorch does; else
  // each device's own, of which the first one's move the running statistics.
  bool sync = false;
  // As BatchNormOptions; the running statistics take the mean over the groups.
  int64_t groups = 0;
  // Names of the variables, where a checkpoint from elsewhere has others.
  std::string gamma = "gamma", beta = "beta";
  std::string running_mean = "running_mean", running_variance = "running_variance";
};
// Batch normalisation of x [n, c, space...] with variables gamma (ones) and beta (zeros), and
// running_mean (zeros) and running_variance (ones, of the unbiased variance), which are not trained
// and are f32 if x is narrower; all [c]. Statistics are those of the whole batch on whatever
// devices (but see .sync), of each micro-batch by itself; the running ones take the mean over the
// micro-batches. A job trains a layer of one name in one place: its running statistics move once a
// step.
Tensor BatchNormLayer(Tensor x, BatchNormLayerOptions options = {}, SourceLocation where = Here());

struct RmsNormLayerOptions {
  std::string name = {};  // or norm, norm_1, ...
  bool share = false;
  double epsilon = 1e-5;
};
// Root mean square normalisation of x [..., c] with a variable gamma (ones) [c].
Tensor RmsNormLayer(Tensor x, RmsNormLayerOptions options = {}, SourceLocation where = Here());

struct RecurrentLayerOptions {
  std::string name = {};  // or recurrent, recurrent_1, ...
  bool share = false;
  int64_t layers = 1;  // each on the outputs of the one before
  bool bidirectional = false;
  bool bias = true;
  double dropout = 0;   // of the outputs of every layer but the last
  Tensor lengths = {};  // i32 or i64 [batch], see graph/functions/recurrent.h
  // In the form of RecurrentLayerResult's; zeros if they are not given. `initial_cell`: LstmLayer.
  Tensor initial_state = {}, initial_cell = {};
};
struct RecurrentLayerResult {
  Tensor outputs;  // [time, batch, units], or 2 units if bidirectional: of the last layer
  // After the last step: [layers, batch, units], or with both directions of a layer side by side
  // [2 layers, batch, units].
  Tensor state;
  Tensor cell;  // of LstmLayer
};
// Recurrent layers over x [time, batch, features]. Variables, uniform in
// +-1/sqrt(units), have PyTorch's names and gates: weight_ih_l0 [gates * units, features],
// weight_hh_l0, bias_ih_l0, bias_hh_l0, then l1, ..., and with _reverse behind.
RecurrentLayerResult LstmLayer(Tensor x, int64_t units, RecurrentLayerOptions options = {},
                               SourceLocation where = Here());
RecurrentLayerResult GruLayer(Tensor x, int64_t units, RecurrentLayerOptions options = {},
                              SourceLocation where = Here());
RecurrentLayerResult RnnLayer(Tensor x, int64_t units, RecurrentLayerOptions options = {},
                              SourceLocation where = Here());

struct AttentionOptions {
  std::string name = {};  // or attn, attn_1, ...
  bool share = false;
  int64_t heads = 1;
  bool causal = true;
  double dropout = 0;  // of the attention weights
  // Broadcasts to [batch, heads, time, time]: bool, true where a token (third axis) may look at
  // another (fourth), or of x's dtype, added to the scaled scores. Together with `causal`, which
  // masks by itself; not with `cache`.
  Tensor mask = {};
  // Layout of the q, k and v projections; the output projection takes `output`. Splitting heads
  // over devices: {.projection = S(1), .output = S(0)}.
  std::optional<NdSbp> projection = std::nullopt;
  std::optional<NdSbp> output = std::nullopt;
  double stddev = 0.02;
  // For inference token by token: x holds the tokens from `position` (i32 or i64 []) on, which see
  // those of earlier steps, too. The keys and values of `cache` tokens at most are variables
  // cache_k and cache_v [batch, cache, heads, depth], split as the projections; 0: of none.
  int64_t cache = 0;
  Tensor position = {};
};
// Multi-head self-attention over x [batch, time, channels]: Vaswani et al., arXiv 1706.03762.
Tensor Attention(Tensor x, AttentionOptions options = {}, SourceLocation where = Here());

// The variable `name` under the current scope; made with `options` unless the job has it.
Tensor GetVariable(LogicalGraph& graph, VariableOptions options, SourceLocation where = Here());

// While it lives, names of new ops and variables nest under `name`.
class NameScope {
 public:
  NameScope(LogicalGraph& graph, const std::string& name) : graph_(graph) {
    graph_.PushScope(name);
  }
  ~NameScope() { graph_.PopScope(); }
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  LogicalGraph& graph_;
};

}  // namespace braid
