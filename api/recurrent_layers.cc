#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/layer_scope.h"
#include "api/layers.h"
#include "graph/functions/recurrent.h"

namespace braid {
namespace {

using Cell = RecurrentResult (*)(Tensor, RecurrentWeights, RecurrentOptions, SourceLocation);

// State `index` of [layers and directions, batch, units]; none if there are none.
Tensor StateOf(Tensor states, int64_t index, SourceLocation where) {
  if (states.is_none()) return states;
  return Squeeze(SliceAxis(states, 0, {.begin = index, .end = index + 1}, where), 0, where);
}

// One layer in one direction, the `index`-th; `suffix` is of its variables' names.
RecurrentResult Direction(Cell cell, int64_t gates, Tensor x, int64_t units, int64_t index,
                          const std::string& suffix, const RecurrentLayerOptions& options,
                          bool reverse, SourceLocation where) {
  const auto variable = [&](const char* name, Shape shape) {
    VariableOptions variable;
    variable.name = name + suffix;
    variable.dtype = x.dtype();
    variable.shape = std::move(shape);
    variable.init = "uniform";
    variable.high = 1 / std::sqrt(static_cast<double>(units));
    variable.low = -variable.high;
    return GetVariable(*x.graph(), std::move(variable), where);
  };
  RecurrentWeights weights = {variable("weight_ih", {gates * units, x.shape()[2]}),
                              variable("weight_hh", {gates * units, units})};
  if (options.bias) {
    weights.input_bias = variable("bias_ih", {gates * units});
    weights.recurrent_bias = variable("bias_hh", {gates * units});
  }
  return cell(x, weights,
              {.initial_state = StateOf(options.initial_state, index, where),
               .initial_cell = StateOf(options.initial_cell, index, where),
               .lengths = options.lengths,
               .reverse = reverse},
              where);
}

RecurrentLayerResult Layers(Cell cell, int64_t gates, Tensor x, int64_t units,
                            RecurrentLayerOptions options, SourceLocation where) {
  if (!x.valid()) return {x, x, x};
  if (!NameLayer(*x.graph(), "recurrent", options.name, options.share, where)) {
    const Tensor invalid(x.graph(), kNone);
    return {invalid, invalid, invalid};
  }
  LogicalGraph& graph = *x.graph();
  if (x.shape().rank() != 3 || units < 1 || options.layers < 1) {
    const Tensor invalid = graph.Fail(absl::InvalidArgumentError(absl::StrFormat(
        "recurrent layer '%s': x is %s with %d units in %d layers; [time, batch, features], a unit "
        "and a layer or more were expected (%s)",
        options.name, x.shape().ToString(), units, options.layers, where.ToString())));
    return {invalid, invalid, invalid};
  }
  const int64_t batch = x.shape()[1];
  const Shape states_shape = {options.layers * (options.bidirectional ? 2 : 1), batch, units};
  for (const Tensor& given : {options.initial_state, options.initial_cell}) {
    if (given.is_none() || (given.valid() && given.shape() == states_shape)) continue;
    const Tensor invalid = graph.Fail(absl::InvalidArgumentError(absl::StrFormat(
        "recurrent layer '%s': an initial state is %s; [layers, twice that if bidirectional, "
        "batch, units], %s, was expected (%s)",
        options.name, given.type().ToString(), states_shape.ToString(), where.ToString())));
    return {invalid, invalid, invalid};
  }
  const NameScope scope(graph, options.name);
  std::vector<Tensor> states, cells;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (const bool reverse : {false, true}) {
      if (reverse && !options.bidirectional) continue;
      const std::string suffix = absl::StrFormat("_l%d%s", layer, reverse ? "_reverse" : "");
      const RecurrentResult result =
          Direction(cell, gates, x, units, static_cast<int64_t>(states.size()), suffix, options,
                    reverse, where);
      if (!result.outputs.valid()) return {result.outputs, result.outputs, result.outputs};
      outputs.push_back(result.outputs);
      states.push_back(Reshape(result.state, {1, batch, units}, where));
      if (result.cell.valid()) cells.push_back(Reshape(result.cell, {1, batch, units}, where));
    }
    x = options.bidirectional ? Concat(outputs, 2, where) : outputs[0];
    if (options.dropout > 0 && layer + 1 < options.layers) x = Dropout(x, options.dropout, where);
  }
  return {x, Concat(states, 0, where), cells.empty() ? Tensor() : Concat(cells, 0, where)};
}

}  // namespace

RecurrentLayerResult LstmLayer(Tensor x, int64_t units, RecurrentLayerOptions options,
                               SourceLocation where) {
  return Layers(Lstm, 4, x, units, options, where);
}
RecurrentLayerResult GruLayer(Tensor x, int64_t units, RecurrentLayerOptions options,
                              SourceLocation where) {
  return Layers(Gru, 3, x, units, options, where);
}
RecurrentLayerResult RnnLayer(Tensor x, int64_t units, RecurrentLayerOptions options,
                              SourceLocation where) {
  return Layers(Rnn, 1, x, units, options, where);
}

}  // namespace braid
