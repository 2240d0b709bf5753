#include "examples/gpt_writer.h"

#include <algorithm>

namespace examples {
namespace {

using braid::DType;
using braid::Job;
using braid::NameScope;
using braid::Tensor;

// logits [1, time, vocabulary] -> the token [1, 1] after the last one. Random numbers are those of
// the step and the scope.
Tensor Draw(Tensor logits, const WriterOptions& options) {
  if (!logits.valid()) return logits;
  const int64_t time = logits.shape()[1], vocabulary = logits.shape()[2];
  const Tensor last =
      Cast(Reshape(Slice(logits, {0, time - 1, 0}, {1, 1, -1}), {1, vocabulary}), DType::kF32);
  if (options.temperature == 0) return ExpandDims(ArgMax(last), 1);
  const int64_t k = options.top_k > 0 ? std::min(options.top_k, vocabulary) : vocabulary;
  const braid::Ordered best = TopK(last / options.temperature, k);
  const Tensor up_to = CumSum(Softmax(best.values), 1);
  const Tensor drawn = RandomUniform(*logits.graph(), {1, 1});
  const Tensor below = Cast(LessEqual(up_to, drawn), DType::kI32);
  const Tensor rank = ReduceSum(below, {.axes = {1}, .keep_dims = true});
  return GatherElements(best.indices, Clip(rank, 0, static_cast<double>(k - 1)), 1);
}

Tensor Number(Job& job, int64_t value) {
  return Constant(job.graph(), static_cast<double>(value), {.dtype = DType::kI32});
}

// The variables that a step leaves to the next one.
struct State {
  explicit State(Job& job)
      : token(GetVariable(
            job.graph(),
            {.name = "writer.token", .dtype = DType::kI32, .shape = {1, 1}, .trainable = false})),
        position(GetVariable(
            job.graph(), {.name = "writer.position", .dtype = DType::kI32, .trainable = false})) {}
  Tensor token, position;
};

void Advance(Job& job, const State& state, Tensor next, Tensor position) {
  Assign(state.token, next);
  Assign(state.position, position);
  job.Fetch("token", next);
}

// Input "tokens" i32 [1, count] begin a text.
void ReadPrompt(Job& job, const GptOptions& model, const WriterOptions& options, int64_t count) {
  const State state(job);
  const Tensor tokens = job.Input("tokens", {1, count}, DType::kI32);
  const Tensor logits = Gpt(job, tokens, model, GptCache{Number(job, 0)});
  const NameScope scope(job.graph(), absl::StrFormat("read_%d", count));
  Advance(job, state, Draw(logits, options), Number(job, count));
}

void WriteToken(Job& job, const GptOptions& model, const WriterOptions& options) {
  const State state(job);
  const Tensor logits = Gpt(job, state.token, model, GptCache{state.position});
  const NameScope scope(job.graph(), "write");
  Advance(job, state, Draw(logits, options), state.position + Number(job, 1));
}

}  // namespace

absl::StatusOr<braid::CompiledJob*> GptWriter::ReaderOf(int64_t tokens) {
  auto found = readers_.find(tokens);
  if (found == readers_.end()) {
    BRAID_ASSIGN_OR_RETURN(
        const auto job, session_.Compile(absl::StrFormat("read_%d", tokens), [&](Job& job) {
          OnDevices(job, model_.parallel, [&] { ReadPrompt(job, model_, options_, tokens); });
        }));
    found = readers_.emplace(tokens, job).first;
  }
  return &found->second;
}

absl::StatusOr<std::vector<int32_t>> GptWriter::Write(const std::vector<int32_t>& prompt,
                                                      int64_t count) {
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt is empty; give one token");
  std::vector<int32_t> text = prompt;
  const auto end = static_cast<int64_t>(prompt.size()) + count;
  const auto append = [&text](const braid::RunResult& result) {
    for (const braid::Array& token : result.Values("token")) {
      text.push_back(token.data<int32_t>()[0]);
    }
  };
  while (static_cast<int64_t>(text.size()) < end) {
    const auto size = static_cast<int64_t>(text.size());
    const int64_t seen = size < model_.context ? size : std::max<int64_t>(1, model_.context / 2);
    BRAID_ASSIGN_OR_RETURN(braid::CompiledJob * reader, ReaderOf(seen));
    const auto tokens =
        braid::Array::FromVector<int32_t>({1, seen}, {text.end() - seen, text.end()});
    BRAID_ASSIGN_OR_RETURN(const auto first, reader->Run({.feeds = {{"tokens", tokens}}}));
    append(first);
    if (!writer_.has_value()) {
      BRAID_ASSIGN_OR_RETURN(writer_, session_.Compile("write", [&](Job& job) {
        OnDevices(job, model_.parallel, [&] { WriteToken(job, model_, options_); });
      }));
    }
    const int64_t steps = std::min(end - static_cast<int64_t>(text.size()), model_.context - seen);
    if (steps == 0) continue;
    BRAID_ASSIGN_OR_RETURN(const auto rest, writer_->Run({.steps = steps}));
    append(rest);
  }
  return std::vector<int32_t>(text.begin() + static_cast<int64_t>(prompt.size()), text.end());
}

}  // namespace examples
