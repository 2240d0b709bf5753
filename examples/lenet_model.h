// LeNet on digits, written for one device: LeCun et al., "Gradient-Based Learning Applied to
// Document Recognition", 1998, with rectifiers and maxima as it is used today.
#pragma once

#include <braid/braid.h>

namespace examples {

struct LeNetOptions {
  braid::DType dtype = braid::DType::kF32;
  braid::DatasetSpec train;  // images [784] and labels
  int64_t batch = 64;        // over all devices
  int micro_batches = 1;
  double lr = 0.01;  // of SGD
  double momentum = 0.9;
};

// Fetches "loss".
void TrainLeNet(braid::Job& job, const LeNetOptions& options);

}  // namespace examples
