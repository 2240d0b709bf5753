// The fragments of the READMEs in functions that have what they take for granted.
#include <braid/braid.h>
#include <braid/dist.h>
#include <braid/onnx.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// What a fragment makes is for the reader to use.
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

namespace readme {

using braid::Tensor;

absl::Status Onnx(braid::Session& session) {
#include "onnx.inc"
  return absl::OkStatus();
}

using MeanLoss = std::function<double(const braid::dist::SampleRange&, std::span<const int64_t>)>;

absl::Status Data(braid::dist::World* world, const MeanLoss& mean_loss) {
#include "data.inc"
  return absl::OkStatus();
}

absl::Status Dist(){
#include "dist.inc"
}

absl::Status SumAllocated(braid::dist::World* world) {
#include "alloc.inc"
  return absl::OkStatus();
}

absl::Status Reduce(braid::dist::World* world) {
#include "reduction.inc"
  return absl::OkStatus();
}

absl::Status InBatch(braid::dist::World* world, std::vector<std::vector<float>>& gradients,
                     std::vector<float>& statistics) {
#include "batch.inc"
  return absl::OkStatus();
}

absl::Status Store(braid::dist::World* world, const std::string& address) {
#include "store.inc"
  return absl::OkStatus();
}

absl::Status WorldSession(braid::dist::World* world, const braid::DatasetSpec& data) {
#include "world_session.inc"
  return absl::OkStatus();
}

absl::Status ByHand(braid::dist::World* world, braid::CompiledJob& compute,
                    braid::CompiledJob& apply, const braid::Array& x, const braid::Array& y) {
#include "by_hand.inc"
  return absl::OkStatus();
}

using OfTensor = std::function<Tensor(Tensor)>;
using OfTwo = std::function<Tensor(Tensor, Tensor)>;

absl::Status Ddp(braid::dist::World* world, const braid::DatasetSpec& data, const OfTensor& model,
                 const OfTwo& criterion) {
#include "ddp.inc"
  return absl::OkStatus();
}

using Feeds = std::vector<std::pair<std::string, braid::Array>>;

absl::Status DdpOptions(braid::Session* session, const OfTensor& model, const OfTwo& criterion,
                        const Feeds& first, const Feeds& second) {
#include "ddp_options.inc"
  return absl::OkStatus();
}

absl::Status Objects(braid::dist::World* world) {
#include "objects.inc"
  return absl::OkStatus();
}

absl::Status Window(braid::dist::World* world, const std::vector<float>& values) {
#include "window.inc"
  return absl::OkStatus();
}

void Groups(braid::Job& job, Tensor loss) {
#include "groups.inc"
}

void Mirrored(braid::Job& job, const braid::DatasetSpec& data) {
#include "mirrored.inc"
}

void Parallelism(braid::Job& job, Tensor x, Tensor loss) {
#include "parallelism.inc"
}

}  // namespace readme
