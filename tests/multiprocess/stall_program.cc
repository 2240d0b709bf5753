// A program that trains on all nodes and can be held up: an operator of its own sleeps for --nap
// before each act of this process, and while the file --hold exists. While --hold_factory exists,
// its kernel cannot be made. With --text it also reads this file, which may be another thing on
// another node; while --hold_reads exists, no read of a file comes back, as on a file system whose
// server is gone.

#include <braid/braid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/time/time.h"

ABSL_FLAG(absl::Duration, nap, absl::ZeroDuration(), "Sleep before each act of this process");
ABSL_FLAG(std::string, hold_factory, "", "File; while it exists the kernel is not made here");
ABSL_FLAG(std::string, hold_reads, "", "File; while it exists no read of a file comes back");
ABSL_FLAG(std::string, text, "", "A text file, opened where the node's working directory is");
ABSL_FLAG(std::string, hold, "", "File; while it exists no act of this process goes on");

namespace {

void SleepWhile(const std::string& file) {
  while (!file.empty() && access(file.c_str(), F_OK) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

class Nap final : public braid::Kernel {
 public:
  explicit Nap(int64_t bytes) : bytes_(bytes) {}
  absl::Status Run(const braid::KernelRun& run) override {
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(absl::GetFlag(FLAGS_nap)));
    SleepWhile(absl::GetFlag(FLAGS_hold));
    std::memcpy(run.outputs[0], run.inputs[0], static_cast<size_t>(bytes_));
    return absl::OkStatus();
  }

 private:
  const int64_t bytes_;
};

absl::Status Extend(braid::OpRegistry& operators, braid::KernelRegistry& kernels) {
  BRAID_RETURN_IF_ERROR(
      operators.Register(braid::OpDef("nap")
                             .Rule("...->...")
                             .NoGradient()
                             .Sample({.inputs = {{braid::DType::kF32, {3, 4}}}})));
  return kernels.Register(
      "nap", [](const braid::KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<braid::Kernel>> {
        SleepWhile(absl::GetFlag(FLAGS_hold_factory));
        return std::make_unique<Nap>(spec.outputs[0].num_elements() *
                                     static_cast<int64_t>(sizeof(float)));
      });
}

void Train(braid::Job& job) {
  auto [image, label] = job.Read(braid::DrawnDigits({.count = 256}), {.batch = 24});
  const braid::Tensor x = braid::Apply("nap", {image});
  const braid::Tensor loss = Mean(SoftmaxCrossEntropy(Linear(x, 10, {.name = "out"}), label));
  job.Minimize(loss, braid::Adam{.lr = 1e-3});
  job.Fetch("loss", loss);
  if (const std::string text = absl::GetFlag(FLAGS_text); !text.empty()) {
    auto [input, target] = job.Read(braid::TextFile(text, {.context = 4}), {.batch = 24});
    job.Fetch("target", target);
  }
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", Train));
  BRAID_RETURN_IF_ERROR(train.Run({.steps = 1}).status());
  std::cout << "steps" << std::endl;
  return train.Run({.steps = 1'000'000'000}).status();
}

}  // namespace

// In place of the C library's.
extern "C" ssize_t pread(int descriptor, void* buffer, size_t bytes, off_t offset) {
  SleepWhile(absl::GetFlag(FLAGS_hold_reads));
  return syscall(SYS_pread64, descriptor, buffer, bytes, offset);
}

int main(int argc, char** argv) { return braid::Main(argc, argv, {.extend = Extend}, Program); }
