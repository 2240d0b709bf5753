// Whole models through all logical passes: what falls out, and how long large ones take.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/boxing/boxing.h"
#include "compiler/cost.h"
#include "compiler/logical/autograd.h"
#include "compiler/logical/optimizer.h"
#include "compiler/logical/prune.h"
#include "graph/functional.h"
#include "runtime/base/status.h"
#include "tests/compiler/logical_passes.h"
#include "tests/compiler/training_text.h"

namespace braid::compiler {
namespace {

struct GptConfig {
  int64_t layers = 1, batch = 8, time = 16, width = 32, heads = 4, vocabulary = 64;
  bool tensor_parallel = false;
  int micro_batches = 1;
  double clip = 0;
};

class GptBuilder {
 public:
  explicit GptBuilder(GptConfig config) : config_(config), graph_(&Registry()) {}

  LogicalGraph Build() {
    const auto [layers, batch, time, width, heads, vocabulary, tp, micro_batches, clip] = config_;
    const TensorType ids{DType::kI32, Shape({batch, time})};
    ReadOptions read = {.dataset = "text", .batch = batch};
    read.types = {ids, ids};
    const auto data = Read(graph_, read);
    Tensor x = Embedding(Weight("tokens", {vocabulary, width}, 0), data[0]) +
               Weight("positions", {time, width});
    for (int64_t layer = 0; layer < layers; ++layer) {
      graph_.PushScope(absl::StrCat("h.", layer));
      x = x + Attention(Norm(x, "norm1"));
      Tensor y = Gelu(MatMul(Norm(x, "norm2"), Weight("up", {width, 4 * width}, 1)));
      x = x + MatMul(y, Weight("down", {4 * width, width}, 0));
      graph_.PopScope();
    }
    const Tensor logits = MatMul(Norm(x, "norm"), Weight("head", {width, vocabulary}, 1));
    const Tensor loss = Mean(SoftmaxCrossEntropy(logits, data[1]));
    Fetch(loss, "loss");
    MinimizeRequest request;
    request.loss = loss.id();
    request.optimizer = "adam_update";
    request.attrs = {{"learning_rate", 0.001}, {"beta1", 0.9},         {"beta2", 0.999},
                     {"epsilon", 1e-8},        {"weight_decay", 0.01}, {"decoupled", true}};
    request.micro_batches = micro_batches;
    request.clip_global_norm = clip;
    graph_.minimize().push_back(request);
    graph_.training = true;
    return graph_;
  }

 private:
  // Split on `axis` over the model dimension, if there is one.
  Tensor Weight(std::string name, Shape shape, int axis = -1) {
    std::optional<NdSbp> sbp;
    if (config_.tensor_parallel && axis >= 0) sbp = NdSbp{sbp::B, sbp::S(axis)};
    return Variable(graph_, {.name = std::move(name), .shape = shape, .sbp = sbp});
  }
  Tensor Norm(Tensor x, std::string name) {
    return LayerNorm(x, Weight(name + ".gamma", {config_.width}),
                     Weight(name + ".beta", {config_.width}));
  }
  Tensor Heads(Tensor x, std::string name) {
    const auto& c = config_;
    const Tensor y = MatMul(x, Weight(std::move(name), {c.width, c.width}, 1));
    return Transpose(Reshape(y, {c.batch, c.time, c.heads, c.width / c.heads}), {0, 2, 1, 3});
  }
  Tensor Attention(Tensor x) {
    const Tensor q = Heads(x, "q"), k = Heads(x, "k"), v = Heads(x, "v");
    const Tensor weights = Softmax(MatMul(q, k, {.transpose_b = true}), {.causal = true});
    const Tensor mixed = Transpose(MatMul(weights, v), {0, 2, 1, 3});
    return MatMul(Reshape(mixed, {config_.batch, config_.time, config_.width}),
                  Weight("out", {config_.width, config_.width}, 0));
  }

  GptConfig config_;
  LogicalGraph graph_;
};

absl::StatusOr<LogicalGraph> Differentiate(LogicalGraph graph) {
  BRAID_ASSIGN_OR_RETURN(graph, Autograd(std::move(graph)));
  BRAID_ASSIGN_OR_RETURN(graph, Optimizer(std::move(graph)));
  return Prune(std::move(graph));
}

std::string LayoutOf(const LogicalGraph& graph, const std::string& name) {
  const Op& op = OpNamed(graph, name);
  return "(" + ListText(op.input_sbp) + ")->(" + ListText(op.output_sbp) + ")";
}

// Everything is S(0) or B, gradients of variables are summed at the updates, nothing else moves.
TEST(InferSbpModels, TransformerDataParallel) {
  auto written = Differentiate(GptBuilder({}).Build());
  ASSERT_TRUE(written.ok()) << written.status();
  auto graph = RunPasses(*written, Devices(1, 4));
  ASSERT_TRUE(graph.ok()) << graph.status();
  BoxingPlanner planner;
  const StepEstimate estimate = EstimateStep(*graph, planner, {});
  int64_t variable_bytes = 0;
  for (const Op& op : graph->ops()) {
    if (!op.attrs.Has("trainable") || !op.attrs.Bool("trainable")) continue;
    EXPECT_EQ(LayoutOf(*graph, op.name), "()->(B)");
    variable_bytes += 4 * graph->type(op.outputs[0]).shape.num_elements();
  }
  // 2 (p - 1) T for the gradients; the loss is one number.
  EXPECT_GE(estimate.boxing_bytes, 6 * variable_bytes);
  EXPECT_LE(estimate.boxing_bytes, 6 * variable_bytes + 64);
  EXPECT_EQ(LayoutOf(*graph, "h.0.softmax"), "(S(0))->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "h.0.layer_norm.grad.layer_norm_grad"),
            "(S(0), B, S(0), S(0), S(0))->(S(0), P, P)");
}

// Columns, then rows, heads apart, classes apart: what Shoeybi et al. ("Megatron-LM", 2019) and
// Korthikanti et al. (sequence parallelism, 2022) write by hand.
TEST(InferSbpModels, TransformerHybrid) {
  auto written = Differentiate(GptBuilder({.tensor_parallel = true}).Build());
  ASSERT_TRUE(written.ok()) << written.status();
  auto graph = RunPasses(*written, Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "h.0.matmul"), "([S(0), B], [B, S(1)])->([S(0), S(2)])");
  EXPECT_EQ(LayoutOf(*graph, "h.0.transpose"), "([S(0), S(2)])->([S(0), S(1)])");
  EXPECT_EQ(LayoutOf(*graph, "h.0.softmax"), "([S(0), S(1)])->([S(0), S(1)])");
  EXPECT_EQ(LayoutOf(*graph, "h.0.matmul_5"), "([S(0), S(2)], [B, S(0)])->([S(0), P])");
  EXPECT_EQ(LayoutOf(*graph, "h.0.matmul_7"), "([S(0), S(2)], [B, S(0)])->([S(0), P])");
  EXPECT_EQ(LayoutOf(*graph, "reduce_max"), "([S(0), S(2)])->([S(0), P(max)])");
  EXPECT_EQ(LayoutOf(*graph, "sum_exp"), "([S(0), S(2)], [S(0), B])->([S(0), P])");
  EXPECT_EQ(LayoutOf(*graph, "sparse_softmax_cross_entropy"),
            "([S(0), S(2)], [S(0), B], [S(0), B], [S(0), B])->([S(0), P])");
  EXPECT_EQ(LayoutOf(*graph, "h.0.matmul_5.grad.matmul"), "([S(0), B], [B, S(0)])->([S(0), S(2)])");
  EXPECT_EQ(LayoutOf(*graph, "h.0.q.adam_update"),
            "([B, S(1)], [B, S(1)], [B, S(1)], [B, S(1)], [B, B], [B, B])->()");
}

// Heads and channels go apart over devices, and samples over micro-batches, too: 4 heads need not
// be a multiple of devices and micro-batches together.
TEST(InferSbpModels, MicroBatchesKeepTheLayoutsOfAttention) {
  std::map<std::string, std::string> layouts;
  for (const int micro_batches : {1, 2, 4}) {
    auto written = Differentiate(
        GptBuilder({.batch = 16, .tensor_parallel = true, .micro_batches = micro_batches}).Build());
    ASSERT_TRUE(written.ok()) << written.status();
    auto graph = RunPasses(*written, Devices(2, 2));
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (const Op& op : graph->ops()) {
      if (op.type != "matmul" && op.type != "transpose" && op.type != "softmax") continue;
      const auto known = layouts.try_emplace(op.name, LayoutOf(*graph, op.name)).first;
      EXPECT_EQ(LayoutOf(*graph, op.name), known->second)
          << op.name << ", " << micro_batches << " micro-batches";
    }
  }
  EXPECT_EQ(layouts["h.0.softmax"], "([S(0), S(1)])->([S(0), S(1)])");
}

// The norm and the update share one sum of the gradient.
TEST(InferSbpModels, ClippingSharesTheTransfersOfTheUpdates) {
  auto written = Differentiate(GptBuilder({.micro_batches = 4, .clip = 1.0}).Build());
  ASSERT_TRUE(written.ok()) << written.status();
  auto graph = RunPasses(*written, Devices(1, 4));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "h.0.matmul.grad.tensordot.accumulate"), "(P)->(P)");
  EXPECT_EQ(LayoutOf(*graph, "h.0.q.square"), "(B)->(B)");
  EXPECT_EQ(LayoutOf(*graph, "h.0.q.mul"), "(B, B)->(B)");
  for (const Op& op : graph->ops()) {
    if (op.type != "square" && op.type != "adam_update") continue;
    EXPECT_EQ(op.acts_per_step, 1) << op.name;
  }
}

TEST(InferSbpModels, ThousandsOfOpsOnAThousandDevicesTakeSeconds) {
  for (const bool tensor_parallel : {false, true}) {
    auto written = Differentiate(GptBuilder({.layers = 60,
                                             .batch = 2048,
                                             .time = 1024,
                                             .width = 4096,
                                             .heads = 32,
                                             .vocabulary = 50304,
                                             .tensor_parallel = tensor_parallel,
                                             .micro_batches = 2,
                                             .clip = 1.0})
                                     .Build());
    ASSERT_TRUE(written.ok()) << written.status();
    const auto start = std::chrono::steady_clock::now();
    auto graph = RunPasses(*written, Devices(128, 8));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_GT(graph->ops().size(), 8000u);
    // Far above what it takes alone: other tests may run beside it.
    EXPECT_LT(taken.count(), 20) << "tensor_parallel " << tensor_parallel;
    RecordProperty(tensor_parallel ? "seconds_2d" : "seconds_1d", std::to_string(taken.count()));
  }
}

}  // namespace
}  // namespace braid::compiler
