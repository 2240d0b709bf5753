// The GPT of the gpt example: written for one device, with the lines that spread it. Radford et
// al., "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include <braid/braid.h>

#include <string>

#include "examples/parallel.h"

namespace examples {

struct GptOptions {
  Parallel parallel = Parallel::kData;
  bool mirrored = false;  // training is: see LossOf
  braid::DType dtype = braid::DType::kF32;
  braid::DatasetSpec train, held_out;  // windows of characters and those that follow
  int64_t vocabulary = 65;
  int64_t layers = 4, width = 128, heads = 4, context = 128;
  bool tied = false;   // the head is the table of tokens, as in GPT-2
  int64_t batch = 16;  // windows per step, over all devices
  int64_t evaluation_batch = 16;
  int micro_batches = 1;
  double dropout = 0;
  double lr = 1e-3;      // peak of AdamW's
  int64_t steps = 2000;  // after which the learning rate is a tenth of the peak
  int64_t warmup_steps = 100;
  double clip = 1;  // global norm of the gradients; 0: any
};

// tiny, small, or the published gpt2, gpt2-medium, gpt2-large and gpt2-xl.
absl::StatusOr<GptOptions> GptOfSize(const std::string& size);

// Where a variable of the model is in the common safetensors files of GPT-2: h.0.attn.c_attn.weight
// holds q, k and v side by side. Both ways: LoadWeights and SaveWeights. A head of its own is there
// as lm_head.weight, [vocabulary, width]; for a tied one the file's is left alone.
braid::WeightsOptions Gpt2Weights(bool tied);

// What an inference token by token has beside its tokens: their place in the text, i32 [].
struct GptCache {
  braid::Tensor position;
};
// tokens i32 [batch, time] -> logits [batch, time, vocabulary] of the token after each. With a
// cache the tokens begin at its position and see what earlier steps put there.
braid::Tensor Gpt(braid::Job& job, braid::Tensor tokens, const GptOptions& options,
                  std::optional<GptCache> cache = std::nullopt);

// Fetches "loss", in nats per token.
void TrainGpt(braid::Job& job, const GptOptions& options);
// Fetches "nats".
void EvaluateGpt(braid::Job& job, const GptOptions& options);
// Input "tokens" i32 [1, time]; fetches "logits" [1, time, vocabulary].
void PredictGpt(braid::Job& job, const GptOptions& options, int64_t time);

}  // namespace examples
