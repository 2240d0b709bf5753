// The fragments of the READMEs in functions that have what they take for granted.
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/braid.h"
#include "api/onnx/onnx.h"

// What a fragment makes is for the reader to use.
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

namespace readme {

using braid::Tensor;

void Groups(braid::Job& job, Tensor loss) {
#include "groups.inc"
}

absl::Status Onnx(braid::Session& session) {
#include "onnx.inc"
  return absl::OkStatus();
}

void Parallelism(braid::Job& job, Tensor x, Tensor loss) {
#include "parallelism.inc"
}

}  // namespace readme
