// Takes apart what exporters merge: where tensors of a model are equal, torch's older exporter
// writes one of them and gives the others' names by Identity nodes behind it.
#pragma once

#include <braid/onnx.h>

#include "absl/status/status.h"

namespace braid::onnx {

class ModelProto;

// An Identity node of one of `weights` makes place for a weight of the node's name for it
//   if all its elements are one number: so begin biases, scales and statistics of different layers,
//   which are trained apart. What is equal otherwise is one parameter with two names;
//   if it has another role there, as statistics that equal a parameter have.
// Statistics that batch normalization reads under a trained parameter's own name become the weight
// "<name>.statistics".
absl::Status TakeApart(ModelProto& model, NumbersByName& weights);

}  // namespace braid::onnx
