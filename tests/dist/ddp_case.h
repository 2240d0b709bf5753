// Training by mirrored gradients, for suites that compare it.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace braid::ddp {

inline constexpr int64_t kBatch = 12, kColumns = 4;
inline constexpr int64_t kNumbers = 4 * 16 + 16 + 16 * 3 + 3;  // of all variables

Tensor LossOf(Tensor x, Tensor y, bool is_first = true);

// The i-th batch of `rows`, of which `part` of `parts` are taken.
std::vector<std::pair<std::string, Array>> Batch(int64_t i, int64_t part = 0, int64_t parts = 1,
                                                 const std::string& suffix = "");
std::pair<Tensor, Tensor> Inputs(Job& job, int64_t rows, const std::string& suffix = "");
absl::StatusOr<std::vector<float>> Weights(Session& session);
void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, double limit,
                const std::string& what);

// What a job on these devices, which mirrors its batch, has made of the weights.
struct Training {
  std::vector<int> devices = {2};
  std::vector<std::string> kinds = {};  // of the nodes
  double rate = 0.1;
  DType precision = DType::kF32;
  MinimizeOptions options = {};
  std::function<Tensor(Tensor)> mean = [](Tensor own) { return MeanMirrored(own); };
  // The Runs of each step: so many without sync, and one with it.
  int64_t runs_a_step = 1;
  int64_t steps = 1;
  bool has_one_batch = false;  // again and again
};

absl::StatusOr<std::vector<float>> Train(
    const Training& training,
    const std::function<absl::Status(Session&, CompiledJob&)>& after = nullptr);
// That a job without `ddp`, whose loss has the batches of a step as parts, gives the same.
absl::StatusOr<std::vector<float>> TrainPlainly(const Training& training);
void ExpectSame(const Training& training, double limit, const std::string& what);

}  // namespace braid::ddp
