// A training job as text, as it is after autograd and the optimizer pass, and what the tests of the
// logical passes read off a graph.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

struct MlpText {
  std::string fc1_hint = "-", fc2_hint = "-";  // of the weights
  int micro_batches = 1;
  std::string stage1, stage2;  // " on=..." of the layers
};

// Two layers, cross entropy, plain gradient descent.
inline std::string ToText(const MlpText& mlp) {
  constexpr char kText[] = R"(
%0:f32[64, 784], %1:i32[64] = read "data" () {batch=64 types="f32[64, 784]; i32[64]"} at mlp.cc:1
%2:f32[784, 512] = variable "fc1.weight" () {dtype=f32 shape=[784, 512]}$1 hint=($hint1) at mlp.cc:2
%3:f32[512] = variable "fc1.bias" () {dtype=f32 shape=[512]}$1 at mlp.cc:2
%4:f32[64, 512] = matmul "fc1" (%0, %2)$1 at mlp.cc:2
%5:f32[64, 512] = add "fc1.add" (%4, %3)$1 at mlp.cc:2
%6:f32[64, 512] = relu "relu" (%5)$1 at mlp.cc:2
%7:f32[512, 10] = variable "fc2.weight" () {dtype=f32 shape=[512, 10]}$2 hint=($hint2) at mlp.cc:3
%8:f32[64, 10] = matmul "fc2" (%6, %7)$2 at mlp.cc:3
%9:f32[64] = reduce_max "max" (%8) {axes=[1] keep_dims=false} at mlp.cc:4
%10:f32[64] = sum_exp "sum_exp" (%8, %9) at mlp.cc:4
%11:f32[64] = sparse_softmax_cross_entropy "entropy" (%8, %1, %9, %10) at mlp.cc:4
%12:f32[] = reduce_mean "mean" (%11) {axes=[0] keep_dims=false} at mlp.cc:4
fetch "loss" (%12) {name="loss"} at mlp.cc:5
%13:f32[] = constant "one" () {dtype=f32 shape=[] value=1.0} at mlp.cc:6
%14:f32[] = scale "d_entropy.scale" (%13) {factor=0.015625} fwd="mean" at mlp.cc:4
%15:f32[1] = reshape "d_entropy.reshape" (%14) {shape=[1]} fwd="mean" at mlp.cc:4
%16:f32[64] = broadcast_to "d_entropy" (%15) {shape=[64]} fwd="mean" at mlp.cc:4
%17:f32[64, 10] = sparse_softmax_cross_entropy_grad "d_fc2" (%8, %1, %9, %10, %16) fwd="entropy" at mlp.cc:4
%18:f32[64, 512] = matmul "d_relu" (%17, %7) {transpose_b=true} fwd="fc2" at mlp.cc:3
%19:f32[512, 10] = tensordot "d_fc2.weight" (%6, %17) fwd="fc2" at mlp.cc:3
%20:f32[64, 512] = relu_grad "d_fc1" (%6, %18) fwd="relu" at mlp.cc:2
%21:f32[512] = reduce_sum "d_fc1.bias" (%20) {axes=[0] keep_dims=false} fwd="fc1.add" at mlp.cc:2
%22:f32[784, 512] = tensordot "d_fc1.weight" (%0, %20) fwd="fc1" at mlp.cc:2
%23:f32[] = constant "lr" () {dtype=f32 shape=[] value=0.5} at mlp.cc:6
sgd_update "fc1.weight.update" (%2, %22, %23) {weight_decay=0.0} at mlp.cc:6
sgd_update "fc1.bias.update" (%3, %21, %23) {weight_decay=0.0} at mlp.cc:6
sgd_update "fc2.weight.update" (%7, %19, %23) {weight_decay=0.0} at mlp.cc:6
@minimize loss=%12 optimizer="sgd_update" lr=%23$m at mlp.cc:6
)";
  const std::string m =
      mlp.micro_batches == 1 ? "" : absl::StrCat(" micro_batches=", mlp.micro_batches);
  return absl::StrReplaceAll(kText, {{"$hint1", mlp.fc1_hint},
                                     {"$hint2", mlp.fc2_hint},
                                     {"$1", mlp.stage1},
                                     {"$2", mlp.stage2},
                                     {"$m", m}});
}

template <typename T>
std::string ListText(const std::vector<T>& list) {
  std::string text;
  for (const T& element : list)
    absl::StrAppend(&text, text.empty() ? "" : ", ", element.ToString());
  return text;
}

// "fc1 (S(0), B)->(S(0))", a line an op.
inline std::string LayoutText(const LogicalGraph& graph) {
  std::string text = "\n";
  for (const Op& op : graph.ops()) {
    absl::StrAppend(&text, op.name, " (", ListText(op.input_sbp), ")->(", ListText(op.output_sbp),
                    ")\n");
  }
  return text;
}

// "fc1 x4 (S(0), B)->(S(0))", a line an op that acts m times; "lr", one that acts once.
inline std::string MicroBatchText(const LogicalGraph& graph) {
  std::string text = "\n";
  for (const Op& op : graph.ops()) {
    absl::StrAppend(&text, op.name);
    if (op.acts_per_step != 1) {
      absl::StrAppend(&text, " x", op.acts_per_step, " (", ListText(op.input_micro_batch_sbp),
                      ")->(", ListText(op.output_micro_batch_sbp), ")");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

inline const Op& OpNamed(const LogicalGraph& graph, std::string_view name) {
  return graph.op(graph.FindOp(name).value());
}

}  // namespace braid::compiler
