// Training of models that others exported, by what is trained where nobody says it: 20 steps of SGD
// on the mean square of the first output, against what torch makes of them. The cases are those of
// $BRAID_ONNX_CASES/exported that have a trained_output_0.pb (tests/onnx/export_models.py).
#include <braid/braid.h>
#include <braid/onnx.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "runtime/base/status.h"

namespace braid::conformance {
namespace {

constexpr int64_t kSteps = 20;
constexpr double kRate = 0.001;  // the script's
// Of what the outputs moved by training, and of the largest of them.
constexpr double kWithin = 1e-4;

absl::StatusOr<Array> ReadTensor(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  onnx::TensorProto tensor;
  if (!file || !tensor.ParseFromIstream(&file)) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  }
  return onnx::ToArray(tensor);
}

double LargestDifference(const Array& a, const Array& b) {
  const Array x = a.As(DType::kF64), y = b.As(DType::kF64);
  double largest = 0;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const double apart = std::abs(x.data<double>()[i] - y.data<double>()[i]);
    largest = std::isnan(apart) ? INFINITY : std::max(largest, apart);
  }
  return largest;
}

// The first output before and after.
struct Outputs {
  Array before, after;
};

absl::StatusOr<Outputs> Train(const std::filesystem::path& directory) {
  BRAID_ASSIGN_OR_RETURN(onnx::Model model, onnx::Load((directory / "model.onnx").string()));
  braid::RunOptions run = {.steps = 1};
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const std::string file = absl::StrCat("input_", i, ".pb");
    BRAID_ASSIGN_OR_RETURN(Array array, ReadTensor(directory / "test_data_set_0" / file));
    run.feeds.emplace_back(absl::StrCat("x", i), std::move(array));
  }
  const auto apply = [&](Job& job) -> absl::StatusOr<Tensor> {
    std::vector<onnx::Argument> arguments;
    for (const auto& [name, array] : run.feeds) {
      arguments.emplace_back(job.Input(name, array.shape(), array.dtype()), array);
    }
    BRAID_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, model.Apply(job, arguments));
    return outputs[0];
  };
  BRAID_ASSIGN_OR_RETURN(const auto session,
                         Session::Start({.devices = {2}, .progress = Progress::kOff}));
  BRAID_ASSIGN_OR_RETURN(CompiledJob infer,
                         session->Compile("infer", [&](Job& job) -> absl::Status {
                           BRAID_ASSIGN_OR_RETURN(const Tensor y, apply(job));
                           job.Fetch("y", y);
                           return absl::OkStatus();
                         }));
  BRAID_ASSIGN_OR_RETURN(CompiledJob train,
                         session->Compile("train", [&](Job& job) -> absl::Status {
                           BRAID_ASSIGN_OR_RETURN(const Tensor y, apply(job));
                           job.Minimize(Mean(Square(y)), Sgd{.lr = kRate});
                           return absl::OkStatus();
                         }));
  BRAID_RETURN_IF_ERROR(model.LoadInto(*session));
  BRAID_ASSIGN_OR_RETURN(const RunResult before, infer.Run(run));
  braid::RunOptions steps = run;
  steps.steps = kSteps;
  BRAID_RETURN_IF_ERROR(train.Run(steps).status());
  BRAID_ASSIGN_OR_RETURN(const RunResult after, infer.Run(run));
  return Outputs{.before = before.Last("y"), .after = after.Last("y")};
}

TEST(OnnxTrainingTest, AgreesWithTorch) {
  const char* top = std::getenv("BRAID_ONNX_CASES");
  const std::filesystem::path folder =
      std::filesystem::path(top != nullptr ? top : "") / "exported";
  if (top == nullptr || !std::filesystem::exists(folder)) {
    GTEST_SKIP() << "NO EXPORTED MODELS: set BRAID_ONNX_CASES (tests/onnx/export_models.py)";
  }
  std::vector<std::filesystem::path> directories;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path trained = entry.path() / "test_data_set_0" / "trained_output_0.pb";
    if (std::filesystem::exists(trained)) directories.push_back(entry.path());
  }
  std::sort(directories.begin(), directories.end());
  for (const std::filesystem::path& directory : directories) {
    SCOPED_TRACE(directory.string());
    const absl::StatusOr<Array> expected =
        ReadTensor(directory / "test_data_set_0" / "trained_output_0.pb");
    ASSERT_TRUE(expected.ok()) << expected.status();
    const absl::StatusOr<Outputs> outputs = Train(directory);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) continue;
    const double moved = LargestDifference(outputs->before, *expected);
    const Array zeros(expected->dtype(), expected->shape());
    const double scale = std::max(LargestDifference(*expected, zeros), moved);
    const double apart = LargestDifference(outputs->after, *expected);
    std::printf("%s: moved by %.2g, %.2g apart\n", directory.filename().c_str(), moved / scale,
                apart / scale);
    EXPECT_LE(apart, kWithin * scale);
  }
  std::printf("%zu models\n", directories.size());
}

}  // namespace
}  // namespace braid::conformance
