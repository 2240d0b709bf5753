#include "tests/dist/ddp_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/support/lagging_device.h"

namespace braid::ddp {

Tensor LossOf(Tensor x, Tensor y, bool is_first) {
  Tensor h = Linear(x, 16, {.name = "hidden", .share = !is_first});
  h = Linear(Relu(h), 3, {.name = "out", .share = !is_first});
  return Mean(SoftmaxCrossEntropy(h, y));
}

std::vector<std::pair<std::string, Array>> Batch(int64_t i, int64_t part, int64_t parts,
                                                 const std::string& suffix) {
  const int64_t rows = kBatch / parts;
  std::vector<float> x;
  std::vector<int32_t> y;
  for (int64_t row = part * rows; row < (part + 1) * rows; ++row) {
    for (int64_t k = 0; k < kColumns; ++k) {
      x.push_back(static_cast<float>((row * 7 + k * 3 + i * 5) % 11) / 11);
    }
    y.push_back(static_cast<int32_t>((row + i) % 3));
  }
  return {{"x" + suffix, Array::FromVector<float>({rows, kColumns}, x)},
          {"y" + suffix, Array::FromVector<int32_t>({rows}, y)}};
}

std::pair<Tensor, Tensor> Inputs(Job& job, int64_t rows, const std::string& suffix) {
  const Tensor x = job.Input("x" + suffix, {rows, kColumns});
  return {x, job.Input("y" + suffix, {rows}, DType::kI32)};
}

absl::StatusOr<std::vector<float>> Weights(Session& session) {
  std::vector<float> all;
  for (const char* name : {"hidden.weight", "hidden.bias", "out.weight", "out.bias"}) {
    BRAID_ASSIGN_OR_RETURN(const Array value, session.Get(name));
    const auto data = value.data<float>();
    all.insert(all.end(), data.begin(), data.end());
  }
  return all;
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, double limit,
                const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  EXPECT_LE(most, limit) << what;
}

namespace {

SessionOptions OptionsOf(const Training& training) {
  return {.devices = training.devices,
          .node_kinds = training.kinds,
          .device_kinds = KindsWithLagging(),
          .precision = training.precision,
          .seed = 5,
          .progress = Progress::kOff};
}

}  // namespace

absl::StatusOr<std::vector<float>> Train(
    const Training& training, const std::function<absl::Status(Session&, CompiledJob&)>& after) {
  BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(OptionsOf(training)));
  BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
    const auto inputs = Inputs(job, kBatch);
    const Tensor loss = job.Mirrored([&] {
      return training.mean(LossOf(MirrorParts(inputs.first), MirrorParts(inputs.second)));
    });
    job.Minimize(loss, Sgd{.lr = training.rate}, training.options);
    job.Fetch("loss", loss);
  }));
  for (int64_t run = 0; run < training.steps * training.runs_a_step; ++run) {
    RunOptions options = {.feeds = Batch(training.has_one_batch ? 0 : run)};
    options.no_sync = (run + 1) % training.runs_a_step != 0;
    BRAID_RETURN_IF_ERROR(job.Run(options).status());
  }
  if (after) BRAID_RETURN_IF_ERROR(after(*session, job));
  return Weights(*session);
}

// The same without `ddp`: the batches of a step are parts of one loss.
absl::StatusOr<std::vector<float>> TrainPlainly(const Training& training) {
  BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(OptionsOf(training)));
  BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
    Tensor loss;
    for (int64_t i = 0; i < training.runs_a_step; ++i) {
      const auto inputs = Inputs(job, kBatch, absl::StrCat(i));
      const Tensor more = job.Mirrored([&] {
        return training.mean(LossOf(MirrorParts(inputs.first), MirrorParts(inputs.second), i == 0));
      });
      loss = i == 0 ? more : loss + more;
    }
    MinimizeOptions options = training.options;
    options.ddp.reset();
    job.Minimize(loss, Sgd{.lr = training.rate}, options);
    job.Fetch("loss", loss);
  }));
  for (int64_t step = 0; step < training.steps; ++step) {
    RunOptions options;
    for (int64_t i = 0; i < training.runs_a_step; ++i) {
      for (auto& feed : Batch(step * training.runs_a_step + i, 0, 1, absl::StrCat(i))) {
        options.feeds.push_back(std::move(feed));
      }
    }
    BRAID_RETURN_IF_ERROR(job.Run(options).status());
  }
  return Weights(*session);
}

void ExpectSame(const Training& training, double limit, const std::string& what) {
  const auto weights = Train(training), plain = TrainPlainly(training);
  ASSERT_TRUE(weights.ok()) << what << weights.status();
  ASSERT_TRUE(plain.ok()) << what << plain.status();
  EXPECT_EQ(weights->size(), static_cast<size_t>(kNumbers));
  ExpectNear(*weights, *plain, limit, what);
}

}  // namespace braid::ddp
