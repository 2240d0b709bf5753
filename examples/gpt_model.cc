#include "examples/gpt_model.h"

#include <cmath>
#include <map>

namespace examples {
namespace {

using braid::Job;
using braid::Tensor;

Tensor Drop(Tensor x, double rate) { return rate > 0 ? Dropout(x, rate) : x; }

Tensor Block(Tensor x, const GptOptions& options, const std::optional<GptCache>& cache) {
  const PairLayout layout = LayoutOf(options.parallel);
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers));
  Tensor y = Attention(LayerNormLayer(x, {.name = "ln_1"}),
                       {.heads = options.heads,
                        .dropout = options.dropout,
                        .projection = layout.first,
                        .output = layout.second,
                        .cache = cache.has_value() ? options.context : 0,
                        .position = cache.has_value() ? cache->position : Tensor()});
  x = x + Drop(y, options.dropout);
  y = Linear(LayerNormLayer(x, {.name = "ln_2"}), 4 * options.width,
             {.name = "mlp.c_fc", .weight = layout.first, .stddev = 0.02});
  y = Linear(Gelu(y, {.approximate = true}), options.width,
             {.name = "mlp.c_proj", .weight = layout.second, .stddev = residual});
  return x + Drop(y, options.dropout);
}

constexpr char kHead[] = "lm_head.weight";

}  // namespace

absl::StatusOr<GptOptions> GptOfSize(const std::string& size) {
  struct Size {
    int64_t layers, width, heads, context, vocabulary;
    bool tied;
  };
  const std::map<std::string, Size> sizes = {{"tiny", {4, 128, 4, 128, 65, false}},
                                             {"small", {6, 384, 6, 256, 65, false}},
                                             {"gpt2", {12, 768, 12, 1024, 50257, true}},
                                             {"gpt2-medium", {24, 1024, 16, 1024, 50257, true}},
                                             {"gpt2-large", {36, 1280, 20, 1024, 50257, true}},
                                             {"gpt2-xl", {48, 1600, 25, 1024, 50257, true}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--size=%s; tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl was expected", size));
  }
  const Size& of = found->second;
  GptOptions options;
  options.layers = of.layers;
  options.width = of.width;
  options.heads = of.heads;
  options.context = of.context;
  options.vocabulary = of.vocabulary;
  options.tied = of.tied;
  return options;
}

braid::WeightsOptions Gpt2Weights(bool tied) {
  const auto rule = [](std::string name) -> std::optional<braid::WeightSource> {
    const auto rename = [&name](const std::string& from, const std::string& to) {
      const size_t at = name.find(from);
      if (at == std::string::npos) return false;
      name.replace(at, from.size(), to);
      return true;
    };
    if (name.find("cache_") != std::string::npos || name.starts_with("writer.")) {
      return std::nullopt;  // what generating text keeps between steps
    }
    if (name == kHead) {
      return braid::WeightSource{.name = name, .transpose = true, .outside_prefix = true};
    }
    rename(".gamma", ".weight");
    rename(".beta", ".bias");
    rename(".attn.proj.", ".attn.c_proj.");
    const char* const parts[] = {".attn.q.", ".attn.k.", ".attn.v."};
    for (int part = 0; part < 3; ++part) {
      if (!rename(parts[part], ".attn.c_attn.")) continue;
      const int axis = name.ends_with(".weight") ? 1 : 0;
      return braid::WeightSource{.name = name, .axis = axis, .parts = 3, .part = part};
    }
    return braid::WeightSource{.name = name};
  };
  const auto ignore = [tied](const std::string& tensor) {  // masks, and a tied head once more
    return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") ||
           (tied && tensor == kHead);
  };
  return {.rule = rule, .prefix = "transformer.", .ignore = ignore};
}

Tensor Gpt(Job& job, Tensor tokens, const GptOptions& options, std::optional<GptCache> cache) {
  const int num_stages = options.parallel == Parallel::kPipeline ? 2 : 1;
  const auto stages = PipelineStages(job.devices(), num_stages);
  const auto on_stage = [&](int stage, const std::function<Tensor()>& fn) {
    return num_stages == 1 ? fn() : job.On(stages[stage], fn);
  };
  const int64_t time = tokens.valid() ? tokens.shape()[1] : options.context;
  Tensor x = on_stage(0, [&] {
    const Tensor token = EmbeddingLayer(tokens, options.vocabulary, options.width,
                                        {.name = "wte", .dtype = options.dtype});
    Tensor place = Iota(job.graph(), {braid::DType::kI32, {time}});
    if (cache.has_value()) place = place + cache->position;
    const Tensor position = EmbeddingLayer(place, options.context, options.width,
                                           {.name = "wpe", .dtype = options.dtype});
    return Drop(token + position, options.dropout);
  });
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const int stage = static_cast<int>(layer * num_stages / options.layers);
    const braid::NameScope scope(job.graph(), absl::StrFormat("h.%d", layer));
    x = on_stage(stage, [&] { return Block(x, options, cache); });
  }
  return on_stage(num_stages - 1, [&] {
    x = LayerNormLayer(x, {.name = "ln_f"});
    if (!options.tied) {
      return Linear(x, options.vocabulary, {.name = "lm_head", .bias = false, .stddev = 0.02});
    }
    const Tensor table = GetVariable(job.graph(), {.name = "wte.weight",
                                                   .dtype = options.dtype,
                                                   .shape = {options.vocabulary, options.width}});
    return MatMul(x, table, {.transpose_b = true});
  });
}

void TrainGpt(Job& job, const GptOptions& options) {
  OnDevices(job, options.parallel, [&] {
    const Tensor loss = LossOf(job, options.mirrored, options.batch, [&](int64_t batch) {
      auto [input, target] =
          job.Read(options.train, {.batch = batch, .shuffle = true, .name = "train"});
      return Mean(SoftmaxCrossEntropy(Gpt(job, input, options), target));
    });
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

void PredictGpt(Job& job, const GptOptions& options, int64_t time) {
  OnDevices(job, options.parallel, [&] {
    const Tensor tokens = job.Input("tokens", {1, time}, braid::DType::kI32);
    job.Fetch("logits", Gpt(job, tokens, options));
  });
}

}  // namespace examples
