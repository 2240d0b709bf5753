// Activations: nonlinear functions of one operand, each with a gradient op of its own that takes x
// (or y, where y says enough) and dy, so that nothing between is kept.
#include <cmath>
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/pointwise.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// The gradient op is "<name>_grad" with the same attributes.
enum class Keeps { kInput, kOutput };

struct Activation {
  const char* name;
  Keeps keeps = Keeps::kInput;
  std::vector<Attrs> samples = {{}};
  double low = -1, high = 1;  // of the samples
  Accepts accepts = Accepts::kFloating;
};

void Append(std::vector<OpDef>& ops, const Activation& activation) {
  const std::string gradient = std::string(activation.name) + "_grad";
  const PointwiseOptions options = {.accepts = activation.accepts,
                                    .attrs = activation.samples[0],
                                    .low = activation.low,
                                    .high = activation.high};
  OpDef def = Unary(activation.name, options);
  OpDef gradient_def = ActivationGradient(gradient, options);
  for (size_t i = 1; i < activation.samples.size(); ++i) {
    for (OpDef* each : {&def, &gradient_def}) {
      OpSample sample = each->samples()[0];
      sample.attrs = activation.samples[i];
      each->Sample(std::move(sample));
    }
  }
  def.Gradient([gradient, keeps = activation.keeps](const Context& c) {
    const Tensor kept = keeps == Keeps::kOutput ? c.outputs[0] : c.inputs[0];
    return Gradients{Apply(gradient, {kept, Dy(c)}, c.op.attrs)};
  });
  ops.push_back(std::move(def));
  ops.push_back(std::move(gradient_def));
}

}  // namespace

std::vector<OpDef> ActivationOps() {
  std::vector<OpDef> ops;
  for (const Activation& activation : std::vector<Activation>{
           {"tanh", Keeps::kOutput},
           {"sigmoid", Keeps::kOutput},
           {"relu", Keeps::kOutput},
           {.name = "gelu",
           .samples = {{{"approximate", false}}, {{"approximate", true}}},
           .low = -2,
           .high = 2},
           {.name = "silu", .low = -3, .high = 3},
           {.name = "mish", .low = -3, .high = 3},
           // gamma * x above 0, else gamma * alpha * (exp(rate * x) - 1): elu, celu and selu.
           {.name = "elu",
           .samples = {{{"alpha", 1.5}, {"gamma", 1.0}, {"rate", 1.0}},
                       {{"alpha", 2.0}, {"gamma", 1.25}, {"rate", 0.5}}},
           .low = -3,
           .high = 3},
           {.name = "leaky_relu", .samples = {{{"alpha", 0.1}}}},
           {.name = "hard_sigmoid",
           .samples = {{{"alpha", 0.2}, {"beta", 0.5}}},
           .low = -4,
           .high = 4},
           {.name = "hard_swish", .low = -4, .high = 4},
           {.name = "clip",
           .samples = {{{"low", -0.5}, {"high", 0.25}}, {{"low", -INFINITY}, {"high", 0.5}}},
           .accepts = Accepts::kAll},
           {.name = "softplus",
           .samples = {{{"beta", 1.0}}, {{"beta", 2.0}}},
           .low = -3,
           .high = 3},
           {.name = "log_sigmoid", .low = -3, .high = 3},
           {.name = "softsign", .low = -3, .high = 3},
           {.name = "thresholded_relu", .samples = {{{"alpha", 0.25}}}},
           {.name = "shrink",
           .samples = {{{"lambda", 0.5}, {"bias", 0.5}}, {{"lambda", 0.25}, {"bias", 0.0}}}},
           {.name = "huber", .samples = {{{"delta", 0.5}}}},
       }) {
    Append(ops, activation);
  }
  return ops;
}

}  // namespace braid
