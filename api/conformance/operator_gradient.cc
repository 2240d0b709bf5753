#include "api/conformance/operator_gradient.h"

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/conformance/graph_interpreter.h"
#include "compiler/logical/autograd.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::conformance {
namespace {

// Of central differences in f64; and in f32, whose rounding a larger step outweighs.
struct Differences {
  double step = 1e-5;
  double tolerance = 2e-7;
};
constexpr Differences kOfF32 = {.step = 1e-2, .tolerance = 3e-2};

std::string InputName(size_t index) { return absl::StrCat("in", index); }

Array Weights(DType dtype, const Shape& shape, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> distribution(-1, 1);
  std::vector<double> weights(shape.num_elements());
  for (double& weight : weights) weight = distribution(generator);
  return FromNumbers(dtype, shape, weights);
}

Array Moved(const Array& array, size_t element, double delta) {
  std::vector<double> numbers = Numbers(array);
  numbers[element] += delta;
  return FromNumbers(array.dtype(), array.shape(), numbers);
}

// The loss: the weighted sum of all that the op puts out and of all that is differentiated, so that
// every gradient flows and one that is zero shows, too.
struct Loss {
  LogicalGraph graph;
  std::vector<std::pair<std::string, Array>> values;  // of inputs and variables
  std::vector<std::pair<std::string, TensorId>> differentiated;
  TensorId loss = kNone;

  explicit Loss(const OpRegistry* ops) : graph(ops) {}

  void AddTerm(Tensor x) {
    const std::string name = absl::StrCat("weights", values.size());
    values.emplace_back(name, Weights(x.dtype(), x.shape(), 1000 + values.size()));
    const Tensor term = Sum(Mul(x, Input(graph, name, x.type())));
    loss = (loss == kNone ? term : Add(Tensor(&graph, loss), term)).id();
  }
};

Loss BuildLoss(const OpRegistry& ops, const OpCase& c, const BuildFunction& build) {
  Loss loss(&ops);
  const std::vector<Array> drawn = DrawInputs(c);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const std::string name = InputName(i);
    loss.values.emplace_back(name, drawn[i]);
    if (IsFloating(c.inputs[i].dtype)) {
      inputs.push_back(Variable(
          loss.graph, {.name = name, .dtype = c.inputs[i].dtype, .shape = c.inputs[i].shape}));
      loss.differentiated.emplace_back(name, inputs.back().id());
    } else {
      inputs.push_back(Input(loss.graph, name, c.inputs[i]));
    }
  }
  if (loss.differentiated.empty()) return loss;
  for (const Tensor& output : build(inputs)) {
    if (IsFloating(output.dtype())) loss.AddTerm(output);
  }
  for (const auto& [name, tensor] : loss.differentiated) loss.AddTerm(Tensor(&loss.graph, tensor));
  return loss;
}

absl::StatusOr<int> Check(const OpRegistry& ops, const KernelRegistry& kernels, const OpCase& c,
                          const BuildFunction& build) {
  Loss loss = BuildLoss(ops, c, build);
  BRAID_RETURN_IF_ERROR(loss.graph.status());
  if (loss.differentiated.empty()) return 0;
  BRAID_ASSIGN_OR_RETURN(GraphInterpreter forward, GraphInterpreter::Make(loss.graph, kernels));

  loss.graph.minimize().push_back({.loss = loss.loss});
  BRAID_ASSIGN_OR_RETURN(const LogicalGraph with_gradients, compiler::Autograd(loss.graph));
  BRAID_ASSIGN_OR_RETURN(GraphInterpreter backward,
                         GraphInterpreter::Make(with_gradients, kernels));
  for (const auto& [name, value] : loss.values) {
    forward.Set(name, value);
    backward.Set(name, value);
  }
  BRAID_RETURN_IF_ERROR(backward.Run());

  const bool is_wide = with_gradients.type(loss.loss).dtype == DType::kF64;
  const Differences differences = is_wide ? Differences() : kOfF32;
  int derivatives = 0;
  for (const auto& [name, tensor] : loss.differentiated) {
    const auto found = with_gradients.gradients().find(tensor);
    if (found == with_gradients.gradients().end()) {
      return absl::InternalError(absl::StrCat(name, " has no gradient"));
    }
    const std::vector<double> gradient = Numbers(backward.value(found->second));
    const Array original = forward.variables().find(name)->second;
    const auto loss_at = [&, &name = name](size_t element, double delta) -> absl::StatusOr<double> {
      forward.Set(name, Moved(original, element, delta));
      BRAID_RETURN_IF_ERROR(forward.Run());
      return Numbers(forward.value(loss.loss))[0];
    };
    for (size_t i = 0; i < gradient.size(); ++i, ++derivatives) {
      BRAID_ASSIGN_OR_RETURN(const double above, loss_at(i, differences.step));
      BRAID_ASSIGN_OR_RETURN(const double below, loss_at(i, -differences.step));
      const double expected = (above - below) / (2 * differences.step);
      const double allowed = differences.tolerance * (1 + std::abs(expected));
      if (!(std::abs(gradient[i] - expected) <= allowed)) {
        return absl::InternalError(absl::StrCat("d loss / d ", name, "[", i, "] is ", gradient[i],
                                                ", differences give ", expected));
      }
    }
    forward.Set(name, original);
  }
  return derivatives;
}

}  // namespace

GradientCheck CheckGradient(const OpRegistry& ops, const KernelRegistry& kernels, const OpCase& c) {
  return CheckGradient(ops, kernels, c, [&c](const std::vector<Tensor>& inputs) {
    return ApplyAll(c.def->name(), inputs, c.attrs);
  });
}

GradientCheck CheckGradient(const OpRegistry& ops, const KernelRegistry& kernels, const OpCase& c,
                            const BuildFunction& build) {
  const absl::StatusOr<int> derivatives = Check(ops, kernels, c, build);
  if (derivatives.ok()) return {.derivatives = *derivatives};
  return {.error = absl::StrCat(c.label, ": ", derivatives.status().ToString())};
}

}  // namespace braid::conformance
