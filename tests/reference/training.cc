#include "tests/reference/training.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/parallel.h"

namespace braid {
namespace {

using namespace braid::sbp;

// Learning rates are sums of powers of two: Braid's are f32 also where everything else is f64.
constexpr double kMlpRate = 1.0 / 256, kCnnRate = 1.0 / 32, kGptRate = 1.0 / 256;

struct PairLayout {
  std::optional<NdSbp> columns, rows;
};
PairLayout LayoutOf(Spread spread) {
  if (spread == Spread::kHybrid) return {NdSbp{B, S(1)}, NdSbp{B, S(0)}};
  return {};
}

// Runs `fn` on the stage's devices, of two stages, if the job is a pipeline.
template <typename Function>
Tensor OnStage(Job& job, Spread spread, int stage, Function fn) {
  if (spread != Spread::kPipeline) return fn();
  return job.On(examples::PipelineStages(job.devices(), 2)[stage], fn);
}

Tensor LossOf(Tensor logits, Job& job, const Shape& label) {
  return Mean(SoftmaxCrossEntropy(logits, job.Input("label", label, DType::kI32)));
}

Tensor Block(Tensor x, int64_t heads, Spread spread) {
  const int64_t width = x.shape()[2];
  const PairLayout layout = LayoutOf(spread);
  x = x + Attention(LayerNormLayer(x, {.name = "norm1"}),
                    {.heads = heads, .projection = layout.columns, .output = layout.rows});
  Tensor y = LayerNormLayer(x, {.name = "norm2"});
  y = Gelu(Linear(y, 4 * width, {.name = "fc", .weight = layout.columns}), {.approximate = true});
  return x + Linear(y, width, {.name = "proj", .weight = layout.rows});
}

}  // namespace

ReferenceCase MlpCase() {
  const reference::MlpShape shape;
  ReferenceCase result = {.name = "mlp"};
  result.x = {shape.batch, shape.in};
  result.label = Shape{shape.batch};
  result.make_model = [shape](reference::InitialValue initial) {
    return reference::MakeMlp(shape, {.lr = kMlpRate}, std::move(initial));
  };
  result.loss = [shape, x_shape = result.x, label = result.label](Job& job, DType dtype,
                                                                  Spread spread) {
    const PairLayout layout = LayoutOf(spread);
    const Tensor x = OnStage(job, spread, 0, [&] {
      return Relu(Linear(job.Input("x", x_shape, dtype), shape.hidden1,
                         {.name = "fc1", .weight = layout.columns}));
    });
    return OnStage(job, spread, 1, [&] {
      const Tensor y = Relu(Linear(x, shape.hidden2, {.name = "fc2", .weight = layout.rows}));
      return LossOf(Linear(y, shape.classes, {.name = "out"}), job, label);
    });
  };
  result.minimize = [](Job& job, Tensor loss) { job.Minimize(loss, Adam{.lr = kMlpRate}); };
  return result;
}

ReferenceCase CnnCase() {
  const reference::CnnShape shape;
  ReferenceCase result = {.name = "cnn"};
  result.x = {shape.batch, shape.channels, shape.size, shape.size};
  result.label = Shape{shape.batch};
  result.make_model = [shape](reference::InitialValue initial) {
    return reference::MakeCnn(shape, {.lr = kCnnRate}, std::move(initial));
  };
  result.loss = [shape, x_shape = result.x, label = result.label](Job& job, DType dtype,
                                                                  Spread spread) {
    const Tensor pooled = OnStage(job, spread, 0, [&] {
      Tensor x = ConvLayer(job.Input("x", x_shape, dtype), shape.features1,
                           {.name = "conv1", .padding = {1}, .bias = false});
      x = Relu(BatchNormLayer(x, {.name = "norm1"}));
      return MaxPool(x, {.kernel = {3}, .strides = {2}, .padding = {1}});
    });
    return OnStage(job, spread, 1, [&] {
      ConvLayerOptions second = {.name = "conv2", .strides = {2}, .padding = {1}, .bias = false};
      if (spread == Spread::kHybrid) second.weight = NdSbp{B, S(0)};
      Tensor x =
          Relu(BatchNormLayer(ConvLayer(pooled, shape.features2, second), {.name = "norm2"}));
      x = Relu(ConvLayer(x, shape.features2,
                         {.name = "depthwise", .padding = {1}, .groups = shape.features2}));
      x = Flatten(GlobalAvgPool(x));
      return LossOf(Linear(x, shape.classes, {.name = "out"}), job, label);
    });
  };
  result.minimize = [](Job& job, Tensor loss) {
    job.Minimize(loss, Sgd{.lr = kCnnRate, .momentum = 0.9});
  };
  return result;
}

ReferenceCase GptCase(bool is_tied) {
  const reference::GptShape shape = {.is_tied = is_tied};
  constexpr double kDecay = 1.0 / 8;
  ReferenceCase result = {.name = is_tied ? "gpt, tied" : "gpt"};
  result.x = result.label = {shape.batch, shape.time};
  result.has_tokens = true;
  result.make_model = [shape](reference::InitialValue initial) {
    return reference::MakeGpt(shape, {.lr = kGptRate, .beta2 = 0.99, .weight_decay = kDecay},
                              std::move(initial));
  };
  result.loss = [shape, x_shape = result.x](Job& job, DType dtype, Spread spread) {
    LogicalGraph& graph = job.graph();
    Tensor x = OnStage(job, spread, 0, [&] {
      const Tensor tokens = job.Input("x", x_shape, DType::kI32);
      const Tensor places = Iota(graph, {DType::kI32, {shape.time}});
      return EmbeddingLayer(tokens, shape.vocabulary, shape.width,
                            {.name = "tokens", .dtype = dtype, .stddev = 0.25}) +
             EmbeddingLayer(places, shape.time, shape.width,
                            {.name = "positions", .dtype = dtype, .stddev = 0.25});
    });
    for (int64_t i = 0; i < shape.layers; ++i) {
      const NameScope scope(graph, absl::StrCat("h.", i));
      x = OnStage(job, spread, static_cast<int>(2 * i / shape.layers),
                  [&] { return Block(x, shape.heads, spread); });
    }
    return OnStage(job, spread, 1, [&] {
      x = LayerNormLayer(x, {.name = "norm"});
      if (!shape.is_tied) {
        x = Linear(x, shape.vocabulary, {.name = "head", .bias = false});
      } else {
        const Tensor table(&graph, graph.op(*graph.FindOp("tokens.weight")).outputs[0]);
        x = MatMul(x, table, {.transpose_b = true});
      }
      return LossOf(x, job, x_shape);
    });
  };
  result.minimize = [](Job& job, Tensor loss) {
    job.Minimize(loss, AdamW{.lr = kGptRate, .beta2 = 0.99, .weight_decay = kDecay});
  };
  return result;
}

std::vector<ReferenceCase> ReferenceCases() {
  return {MlpCase(), CnnCase(), GptCase(false), GptCase(true)};
}

reference::Batch BatchOf(const ReferenceCase& model, int64_t step) {
  std::mt19937 draw(model.data_seed * 1000 + static_cast<uint32_t>(step % kBatches));
  const auto uniform = [&draw] { return static_cast<double>(draw() >> 8) / (1 << 23) - 1; };
  reference::Batch batch;
  if (model.has_tokens) {
    // Each token follows from the one before it, mostly.
    constexpr int kVocabulary = static_cast<int>(reference::GptShape{}.vocabulary);
    for (int64_t row = 0; row < model.x[0]; ++row) {
      int token = static_cast<int>(draw() % kVocabulary);
      for (int64_t i = 0; i < model.x[1]; ++i) {
        batch.tokens.push_back(token);
        token = draw() % 8 == 0 ? static_cast<int>(draw() % kVocabulary)
                                : (3 * token + 1) % kVocabulary;
        batch.labels.push_back(token);
      }
    }
    return batch;
  }
  // The label is told by the mean of the first few numbers.
  const int64_t rows = model.x[0], size = model.x.num_elements() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    const double shift = 0.5 * uniform();
    for (int64_t i = 0; i < size; ++i) {
      batch.images.push_back(static_cast<float>(0.75 * uniform() + (i < size / 2 ? shift : 0)));
    }
    batch.labels.push_back(static_cast<int>((shift + 0.5) * 4.999));
  }
  return batch;
}

absl::StatusOr<RunResult> TrainingSession::Step(int64_t step) {
  const reference::Batch batch = BatchOf(*model, step);
  const std::vector<int32_t> tokens(batch.tokens.begin(), batch.tokens.end());
  const std::vector<int32_t> labels(batch.labels.begin(), batch.labels.end());
  const Array x = model->has_tokens ? Array::FromVector<int32_t>(model->x, tokens)
                                    : Array::FromVector<double>(model->x, batch.images).As(dtype);
  return job->Run(
      {.steps = 1,
       .feeds = {{"x", x}, {"label", Array::FromVector<int32_t>(model->label, labels)}}});
}

absl::StatusOr<TrainingSession> StartTraining(const ReferenceCase& model,
                                              const TrainingSessionOptions& options) {
  TrainingSession training;
  training.model = &model;
  training.dtype = options.dtype;
  BRAID_ASSIGN_OR_RETURN(
      training.session,
      Session::Start({.devices = options.devices, .seed = 5, .progress = Progress::kOff}));
  const auto record = [&](Job& job) {
    const auto append = [&] {
      const Tensor loss = model.loss(job, options.dtype, options.spread);
      if (!loss.valid()) return;
      model.minimize(job, loss);
      job.Fetch("loss", loss);
      for (const std::string& name : options.gradients) {
        const Op& op = job.graph().op(*job.graph().FindOp(name));
        job.Fetch("gradient " + name, job.GradientOf(Tensor(&job.graph(), op.outputs[0])));
      }
    };
    const auto parallel =
        options.spread == Spread::kHybrid ? examples::Parallel::kHybrid : examples::Parallel::kData;
    examples::OnDevices(job, parallel, append);
  };
  BRAID_ASSIGN_OR_RETURN(training.job, training.session->Compile("train", record));
  return training;
}

}  // namespace braid
