// The masked language model of the bert example: written for one device, with the lines that spread
// it. Devlin et al., "BERT", arXiv 1810.04805, without the prediction of the next sentence.
#pragma once

#include <braid/braid.h>

#include "examples/parallel.h"

namespace examples {

struct BertOptions {
  Parallel parallel = Parallel::kData;
  braid::DType dtype = braid::DType::kF32;
  // Windows of `time` characters; none: made-up sentences (sentences.h).
  std::optional<braid::DatasetSpec> train, held_out;
  int64_t vocabulary = 64;  // the mask is one more
  int64_t layers = 2, width = 64, heads = 4;
  int64_t time = 32;  // tokens of both segments, an even number
  int64_t batch = 32;
  int micro_batches = 1;
  double dropout = 0;
  double masked = 0.15;  // share of the tokens that are to be found
  double lr = 3e-3;      // peak of AdamW's
  int64_t steps = 600;   // over which it falls to a tenth
  int64_t warmup_steps = 50;
};

// Fetches "loss", in nats per masked token.
void TrainBert(braid::Job& job, const BertOptions& options);
// Fetches "accuracy": the share of the masked tokens that are found.
void EvaluateBert(braid::Job& job, const BertOptions& options);

}  // namespace examples
