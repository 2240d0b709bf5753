#include "compiler/logical/optimizer.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/logical/prune.h"
#include "compiler/logical/training_mode.h"
#include "graph/functional.h"
#include "graph/op_registry.h"

namespace braid::compiler {
namespace {

class OptimizerTest : public testing::Test {
 protected:
  LogicalGraph Parse(const std::string& text) {
    auto graph = LogicalGraph::Parse(text, &registry_);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *graph : LogicalGraph(&registry_);
  }
  std::string Run(const std::string& text) {
    const auto result = Optimizer(Parse(text));
    if (!result.ok()) return std::string(result.status().message());
    return absl::StrCat("\n", result->ToString());
  }

  OpRegistry registry_ = BuiltinOps();
};

TEST_F(OptimizerTest, AdamHasTwoStatesBesideItsVariable) {
  EXPECT_EQ(Run(R"(
%0:f32[4] = variable "fc.w" () {dtype=f32 shape=[4]} on=cpu[2]{0.0 0.1} hint=(S(0))
%1:f32[4] = input "g" () {dtype=f32 shape=[4]}
%2:f32[] = reduce_sum "loss" (%0) {axes=[0]}
@minimize loss=%2 optimizer="adam_update" {beta1=0.9 beta2=0.999 decoupled=false epsilon=1e-08 learning_rate=0.5 weight_decay=0.0} variables=("fc.w") at train.cc:7
@gradient %0 = %1
)"),
            R"(
%0:f32[4] = variable "fc.w" () {dtype=f32 shape=[4]} on=cpu[2]{0.0 0.1} hint=(S(0))
%1:f32[4] = input "g" () {dtype=f32 shape=[4]}
%2:f32[] = reduce_sum "loss" (%0) {axes=[0]}
%3:f32[] = constant "learning_rate.constant" () {dtype=f32 shape=[] value=0.5} at train.cc:7
%4:i64[] = step "step" () at train.cc:7
%5:f32[4] = variable "fc.w.adam_m" () {dtype=f32 high=0.0 init="zeros" low=0.0 mean=0.0 shape=[4] stddev=0.0 trainable=false value=0.0} on=cpu[2]{0.0 0.1} hint=(S(0)) at train.cc:7
%6:f32[4] = variable "fc.w.adam_v" () {dtype=f32 high=0.0 init="zeros" low=0.0 mean=0.0 shape=[4] stddev=0.0 trainable=false value=0.0} on=cpu[2]{0.0 0.1} hint=(S(0)) at train.cc:7
adam_update "fc.w.adam_update" (%0, %1, %5, %6, %3, %4) {beta1=0.9 beta2=0.999 decoupled=false epsilon=1e-08 weight_decay=0.0} on=cpu[2]{0.0 0.1} at train.cc:7
@minimize loss=%2 optimizer="adam_update" {beta1=0.9 beta2=0.999 decoupled=false epsilon=1e-08 learning_rate=0.5 weight_decay=0.0} variables=("fc.w") at train.cc:7
@gradient %0 = %1
)");
}

TEST_F(OptimizerTest, ClippingScalesByTheNormOfAll) {
  EXPECT_EQ(Run(R"(
%0:f32[4] = variable "a" () {dtype=f32 shape=[4]}
%1:f32[2] = variable "b" () {dtype=f32 shape=[2]}
%2:f32[4] = input "da" () {dtype=f32 shape=[4]}
%3:f32[2] = input "db" () {dtype=f32 shape=[2]}
%4:f32[] = input "loss" () {dtype=f32 shape=[]}
%5:f32[] = input "lr" () {dtype=f32 shape=[]}
@minimize loss=%4 optimizer="sgd_update" {weight_decay=0.0} lr=%5 variables=("a", "b") clip=2.0
@gradient %0 = %2
@gradient %1 = %3
)"),
            R"(
%0:f32[4] = variable "a" () {dtype=f32 shape=[4]}
%1:f32[2] = variable "b" () {dtype=f32 shape=[2]}
%2:f32[4] = input "da" () {dtype=f32 shape=[4]}
%3:f32[2] = input "db" () {dtype=f32 shape=[2]}
%4:f32[] = input "loss" () {dtype=f32 shape=[]}
%5:f32[] = input "lr" () {dtype=f32 shape=[]}
%6:f32[4] = square "a.square" (%2)
%7:f32[] = reduce_sum "a.reduce_sum" (%6) {axes=[0] keep_dims=false}
%8:f32[2] = square "b.square" (%3)
%9:f32[] = reduce_sum "b.reduce_sum" (%8) {axes=[0] keep_dims=false}
%10:f32[] = add "clip.add" (%7, %9)
%11:f32[] = sqrt "clip.sqrt" (%10)
%12:f32[] = add_scalar "clip.add_scalar" (%11) {value=1e-06}
%13:f32[] = reciprocal "clip.reciprocal" (%12)
%14:f32[] = scale "clip.scale" (%13) {factor=2.0}
%15:f32[] = constant "clip.constant" () {dtype=f32 shape=[] value=1.0}
%16:f32[] = minimum "clip.minimum" (%14, %15)
%17:f32[4] = mul "a.mul" (%2, %16)
%18:f32[2] = mul "b.mul" (%3, %16)
sgd_update "a.sgd_update" (%0, %17, %5) {weight_decay=0.0}
sgd_update "b.sgd_update" (%1, %18, %5) {weight_decay=0.0}
@minimize loss=%4 optimizer="sgd_update" {weight_decay=0.0} lr=%5 variables=("a", "b") clip=2.0
@gradient %0 = %2
@gradient %1 = %3
)");
}

TEST_F(OptimizerTest, OptimizerMustBeAnUpdate) {
  EXPECT_EQ(Run(R"(
%0:f32[] = variable "w" () {dtype=f32 shape=[]}
@minimize loss=%0 optimizer="assign" {learning_rate=0.1} variables=("w") at train.cc:7
@gradient %0 = %0
)"),
            "optimizer 'assign' is neither an update operator nor 'adafactor' (train.cc:7)");
}

TEST_F(OptimizerTest, PruneKeepsWhatSinksNeed) {
  EXPECT_EQ(absl::StrCat("\n", Prune(Parse(R"(
%0:f32[4] = variable "w" () {dtype=f32 shape=[4]}
%1:f32[4] = variable "unused" () {dtype=f32 shape=[4]}
%2:f32[4] = exp "e" (%0)
%3:f32[4] = neg "dead" (%2)
%4:f32[4] = neg "deader" (%3)
%5:f32[] = reduce_sum "loss" (%0) {axes=[0]}
fetch "fetch" (%2) {name="e"}
assign "assign" (%0, %2)
@minimize loss=%5 optimizer="sgd_update" {learning_rate=0.1} variables=("w")
@gradient %0 = %3
)"))
                                   .ToString()),
            R"(
%0:f32[4] = variable "w" () {dtype=f32 shape=[4]}
%1:f32[4] = exp "e" (%0)
%2:f32[] = reduce_sum "loss" (%0) {axes=[0]}
fetch "fetch" (%1) {name="e"}
assign "assign" (%0, %1)
@minimize loss=%2 optimizer="sgd_update" {learning_rate=0.1} variables=("w")
)");
}

TEST_F(OptimizerTest, DropoutIsIdentityUnlessTraining) {
  const std::string text = R"(
%0:f32[4] = input "x" () {dtype=f32 shape=[4]}
%1:f32[4] = dropout "d" (%0) {key="d" rate=0.5}
)";
  EXPECT_EQ(absl::StrCat("\n", SettleTraining(Parse(text)).ToString()), R"(
%0:f32[4] = input "x" () {dtype=f32 shape=[4]}
%1:f32[4] = identity "d" (%0)
)");
  EXPECT_EQ(absl::StrCat("\n", SettleTraining(Parse(text + "@training\n")).ToString()),
            text + "@training\n");
}

TEST_F(OptimizerTest, WhatDependsOnTrainingIsSettled) {
  const std::string text = R"(
%0:f32[4] = variable "v" () {dtype=f32 shape=[4]}
%1:f32[4] = input "x" () {dtype=f32 shape=[4]}
%2:f32[4] = if_training "choice" (%1, %0)
%3:f32[4] = if_training "again" (%2, %0)
fetch "fetch" (%3) {name="y"}
assign "assign" (%0, %3)
)";
  EXPECT_EQ(absl::StrCat("\n", SettleTraining(Parse(text)).ToString()), R"(
%0:f32[4] = variable "v" () {dtype=f32 shape=[4]}
%1:f32[4] = input "x" () {dtype=f32 shape=[4]}
fetch "fetch" (%0) {name="y"}
)");
  EXPECT_EQ(absl::StrCat("\n", SettleTraining(Parse(text + "@training\n")).ToString()), R"(
%0:f32[4] = variable "v" () {dtype=f32 shape=[4]}
%1:f32[4] = input "x" () {dtype=f32 shape=[4]}
fetch "fetch" (%1) {name="y"}
assign "assign" (%0, %1)
@training
)");
  EXPECT_EQ(absl::StrCat("\n", SettleTraining(Parse(text + R"(
%4:f32[] = reduce_sum "sum" (%3) {axes=[0]}
%5:f32[] = if_training "loss" (%4, %4)
@minimize loss=%5 optimizer="sgd_update" {learning_rate=0.1}
@training
)"))
                                   .minimize()[0]
                                   .loss),
            "\n2")
      << "of the pruned graph";
}

}  // namespace
}  // namespace braid::compiler
