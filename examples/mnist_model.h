// The MLP of the mnist example: written for one device, with the lines that spread it.
#pragma once

#include <braid/braid.h>

#include "examples/parallel.h"

namespace examples {

struct MnistOptions {
  Parallel parallel = Parallel::kData;
  bool mirrored = false;  // training is: see LossOf
  braid::DType dtype = braid::DType::kF32;
  braid::DatasetSpec train, test;  // images [784] and labels
  int64_t batch = 100;             // over all devices
  int micro_batches = 1;
  int64_t hidden = 512;  // width of the two hidden layers
  double dropout = 0;
  double lr = 1e-3;   // of Adam
  int64_t steps = 0;  // over which the rate falls to a hundredth; 0: it stays
};

// Fetches "loss".
void TrainMnist(braid::Job& job, const MnistOptions& options);
// Batches of 100 in order; fetches "accuracy".
void EvaluateMnist(braid::Job& job, const MnistOptions& options);

}  // namespace examples
