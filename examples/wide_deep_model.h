// The recommender of the wide_deep example: written for one device, with the lines that spread it.
// Cheng et al., "Wide & Deep Learning for Recommender Systems", arXiv 1606.07792.
#pragma once

#include <braid/braid.h>

#include "examples/parallel.h"

namespace examples {

struct WideDeepOptions {
  Parallel parallel = Parallel::kData;  // kModel and kHybrid split the tables' rows
  // The tables live on the second half of the devices, by rows, where they are looked up and
  // updated; the others do the rest by data parallelism. `parallel` is kData.
  bool has_servers = false;
  braid::DType dtype = braid::DType::kF32;
  int64_t fields = 4;   // of categories: the genres of a film, say
  int64_t rows = 1000;  // categories of a field
  int64_t bag = 3;      // how many of them a sample has
  int64_t numbers = 4;  // that a sample has beside
  int64_t columns = 8;  // of a table
  int64_t hidden = 64;  // width of the two hidden layers
  int64_t batch = 256;  // samples per step, over all devices
  double lr = 0.01;     // of Adagrad
};

// Fetches "loss", in nats per click.
void TrainWideDeep(braid::Job& job, const WideDeepOptions& options);
// Of samples of their own; fetches "accuracy" and "possible", that of who knows the rule by which
// the clicks are made up.
void EvaluateWideDeep(braid::Job& job, const WideDeepOptions& options);

}  // namespace examples
