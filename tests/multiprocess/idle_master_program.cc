// A program whose master owns no task: it trains on the other nodes, whose steps an operator of its
// own counts, a byte a step in the file --ticks.

#include <braid/braid.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, ticks, "", "File that grows by a byte a step");

namespace {

class Tick final : public braid::Kernel {
 public:
  Tick(std::string path, int64_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  absl::Status Run(const braid::KernelRun& run) override {
    std::memcpy(run.outputs[0], run.inputs[0], bytes_);
    std::FILE* file = std::fopen(path_.c_str(), "a");
    if (file == nullptr) return absl::NotFoundError(path_);
    std::fputc('.', file);
    std::fclose(file);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const int64_t bytes_;
};

absl::Status Extend(braid::OpRegistry& operators, braid::KernelRegistry& kernels) {
  BRAID_RETURN_IF_ERROR(
      operators.Register(braid::OpDef("tick")
                             .Rule("...->...")
                             .NoGradient()
                             .Sample({.inputs = {{braid::DType::kF32, {3, 4}}}})));
  return kernels.Register(
      "tick", [](const braid::KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<braid::Kernel>> {
        return std::make_unique<Tick>(
            absl::GetFlag(FLAGS_ticks),
            spec.outputs[0].num_elements() * static_cast<int64_t>(sizeof(float)));
      });
}

void Train(braid::Job& job) {
  const braid::Placement& all = job.devices();
  job.On(all.Slice(1, all.size() - 1), [&] {
    auto [image, label] = job.Read(braid::DrawnDigits({.count = 256}), {.batch = 16});
    const braid::Tensor x = braid::Reshape(braid::Apply("tick", {image}), {16, 784});
    const braid::Tensor loss = Mean(SoftmaxCrossEntropy(Linear(x, 10, {.name = "out"}), label));
    job.Minimize(loss, braid::Adam{.lr = 1e-3});
  });
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", Train));
  return train.Run({.steps = 1'000'000'000}).status();
}

}  // namespace

int main(int argc, char** argv) { return braid::Main(argc, argv, {.extend = Extend}, Program); }
