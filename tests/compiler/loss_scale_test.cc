#include "compiler/logical/loss_scale.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/logical/autograd.h"
#include "compiler/logical/optimizer.h"
#include "graph/op_registry.h"

namespace braid::compiler {
namespace {

TEST(LossScaleTest, GradientsAreMultipliedCheckedAndDivided) {
  const OpRegistry registry = BuiltinOps();
  const auto job = LogicalGraph::Parse(R"(
%0:f32[4] = variable "w" () {dtype=f32 shape=[4]}
%1:f32[] = reduce_sum "loss" (%0) {axes=[0] keep_dims=false}
@minimize loss=%1 optimizer="sgd_update" {learning_rate=0.5 weight_decay=0.0} at train.cc:7
)",
                                       &registry);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto gradients = Autograd(AddLossScales(*job));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const auto updated = Optimizer(*gradients);
  ASSERT_TRUE(updated.ok()) << updated.status();
  const std::string text = updated->ToString();
  EXPECT_EQ(absl::StrCat("\n", text), R"(
%0:f32[4] = variable "w" () {dtype=f32 shape=[4]}
%1:f32[] = reduce_sum "loss" (%0) {axes=[0] keep_dims=false}
%2:f32[] = variable "loss_scale" () {dtype=f32 high=0.0 init="constant" low=0.0 mean=0.0 shape=[] stddev=0.0 trainable=false value=65536.0} at train.cc:7
%3:f32[1] = reshape "loss.grad.reshape" (%2) {shape=[1]} fwd="loss"
%4:f32[4] = broadcast_to "loss.grad.broadcast_to" (%3) {shape=[4]} fwd="loss"
%5:f32[] = reciprocal "loss_scale.reciprocal" (%2) at train.cc:7
%6:f32[4] = mul "w.grad.mul" (%4, %5) at train.cc:7
%7:f32[] = reduce_l1 "loss_scale.reduce_l1" (%6) {axes=[0] keep_dims=false} at train.cc:7
%8:f32[] = constant "loss_scale.constant" () {dtype=f32 shape=[] value=3.4028234663852886e+38} at train.cc:7
%9:bool[] = less_equal "loss_scale.less_equal" (%7, %8) at train.cc:7
%10:f32[] = variable "loss_scale.good_steps" () {dtype=f32 high=0.0 init="zeros" low=0.0 mean=0.0 shape=[] stddev=0.0 trainable=false value=0.0} at train.cc:7
%11:f32[] = add_scalar "loss_scale.add_scalar" (%10) {value=1.0} at train.cc:7
%12:f32[] = constant "loss_scale.constant_1" () {dtype=f32 shape=[] value=2000.0} at train.cc:7
%13:bool[] = greater_equal "loss_scale.greater_equal" (%11, %12) at train.cc:7
%14:bool[] = logical_and "loss_scale.logical_and" (%9, %13) at train.cc:7
%15:f32[] = constant "loss_scale.constant_2" () {dtype=f32 shape=[] value=4294967296.0} at train.cc:7
%16:f32[] = scale "loss_scale.scale" (%2) {factor=2.0} at train.cc:7
%17:f32[] = minimum "loss_scale.minimum" (%16, %15) at train.cc:7
%18:f32[] = constant "loss_scale.constant_3" () {dtype=f32 shape=[] value=1.0} at train.cc:7
%19:f32[] = scale "loss_scale.scale_1" (%2) {factor=0.5} at train.cc:7
%20:f32[] = maximum "loss_scale.maximum" (%19, %18) at train.cc:7
%21:f32[] = where "loss_scale.where" (%9, %2, %20) at train.cc:7
%22:bool[] = logical_not "loss_scale.logical_not" (%14) at train.cc:7
%23:bool[] = logical_and "loss_scale.logical_and_1" (%9, %22) at train.cc:7
%24:f32[] = where "loss_scale.where_1" (%14, %17, %21) at train.cc:7
assign "loss_scale.assign" (%2, %24) at train.cc:7
%25:f32[] = constant "loss_scale.constant_4" () {dtype=f32 shape=[] value=0.0} at train.cc:7
%26:f32[] = where "loss_scale.where_2" (%23, %11, %25) at train.cc:7
assign "loss_scale.assign_1" (%10, %26) at train.cc:7
%27:f32[] = constant "learning_rate.constant" () {dtype=f32 shape=[] value=0.5} at train.cc:7
sgd_update "w.sgd_update" (%0, %6, %27, %9) {weight_decay=0.0} at train.cc:7
@minimize loss=%1 optimizer="sgd_update" {learning_rate=0.5 weight_decay=0.0} scale=%2 variables=("w") at train.cc:7
@gradient %0 = %6
)");
  const auto again = LogicalGraph::Parse(text, &registry);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToString(), text);
}

}  // namespace
}  // namespace braid::compiler
