#include "examples/gpt_model.h"

#include <cmath>

namespace examples {
namespace {

using braid::Job;
using braid::Tensor;
using namespace braid::sbp;

// Layouts of a pair of linear layers: columns of the first, rows of the second.
struct PairLayout {
  std::optional<braid::NdSbp> first, second;
};
PairLayout LayoutOf(Parallel parallel) {
  if (parallel == Parallel::kModel) return {S(1), S(0)};
  if (parallel == Parallel::kHybrid) return {braid::NdSbp{B, S(1)}, braid::NdSbp{B, S(0)}};
  return {};
}

Tensor Drop(Tensor x, double rate) { return rate > 0 ? Dropout(x, rate) : x; }

Tensor Block(Tensor x, const GptOptions& options) {
  const PairLayout layout = LayoutOf(options.parallel);
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers));
  Tensor y = Attention(LayerNormLayer(x, {.name = "norm1"}), {.heads = options.heads,
                                                              .dropout = options.dropout,
                                                              .projection = layout.first,
                                                              .output = layout.second});
  x = x + Drop(y, options.dropout);
  y = Linear(LayerNormLayer(x, {.name = "norm2"}), 4 * options.width,
             {.name = "fc", .weight = layout.first, .stddev = 0.02});
  y = Linear(Gelu(y, {.approximate = true}), options.width,
             {.name = "proj", .weight = layout.second, .stddev = residual});
  return x + Drop(y, options.dropout);
}

// tokens i32 [batch, time] -> logits [batch, time, vocabulary].
Tensor Gpt(Job& job, Tensor tokens, const GptOptions& options) {
  const int num_stages = options.parallel == Parallel::kPipeline ? 2 : 1;
  const auto stages = examples::PipelineStages(job.devices(), num_stages);
  const auto on_stage = [&](int stage, const std::function<Tensor()>& fn) {
    return num_stages == 1 ? fn() : job.On(stages[stage], fn);
  };
  const int64_t time = tokens.valid() ? tokens.shape()[1] : options.context;
  Tensor x = on_stage(0, [&] {
    const Tensor token = EmbeddingLayer(tokens, options.vocabulary, options.width,
                                        {.name = "tokens", .dtype = options.dtype});
    const Tensor position =
        EmbeddingLayer(Iota(job.graph(), {braid::DType::kI32, {time}}), options.context,
                       options.width, {.name = "positions", .dtype = options.dtype});
    return Drop(token + position, options.dropout);
  });
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const int stage = static_cast<int>(layer * num_stages / options.layers);
    const braid::NameScope scope(job.graph(), absl::StrFormat("h.%d", layer));
    x = on_stage(stage, [&] { return Block(x, options); });
  }
  return on_stage(num_stages - 1, [&] {
    return Linear(LayerNormLayer(x, {.name = "norm"}), options.vocabulary,
                  {.name = "head", .bias = false, .stddev = 0.02});
  });
}

}  // namespace

void TrainGpt(Job& job, const GptOptions& options) {
  OnDevices(job, options.parallel, [&] {
    auto [input, target] =
        job.Read(options.train, {.batch = options.batch, .shuffle = true, .name = "train"});
    const Tensor loss = Mean(SoftmaxCrossEntropy(Gpt(job, input, options), target));
    const Tensor rate = braid::WarmupCosine(job.graph(), {.peak = options.lr,
                                                          .floor = options.lr / 10,
                                                          .warmup_steps = options.warmup_steps,
                                                          .steps = options.steps});
    job.Minimize(loss, braid::AdamW{.lr = rate, .beta2 = 0.99, .weight_decay = 0.1},
                 {.micro_batches = options.micro_batches, .clip_global_norm = options.clip});
    job.Fetch("loss", loss);
  });
}

void EvaluateGpt(Job& job, const GptOptions& options) {
  OnDevices(job, options.parallel, [&] {
    auto [input, target] =
        job.Read(options.held_out, {.batch = options.evaluation_batch, .name = "held_out"});
    job.Fetch("nats", Mean(SoftmaxCrossEntropy(Gpt(job, input, options), target)));
  });
}

void PredictGpt(Job& job, const GptOptions& options) {
  OnDevices(job, options.parallel, [&] {
    const Tensor tokens = job.Input("tokens", {1, options.context}, braid::DType::kI32);
    const Tensor logits = Gpt(job, tokens, options);
    job.Fetch("probabilities", Cast(Softmax(logits), braid::DType::kF64));
  });
}

}  // namespace examples
