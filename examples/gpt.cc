// Trains a character-level GPT on a text file and lets it write. One program for one device;
// --parallel says how it is spread over all that the cluster has.

#include <algorithm>
#include <iostream>

#include "absl/flags/flag.h"
#include "api/braid.h"
#include "examples/gpt_model.h"
#include "runtime/base/philox.h"
#include "runtime/data/text_dataset.h"

ABSL_FLAG(std::string, data, "", "The text file to learn");
ABSL_FLAG(std::string, parallel, "data", "data, model, hybrid or pipeline");
ABSL_FLAG(int64_t, steps, 2000, "Training steps");
ABSL_FLAG(int64_t, batch, 16, "Windows of text per step, over all devices");
ABSL_FLAG(int, micro_batches, 1, "Parts that a step is computed in");
ABSL_FLAG(int64_t, layers, 4, "Transformer blocks");
ABSL_FLAG(int64_t, width, 128, "Channels");
ABSL_FLAG(int64_t, heads, 4, "Attention heads");
ABSL_FLAG(int64_t, context, 128, "Characters that the model sees");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, bf16 or f16");
ABSL_FLAG(double, dropout, 0, "Share of values that are dropped in training");
ABSL_FLAG(double, lr, 2e-3, "Peak learning rate of AdamW");
ABSL_FLAG(double, clip, 1.0, "Global norm that gradients are clipped to; 0: not");
ABSL_FLAG(int64_t, report_every, 200, "Steps between evaluations on held-out text");
ABSL_FLAG(int64_t, sample, 200, "Characters to write at the end");
ABSL_FLAG(std::string, prompt, "\n", "What the sample starts with");
ABSL_FLAG(std::string, save, "", "Folder for a checkpoint at the end");
ABSL_FLAG(std::string, load, "", "Folder of a checkpoint to start from");

namespace {

// Writes `count` characters after the prompt, each drawn from the model's probabilities.
absl::StatusOr<std::string> Write(braid::CompiledJob& predict, const examples::GptOptions& options,
                                  const braid::TextVocabulary& vocabulary) {
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, vocabulary.Encode(absl::GetFlag(FLAGS_prompt)));
  if (tokens.empty()) return absl::InvalidArgumentError("--prompt is empty; give one character");
  const braid::RandomKey key = braid::MakeRandomKey(1, "sample", 0);
  const int64_t count = absl::GetFlag(FLAGS_sample);
  for (int64_t i = 0; i < count; ++i) {
    // The window is filled from the left; what stands behind the last character is not seen by it.
    const auto seen = std::min<int64_t>(options.context, static_cast<int64_t>(tokens.size()));
    std::vector<int32_t> window(tokens.end() - seen, tokens.end());
    window.resize(options.context, 0);
    ASSIGN_OR_RETURN(const auto result,
                     predict.Run({.feeds = {{"tokens", braid::Array::FromVector<int32_t>(
                                                           {1, options.context}, window)}}}));
    const auto all = result.Last("probabilities").data<double>();
    const auto row = all.subspan((seen - 1) * options.vocabulary, options.vocabulary);
    double left = braid::UniformDoubleAt(key, i);
    int32_t next = 0;
    while (next + 1 < options.vocabulary && left >= row[next]) left -= row[next++];
    tokens.push_back(next);
  }
  return vocabulary.Decode(tokens);
}

absl::StatusOr<examples::GptOptions> OptionsOfFlags() {
  examples::GptOptions options;
  ASSIGN_OR_RETURN(options.parallel, examples::ParseParallel(absl::GetFlag(FLAGS_parallel)));
  ASSIGN_OR_RETURN(options.dtype, examples::ParseFloat(absl::GetFlag(FLAGS_dtype)));
  options.layers = absl::GetFlag(FLAGS_layers);
  options.width = absl::GetFlag(FLAGS_width);
  options.heads = absl::GetFlag(FLAGS_heads);
  options.context = absl::GetFlag(FLAGS_context);
  options.batch = absl::GetFlag(FLAGS_batch);
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.dropout = absl::GetFlag(FLAGS_dropout);
  options.lr = absl::GetFlag(FLAGS_lr);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.clip = absl::GetFlag(FLAGS_clip);
  const std::string path = absl::GetFlag(FLAGS_data);
  if (path.empty()) return absl::InvalidArgumentError("--data=FILE is needed: the text to learn");
  options.train = braid::TextFile(
      path, {.context = options.context, .windows = braid::TextWindows::kEvery, .end = 0.9});
  options.held_out = braid::TextFile(path, {.context = options.context, .begin = 0.9});
  return options;
}

absl::Status Program(braid::Session& session) {
  ASSIGN_OR_RETURN(examples::GptOptions options, OptionsOfFlags());
  ASSIGN_OR_RETURN(const auto held_out, braid::TextDataset::Open(options.held_out));
  options.vocabulary = held_out->vocabulary().size();
  const int64_t batches = std::max<int64_t>(1, held_out->num_samples() / options.evaluation_batch);

  ASSIGN_OR_RETURN(auto train, session.Compile("train", [&](braid::Job& job) {
    examples::TrainGpt(job, options);
  }));
  ASSIGN_OR_RETURN(auto evaluate, session.Compile("evaluate", [&](braid::Job& job) {
    examples::EvaluateGpt(job, options);
  }));
  ASSIGN_OR_RETURN(auto predict, session.Compile("predict", [&](braid::Job& job) {
    examples::PredictGpt(job, options);
  }));
  if (const std::string load = absl::GetFlag(FLAGS_load); !load.empty()) {
    RETURN_IF_ERROR(session.Load(load));
  }
  int64_t left = absl::GetFlag(FLAGS_steps);
  for (int64_t done = 0; left > 0;) {
    const int64_t steps = std::min(left, absl::GetFlag(FLAGS_report_every));
    ASSIGN_OR_RETURN(const auto trained, train.Run({.steps = steps}));
    evaluate.SetStep(0);  // the same windows each time
    ASSIGN_OR_RETURN(const auto evaluated, evaluate.Run({.steps = batches}));
    done += steps;
    left -= steps;
    std::cout << absl::StrFormat("step %d  loss %.4f  held-out nats per character %.4f\n", done,
                                 trained.Mean("loss"), evaluated.Mean("nats"))
              << std::flush;
  }
  if (const std::string save = absl::GetFlag(FLAGS_save); !save.empty()) {
    RETURN_IF_ERROR(session.Save(save));
    std::cout << "saved to " << save << "\n";
  }
  if (absl::GetFlag(FLAGS_sample) > 0) {
    ASSIGN_OR_RETURN(const std::string text, Write(predict, options, held_out->vocabulary()));
    std::cout << "---\n" << text << "\n---\n";
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return braid::Main(argc, argv, Program); }
