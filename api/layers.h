// Layers: functions that make the variables they need, named under the current scope. A second
// layer of the same name in one job shares the variables of the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "graph/functional.h"
#include "graph/logical_graph.h"

namespace braid {

struct LinearOptions {
  std::string name = "linear";
  bool bias = true;
  std::optional<NdSbp> weight = std::nullopt;  // layout of the weight; the bias follows its columns
  std::optional<double> stddev = std::nullopt;  // of a normal weight; else uniform +-1/sqrt(in)
};
// x [..., in] -> [..., features]: x * weight [in, features] + bias [features].
Tensor Linear(Tensor x, int64_t features, LinearOptions options = {},
              SourceLocation where = Here());

struct EmbeddingLayerOptions {
  std::string name = "embedding";
  DType dtype = DType::kF32;
  std::optional<NdSbp> weight = std::nullopt;
  double stddev = 0.02;
};
// indices (i32 or i64) [i..] -> [i.., features], rows of a normal table [rows, features].
Tensor EmbeddingLayer(Tensor indices, int64_t rows, int64_t features,
                      EmbeddingLayerOptions options = {}, SourceLocation where = Here());

struct LayerNormLayerOptions {
  std::string name = "norm";
  double epsilon = 1e-5;
};
// Layer normalisation of x [..., c] with variables gamma (ones) and beta (zeros) [c].
Tensor LayerNormLayer(Tensor x, LayerNormLayerOptions options = {}, SourceLocation where = Here());

struct AttentionOptions {
  std::string name = "attn";
  int64_t heads = 1;
  bool causal = true;
  double dropout = 0;  // of the attention weights
  // Layout of the q, k and v projections; the output projection takes `output`. Splitting heads
  // over devices: {.projection = S(1), .output = S(0)}.
  std::optional<NdSbp> projection = std::nullopt;
  std::optional<NdSbp> output = std::nullopt;
  double stddev = 0.02;
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
