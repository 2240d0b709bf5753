// Recurrent layers as functions: one direction over time, unrolled step by step. Shapes are those
// of PyTorch's modules: x [time, batch, features], weights [gates * units, ..], the gates one after
// the other.
#pragma once

#include <functional>

#include "graph/functional.h"
#include "graph/logical_graph.h"

namespace braid {

struct RecurrentWeights {
  Tensor input;                // [gates * units, features]
  Tensor recurrent;            // [gates * units, units]
  Tensor input_bias = {};      // [gates * units], or none
  Tensor recurrent_bias = {};  // likewise
};

struct RecurrentOptions {
  Tensor initial_state = {};  // [batch, units]; zeros if there is none
  Tensor initial_cell = {};   // of lstm, likewise
  // i32 or i64 [batch]: from a sequence's length on its states stay and its outputs are 0.
  Tensor lengths = {};
  bool reverse = false;  // from the last step, or a sequence's last, to the first
};

struct RecurrentResult {
  Tensor outputs;  // [time, batch, units]: the state after each step
  Tensor state;    // [batch, units]: after the last one
  Tensor cell;     // of lstm
};

// Gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'). Hochreiter
// and Schmidhuber, Neural Computation 9(8), 1997; forget gate: Gers et al., 2000.
RecurrentResult Lstm(Tensor x, RecurrentWeights weights, RecurrentOptions options = {},
                     SourceLocation where = Here());
// Gates r, z, n: n' = tanh(n_x + sigmoid(r) n_h), h' = (1 - sigmoid(z)) n' + sigmoid(z) h, where
// n_h, with its bias, comes from h. Cho et al., arXiv 1406.1078, in the form of cuDNN and PyTorch.
RecurrentResult Gru(Tensor x, RecurrentWeights weights, RecurrentOptions options = {},
                    SourceLocation where = Here());
// h' = tanh(W x + R h + biases). Elman, Cognitive Science 14, 1990.
RecurrentResult Rnn(Tensor x, RecurrentWeights weights, RecurrentOptions options = {},
                    SourceLocation where = Here());

// What they are made of, for cells of other kinds.
struct RecurrentState {
  Tensor h, c;  // c may be invalid
};
// x [time, batch, features] times the transposed weight [k, features], plus bias if there is one,
// for all steps at once: [time, batch, k].
Tensor ProjectSteps(Tensor x, Tensor weight, Tensor bias, SourceLocation where = Here());
// Runs step(slice [batch, k] of `projected`, state before) over time from `initial`.
using RecurrentStep = std::function<RecurrentState(Tensor projected, RecurrentState before)>;
RecurrentResult Unroll(Tensor projected, RecurrentState initial, const RecurrentStep& step,
                       const RecurrentOptions& options, SourceLocation where = Here());

}  // namespace braid
