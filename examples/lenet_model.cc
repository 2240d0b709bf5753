#include "examples/lenet_model.h"

namespace examples {

using braid::Tensor;

void TrainLeNet(braid::Job& job, const LeNetOptions& options) {
  auto [image, label] =
      job.Read(options.train,
               {.batch = options.batch, .shuffle = true, .name = "train", .dtype = options.dtype});
  Tensor x = Reshape(image, {options.batch, 1, 28, 28});
  x = Relu(ConvLayer(x, 6, {.name = "conv1", .kernel = {5}, .padding = {2}}));
  x = MaxPool(x, {.kernel = {2}});
  x = Relu(ConvLayer(x, 16, {.name = "conv2", .kernel = {5}}));
  x = Flatten(MaxPool(x, {.kernel = {2}}));
  x = Relu(Linear(x, 120, {.name = "fc1"}));
  x = Relu(Linear(x, 84, {.name = "fc2"}));
  const Tensor loss = Mean(SoftmaxCrossEntropy(Linear(x, 10, {.name = "fc3"}), label));
  job.Minimize(loss, braid::Sgd{.lr = options.lr, .momentum = options.momentum},
               {.micro_batches = options.micro_batches});
  job.Fetch("loss", loss);
}

}  // namespace examples
