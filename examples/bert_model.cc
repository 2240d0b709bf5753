#include "examples/bert_model.h"

#include <vector>

#include "examples/sentences.h"

namespace examples {
namespace {

using braid::DType;
using braid::Job;
using braid::NameScope;
using braid::Tensor;

constexpr int64_t kSentences = 1 << 20;
constexpr int64_t kNothing = -100;  // the label of a token that is not to be found

Tensor IntegerOf(Job& job, int64_t value) {
  return Constant(job.graph(), static_cast<double>(value), {.dtype = DType::kI32});
}

// i32 in [0, below), new ones every step.
Tensor DrawBelow(Job& job, braid::Shape shape, int64_t below) {
  const Tensor drawn = RandomUniform(job.graph(), std::move(shape), {.high = 1.0 * below});
  return Clip(Cast(drawn, DType::kI32), 0, static_cast<double>(below - 1));
}

// Of the tokens that are to be found 8 in 10 are masked, 1 is any other and 1 stays.
struct Puzzle {
  Tensor seen, labels;
};
Puzzle Mask(Job& job, Tensor tokens, const BertOptions& options) {
  const braid::Shape shape = {options.batch, options.time};
  const Tensor drawn = RandomUniform(job.graph(), shape);
  const auto is_below = [&](double share) {
    return Less(drawn, Constant(job.graph(), share * options.masked));
  };
  const Tensor other = Where(is_below(0.9), DrawBelow(job, shape, options.vocabulary), tokens);
  return {Where(is_below(0.8), IntegerOf(job, options.vocabulary), other),
          Where(is_below(1), tokens, IntegerOf(job, kNothing))};
}

// Of windows of a text, or of made-up sentences from number `first` on.
Puzzle MakePuzzle(Job& job, const std::optional<braid::DatasetSpec>& text, int64_t first,
                  const char* name, const BertOptions& options) {
  const NameScope scope(job.graph(), name);
  const braid::DatasetSpec tokens = text.value_or(Sentences({.first = first,
                                                             .count = kSentences,
                                                             .time = options.time,
                                                             .vocabulary = options.vocabulary}));
  const std::vector<Tensor> fields =
      job.ReadFields(tokens, {.batch = options.batch, .shuffle = true, .name = name});
  return Mask(job, fields[0], options);
}

Tensor DropIf(Tensor x, double rate) { return rate > 0 ? Dropout(x, rate) : x; }

Tensor Block(Tensor x, const BertOptions& options) {
  const PairLayout layout = LayoutOf(options.parallel);
  Tensor y = Attention(x, {.heads = options.heads,
                           .causal = false,
                           .dropout = options.dropout,
                           .projection = layout.first,
                           .output = layout.second});
  x = LayerNormLayer(x + DropIf(y, options.dropout), {.name = "norm1"});
  y = Gelu(Linear(x, 4 * options.width, {.name = "fc", .weight = layout.first, .stddev = 0.02}));
  y = Linear(y, options.width, {.name = "proj", .weight = layout.second, .stddev = 0.02});
  return LayerNormLayer(x + DropIf(y, options.dropout), {.name = "norm2"});
}

// i32 [batch, time] -> logits [batch, time, vocabulary + 1].
Tensor Bert(Job& job, Tensor tokens, const BertOptions& options) {
  const int num_stages = options.parallel == Parallel::kPipeline ? 2 : 1;
  const auto stages = PipelineStages(job.devices(), num_stages);
  const auto on_stage = [&](int stage, const std::function<Tensor()>& fn) {
    return num_stages == 1 ? fn() : job.On(stages[stage], fn);
  };
  const int64_t words = options.vocabulary + 1;
  Tensor x = on_stage(0, [&] {
    const auto row = [&](Tensor index, int64_t rows, const char* name) {
      return EmbeddingLayer(index, rows, options.width, {.name = name, .dtype = options.dtype});
    };
    const Tensor place = Iota(job.graph(), {DType::kI32, {options.time}});
    const Tensor segment = row(Iota(job.graph(), {DType::kI32, {2}}), 2, "segments");
    Tensor sum = row(tokens, words, "tokens") + row(place, options.time, "positions");
    sum = sum + RepeatInterleave(segment, options.time / 2, 0);
    return DropIf(LayerNormLayer(sum, {.name = "norm"}), options.dropout);
  });
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const int stage = static_cast<int>(layer * num_stages / options.layers);
    const NameScope scope(job.graph(), absl::StrFormat("layer.%d", layer));
    x = on_stage(stage, [&] { return Block(x, options); });
  }
  return on_stage(num_stages - 1, [&] {
    x = Gelu(Linear(x, options.width, {.name = "head.fc", .stddev = 0.02}));
    x = LayerNormLayer(x, {.name = "head.norm"});
    return Linear(x, words, {.name = "head.out", .stddev = 0.02});
  });
}

}  // namespace

void TrainBert(Job& job, const BertOptions& options) {
  OnDevices(job, options.parallel, [&] {
    const Puzzle puzzle = MakePuzzle(job, options.train, 0, "train", options);
    const Tensor loss =
        CrossEntropy(Bert(job, puzzle.seen, options), puzzle.labels, {.ignore_index = kNothing});
    const Tensor rate = braid::WarmupCosine(job.graph(), {.peak = options.lr,
                                                          .floor = options.lr / 10,
                                                          .warmup_steps = options.warmup_steps,
                                                          .steps = options.steps});
    job.Minimize(loss, braid::AdamW{.lr = rate, .weight_decay = 0.01},
                 {.micro_batches = options.micro_batches, .clip_global_norm = 1});
    job.Fetch("loss", loss);
  });
}

void EvaluateBert(Job& job, const BertOptions& options) {
  OnDevices(job, options.parallel, [&] {
    const Puzzle puzzle = MakePuzzle(job, options.held_out, kSentences, "held_out", options);
    const Tensor guess = ArgMax(Bert(job, puzzle.seen, options));
    const auto count = [](Tensor x) { return Sum(Cast(x, DType::kF32)); };
    job.Fetch("accuracy", count(Equal(guess, puzzle.labels)) /
                              count(NotEqual(puzzle.labels, IntegerOf(job, kNothing))));
  });
}

}  // namespace examples
