#include "tests/memory/jobs.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/network/network.h"
#include "graph/op_def.h"
#include "runtime/base/philox.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

// The identity; its kernel says which step it is in.
OpDef AtStepOp() {
  return OpDef("at_step").Rule("...->...").NoGradient().Sample({.inputs = {{DType::kF32, {2}}}});
}

class AtStepKernel final : public Kernel {
 public:
  AtStepKernel(const KernelSpec& spec, const std::function<void(int64_t)>* at_step)
      : bytes_(spec.inputs[0].num_elements() * SizeOf(spec.inputs[0].dtype)), at_step_(*at_step) {}
  absl::Status Run(const KernelRun& run) override {
    if (at_step_) at_step_(run.step);
    std::memcpy(run.outputs[0], run.inputs[0], bytes_);
    return absl::OkStatus();
  }

 private:
  size_t bytes_;
  const std::function<void(int64_t)>& at_step_;
};

std::string TextPath() {
  static const TempDir folder;
  const std::string path = folder.path() + "/text";
  const RandomKey key = MakeRandomKey(7, "text", 0);
  std::ofstream file(path);
  for (int i = 0; i < 5000; ++i) file << static_cast<char>('a' + Uint32At(key, i) % 20);
  return path;
}

Tensor Block(Tensor x, int64_t heads, double dropout) {
  const auto drop = [&](Tensor y) { return dropout > 0 ? Dropout(y, dropout) : y; };
  const int64_t width = x.shape()[2];
  x = x +
      drop(Attention(LayerNormLayer(x, {.name = "norm1"}), {.heads = heads, .dropout = dropout}));
  Tensor y = Linear(LayerNormLayer(x, {.name = "norm2"}), 4 * width, {.name = "fc"});
  return x + drop(Linear(Gelu(y, {.approximate = true}), width, {.name = "proj"}));
}

}  // namespace

MemoryJob MlpJob(int64_t size) {
  return {.name = "mlp", .loss = [size](Job& job) {
            auto [image, label] =
                job.Read(DrawnDigits({.count = 200}), {.batch = 48, .shuffle = true});
            Tensor x = Reshape(image, {48, 784});
            x = Relu(Linear(x, 128 * size, {.name = "fc1"}));
            x = Relu(Linear(x, 64 * size, {.name = "fc2"}));
            return Mean(SoftmaxCrossEntropy(Linear(x, 10, {.name = "out"}), label));
          }};
}

MemoryJob CnnJob(int64_t size) {
  return {.name = "cnn", .loss = [size](Job& job) {
            auto [image, label] =
                job.Read(DrawnDigits({.count = 200}), {.batch = 24, .shuffle = true});
            Tensor x = Reshape(image, {24, 1, 28, 28});
            x = ConvLayer(x, 8 * size, {.name = "conv1", .padding = {1}, .bias = false});
            x = Relu(BatchNormLayer(x, {.name = "norm1"}));
            x = MaxPool(x, {.kernel = {2}});
            x = ConvLayer(x, 16 * size, {.name = "conv2", .padding = {1}, .bias = false});
            x = Relu(BatchNormLayer(x, {.name = "norm2"}));
            x = ConvLayer(x, 16 * size, {.name = "depthwise", .padding = {1}, .groups = 16 * size});
            x = Flatten(GlobalAvgPool(Relu(x)));
            return Mean(SoftmaxCrossEntropy(Linear(x, 10, {.name = "out"}), label));
          }};
}

MemoryJob GptJob(int64_t size, double dropout) {
  return {.name = dropout > 0 ? "gpt with dropout" : "gpt", .loss = [=](Job& job) {
            constexpr int64_t kContext = 32, kVocabulary = 32;
            const int64_t width = 32 * size;
            auto [input, target] = job.Read(TextFile(TextPath(), {.context = kContext}),
                                            {.batch = 8, .shuffle = true});
            const Tensor places = Iota(job.graph(), {DType::kI32, {kContext}});
            Tensor x = EmbeddingLayer(input, kVocabulary, width, {.name = "tokens"}) +
                       EmbeddingLayer(places, kContext, width, {.name = "positions"});
            for (int layer = 0; layer < 2; ++layer) {
              const NameScope scope(job.graph(), absl::StrCat("h.", layer));
              x = Block(x, 4, dropout);
            }
            x = Linear(LayerNormLayer(x, {.name = "norm"}), kVocabulary,
                       {.name = "head", .bias = false});
            return Mean(SoftmaxCrossEntropy(x, target));
          }};
}

MemoryCluster::MemoryCluster(std::vector<int> devices, const std::string& transport,
                             DeviceMix mix) {
  SessionOptions options;
  options.node_kinds = NodeKindsOf(mix, devices.size());
  options.device_kinds = KindsWithLagging(LaggingFault::kNone, &counts_);
  options.devices = devices;
  options.seed = 3;
  options.progress = Progress::kOff;
  if (!transport.empty()) {
    CHECK(mix == DeviceMix::kCpu) << "its node list says CPUs";
    AddKernel(kernels_);
    auto listener = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
    CHECK(listener.ok()) << listener.status();
    for (int count : devices) {
      DeviceSpec spec;
      spec.count = count;
      network_.cluster.nodes.push_back({.devices = spec});
    }
    network_.cluster.nodes[0].host = "127.0.0.1";
    network_.cluster.nodes[0].port = listener->LocalAddress()->port();
    network_.cluster.origin = "the test";
    network_.secret = "secret";
    network_.transport = transport;
    for (size_t node = 1; node < devices.size(); ++node) {
      NetworkOptions network = network_;
      network.cluster.rank = static_cast<int>(node);
      Interruption* const interruption = &interruptions_.emplace_back();
      servers_.emplace_back([this, network, interruption] {
        const absl::Status status =
            ServeNode(network, {.kernels = &kernels_, .interruption = interruption});
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    network_.control_descriptor = fcntl(listener->descriptor(), F_DUPFD_CLOEXEC, 0);
    options.network = network_;
  }
  auto session = Session::Start(std::move(options));
  CHECK(session.ok()) << session.status();
  session_ = *std::move(session);
  CHECK(session_->operators().Register(AtStepOp()).ok());
  AddKernel(session_->kernels());
}

MemoryCluster::~MemoryCluster() {
  session_.reset();
  for (std::thread& server : servers_) server.join();
}

void MemoryCluster::AddKernel(KernelRegistry& kernels) {
  const absl::Status status = kernels.Register(
      "at_step", [this](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<AtStepKernel>(spec, &at_step_);
      });
  CHECK(status.ok()) << status;
}

absl::StatusOr<CompiledJob> MemoryCluster::Compile(const MemoryJob& job,
                                                   std::function<void(int64_t)> at_step) {
  at_step_ = std::move(at_step);
  return session_->Compile("train", [&](Job& recorded) {
    const Tensor loss = job.loss(recorded);
    recorded.Minimize(loss, Adam{.lr = 1e-3}, {.micro_batches = job.micro_batches});
    recorded.Fetch("loss", Apply("at_step", {loss}));
  });
}

}  // namespace braid
