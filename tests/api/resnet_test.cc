// Whole residual networks in f32, whose convolutions hand blocks of channels to each other, against
// f64, whose do not, from equal weights.

#include <cmath>

#include "examples/resnet_model.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

examples::ResNetOptions Small(int depth, examples::ResNetStem stem, DType dtype) {
  examples::ResNetOptions options;
  options.dtype = dtype;
  options.depth = depth;
  options.stem = stem;
  options.side = stem == examples::ResNetStem::kCifar ? 16 : 64;
  options.batch = 8;
  options.lr = 1e-3;
  options.train = DrawnPatterns({.count = 64, .side = options.side});
  return options;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Array> before, after;
};

// A step from `initial`, or from what the seed says if there is none.
absl::StatusOr<Trained> OneStep(const examples::ResNetOptions& options,
                                const std::map<std::string, Array>& initial,
                                std::vector<int> devices) {
  SessionOptions session_options;
  session_options.devices = std::move(devices);
  session_options.progress = Progress::kOff;
  BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(session_options));
  BRAID_ASSIGN_OR_RETURN(auto job,
                         session->Compile("train", [&](Job& job) { TrainResNet(job, options); }));
  std::map<std::string, Array> converted;
  std::map<std::string, const Array*> set;
  for (const auto& [name, value] : initial) {
    set[name] = &converted.emplace(name, value.As(options.dtype)).first->second;
  }
  if (!set.empty()) BRAID_RETURN_IF_ERROR(session->Set(set));
  Trained trained;
  const auto read = [&](std::map<std::string, Array>& values) -> absl::Status {
    for (const std::string& name : session->variables()) {
      BRAID_ASSIGN_OR_RETURN(Array value, session->Get(name));
      values.emplace(name, std::move(value));
    }
    return absl::OkStatus();
  };
  BRAID_RETURN_IF_ERROR(read(trained.before));
  BRAID_ASSIGN_OR_RETURN(const auto result, job.Run({.steps = 1}));
  trained.losses = result.Scalars("loss");
  BRAID_RETURN_IF_ERROR(read(trained.after));
  return trained;
}

// Of what training changed in them, relative to the larger change's norm.
double Distance(const Trained& a, const Trained& b, const std::string& name) {
  double distance = 0, size = 0;
  const Array a0 = a.before.at(name).As(DType::kF64), a1 = a.after.at(name).As(DType::kF64);
  const Array b0 = b.before.at(name).As(DType::kF64), b1 = b.after.at(name).As(DType::kF64);
  for (int64_t i = 0; i < a0.shape().num_elements(); ++i) {
    const double da = a1.data<double>()[i] - a0.data<double>()[i];
    const double db = b1.data<double>()[i] - b0.data<double>()[i];
    distance += (da - db) * (da - db);
    size += std::max(da * da, db * db);
  }
  return size == 0 ? 0 : std::sqrt(distance / size);
}

// Where rounding changes the sign of a ReLU's input, one of an image's few last pixels begins or
// ends to count: f32 gradients are up to 2 % from those of f64, with blocks as without. A wrong
// operator would be an order of magnitude further away.
void ExpectFollowsF64(int depth, examples::ResNetStem stem) {
  const auto wide = OneStep(Small(depth, stem, DType::kF64), {}, {1});
  ASSERT_TRUE(wide.ok()) << wide.status();
  for (const std::vector<int>& devices : {std::vector<int>{1}, std::vector<int>{2}}) {
    SCOPED_TRACE(testing::Message() << depth << " layers on " << devices[0]);
    const auto narrow = OneStep(Small(depth, stem, DType::kF32), wide->before, devices);
    ASSERT_TRUE(narrow.ok()) << narrow.status();
    EXPECT_NEAR(narrow->losses[0], wide->losses[0], 1e-5 * wide->losses[0]);
    for (const auto& [name, value] : wide->before) {
      EXPECT_LT(Distance(*narrow, *wide, name), 0.05) << name;
    }
  }
}

TEST(ResNetTest, BasicBlocksFollowF64) { ExpectFollowsF64(18, examples::ResNetStem::kImageNet); }
TEST(ResNetTest, BottlenecksFollowF64) { ExpectFollowsF64(50, examples::ResNetStem::kCifar); }

}  // namespace
}  // namespace braid
