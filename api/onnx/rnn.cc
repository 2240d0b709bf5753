// Recurrent networks: RNN, GRU and LSTM, step by step. What ONNX's gates have in another order, or
// in another form than Braid's cells, is made of elementwise operators.
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/quantize.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "graph/functions/recurrent.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Activation = std::function<Tensor(Tensor)>;

// A list of numbers that the activations which take one use up in their order.
class ActivationNumbers {
 public:
  explicit ActivationNumbers(std::optional<std::vector<double>> values)
      : values_(std::move(values).value_or(std::vector<double>())) {}
  double Next(double otherwise) { return next_ < values_.size() ? values_[next_++] : otherwise; }

 private:
  std::vector<double> values_;
  size_t next_ = 0;
};

absl::StatusOr<Activation> MakeActivation(const std::string& name, ActivationNumbers& alphas,
                                          ActivationNumbers& betas) {
  if (name == "Tanh") return [](Tensor x) { return Tanh(x); };
  if (name == "Sigmoid") return [](Tensor x) { return Sigmoid(x); };
  if (name == "Relu") return [](Tensor x) { return Relu(x); };
  if (name == "Softsign") return [](Tensor x) { return Div(x, AddScalar(Abs(x), 1)); };
  if (name == "LeakyRelu") {
    const double alpha = alphas.Next(0.01);
    return [alpha](Tensor x) { return Add(Relu(x), Scale(Relu(Neg(x)), -alpha)); };
  }
  if (name == "Affine" || name == "ScaledTanh" || name == "HardSigmoid") {
    const bool is_sigmoid = name == "HardSigmoid";
    const double alpha = alphas.Next(is_sigmoid ? 0.2 : 1);
    const double beta = betas.Next(is_sigmoid ? 0.5 : name == "Affine" ? 0 : 1);
    if (name == "ScaledTanh") return [=](Tensor x) { return Scale(Tanh(Scale(x, beta)), alpha); };
    if (is_sigmoid) return [=](Tensor x) { return Clip(AddScalar(Scale(x, alpha), beta), 0, 1); };
    return [=](Tensor x) { return AddScalar(Scale(x, alpha), beta); };
  }
  return Lacking(absl::StrCat("activation ", name));
}

// Inputs and attributes that the three operators share. X is [time, batch, features].
struct Layer {
  const NodeView& n;
  int64_t gates = 1;
  Tensor x = {}, w = {}, r = {}, b = {};  // of all directions
  int64_t directions = 1, units = 0, batch = 0;
  bool batch_first = false, first_is_reverse = false;
  bool is_plain = true;                                   // ONNX's own activations, no clipping
  std::vector<std::vector<Activation>> activations = {};  // by direction
  double clip = 0;

  // Part `index` of `parts` of axis 1 of [directions, k, ..] or [directions, k], in one direction.
  Tensor Part(Tensor all, int64_t direction, int64_t index, int64_t parts) const {
    Ints begin(all.shape().rank(), 0), size = all.shape().dims();
    begin[0] = direction;
    size[0] = 1;
    size[1] /= parts;
    begin[1] = index * size[1];
    return Squeeze(Slice(all, begin, size), 0);
  }
  // Gates in another order: those of a weight or of a half of the biases.
  Tensor Gates(Tensor all, int64_t direction, const Ints& order, int64_t half = 0,
               int64_t halves = 1) const {
    if (!all.valid()) return {};
    Tensors parts;
    for (int64_t gate : order) {
      parts.push_back(Part(all, direction, half * gates + gate, halves * gates));
    }
    return parts.size() == 1 ? parts[0] : Concat(parts, 0);
  }
  RecurrentWeights Weights(int64_t direction, const Ints& order) const {
    return {Gates(w, direction, order), Gates(r, direction, order),
            Gates(b, direction, order, 0, 2), Gates(b, direction, order, 1, 2)};
  }
  // [batch, units], or nothing.
  Tensor Initial(int input, int64_t direction) const {
    if (!n.HasInput(input)) return {};
    const Tensor all = batch_first ? Transpose(n.in(input), {1, 0, 2}) : n.in(input);
    return Squeeze(Slice(all, {direction, 0, 0}, {1, -1, -1}), 0);
  }
  RecurrentOptions Options(int64_t direction) const {
    RecurrentOptions options = {.initial_state = Initial(5, direction),
                                .reverse = first_is_reverse || direction == 1};
    if (n.HasInput(4)) options.lengths = n.in(4);
    return options;
  }
  // Activation `index` in a direction, behind the clipping.
  Tensor Activate(int64_t direction, int index, Tensor y) const {
    return activations[direction][index](clip > 0 ? Clip(y, -clip, clip) : y);
  }
};

absl::StatusOr<Layer> ReadLayer(const NodeView& n, int64_t gates, std::vector<std::string> plain) {
  Layer layer = {.n = n, .gates = gates};
  const std::string direction = n.Text("direction", "forward");
  layer.batch_first = n.Int("layout", 0) == 1;
  layer.directions = direction == "bidirectional" ? 2 : 1;
  layer.first_is_reverse = direction == "reverse";
  layer.clip = n.Float("clip", 0);
  if (n.rank(0) != 3 || n.rank(1) != 3 || n.rank(2) != 3) {
    return Wrong("X, W and R of three axes are needed");
  }
  layer.units = n.shape(2)[2];
  layer.batch = n.shape(0)[layer.batch_first ? 0 : 1];
  const int64_t rows = gates * layer.units;
  const bool fits = n.Int("hidden_size", layer.units) == layer.units &&
                    n.shape(1)[0] == layer.directions && n.shape(1)[1] == rows &&
                    n.shape(2) == Shape{layer.directions, rows, layer.units} &&
                    (!n.HasInput(3) || n.shape(3) == Shape{layer.directions, 2 * rows});
  if (!fits) {
    return Wrong(absl::StrCat("W is ", n.shape(1).ToString(), ", R is ", n.shape(2).ToString(),
                              " with ", layer.directions, " directions of ", gates,
                              " gates; they do not belong together"));
  }
  std::vector<std::string> names;
  for (int64_t d = 0; d < layer.directions; ++d) {
    names.insert(names.end(), plain.begin(), plain.end());
  }
  const std::vector<std::string> wanted = n.Texts("activations").value_or(names);
  if (wanted.size() != names.size()) {
    return Wrong(
        absl::StrCat("it has ", wanted.size(), " activations, ", names.size(), " are needed"));
  }
  layer.is_plain = wanted == names && !(layer.clip > 0);
  ActivationNumbers alphas(n.Floats("activation_alpha")), betas(n.Floats("activation_beta"));
  layer.activations.resize(layer.directions);
  for (size_t i = 0; i < wanted.size(); ++i) {
    BRAID_ASSIGN_OR_RETURN(Activation activation, MakeActivation(wanted[i], alphas, betas));
    layer.activations[i / plain.size()].push_back(std::move(activation));
  }
  layer.x = layer.batch_first ? Transpose(n.in(0), {1, 0, 2}) : n.in(0);
  layer.w = n.in(1);
  layer.r = n.in(2);
  layer.b = n.in(3);
  return layer;
}

// Y, the last states and, of an LSTM, the last cells.
Tensors Join(const Layer& layer, const std::vector<RecurrentResult>& results) {
  Tensors outputs, states, cells;
  for (const RecurrentResult& result : results) {
    if (!result.outputs.valid()) return {result.outputs, result.outputs, result.outputs};
    outputs.push_back(ExpandDims(result.outputs, 1));
    states.push_back(ExpandDims(result.state, 0));
    if (result.cell.valid()) cells.push_back(ExpandDims(result.cell, 0));
  }
  const auto join = [&](const Tensors& parts, int64_t axis, const Ints& batch_first) {
    const Tensor all = Concat(parts, axis);
    return layer.batch_first ? Transpose(all, batch_first) : all;
  };
  Tensors joined = {join(outputs, 1, {2, 0, 1, 3}), join(states, 0, {1, 0, 2})};
  if (!cells.empty()) joined.push_back(join(cells, 0, {1, 0, 2}));
  return joined;
}

// h times a transposed weight, plus the bias if there is one.
Tensor Times(Tensor h, Tensor weight, Tensor bias) {
  const Tensor product = MatMul(h, weight, {.transpose_b = true});
  return bias.valid() ? Add(product, bias) : product;
}

// States before the first step, for steps made of elementwise operators.
Tensor OrZeros(const Layer& layer, Tensor state) {
  if (state.valid()) return state;
  return Constant(layer.n.graph(), 0,
                  {.dtype = layer.x.dtype(), .shape = {layer.batch, layer.units}});
}

absl::StatusOr<Tensors> TranslateRnn(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Layer layer, ReadLayer(n, 1, {"Tanh"}));
  std::vector<RecurrentResult> results;
  for (int64_t d = 0; d < layer.directions; ++d) {
    const RecurrentWeights weights = layer.Weights(d, {0});
    const RecurrentOptions options = layer.Options(d);
    if (layer.is_plain) {
      results.push_back(Rnn(layer.x, weights, options));
      continue;
    }
    const auto step = [&](Tensor projected, RecurrentState before) -> RecurrentState {
      const Tensor sum = Add(projected, Times(before.h, weights.recurrent, weights.recurrent_bias));
      return {layer.Activate(d, 0, sum), {}};
    };
    results.push_back(Unroll(ProjectSteps(layer.x, weights.input, weights.input_bias),
                             {OrZeros(layer, options.initial_state), {}}, step, options));
  }
  return Join(layer, results);
}

absl::StatusOr<Tensors> TranslateGru(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Layer layer, ReadLayer(n, 3, {"Sigmoid", "Tanh"}));
  const bool linear_before_reset = n.Flag("linear_before_reset");
  std::vector<RecurrentResult> results;
  for (int64_t d = 0; d < layer.directions; ++d) {
    const RecurrentOptions options = layer.Options(d);
    if (layer.is_plain && linear_before_reset) {
      results.push_back(Gru(layer.x, layer.Weights(d, {1, 0, 2}), options));  // z, r, h to r, z, h
      continue;
    }
    const RecurrentWeights all = layer.Weights(d, {0, 1, 2});
    const RecurrentWeights update_and_reset = layer.Weights(d, {0, 1});
    const RecurrentWeights fresh_only = layer.Weights(d, {2});
    const int64_t units = layer.units;
    const auto step = [&](Tensor projected, RecurrentState before) -> RecurrentState {
      const Tensors x = Split(projected, {2 * units, units}, -1);
      const Tensor sum =
          Add(x[0], Times(before.h, update_and_reset.recurrent, update_and_reset.recurrent_bias));
      const Tensors gates = Split(layer.Activate(d, 0, sum), {units, units}, -1);
      const Tensor keep = gates[0], reset = gates[1];
      const Tensor from_state =
          linear_before_reset
              ? Mul(reset, Times(before.h, fresh_only.recurrent, fresh_only.recurrent_bias))
              : Times(Mul(reset, before.h), fresh_only.recurrent, fresh_only.recurrent_bias);
      const Tensor fresh = layer.Activate(d, 1, Add(x[1], from_state));
      return {Add(fresh, Mul(keep, Sub(before.h, fresh))), {}};
    };
    results.push_back(Unroll(ProjectSteps(layer.x, all.input, all.input_bias),
                             {OrZeros(layer, options.initial_state), {}}, step, options));
  }
  return Join(layer, results);
}

// What products take in place of a tensor of the layer.
using Rounding = Tensor (*)(Tensor);

absl::StatusOr<Tensors> MakeLstm(const NodeView& n, Rounding round) {
  BRAID_ASSIGN_OR_RETURN(Layer layer, ReadLayer(n, 4, {"Sigmoid", "Tanh", "Tanh"}));
  if (round != nullptr) layer.x = round(layer.x);
  const bool has_peepholes = n.HasInput(7), input_forget = n.Flag("input_forget");
  std::vector<RecurrentResult> results;
  for (int64_t d = 0; d < layer.directions; ++d) {
    RecurrentOptions options = layer.Options(d);
    options.initial_cell = layer.Initial(6, d);
    if (layer.is_plain && !has_peepholes && !input_forget && round == nullptr) {
      // i, o, f, c to i, f, c, o.
      results.push_back(Lstm(layer.x, layer.Weights(d, {0, 2, 3, 1}), options));
      continue;
    }
    const RecurrentWeights weights = layer.Weights(d, {0, 1, 2, 3});
    const auto peep = [&](Tensor sum, int64_t index, Tensor cell) {
      return has_peepholes ? Add(sum, Mul(cell, layer.Part(n.in(7), d, index, 3))) : sum;
    };
    const auto step = [&](Tensor projected, RecurrentState before) -> RecurrentState {
      const Tensor h = round != nullptr ? round(before.h) : before.h;
      const Tensor sum = Add(projected, Times(h, weights.recurrent, weights.recurrent_bias));
      const Tensors gates = Split(sum, Ints(4, layer.units), -1);
      const Tensor input = layer.Activate(d, 0, peep(gates[0], 0, before.c));
      const Tensor forget = input_forget ? AddScalar(Neg(input), 1)
                                         : layer.Activate(d, 0, peep(gates[2], 2, before.c));
      const Tensor fresh = layer.Activate(d, 1, gates[3]);
      const Tensor cell = Add(Mul(forget, before.c), Mul(input, fresh));
      const Tensor output = layer.Activate(d, 0, peep(gates[1], 1, cell));
      // The last activation is not clipped.
      return {Mul(output, layer.activations[d][2](cell)), cell};
    };
    results.push_back(
        Unroll(ProjectSteps(layer.x, weights.input, weights.input_bias),
               {OrZeros(layer, options.initial_state), OrZeros(layer, options.initial_cell)}, step,
               options));
  }
  return Join(layer, results);
}

absl::StatusOr<Tensors> TranslateLstm(const NodeView& n) { return MakeLstm(n, nullptr); }

// Weights of ONNX Runtime's quantized LSTM, [directions, k, rows], as an LSTM has them: real, and
// transposed. A scale and a zero point are of a direction, or of each of its rows.
absl::StatusOr<Tensor> RealWeights(const NodeView& n, int numbers, int scale, int zero_point) {
  const Shape shape = n.shape(numbers);
  if (shape.rank() != 3) return Wrong("W and R of three axes are needed");
  Tensor beside[2];
  for (const int i : {0, 1}) {
    const int input = i == 0 ? scale : zero_point;
    const Shape of = n.shape(input);
    const bool is_of_rows = of == Shape{shape[0], shape[2]};
    if (!is_of_rows && of != Shape{shape[0]}) {
      return Wrong(absl::StrCat("input ", input, " is ", n.type(input).ToString(), "; ", shape[0],
                                " elements, or ", shape[0], " x ", shape[2], ", are needed"));
    }
    beside[i] = Reshape(n.in(input), {shape[0], 1, is_of_rows ? shape[2] : 1});
  }
  return Transpose(Dequantized(n.in(numbers), {.scale = beside[0], .zero_point = beside[1]}),
                   {0, 2, 1});
}

// Its products take inputs and states that are rounded to u8, each by its own range.
absl::StatusOr<Tensors> TranslateQuantizedLstm(const NodeView& n) {
  for (const int i : {8, 9, 10, 11}) {
    if (!n.HasInput(i)) return Wrong(absl::StrCat("input ", i, " is missing"));
  }
  BRAID_ASSIGN_OR_RETURN(const Tensor w, RealWeights(n, 1, 8, 9));
  BRAID_ASSIGN_OR_RETURN(const Tensor r, RealWeights(n, 2, 10, 11));
  std::vector<Value> values = {n.value(0)};
  for (const Tensor& weights : {w, r}) {
    BRAID_ASSIGN_OR_RETURN(values.emplace_back(), n.Made(weights));
  }
  for (int i = 3; i < 8; ++i) values.push_back(n.value(i));
  return MakeLstm(n.With(std::move(values)), [](Tensor x) {
    const QuantizedReals made = QuantizedByRange(x);
    return Dequantized(made.numbers, made.of);
  });
}

}  // namespace

void AddRnn(Translators& all) {
  all.Add("RNN", {3, 6}, TranslateRnn);
  all.Add("GRU", {3, 6}, TranslateGru);
  all.Add("LSTM", {3, 8}, TranslateLstm);
  all.Add("com.microsoft.DynamicQuantizeLSTM", {3, 12}, TranslateQuantizedLstm);
}

}  // namespace braid::onnx
