// The choice of parallelism that the examples share: --parallel=data|model|hybrid|pipeline.
#pragma once

#include <braid/braid.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace examples {

enum class Parallel { kData, kModel, kHybrid, kPipeline };

inline absl::StatusOr<Parallel> ParseParallel(const std::string& text) {
  if (text == "data") return Parallel::kData;
  if (text == "model") return Parallel::kModel;
  if (text == "hybrid") return Parallel::kHybrid;
  if (text == "pipeline") return Parallel::kPipeline;
  return absl::InvalidArgumentError(
      absl::StrFormat("--parallel=%s; data, model, hybrid or pipeline was expected", text));
}

inline absl::StatusOr<braid::DType> ParseFloat(const std::string& text) {
  const auto dtype = braid::ParseDType(text);
  if (dtype.has_value() && braid::IsFloating(*dtype)) return *dtype;
  return absl::InvalidArgumentError(
      absl::StrFormat("--dtype=%s; f32, f64, bf16 or f16 was expected", text));
}

// The devices of a hybrid job as [data, model]: nodes by devices where the cluster is rectangular
// and has several of both, else two rows if their number is even, else one.
inline absl::StatusOr<braid::Placement> HybridDevices(const braid::Placement& devices) {
  const int64_t nodes = devices.num_nodes();
  const int64_t size = devices.size();
  bool is_rectangular = size % nodes == 0;
  for (const braid::DeviceId& device : devices.devices()) {
    is_rectangular = is_rectangular && device.device < size / nodes;
  }
  if (!is_rectangular) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--parallel=hybrid needs as many devices on every node; %s has %d on %d nodes",
        devices.ToString(), size, nodes));
  }
  int64_t rows = nodes;
  if (nodes == 1) rows = size % 2 == 0 ? 2 : 1;
  return devices.WithHierarchy({rows, size / rows});
}

// Records `fn` on the devices that the parallelism asks for.
inline void OnDevices(braid::Job& job, Parallel parallel, const std::function<void()>& fn) {
  if (parallel != Parallel::kHybrid) return fn();
  job.On(HybridDevices(job.devices()), fn);
}

// `loss(samples)` of the whole batch; or, if it is mirrored, the mean of what each device makes of
// its own part of it (Job::Mirrored), as DistributedDataParallel has it.
template <typename Loss>
braid::Tensor LossOf(braid::Job& job, bool is_mirrored, int64_t batch, Loss loss) {
  if (!is_mirrored) return loss(batch);
  const int64_t devices = job.devices().size();
  if (batch % devices != 0) {
    job.graph().Fail(absl::InvalidArgumentError(absl::StrFormat(
        "a batch of %d is not divided by %d devices; give it a multiple", batch, devices)));
  }
  return job.Mirrored([&] { return MeanMirrored(loss(batch / devices)); });
}

// Layouts of a pair of linear layers: columns of the first, rows of the second, so that one sum
// does for both.
struct PairLayout {
  std::optional<braid::NdSbp> first, second;
};
inline PairLayout LayoutOf(Parallel parallel) {
  using namespace braid::sbp;
  if (parallel == Parallel::kModel) return {S(1), S(0)};
  if (parallel == Parallel::kHybrid) return {braid::NdSbp{B, S(1)}, braid::NdSbp{B, S(0)}};
  return {};
}

// `stages` places of a pipeline: node by node if there are several nodes, else device by device.
// Fewer devices than stages share the last one.
inline std::vector<braid::Placement> PipelineStages(const braid::Placement& devices, int stages) {
  std::vector<braid::Placement> places;
  const int units = devices.num_nodes() > 1 ? devices.num_nodes() : devices.size();
  for (int stage = 0; stage < stages; ++stage) {
    const int first = stage * units / stages;
    const int last = std::max(first + 1, (stage + 1) * units / stages);
    if (devices.num_nodes() == 1) {
      places.push_back(devices.Slice(first, last - first));
      continue;
    }
    int begin = 0, count = 0;
    for (int node = 0; node < last; ++node) {
      (node < first ? begin : count) += devices.node(node).size();
    }
    places.push_back(devices.Slice(begin, count));
  }
  return places;
}

}  // namespace examples
