// Trains a wide and deep recommender on clicks that are made up by a rule. One program for one
// device; --parallel says how it and its tables are spread over all that the cluster has.

#include <braid/braid.h>

#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "examples/training.h"
#include "examples/wide_deep_model.h"

ABSL_FLAG(std::string, parallel, "data",
          "data: every device has all tables; model: each has a part of their rows; hybrid: both; "
          "server: the second half of the devices has them, and the others compute");
ABSL_FLAG(int64_t, steps, 2000, "Training steps");
ABSL_FLAG(int64_t, batch, 256, "Samples per step, over all devices");
ABSL_FLAG(int64_t, fields, 4, "Fields of categories");
ABSL_FLAG(int64_t, rows, 1000, "Categories of a field");
ABSL_FLAG(int64_t, bag, 3, "Categories of a field that a sample has");
ABSL_FLAG(int64_t, columns, 8, "Columns of a field's table");
ABSL_FLAG(int64_t, hidden, 64, "Width of the hidden layers");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, bf16 or f16");
ABSL_FLAG(double, lr, 0.05, "Learning rate of Adagrad");
ABSL_FLAG(int64_t, report_every, 200, "Steps between evaluations");
ABSL_FLAG(std::string, save, "", "Folder for a checkpoint at the end");
ABSL_FLAG(std::string, load, "", "Folder of a checkpoint to start from");

namespace {

absl::StatusOr<examples::WideDeepOptions> OptionsOfFlags() {
  examples::WideDeepOptions options;
  const std::string parallel = absl::GetFlag(FLAGS_parallel);
  options.has_servers = parallel == "server";
  if (!options.has_servers) {
    const auto known = examples::ParseParallel(parallel);
    if (!known.ok() || *known == examples::Parallel::kPipeline) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--parallel=%s; data, model, hybrid or server was expected%s", parallel,
                          known.ok() ? ": the model has no stages" : ""));
    }
    options.parallel = *known;
  }
  BRAID_ASSIGN_OR_RETURN(options.dtype, examples::ParseFloat(absl::GetFlag(FLAGS_dtype)));
  options.batch = absl::GetFlag(FLAGS_batch);
  options.fields = absl::GetFlag(FLAGS_fields);
  options.rows = absl::GetFlag(FLAGS_rows);
  options.bag = absl::GetFlag(FLAGS_bag);
  options.columns = absl::GetFlag(FLAGS_columns);
  options.hidden = absl::GetFlag(FLAGS_hidden);
  options.lr = absl::GetFlag(FLAGS_lr);
  return options;
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(const examples::WideDeepOptions options, OptionsOfFlags());
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", [&](braid::Job& job) {
    examples::TrainWideDeep(job, options);
  }));
  BRAID_ASSIGN_OR_RETURN(auto evaluate, session.Compile("evaluate", [&](braid::Job& job) {
    examples::EvaluateWideDeep(job, options);
  }));
  BRAID_RETURN_IF_ERROR(examples::LoadFrom(session, absl::GetFlag(FLAGS_load)));
  BRAID_RETURN_IF_ERROR(examples::TrainInRounds(
      train, evaluate,
      {.steps = absl::GetFlag(FLAGS_steps),
       .report_every = absl::GetFlag(FLAGS_report_every),
       .evaluation_steps = 20},
      [](int64_t done, const auto& trained, const auto& evaluated) {
        std::cout << absl::StrFormat(
                         "step %d  loss %.4f  accuracy %.4f (of %.4f that are possible)\n", done,
                         trained.Mean("loss"), evaluated.Mean("accuracy"),
                         evaluated.Mean("possible"))
                  << std::flush;
      }));
  return examples::SaveTo(session, absl::GetFlag(FLAGS_save));
}

}  // namespace

int main(int argc, char** argv) {
  return braid::Main(
      argc, argv,
      {.about = "Trains a wide and deep recommender on clicks that are made up by a rule."},
      Program);
}
