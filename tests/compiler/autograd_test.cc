#include "compiler/logical/autograd.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/logical/prune.h"
#include "graph/functional.h"
#include "graph/op_registry.h"

namespace braid::compiler {
namespace {

class AutogradTest : public testing::Test {
 protected:
  // What the passes make of the text: Autograd and, to drop gradients that nobody wants, Prune.
  std::string Run(const std::string& text) {
    const auto graph = LogicalGraph::Parse(text, &registry_);
    EXPECT_TRUE(graph.ok()) << graph.status();
    if (!graph.ok()) return "";
    const auto result = Autograd(*graph);
    if (!result.ok()) return std::string(result.status().message());
    return absl::StrCat("\n", result->ToString());
  }

  OpRegistry registry_ = BuiltinOps();
};

TEST_F(AutogradTest, LinearLayer) {
  EXPECT_EQ(Run(R"(
%0:f32[4, 6] = input "x" () {dtype=f32 shape=[4, 6]}
%1:f32[6, 3] = variable "w" () {dtype=f32 shape=[6, 3]} on=cpu[2]{0.0 0.1} at mlp.cc:3
%2:f32[4, 3] = matmul "fc.matmul" (%0, %1) {transpose_a=false transpose_b=false} on=cpu[2]{0.0 0.1} at mlp.cc:5
%3:f32[] = reduce_sum "loss" (%2) {axes=[0, 1] keep_dims=false} at mlp.cc:6
@minimize loss=%3 optimizer="sgd_update" at mlp.cc:9
)"),
            R"(
%0:f32[4, 6] = input "x" () {dtype=f32 shape=[4, 6]}
%1:f32[6, 3] = variable "w" () {dtype=f32 shape=[6, 3]} on=cpu[2]{0.0 0.1} at mlp.cc:3
%2:f32[4, 3] = matmul "fc.matmul" (%0, %1) {transpose_a=false transpose_b=false} on=cpu[2]{0.0 0.1} at mlp.cc:5
%3:f32[] = reduce_sum "loss" (%2) {axes=[0, 1] keep_dims=false} at mlp.cc:6
%4:f32[] = constant "loss.grad.constant" () {dtype=f32 shape=[] value=1.0} fwd="loss" at mlp.cc:6
%5:f32[1, 1] = reshape "loss.grad.reshape" (%4) {shape=[1, 1]} fwd="loss" at mlp.cc:6
%6:f32[4, 3] = broadcast_to "loss.grad.broadcast_to" (%5) {shape=[4, 3]} fwd="loss" at mlp.cc:6
%7:f32[4, 6] = matmul "fc.matmul.grad.matmul" (%6, %1) {transpose_a=false transpose_b=true} on=cpu[2]{0.0 0.1} fwd="fc.matmul" at mlp.cc:5
%8:f32[6, 3] = tensordot "fc.matmul.grad.tensordot" (%0, %6) on=cpu[2]{0.0 0.1} fwd="fc.matmul" at mlp.cc:5
@minimize loss=%3 optimizer="sgd_update" variables=("w") at mlp.cc:9
@gradient %1 = %8
)");
}

// No gradient of a block's ops reads what the block computed first, and nothing of it is computed
// again before a gradient has come.
TEST_F(AutogradTest, BlocksAreComputedAgain) {
  const auto graph = LogicalGraph::Parse(R"(
%0:f32[4, 6] = input "x" () {dtype=f32 shape=[4, 6]}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]}
%2:f32[4, 6] = tanh "before" (%0)
%3:f32[4, 6] = matmul "b.matmul" (%2, %1) {transpose_a=false transpose_b=false} block=1
%4:f32[4, 6] = tanh "b.tanh" (%3) block=1
%5:f32[4, 6] = tanh "b.last" (%4) block=1
%6:f32[] = reduce_sum "loss" (%5) {axes=[0, 1] keep_dims=false}
@minimize loss=%6 optimizer="sgd_update"
)",
                                         &registry_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  auto with_gradients = Autograd(*graph);
  ASSERT_TRUE(with_gradients.ok()) << with_gradients.status();
  const std::string text = with_gradients->ToString();
  const auto again = LogicalGraph::Parse(text, &registry_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToString(), text);
  int num_again = 0, num_after = 0;
  for (const Op& op : with_gradients->ops()) {
    if (op.forward == kNone || with_gradients->op(op.forward).block == 0) continue;
    EXPECT_EQ(op.block, 0) << op.name;
    if (op.type == "after") {
      ++num_after;
      EXPECT_EQ(with_gradients->producer(op.inputs[0]).name, "before");
      EXPECT_EQ(with_gradients->producer(op.inputs[1]).name, "loss.grad.broadcast_to");
      continue;
    }
    if (op.is_again) {
      ++num_again;
      EXPECT_EQ(op.type, with_gradients->op(op.forward).type);
    }
    for (TensorId input : op.inputs) {
      EXPECT_EQ(with_gradients->producer(input).block, 0) << op.name;
    }
  }
  EXPECT_EQ(num_again, 3);
  EXPECT_EQ(num_after, 1);
}

TEST_F(AutogradTest, SeveralUsesAreAddedWhereTheyMeet) {
  EXPECT_EQ(Run(R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
%1:f32[] = exp "e" (%0)
%2:f32[] = mul "y" (%1, %0)
@minimize loss=%2 optimizer="sgd_update"
)"),
            R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
%1:f32[] = exp "e" (%0)
%2:f32[] = mul "y" (%1, %0)
%3:f32[] = constant "y.grad.constant" () {dtype=f32 shape=[] value=1.0} fwd="y"
%4:f32[] = mul "y.grad.mul" (%3, %0) fwd="y"
%5:f32[] = mul "y.grad.mul_1" (%3, %1) fwd="y"
%6:f32[] = mul "e.grad.mul" (%4, %1) fwd="e"
%7:f32[] = add "e.grad.add" (%5, %6) fwd="e"
@minimize loss=%2 optimizer="sgd_update" variables=("w")
@gradient %0 = %7
)");
}

TEST_F(AutogradTest, BroadcastingIsSummedBack) {
  EXPECT_EQ(Run(R"(
%0:f32[4, 3] = input "x" () {dtype=f32 shape=[4, 3]}
%1:f32[3] = variable "b" () {dtype=f32 shape=[3]}
%2:f32[4, 3] = add "add" (%0, %1)
%3:f32[4, 3] = relu "relu" (%2)
%4:f32[] = reduce_mean "loss" (%3) {axes=[0, 1] keep_dims=false}
@minimize loss=%4 optimizer="sgd_update"
)"),
            R"(
%0:f32[4, 3] = input "x" () {dtype=f32 shape=[4, 3]}
%1:f32[3] = variable "b" () {dtype=f32 shape=[3]}
%2:f32[4, 3] = add "add" (%0, %1)
%3:f32[4, 3] = relu "relu" (%2)
%4:f32[] = reduce_mean "loss" (%3) {axes=[0, 1] keep_dims=false}
%5:f32[] = constant "loss.grad.constant" () {dtype=f32 shape=[] value=1.0} fwd="loss"
%6:f32[] = scale "loss.grad.scale" (%5) {factor=0.08333333333333333} fwd="loss"
%7:f32[1, 1] = reshape "loss.grad.reshape" (%6) {shape=[1, 1]} fwd="loss"
%8:f32[4, 3] = broadcast_to "loss.grad.broadcast_to" (%7) {shape=[4, 3]} fwd="loss"
%9:f32[4, 3] = relu_grad "relu.grad.relu_grad" (%3, %8) fwd="relu"
%10:f32[3] = reduce_sum "add.grad.reduce_sum" (%9) {axes=[0] keep_dims=false} fwd="add"
%11:f32[3] = reshape "add.grad.reshape" (%10) {shape=[3]} fwd="add"
@minimize loss=%4 optimizer="sgd_update" variables=("b")
@gradient %1 = %11
)");
}

TEST_F(AutogradTest, GradientOfStandsForTheGradient) {
  EXPECT_EQ(Run(R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
%1:f32[] = scale "h" (%0) {factor=2.0}
%2:f32[] = gradient_of "g" (%1)
fetch "fetch" (%2) {name="g"}
%3:f32[] = scale "loss" (%1) {factor=3.0}
@minimize loss=%3 optimizer="sgd_update"
)"),
            R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
%1:f32[] = scale "h" (%0) {factor=2.0}
%2:f32[] = scale "loss" (%1) {factor=3.0}
%3:f32[] = constant "loss.grad.constant" () {dtype=f32 shape=[] value=1.0} fwd="loss"
%4:f32[] = scale "loss.grad.scale" (%3) {factor=3.0} fwd="loss"
fetch "fetch" (%4) {name="g"}
%5:f32[] = scale "h.grad.scale" (%4) {factor=2.0} fwd="h"
@minimize loss=%2 optimizer="sgd_update" variables=("w")
@gradient %0 = %5
@gradient %1 = %4
)");
}

TEST_F(AutogradTest, OnlyThePathToVariablesIsBuilt) {
  LogicalGraph graph(&registry_);
  Tensor x = Input(graph, "x", {DType::kF32, {4, 6}});
  Tensor w = Variable(graph, {.name = "w", .shape = {6, 3}});
  Tensor frozen = Variable(graph, {.name = "frozen", .shape = {6, 6}, .trainable = false});
  Tensor cut = Variable(graph, {.name = "cut", .shape = {3}});
  Tensor labels = Input(graph, "labels", {DType::kI32, {4}});
  Tensor h = Relu(MatMul(x, frozen));
  Tensor y = Where(Less(h, Scale(h, 2)), h, Exp(h));
  Tensor logits = MatMul(y, w) + StopGradient(cut);
  Tensor loss = Mean(SoftmaxCrossEntropy(logits, labels));
  graph.minimize().push_back({.loss = loss.id(), .optimizer = "sgd_update"});
  ASSERT_TRUE(graph.status().ok()) << graph.status();

  const auto result = Autograd(graph);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->gradients().size(), 1u);
  EXPECT_EQ(result->minimize()[0].variables, (std::vector<OpId>{graph.producer(w.id()).id}));
  for (const Op& op : result->ops()) {
    if (op.forward == kNone) continue;
    const std::string& forward = result->op(op.forward).name;
    EXPECT_TRUE(forward != "relu" && forward != "where" && forward != "exp" && forward != "sum_exp")
        << op.name;
  }
  // Its data gradient of the matmul leads nowhere.
  LogicalGraph fetched = *result;
  Fetch(Tensor(&fetched, fetched.gradients().begin()->second), "g");
  const LogicalGraph pruned = Prune(fetched);
  EXPECT_TRUE(fetched.FindOp("matmul_1.grad.matmul").has_value());
  EXPECT_FALSE(pruned.FindOp("matmul_1.grad.matmul").has_value());
  EXPECT_TRUE(pruned.FindOp("matmul_1.grad.tensordot").has_value());
}

TEST_F(AutogradTest, EachMinimizeTrainsItsVariables) {
  LogicalGraph graph(&registry_);
  Tensor a = Variable(graph, {.name = "a"}), b = Variable(graph, {.name = "b"});
  Tensor product = a * b;
  Tensor first = Scale(product, 2), second = Scale(product, -3);
  const OpId a_op = graph.producer(a.id()).id, b_op = graph.producer(b.id()).id;
  graph.minimize().push_back({.loss = first.id(), .optimizer = "sgd_update", .variables = {a_op}});
  graph.minimize().push_back({.loss = second.id(), .optimizer = "sgd_update", .variables = {b_op}});
  const auto result = Autograd(graph);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->producer(result->gradients().at(a.id())).name, "mul.grad.mul");
  EXPECT_EQ(result->producer(result->gradients().at(b.id())).name, "mul.grad.mul_3");

  graph.minimize()[1].variables.clear();
  EXPECT_EQ(Autograd(graph).status().message(),
            "variable 'a' is trained by two Minimize calls; list the variables of each");
}

TEST_F(AutogradTest, Errors) {
  EXPECT_EQ(Run(R"(
%0:f32[4] = variable "w" () {dtype=f32 shape=[4]}
%1:f32[4] = exp "e" (%0)
@minimize loss=%1 optimizer="sgd_update" at train.cc:7
)"),
            "the loss, exp 'e', is f32[4]; it must be a floating scalar, as Mean makes one "
            "(train.cc:7)");
  EXPECT_EQ(Run(R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[] trainable=false}
%1:f32[] = exp "e" (%0)
@minimize loss=%1 optimizer="sgd_update" at train.cc:7
)"),
            "the loss, exp 'e', does not depend on any variable to train (train.cc:7)");
  EXPECT_EQ(Run(R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
%1:f32[] = stop_gradient "s" (%0)
@minimize loss=%1 optimizer="sgd_update" at train.cc:7
)"),
            "the loss, stop_gradient 's', does not depend on any variable to train (train.cc:7)");
  EXPECT_EQ(Run(R"(
%0:f32[4, 4] = variable "w" () {dtype=f32 shape=[4, 4]}
%1:f32[4, 4] = accumulate "a" (%0) at model.cc:2
%2:f32[] = reduce_sum "loss" (%1) {axes=[0, 1] keep_dims=false}
@minimize loss=%2 optimizer="sgd_update" at train.cc:7
)"),
            "accumulate 'a' has no gradient, but lies between the loss and what is to be trained; "
            "StopGradient before it would end the path (model.cc:2)");
  EXPECT_EQ(
      Run(R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
%1:f32[] = gradient_of "g" (%0) at train.cc:5
)"),
      "the gradient of variable 'w' is asked for, but the job calls no Minimize (train.cc:5)");
  EXPECT_EQ(Run(R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
%1:f32[] = variable "v" () {dtype=f32 shape=[] trainable=false}
%2:f32[] = exp "e" (%0)
%3:f32[] = gradient_of "g" (%1) at train.cc:5
@minimize loss=%2 optimizer="sgd_update" at train.cc:7
)"),
            "the gradient of variable 'v' is asked for, but no loss depends on it (train.cc:5)");
}

// Every operator that comes with Braid, on its samples: each floating input is a variable, each
// floating output is summed into the loss.
TEST_F(AutogradTest, GradientsOfAllOperatorsHaveTheirInputsTypes) {
  int checked = 0;
  for (const auto& [name, def] : registry_.ops()) {
    if (!def.has_gradient()) continue;
    for (size_t s = 0; s < def.samples().size(); ++s) {
      SCOPED_TRACE(absl::StrCat(name, " sample ", s));
      const OpSample& sample = def.samples()[s];
      LogicalGraph graph(&registry_);
      std::vector<Tensor> inputs, variables;
      // Something to train also where the op passes no gradient.
      Tensor loss = Variable(graph, {.name = "w"});
      for (const TensorType& type : sample.inputs) {
        inputs.push_back(IsFloating(type.dtype)
                             ? Variable(graph, {.name = absl::StrCat("v", inputs.size()),
                                                .dtype = type.dtype,
                                                .shape = type.shape})
                             : Input(graph, "input", type));
      }
      const bool leads_out = def.mirrors().has_value() && def.mirrors()->inputs[0] == sbp::M;
      if (leads_out) inputs = {Apply("mirror", inputs, sample.attrs)};
      for (Tensor output : ApplyAll(name, inputs, sample.attrs)) {
        if (output.mirroring().has_value()) output = SumMirrored(output);
        if (IsFloating(output.dtype())) loss = loss + Cast(Sum(Square(output)), DType::kF32);
      }
      graph.minimize().push_back({.loss = loss.id(), .optimizer = "sgd_update"});
      ASSERT_TRUE(graph.status().ok()) << graph.status();
      const auto result = Autograd(graph);
      ASSERT_TRUE(result.ok()) << result.status();
      for (const auto& [of, gradient] : result->gradients()) {
        EXPECT_EQ(result->type(of), result->type(gradient));
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 50);
}

}  // namespace
}  // namespace braid::compiler
