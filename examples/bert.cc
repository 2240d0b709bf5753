// Trains a BERT to find masked tokens, in a text file or in made-up sentences. One program for one
// device; --parallel says how it is spread over all that the cluster has.

#include <braid/braid.h>

#include <iostream>

#include "absl/flags/flag.h"
#include "examples/bert_model.h"
#include "examples/sentences.h"
#include "examples/training.h"

ABSL_FLAG(std::string, data, "", "A text file, read by characters; none: made-up sentences");
ABSL_FLAG(std::string, parallel, "data", "data, model, hybrid or pipeline");
ABSL_FLAG(int64_t, steps, 600, "Training steps");
ABSL_FLAG(int64_t, batch, 32, "Sequences per step, over all devices");
ABSL_FLAG(int, micro_batches, 1, "Parts that a step is computed in");
ABSL_FLAG(int64_t, layers, 2, "Encoder layers");
ABSL_FLAG(int64_t, width, 64, "Channels");
ABSL_FLAG(int64_t, heads, 4, "Attention heads");
ABSL_FLAG(int64_t, time, 32, "Tokens of a sequence, two segments");
ABSL_FLAG(double, masked, 0.15, "Share of the tokens that are to be found");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, bf16 or f16");
ABSL_FLAG(double, dropout, 0, "Share of values that are dropped in training");
ABSL_FLAG(double, lr, 3e-3, "Peak learning rate of AdamW");
ABSL_FLAG(int64_t, report_every, 100, "Steps between evaluations");
ABSL_FLAG(std::string, save, "", "Folder for a checkpoint at the end");
ABSL_FLAG(std::string, load, "", "Folder of a checkpoint to start from");

namespace {

absl::StatusOr<examples::BertOptions> OptionsOfFlags() {
  examples::BertOptions options;
  BRAID_ASSIGN_OR_RETURN(options.parallel, examples::ParseParallel(absl::GetFlag(FLAGS_parallel)));
  BRAID_ASSIGN_OR_RETURN(options.dtype, examples::ParseFloat(absl::GetFlag(FLAGS_dtype)));
  options.layers = absl::GetFlag(FLAGS_layers);
  options.width = absl::GetFlag(FLAGS_width);
  options.heads = absl::GetFlag(FLAGS_heads);
  options.time = absl::GetFlag(FLAGS_time);
  options.batch = absl::GetFlag(FLAGS_batch);
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.masked = absl::GetFlag(FLAGS_masked);
  options.dropout = absl::GetFlag(FLAGS_dropout);
  options.lr = absl::GetFlag(FLAGS_lr);
  options.steps = absl::GetFlag(FLAGS_steps);
  if (options.time < 2 || options.time % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--time=%d; an even number was expected, for two segments", options.time));
  }
  const std::string path = absl::GetFlag(FLAGS_data);
  if (path.empty()) return options;
  options.train = braid::TextFile(
      path, {.context = options.time, .windows = braid::TextWindows::kEvery, .end = 0.9});
  options.held_out = braid::TextFile(path, {.context = options.time, .begin = 0.9});
  BRAID_ASSIGN_OR_RETURN(const auto held_out, braid::TextDataset::Open(*options.held_out));
  options.vocabulary = held_out->vocabulary().size();
  return options;
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(const examples::BertOptions options, OptionsOfFlags());
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", [&](braid::Job& job) {
    examples::TrainBert(job, options);
  }));
  BRAID_ASSIGN_OR_RETURN(auto evaluate, session.Compile("evaluate", [&](braid::Job& job) {
    examples::EvaluateBert(job, options);
  }));
  BRAID_RETURN_IF_ERROR(examples::LoadFrom(session, absl::GetFlag(FLAGS_load)));
  BRAID_RETURN_IF_ERROR(examples::TrainInRounds(
      train, evaluate,
      {.steps = options.steps,
       .report_every = absl::GetFlag(FLAGS_report_every),
       .evaluation_steps = 10},
      [](int64_t done, const auto& trained, const auto& evaluated) {
        std::cout << absl::StrFormat("step %d  loss %.4f  masked tokens found %.1f %%\n", done,
                                     trained.Mean("loss"), 100 * evaluated.Mean("accuracy"))
                  << std::flush;
      }));
  return examples::SaveTo(session, absl::GetFlag(FLAGS_save));
}

}  // namespace

int main(int argc, char** argv) {
  return braid::Main(
      argc, argv,
      {.about = "Trains a BERT to find masked tokens, in a text file or in made-up sentences.",
       .dataset_kinds = examples::KindsWithSentences()},
      Program);
}
