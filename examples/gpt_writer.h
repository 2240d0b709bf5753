// Lets the gpt example's model write: a job that reads the prompt at once, and one that writes a
// token a step. Keys and values of what was read, the next token and its place are variables, so
// that a run of many steps needs nothing from the host.
#pragma once

#include <map>
#include <vector>

#include "examples/gpt_model.h"

namespace examples {

struct WriterOptions {
  double temperature = 1;  // of the probabilities; 0: always the likeliest token
  int64_t top_k = 0;       // draws from so many likeliest tokens; 0: from all
};

class GptWriter {
 public:
  // All borrowed.
  GptWriter(braid::Session& session, const GptOptions& model, WriterOptions options)
      : session_(session), model_(model), options_(options) {}

  // `count` tokens after the prompt, drawn by the session's seed. Where the model's context ends,
  // the last half of it is read again as a new prompt.
  absl::StatusOr<std::vector<int32_t>> Write(const std::vector<int32_t>& prompt, int64_t count);

 private:
  absl::StatusOr<braid::CompiledJob*> ReaderOf(int64_t tokens);

  braid::Session& session_;
  const GptOptions& model_;
  const WriterOptions options_;
  std::map<int64_t, braid::CompiledJob> readers_;  // by the number of tokens
  std::optional<braid::CompiledJob> writer_;
};

}  // namespace examples
