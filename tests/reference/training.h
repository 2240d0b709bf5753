// The same three models written for Braid, and their data.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/reference/models.h"

namespace braid {

// Batches come round again after so many steps, so that the models learn.
constexpr int64_t kBatches = 8;

// How a job is spread over its session's devices.
enum class Spread { kData, kHybrid, kPipeline };

struct ReferenceCase {
  std::string name;
  std::function<std::unique_ptr<reference::Model>(reference::InitialValue)> make_model;
  // Appends the model up to its loss; inputs are "x" and "label".
  std::function<Tensor(Job&, DType, Spread)> loss;
  std::function<void(Job&, Tensor loss)> minimize;
  Shape x, label;
  bool has_tokens = false;  // x is of i32
  uint32_t data_seed = 1;
};

ReferenceCase MlpCase();
ReferenceCase CnnCase();
ReferenceCase GptCase(bool is_tied);
std::vector<ReferenceCase> ReferenceCases();

// What step `step` trains on. All numbers are f32's.
reference::Batch BatchOf(const ReferenceCase& model, int64_t step);

// A session on `devices` with the case's job, which fetches the loss.
struct TrainingSession {
  std::unique_ptr<Session> session;
  std::optional<CompiledJob> job;
  const ReferenceCase* model = nullptr;
  DType dtype = DType::kF64;
  absl::StatusOr<RunResult> Step(int64_t step);
};
struct TrainingSessionOptions {
  DType dtype = DType::kF64;
  std::vector<int> devices = {1};
  Spread spread = Spread::kData;
  // Fetched as "gradient NAME".
  std::vector<std::string> gradients = {};
};
absl::StatusOr<TrainingSession> StartTraining(const ReferenceCase& model,
                                              const TrainingSessionOptions& options);

}  // namespace braid
