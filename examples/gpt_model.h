// The character-level GPT of the gpt example: written for one device, with the lines that spread
// it. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include "api/braid.h"
#include "examples/parallel.h"

namespace examples {

struct GptOptions {
  Parallel parallel = Parallel::kData;
  braid::DType dtype = braid::DType::kF32;
  braid::DatasetSpec train, held_out;  // windows of characters and those that follow
  int64_t vocabulary = 65;
  int64_t layers = 4, width = 128, heads = 4, context = 128;
  int64_t batch = 16;  // windows per step, over all devices
  int64_t evaluation_batch = 16;
  int micro_batches = 1;
  double dropout = 0;
  double lr = 1e-3;      // peak of AdamW's
  int64_t steps = 2000;  // after which the learning rate is a tenth of the peak
  int64_t warmup_steps = 100;
  double clip = 1;  // global norm of the gradients; 0: any
};

// Fetches "loss", in nats per character.
void TrainGpt(braid::Job& job, const GptOptions& options);
// Fetches "nats".
void EvaluateGpt(braid::Job& job, const GptOptions& options);
// Input "tokens" i32 [1, context]; fetches "probabilities" f64 [1, context, vocabulary] of the next
// character at each place.
void PredictGpt(braid::Job& job, const GptOptions& options);

}  // namespace examples
