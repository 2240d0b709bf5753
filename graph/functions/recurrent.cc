#include "graph/functions/recurrent.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

bool IsGiven(const Tensor& tensor) { return !tensor.is_none(); }

std::string TextOf(const Tensor& tensor) {
  return tensor.valid() ? tensor.type().ToString() : "none";
}

// The units of a layer whose operands fit together; 0 after reporting what does not.
int64_t UnitsOf(std::string_view layer, int64_t gates, Tensor x, const RecurrentWeights& weights,
                const RecurrentOptions& options, SourceLocation where) {
  if (!x.valid() || !weights.input.valid() || !weights.recurrent.valid()) return 0;
  const Shape &steps = x.shape(), &input = weights.input.shape();
  const Shape& recurrent = weights.recurrent.shape();
  bool fits = steps.rank() == 3 && input.rank() == 2 && recurrent.rank() == 2 && steps[0] > 0 &&
              recurrent[1] > 0 && recurrent[0] == gates * recurrent[1] &&
              input == Shape{recurrent[0], steps[2]};
  for (const Tensor& bias : {weights.input_bias, weights.recurrent_bias}) {
    if (IsGiven(bias)) fits = fits && bias.valid() && bias.shape() == Shape{recurrent[0]};
  }
  for (const Tensor& state : {options.initial_state, options.initial_cell}) {
    if (IsGiven(state)) {
      fits = fits && state.valid() && state.shape() == Shape{steps[1], recurrent[1]};
    }
  }
  if (IsGiven(options.lengths)) {
    fits = fits && options.lengths.valid() && options.lengths.shape() == Shape{steps[1]};
  }
  if (fits) return recurrent[1];
  x.graph()->Fail(absl::InvalidArgumentError(absl::StrCat(
      std::string(layer), ": x is ", TextOf(x), ", weights are ", TextOf(weights.input), " and ",
      TextOf(weights.recurrent), ", biases ", TextOf(weights.input_bias), " and ",
      TextOf(weights.recurrent_bias), ", states ", TextOf(options.initial_state), " and ",
      TextOf(options.initial_cell), ", lengths ", TextOf(options.lengths),
      "; [time, batch, features] with a step or more, [", gates, " units, features], [", gates,
      " units, units], biases [", gates,
      " units], states [batch, units] and lengths [batch] are needed (", where.ToString(), ")")));
  return 0;
}

Tensor StateOrZeros(Tensor state, Tensor x, int64_t units, SourceLocation where) {
  if (IsGiven(state)) return state;
  return Constant(*x.graph(), 0, {.dtype = x.dtype(), .shape = {x.shape()[1], units}}, where);
}

// h [batch, units] times the transposed weight, plus the bias: the gates' terms [batch, k].
Tensor FromState(Tensor h, const RecurrentWeights& weights, SourceLocation where) {
  const Tensor product = MatMul(h, weights.recurrent, {.transpose_b = true}, where);
  return IsGiven(weights.recurrent_bias) ? Add(product, weights.recurrent_bias, where) : product;
}

RecurrentResult NoResult(const std::vector<Tensor>& operands, SourceLocation where) {
  const Tensor invalid = Invalid(operands, where);
  return {invalid, invalid, invalid};
}

}  // namespace

Tensor ProjectSteps(Tensor x, Tensor weight, Tensor bias, SourceLocation where) {
  const Tensor product = MatMul(x, weight, {.transpose_b = true}, where);
  return IsGiven(bias) ? Add(product, bias, where) : product;
}

RecurrentResult Unroll(Tensor projected, RecurrentState state, const RecurrentStep& step,
                       const RecurrentOptions& options, SourceLocation where) {
  if (!projected.valid() || !state.h.valid()) return NoResult({projected, state.h}, where);
  const int64_t time = projected.shape()[0], batch = projected.shape()[1];
  const int64_t k = projected.shape()[2], units = state.h.shape()[1];
  LogicalGraph& graph = *projected.graph();
  const std::vector<Tensor> steps = Split(projected, std::vector<int64_t>(time, 1), 0, where);
  std::vector<Tensor> outputs(time);
  for (int64_t i = 0; i < time; ++i) {
    const int64_t t = options.reverse ? time - 1 - i : i;
    RecurrentState next = step(Reshape(steps[t], {batch, k}, where), state);
    Tensor output = next.h;
    if (IsGiven(options.lengths)) {
      const Tensor at =
          Constant(graph, static_cast<double>(t), {.dtype = options.lengths.dtype()}, where);
      const Tensor runs = ExpandDims(Less(at, options.lengths, where), -1, where);
      output = Where(runs, next.h, Constant(graph, 0, {.dtype = state.h.dtype()}, where), where);
      next.h = Where(runs, next.h, state.h, where);
      if (next.c.valid()) next.c = Where(runs, next.c, state.c, where);
    }
    outputs[t] = Reshape(output, {1, batch, units}, where);
    if (!outputs[t].valid()) return NoResult({projected}, where);
    state = next;
  }
  return {Concat(outputs, 0, where), state.h, state.c};
}

RecurrentResult Lstm(Tensor x, RecurrentWeights weights, RecurrentOptions options,
                     SourceLocation where) {
  const int64_t units = UnitsOf("lstm", 4, x, weights, options, where);
  if (units == 0) return NoResult({x, weights.input, weights.recurrent}, where);
  const RecurrentState initial = {StateOrZeros(options.initial_state, x, units, where),
                                  StateOrZeros(options.initial_cell, x, units, where)};
  const Shape gates = {x.shape()[1], 4, units};
  return Unroll(
      ProjectSteps(x, weights.input, weights.input_bias, where), initial,
      [&](Tensor projected, RecurrentState before) -> RecurrentState {
        const std::vector<Tensor> next =
            ApplyAll("lstm_cell",
                     {Reshape(projected, gates, where),
                      Reshape(FromState(before.h, weights, where), gates, where), before.c},
                     {}, where);
        if (next.size() != 2) return {};
        return {next[0], next[1]};
      },
      options, where);
}

RecurrentResult Gru(Tensor x, RecurrentWeights weights, RecurrentOptions options,
                    SourceLocation where) {
  const int64_t units = UnitsOf("gru", 3, x, weights, options, where);
  if (units == 0) return NoResult({x, weights.input, weights.recurrent}, where);
  const Shape gates = {x.shape()[1], 3, units};
  return Unroll(
      ProjectSteps(x, weights.input, weights.input_bias, where),
      {StateOrZeros(options.initial_state, x, units, where), {}},
      [&](Tensor projected, RecurrentState before) -> RecurrentState {
        return {Apply("gru_cell",
                      {Reshape(projected, gates, where),
                       Reshape(FromState(before.h, weights, where), gates, where), before.h},
                      {}, where),
                {}};
      },
      options, where);
}

RecurrentResult Rnn(Tensor x, RecurrentWeights weights, RecurrentOptions options,
                    SourceLocation where) {
  const int64_t units = UnitsOf("rnn", 1, x, weights, options, where);
  if (units == 0) return NoResult({x, weights.input, weights.recurrent}, where);
  return Unroll(
      ProjectSteps(x, weights.input, weights.input_bias, where),
      {StateOrZeros(options.initial_state, x, units, where), {}},
      [&](Tensor projected, RecurrentState before) -> RecurrentState {
        return {Tanh(Add(projected, FromState(before.h, weights, where), where), where), {}};
      },
      options, where);
}

}  // namespace braid
