// A training program that stays in a phase for as long as its user wants: while the file
// `hold.PHASE` is in the folder --hold, as slow code of a user's does. compiling: the function that
// records the job; connecting, stepping and closing: an operator's kernel on nodes with --slow,
// when it is made, runs and goes away; saving: another checkpoint, and another. Before the first of
// them it loads the checkpoint --load, if there is one.

#include <braid/braid.h>

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
#include "tests/support/lagging_device.h"

ABSL_FLAG(std::string, hold, "", "Folder of the files hold.PHASE");
ABSL_FLAG(bool, slow, false, "This node's kernels wait for them");
ABSL_FLAG(std::string, samples, "", "An .npy file of [n, 8] numbers, on every node");
ABSL_FLAG(int64_t, steps, 600, "Training steps");
ABSL_FLAG(std::string, save, "", "Folder for checkpoints");
ABSL_FLAG(std::string, load, "", "Folder of one");

namespace {

bool IsHeld(const std::string& phase) {
  return std::filesystem::exists(absl::GetFlag(FLAGS_hold) + "/hold." + phase);
}

void WaitWhileHeld(const std::string& phase) {
  while (IsHeld(phase)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

class Pace final : public braid::Kernel {
 public:
  explicit Pace(int64_t bytes) : bytes_(bytes), is_slow_(absl::GetFlag(FLAGS_slow)) {
    if (is_slow_) WaitWhileHeld("connecting");
  }
  ~Pace() override {
    if (is_slow_) WaitWhileHeld("closing");
  }
  absl::Status Run(const braid::KernelRun& run) override {
    std::memcpy(run.outputs[0], run.inputs[0], bytes_);
    if (is_slow_ && IsHeld("stepping")) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return absl::OkStatus();
  }

 private:
  const int64_t bytes_;
  const bool is_slow_;
};

absl::Status Extend(braid::OpRegistry& operators, braid::KernelRegistry& kernels) {
  BRAID_RETURN_IF_ERROR(
      operators.Register(braid::OpDef("pace")
                             .Rule("...->...")
                             .NoGradient()
                             .Sample({.inputs = {{braid::DType::kF32, {3, 4}}}})));
  return kernels.Register(
      "pace", [](const braid::KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<braid::Kernel>> {
        return std::make_unique<Pace>(spec.outputs[0].num_elements() *
                                      static_cast<int64_t>(sizeof(float)));
      });
}

// The model learns to give back what it gets.
void Train(braid::Job& job) {
  WaitWhileHeld("compiling");
  const braid::Tensor read = job.ReadFields(braid::NpyFiles({{"x", absl::GetFlag(FLAGS_samples)}}),
                                            {.batch = 12, .shuffle = true})[0];
  const braid::Tensor x = braid::Apply("pace", {read});
  const braid::Tensor y = Linear(Relu(Linear(x, 16, {.name = "in"})), 8, {.name = "out"});
  const braid::Tensor loss = Mean(Square(y - x));
  job.Minimize(loss, braid::Adam{.lr = 1e-3});
  job.Fetch("loss", loss);
}

// So that a checkpoint takes its time.
void Ballast(braid::Job& job) {
  job.Fetch("ballast",
            Mean(braid::GetVariable(job.graph(),
                                    {.name = "ballast", .shape = {1 << 21}, .trainable = false})));
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", Train));
  BRAID_ASSIGN_OR_RETURN(const auto result, train.Run({.steps = absl::GetFlag(FLAGS_steps)}));
  std::printf("%s\n", absl::StrFormat("loss %.17g",
                                      result.Last("loss").As(braid::DType::kF64).data<double>()[0])
                          .c_str());
  if (const std::string folder = absl::GetFlag(FLAGS_save); !folder.empty()) {
    BRAID_RETURN_IF_ERROR(session.Compile("ballast", Ballast).status());
    if (const std::string from = absl::GetFlag(FLAGS_load); !from.empty()) {
      BRAID_RETURN_IF_ERROR(session.Load(from));
    }
    do {
      BRAID_RETURN_IF_ERROR(session.Save(folder));
    } while (IsHeld("saving"));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return braid::Main(argc, argv, {.device_kinds = braid::KindsWithLagging(), .extend = Extend},
                     Program);
}
