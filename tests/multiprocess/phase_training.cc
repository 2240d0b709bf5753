#include "tests/multiprocess/phase_training.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, hold, "", "Folder of the files hold.PHASE");
ABSL_FLAG(bool, slow, false, "This node's kernels wait for them");
ABSL_FLAG(std::string, samples, "", "An .npy file of [n, 8] numbers, on every node");
ABSL_FLAG(int64_t, steps, 600, "Training steps");
ABSL_FLAG(std::string, save, "", "Folder for checkpoints");
ABSL_FLAG(std::string, load, "", "Folder of one");

namespace braid {
namespace {

bool IsHeld(const std::string& phase) {
  return std::filesystem::exists(absl::GetFlag(FLAGS_hold) + "/hold." + phase);
}

void WaitWhileHeld(const std::string& phase) {
  while (IsHeld(phase)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

class Pace final : public Kernel {
 public:
  explicit Pace(int64_t bytes) : bytes_(bytes), is_slow_(absl::GetFlag(FLAGS_slow)) {
    if (is_slow_) WaitWhileHeld("connecting");
  }
  ~Pace() override {
    if (is_slow_) WaitWhileHeld("closing");
  }
  absl::Status Run(const KernelRun& run) override {
    std::memcpy(run.outputs[0], run.inputs[0], bytes_);
    if (is_slow_ && IsHeld("stepping")) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return absl::OkStatus();
  }

 private:
  const int64_t bytes_;
  const bool is_slow_;
};

}  // namespace

absl::Status ExtendByPace(OpRegistry& operators, KernelRegistry& kernels) {
  BRAID_RETURN_IF_ERROR(operators.Register(
      OpDef("pace").Rule("...->...").NoGradient().Sample({.inputs = {{DType::kF32, {3, 4}}}})));
  return kernels.Register("pace",
                          [](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return std::make_unique<Pace>(spec.outputs[0].num_elements() *
                                                          static_cast<int64_t>(sizeof(float)));
                          });
}

namespace {

// The model learns to give back what it gets.
void Train(Job& job) {
  WaitWhileHeld("compiling");
  const Tensor read = job.ReadFields(NpyFiles({{"x", absl::GetFlag(FLAGS_samples)}}),
                                     {.batch = 12, .shuffle = true})[0];
  const Tensor x = Apply("pace", {read});
  const Tensor y = Linear(Relu(Linear(x, 16, {.name = "in"})), 8, {.name = "out"});
  const Tensor loss = Mean(Square(y - x));
  job.Minimize(loss, Adam{.lr = 1e-3});
  job.Fetch("loss", loss);
}

// So that a checkpoint takes its time.
void Ballast(Job& job) {
  job.Fetch(
      "ballast",
      Mean(GetVariable(job.graph(), {.name = "ballast", .shape = {1 << 21}, .trainable = false})));
}

}  // namespace

absl::Status GoThroughPhases(Session& session, const std::function<bool(bool)>& agreed) {
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", Train));
  BRAID_ASSIGN_OR_RETURN(const auto result, train.Run({.steps = absl::GetFlag(FLAGS_steps)}));
  std::printf(
      "%s\n",
      absl::StrFormat("loss %.17g", result.Last("loss").As(DType::kF64).data<double>()[0]).c_str());
  if (const std::string folder = absl::GetFlag(FLAGS_save); !folder.empty()) {
    BRAID_RETURN_IF_ERROR(session.Compile("ballast", Ballast).status());
    if (const std::string from = absl::GetFlag(FLAGS_load); !from.empty()) {
      BRAID_RETURN_IF_ERROR(session.Load(from));
    }
    do {
      BRAID_RETURN_IF_ERROR(session.Save(folder));
    } while (agreed(IsHeld("saving")));
  }
  return absl::OkStatus();
}

}  // namespace braid
