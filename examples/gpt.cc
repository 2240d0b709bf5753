// A GPT: learns a text file character by character, or takes the published weights of GPT-2, and
// writes. One program for one device; --parallel says how it is spread over all that the cluster
// has.

#include <braid/braid.h>

#include <algorithm>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "examples/gpt_model.h"
#include "examples/gpt_writer.h"
#include "examples/training.h"

ABSL_FLAG(std::string, data, "", "The text file to learn");
ABSL_FLAG(std::string, parallel, "data", "data, model, hybrid or pipeline");
ABSL_FLAG(std::string, size, "tiny", "tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl");
ABSL_FLAG(int64_t, layers, 0, "Transformer blocks, if not those of --size; so the next four");
ABSL_FLAG(int64_t, width, 0, "Channels");
ABSL_FLAG(int64_t, heads, 0, "Attention heads");
ABSL_FLAG(int64_t, context, 0, "Tokens that the model sees");
ABSL_FLAG(int64_t, vocabulary, 0, "Tokens that there are; a text file has its characters");
ABSL_FLAG(bool, tied, false, "The head is the table of tokens, as in the sizes of GPT-2");
ABSL_FLAG(bool, untied, false, "The head has weights of its own, also in the sizes of GPT-2");
ABSL_FLAG(int64_t, steps, 2000, "Training steps, if there is --data; 0: it only writes");
ABSL_FLAG(int64_t, batch, 16, "Windows of text per step, over all devices");
ABSL_FLAG(int, micro_batches, 1, "Parts that a step is computed in");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, bf16 or f16");
ABSL_FLAG(double, dropout, 0, "Share of values that are dropped in training");
ABSL_FLAG(double, lr, 2e-3, "Peak learning rate of AdamW");
ABSL_FLAG(double, clip, 1.0, "Global norm that gradients are clipped to; 0: not");
ABSL_FLAG(int64_t, report_every, 200, "Steps between evaluations on held-out text");
ABSL_FLAG(int64_t, generate, 200, "Tokens to write at the end");
ABSL_FLAG(std::string, prompt, "\n", "What the text to write starts with");
ABSL_FLAG(std::string, prompt_tokens, "", "The same as numbers: 464,3290,318");
ABSL_FLAG(double, temperature, 1, "Of the probabilities of what is written; 0: the likeliest");
ABSL_FLAG(int64_t, top_k, 0, "Draws from so many likeliest tokens; 0: from all");
ABSL_FLAG(std::string, logits, "", "NumPy file for the prompt's logits, to compare with others'");
ABSL_FLAG(std::string, save, "", "Folder for a checkpoint at the end");
ABSL_FLAG(std::string, load, "", "Folder of a checkpoint to start from");
ABSL_FLAG(std::string, weights, "", "Safetensors file or folder of GPT-2 weights to start from");
ABSL_FLAG(std::string, save_weights, "", "Safetensors file for the weights at the end");

namespace {

// A size that a flag gives instead of --size.
absl::Status Override(int64_t& value, const absl::Flag<int64_t>& flag) {
  const int64_t given = absl::GetFlag(flag);
  if (given < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s=%d; a number of at least 1 was expected, or 0 for that of --size",
                        std::string(absl::GetFlagReflectionHandle(flag).Name()), given));
  }
  if (given != 0) value = given;
  return absl::OkStatus();
}

absl::StatusOr<examples::GptOptions> OptionsOfFlags() {
  BRAID_ASSIGN_OR_RETURN(examples::GptOptions options,
                         examples::GptOfSize(absl::GetFlag(FLAGS_size)));
  BRAID_ASSIGN_OR_RETURN(options.parallel, examples::ParseParallel(absl::GetFlag(FLAGS_parallel)));
  BRAID_ASSIGN_OR_RETURN(options.dtype, examples::ParseFloat(absl::GetFlag(FLAGS_dtype)));
  BRAID_RETURN_IF_ERROR(Override(options.layers, FLAGS_layers));
  BRAID_RETURN_IF_ERROR(Override(options.width, FLAGS_width));
  BRAID_RETURN_IF_ERROR(Override(options.heads, FLAGS_heads));
  BRAID_RETURN_IF_ERROR(Override(options.context, FLAGS_context));
  BRAID_RETURN_IF_ERROR(Override(options.vocabulary, FLAGS_vocabulary));
  if (absl::GetFlag(FLAGS_tied) && absl::GetFlag(FLAGS_untied)) {
    return absl::InvalidArgumentError(
        "--tied and --untied contradict each other; give one of them, or neither for what --size "
        "has");
  }
  options.tied = (options.tied || absl::GetFlag(FLAGS_tied)) && !absl::GetFlag(FLAGS_untied);
  options.batch = absl::GetFlag(FLAGS_batch);
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.dropout = absl::GetFlag(FLAGS_dropout);
  options.lr = absl::GetFlag(FLAGS_lr);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.clip = absl::GetFlag(FLAGS_clip);
  return options;
}

// The variables that the flags say to start from.
absl::Status LoadStart(braid::Session& session, bool tied) {
  BRAID_RETURN_IF_ERROR(examples::LoadFrom(session, absl::GetFlag(FLAGS_load)));
  const std::string weights = absl::GetFlag(FLAGS_weights);
  return weights.empty() ? absl::OkStatus()
                         : session.LoadWeights(weights, examples::Gpt2Weights(tied));
}

// Trains, with a word on held-out text now and then.
absl::Status Learn(braid::Session& session, const examples::GptOptions& options, int64_t windows) {
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", [&](braid::Job& job) {
    examples::TrainGpt(job, options);
  }));
  BRAID_ASSIGN_OR_RETURN(auto evaluate, session.Compile("evaluate", [&](braid::Job& job) {
    examples::EvaluateGpt(job, options);
  }));
  BRAID_RETURN_IF_ERROR(LoadStart(session, options.tied));
  if (options.steps == 0) return absl::OkStatus();  // only writes
  return examples::TrainInRounds(
      train, evaluate,
      {.steps = options.steps,
       .report_every = absl::GetFlag(FLAGS_report_every),
       .evaluation_steps = std::max<int64_t>(1, windows / options.evaluation_batch)},
      [](int64_t done, const auto& trained, const auto& evaluated) {
        std::cout << absl::StrFormat("step %d  loss %.4f  held-out nats per character %.4f\n", done,
                                     trained.Mean("loss"), evaluated.Mean("nats"))
                  << std::flush;
      });
}

absl::StatusOr<std::vector<int32_t>> Prompt(const braid::TextVocabulary* vocabulary) {
  const std::string numbers = absl::GetFlag(FLAGS_prompt_tokens);
  if (numbers.empty() && vocabulary != nullptr) {
    return vocabulary->Encode(absl::GetFlag(FLAGS_prompt));
  }
  std::vector<int32_t> tokens;
  const std::vector<std::string> parts = absl::StrSplit(numbers, ',', absl::SkipEmpty());
  for (const std::string& number : parts) {
    if (!absl::SimpleAtoi(number, &tokens.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--prompt_tokens=%s: '%s' is no number; 464,3290 was expected", numbers, number));
    }
  }
  return tokens;
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(examples::GptOptions options, OptionsOfFlags());
  const std::string path = absl::GetFlag(FLAGS_data);
  if (path.empty() && absl::GetFlag(FLAGS_weights).empty()) {
    return absl::InvalidArgumentError("give --data=FILE, the text to learn, or --weights=FILE");
  }
  std::shared_ptr<const braid::TextDataset> held_out;
  if (!path.empty()) {
    const int64_t context = options.context;
    options.train = braid::TextFile(
        path, {.context = context, .windows = braid::TextWindows::kEvery, .end = 0.9});
    options.held_out = braid::TextFile(path, {.context = context, .begin = 0.9});
    BRAID_ASSIGN_OR_RETURN(held_out, braid::TextDataset::Open(options.held_out));
    if (absl::GetFlag(FLAGS_vocabulary) == 0) options.vocabulary = held_out->vocabulary().size();
    BRAID_RETURN_IF_ERROR(Learn(session, options, held_out->num_samples()));
  }
  const braid::TextVocabulary* const vocabulary =
      held_out == nullptr ? nullptr : &held_out->vocabulary();
  BRAID_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, Prompt(vocabulary));
  const auto size = static_cast<int64_t>(prompt.size());
  const std::string logits = absl::GetFlag(FLAGS_logits);
  if (path.empty() || !logits.empty()) {
    BRAID_ASSIGN_OR_RETURN(auto predict, session.Compile("predict", [&](braid::Job& job) {
      examples::PredictGpt(job, options, size);
    }));
    if (path.empty()) BRAID_RETURN_IF_ERROR(LoadStart(session, options.tied));
    const auto tokens = braid::Array::FromVector<int32_t>({1, size}, prompt);
    if (!logits.empty()) {
      BRAID_ASSIGN_OR_RETURN(const auto result, predict.Run({.feeds = {{"tokens", tokens}}}));
      BRAID_RETURN_IF_ERROR(result.Last("logits").WriteNpy(logits));
    }
  }
  BRAID_RETURN_IF_ERROR(examples::SaveTo(session, absl::GetFlag(FLAGS_save)));
  if (const std::string save = absl::GetFlag(FLAGS_save_weights); !save.empty()) {
    BRAID_RETURN_IF_ERROR(session.SaveWeights(save, examples::Gpt2Weights(options.tied)));
    std::cout << "saved to " << save << "\n";
  }
  if (absl::GetFlag(FLAGS_generate) == 0) return absl::OkStatus();
  examples::GptWriter writer(
      session, options,
      {.temperature = absl::GetFlag(FLAGS_temperature), .top_k = absl::GetFlag(FLAGS_top_k)});
  BRAID_ASSIGN_OR_RETURN(const auto written, writer.Write(prompt, absl::GetFlag(FLAGS_generate)));
  std::string text = absl::StrJoin(written, ",");
  if (vocabulary != nullptr) {
    BRAID_ASSIGN_OR_RETURN(text, vocabulary->Decode(written));
    text = absl::GetFlag(FLAGS_prompt) + text;
  }
  std::cout << "---\n" << text << "\n---\n";
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return braid::Main(
      argc, argv,
      {.about =
           "Learns a text file character by character, or takes the weights of GPT-2, and writes."},
      Program);
}
