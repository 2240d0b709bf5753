// Activations and norms that exporters write as several operators: each way of writing one that the
// table knows becomes that operator, with the numbers of what was written, and no other way does.
#include <braid/braid.h>

#include <functional>
#include <string>
#include <vector>

#include "api/conformance/graph_interpreter.h"
#include "api/onnx/idioms.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"
#include "gtest/gtest.h"
#include "runtime/kernels/kernel.h"
#include "tests/api/onnx_writer.h"

namespace braid::onnx {
namespace {

// Writes graphs, with the idioms that it finds or as they are written.
class Writer {
 public:
  explicit Writer(bool finds) : finds_(finds) {}

  LogicalGraph& graph() { return graph_; }
  Tensor Given(const std::string& name, Shape shape) {
    return Input(graph_, name, {DType::kF32, std::move(shape)});
  }
  Tensor Number(double value) { return Constant(graph_, value, {}); }
  Tensor Product(Tensor a, Tensor b) { return finds_ ? idioms_.Product(a, b, Here()) : Mul(a, b); }
  Tensor Sum(Tensor a, Tensor b) { return finds_ ? idioms_.Sum(a, b, Here()) : Add(a, b); }

  std::vector<float> ValuesOf(Tensor y) {
    const KernelRegistry kernels = CpuKernels();
    auto interpreter = GraphInterpreter::Make(graph_, kernels);
    if (!interpreter.ok()) ADD_FAILURE() << interpreter.status();
    int seed = 0;
    for (const Op& op : graph_.ops()) {
      if (!HasRole(graph_, op, OpRole::kInput)) continue;
      interpreter->Set(op.name, Numbers(graph_.type(op.outputs[0]).shape, ++seed));
    }
    const absl::Status status = interpreter->Run();
    if (!status.ok()) ADD_FAILURE() << status;
    const Array values = interpreter->value(y);
    return {values.data<float>().begin(), values.data<float>().end()};
  }

 private:
  const bool finds_;
  const Idioms idioms_;
  const OpRegistry ops_ = BuiltinOps();
  LogicalGraph graph_{&ops_};
};

using Form = std::function<Tensor(Writer& w)>;

Tensor X(Writer& w) { return w.Given("x", {2, 3, 5}); }
Tensor Gamma(Writer& w) { return w.Given("gamma", {5}); }
Tensor Beta(Writer& w) { return w.Given("beta", {5}); }
Tensor LastMean(Tensor x) { return ReduceMean(x, {.axes = {-1}, .keep_dims = true}); }

void ExpectBecomes(const std::string& op, const Form& form) {
  Writer found(/*finds=*/true), plain(/*finds=*/false);
  const Tensor y = form(found), wanted = form(plain);
  ASSERT_TRUE(y.valid()) << found.graph().status();
  ASSERT_TRUE(wanted.valid()) << plain.graph().status();
  EXPECT_EQ(found.graph().producer(y.id()).type, op);
  EXPECT_EQ(y.type(), wanted.type());
  const std::vector<float> values = found.ValuesOf(y), expected = plain.ValuesOf(wanted);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
}

TEST(Idioms, Silu) {
  ExpectBecomes("silu", [](Writer& w) {
    const Tensor x = X(w);
    return w.Product(x, Sigmoid(x));
  });
  ExpectBecomes("silu", [](Writer& w) {
    const Tensor x = X(w);
    return w.Product(Sigmoid(x), x);
  });
}

TEST(Idioms, GeluByTheErrorFunction) {
  const auto term = [](Writer& w, Tensor x) {
    return w.Sum(w.Number(1), Erf(Div(x, w.Number(1.4142135381698608))));
  };
  ExpectBecomes("gelu", [=](Writer& w) {
    const Tensor x = X(w);
    return w.Product(w.Product(x, term(w, x)), w.Number(0.5));
  });
  ExpectBecomes("gelu", [=](Writer& w) {
    const Tensor x = X(w);
    return w.Product(w.Product(w.Number(0.5), x), term(w, x));
  });
  ExpectBecomes("gelu", [](Writer& w) {
    const Tensor x = X(w);
    const Tensor scaled = w.Product(x, w.Number(0.7071067690849304));
    return w.Product(x, w.Product(w.Sum(Erf(scaled), w.Number(1)), w.Number(0.5)));
  });
}

TEST(Idioms, GeluByTheHyperbolicTangent) {
  const auto gelu = [](Writer& w, Tensor x, Tensor cube) {
    const Tensor inner = w.Sum(x, w.Product(w.Number(0.044714998453855515), cube));
    const Tensor term = Tanh(w.Product(w.Number(0.7978845834732056), inner));
    return w.Product(w.Product(x, w.Number(0.5)), w.Sum(term, w.Number(1)));
  };
  ExpectBecomes("gelu", [=](Writer& w) {
    const Tensor x = X(w);
    return gelu(w, x, Pow(x, w.Number(3)));
  });
  ExpectBecomes("gelu", [=](Writer& w) {
    const Tensor x = X(w);
    return gelu(w, x, w.Product(x, w.Product(x, x)));
  });
}

TEST(Idioms, RmsNorm) {
  const auto root = [](Writer& w, Tensor square) {
    return Sqrt(w.Sum(LastMean(square), w.Number(1e-3)));
  };
  ExpectBecomes("rms_norm", [=](Writer& w) {
    const Tensor x = X(w), gamma = Gamma(w);
    const Tensor factor = Div(w.Number(1), root(w, Pow(x, w.Number(2))));
    return w.Product(gamma, w.Product(x, factor));
  });
  ExpectBecomes("rms_norm", [=](Writer& w) {
    const Tensor x = X(w), gamma = Gamma(w);
    return w.Product(w.Product(x, Reciprocal(root(w, w.Product(x, x)))), gamma);
  });
  ExpectBecomes("rms_norm", [=](Writer& w) {
    const Tensor x = X(w), gamma = Gamma(w);
    return w.Product(Div(x, root(w, w.Product(x, x))), gamma);
  });
}

TEST(Idioms, LayerNorm) {
  const auto norm = [](Writer& w, bool twice, bool by_power) {
    const Tensor x = X(w), gamma = Gamma(w), beta = Beta(w);
    const Tensor centered = Sub(x, LastMean(x)), again = twice ? Sub(x, LastMean(x)) : centered;
    const Tensor square = by_power ? Pow(again, w.Number(2)) : w.Product(again, again);
    const Tensor scaled = Div(centered, Sqrt(w.Sum(LastMean(square), w.Number(1e-3))));
    return w.Sum(w.Product(scaled, gamma), beta);
  };
  for (const bool twice : {false, true}) {
    for (const bool by_power : {false, true}) {
      ExpectBecomes("layer_norm", [=](Writer& w) { return norm(w, twice, by_power); });
    }
  }
}

// Almost the same, but for one thing each.
TEST(Idioms, OthersStayAsTheyAreWritten) {
  ExpectBecomes("mul", [](Writer& w) { return w.Product(X(w), Sigmoid(w.Given("z", {2, 3, 5}))); });
  ExpectBecomes("mul", [](Writer& w) {
    const Tensor x = X(w);
    return w.Product(x, Sigmoid(w.Product(x, w.Number(1.702))));
  });
  ExpectBecomes("mul", [](Writer& w) {
    const Tensor x = X(w);
    const Tensor term = w.Sum(Erf(Div(x, w.Number(1.41))), w.Number(1));
    return w.Product(w.Product(x, term), w.Number(0.5));
  });
  // The half makes the product larger than x.
  ExpectBecomes("mul", [](Writer& w) {
    const Tensor x = X(w), half = Constant(w.graph(), 0.5, {.shape = {1, 1, 1, 1}});
    const Tensor term = w.Sum(Erf(Div(x, w.Number(1.4142135381698608))), w.Number(1));
    return w.Product(w.Product(x, term), half);
  });
  // Of another axis; and with a factor for each row.
  ExpectBecomes("mul", [](Writer& w) {
    const Tensor x = w.Given("x", {2, 5, 5}), gamma = Gamma(w);
    const Tensor mean = ReduceMean(w.Product(x, x), {.axes = {1}, .keep_dims = true});
    return w.Product(gamma, Div(x, Sqrt(w.Sum(mean, w.Number(1e-3)))));
  });
  ExpectBecomes("mul", [](Writer& w) {
    const Tensor x = X(w), gamma = w.Given("gamma", {3, 1});
    return w.Product(gamma, Div(x, Sqrt(w.Sum(LastMean(w.Product(x, x)), w.Number(1e-3)))));
  });
  ExpectBecomes("add", [](Writer& w) {
    const Tensor x = X(w), gamma = Gamma(w), beta = w.Given("beta", {2, 3, 5});
    const Tensor centered = Sub(x, LastMean(x));
    const Tensor root = Sqrt(w.Sum(LastMean(w.Product(centered, centered)), w.Number(1e-3)));
    return w.Sum(w.Product(Div(centered, root), gamma), beta);
  });
}

}  // namespace
}  // namespace braid::onnx
