#include "compiler/logical/keep_narrow.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/logical/precision.h"
#include "tests/compiler/logical_passes.h"

namespace braid::compiler {
namespace {

// Cards keep what is narrow, CPUs do not.
std::string Narrowed(const std::string& text, DType compute = DType::kBF16) {
  return Rewritten(text, [compute](const LogicalGraph& graph) {
    return NarrowProducts(graph, compute, [](const Placement& placement) {
      return placement.device_type() == "card";
    });
  });
}

// A layer and its gradient: between the products all is narrow; the bias gradient is summed up in
// f32.
TEST(KeepNarrow, WhatLiesBetweenProducts) {
  EXPECT_EQ(Narrowed(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[6, 16] = variable "w" () {dtype=f32 shape=[6, 16]} on=card[1]{0.0}
%2:f32[16] = variable "b" () {dtype=f32 shape=[16]} on=card[1]{0.0}
%3:f32[8, 16] = matmul "up" (%0, %1) on=card[1]{0.0}
%4:f32[8, 16] = add "sum" (%3, %2) on=card[1]{0.0}
%5:f32[8, 16] = gelu "gelu" (%4) {approximate=true} on=card[1]{0.0}
%6:f32[8, 6] = matmul "down" (%5, %1) {transpose_b=true} on=card[1]{0.0}
%7:f32[8, 16] = matmul "flow" (%6, %1) on=card[1]{0.0}
%8:f32[8, 16] = gelu_grad "back" (%4, %7) {approximate=true} on=card[1]{0.0}
%9:f32[16] = reduce_sum "db" (%8) {axes=[0] keep_dims=false} on=card[1]{0.0}
%10:f32[6, 16] = tensordot "dw" (%0, %8) on=card[1]{0.0}
fetch "of_db" (%9) on=card[1]{0.0}
fetch "of_dw" (%10) on=card[1]{0.0}
fetch "of_y" (%6) on=card[1]{0.0}
)"),
            R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%11:bf16[8, 6] = cast "x.bf16" (%0) {dtype=bf16} on=card[1]{0.0}
%1:f32[6, 16] = variable "w" () {dtype=f32 shape=[6, 16]} on=card[1]{0.0}
%2:f32[16] = variable "b" () {dtype=f32 shape=[16]} on=card[1]{0.0}
%12:bf16[6, 16] = cast "w.bf16" (%1) {dtype=bf16} on=card[1]{0.0}
%3:bf16[8, 16] = matmul "up" (%11, %12) {dtype=bf16} on=card[1]{0.0}
%14:bf16[16] = cast "b.bf16" (%2) {dtype=bf16} on=card[1]{0.0}
%4:bf16[8, 16] = add "sum" (%3, %14) on=card[1]{0.0}
%5:bf16[8, 16] = gelu "gelu" (%4) {approximate=true} on=card[1]{0.0}
%6:f32[8, 6] = matmul "down" (%5, %12) {dtype=f32 transpose_b=true} on=card[1]{0.0}
%13:bf16[8, 6] = cast "down.bf16" (%6) {dtype=bf16} on=card[1]{0.0}
%7:bf16[8, 16] = matmul "flow" (%13, %12) {dtype=bf16} on=card[1]{0.0}
%8:bf16[8, 16] = gelu_grad "back" (%4, %7) {approximate=true} on=card[1]{0.0}
%9:f32[16] = reduce_sum "db" (%8) {axes=[0] dtype=f32 keep_dims=false} on=card[1]{0.0}
%10:f32[6, 16] = tensordot "dw" (%11, %8) {dtype=f32} on=card[1]{0.0}
fetch "of_db" (%9) on=card[1]{0.0}
fetch "of_dw" (%10) on=card[1]{0.0}
fetch "of_y" (%6) on=card[1]{0.0}
)");
}

// A sum of the residuals' kind, which a normalisation reads, stays wide, and so does what is added.
TEST(KeepNarrow, NotWhatIsReadWide) {
  EXPECT_EQ(Narrowed(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=card[1]{0.0}
%2:f32[8, 6] = matmul "up" (%0, %1) on=card[1]{0.0}
%3:f32[8, 6] = add "sum" (%2, %0) on=card[1]{0.0}
%4:f32[8, 6] = softmax "softmax" (%3) {axis=1} on=card[1]{0.0}
%5:f32[8, 6] = matmul "down" (%3, %1) on=card[1]{0.0}
fetch "of_softmax" (%4) on=card[1]{0.0}
fetch "of_y" (%5) on=card[1]{0.0}
)"),
            R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%6:bf16[8, 6] = cast "x.bf16" (%0) {dtype=bf16} on=card[1]{0.0}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=card[1]{0.0}
%7:bf16[6, 6] = cast "w.bf16" (%1) {dtype=bf16} on=card[1]{0.0}
%2:f32[8, 6] = matmul "up" (%6, %7) {dtype=f32} on=card[1]{0.0}
%3:f32[8, 6] = add "sum" (%2, %0) on=card[1]{0.0}
%8:bf16[8, 6] = cast "sum.bf16" (%3) {dtype=bf16} on=card[1]{0.0}
%4:f32[8, 6] = softmax "softmax" (%3) {axis=1} on=card[1]{0.0}
%5:f32[8, 6] = matmul "down" (%8, %7) {dtype=f32} on=card[1]{0.0}
fetch "of_softmax" (%4) on=card[1]{0.0}
fetch "of_y" (%5) on=card[1]{0.0}
)");
}

TEST(KeepNarrow, AttentionIsNarrowItself) {
  EXPECT_EQ(Narrowed(R"(
%0:f32[2, 9, 8] = input "x" () {dtype=f32 shape=[2, 9, 8]} on=card[1]{0.0}
%1:f32[8, 8] = variable "w" () {dtype=f32 shape=[8, 8]} on=card[1]{0.0}
%2:f32[2, 9, 8] = matmul "project" (%0, %1) on=card[1]{0.0}
%3:f32[2, 9, 2, 4] = reshape "heads" (%2) {shape=[2, 9, 2, 4]} on=card[1]{0.0}
%4:f32[2, 9, 2, 4], %5:f32[2, 2, 9] = attention "a" (%3, %3, %3) {causal=true scale=0.5 time_first=true} on=card[1]{0.0}
fetch "of_o" (%4) on=card[1]{0.0}
fetch "of_lse" (%5) on=card[1]{0.0}
)"),
            R"(
%0:f32[2, 9, 8] = input "x" () {dtype=f32 shape=[2, 9, 8]} on=card[1]{0.0}
%6:bf16[2, 9, 8] = cast "x.bf16" (%0) {dtype=bf16} on=card[1]{0.0}
%1:f32[8, 8] = variable "w" () {dtype=f32 shape=[8, 8]} on=card[1]{0.0}
%7:bf16[8, 8] = cast "w.bf16" (%1) {dtype=bf16} on=card[1]{0.0}
%2:bf16[2, 9, 8] = matmul "project" (%6, %7) {dtype=bf16} on=card[1]{0.0}
%3:bf16[2, 9, 2, 4] = reshape "heads" (%2) {shape=[2, 9, 2, 4]} on=card[1]{0.0}
%4:bf16[2, 9, 2, 4], %5:f32[2, 2, 9] = attention "a" (%3, %3, %3) {causal=true scale=0.5 time_first=true} on=card[1]{0.0}
%8:f32[2, 9, 2, 4] = cast "a.f32" (%4) {dtype=f32} on=card[1]{0.0}
fetch "of_o" (%8) on=card[1]{0.0}
fetch "of_lse" (%5) on=card[1]{0.0}
)");
}

// Each text with what it must have after the pass.
void ExpectTexts(const std::string& graph, const std::vector<std::string>& parts,
                 DType compute = DType::kBF16) {
  const std::string text = Narrowed(graph, compute);
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in" << text;
  }
}

// A residual block with its gradients: convolutions, norms and pooling hand each other narrow
// tensors, while the norms' sums and numbers are f32.
constexpr char kBlock[] = R"(
%0:f32[8, 4, 6, 6] = input "x" () {dtype=f32 shape=[8, 4, 6, 6]} on=card[1]{0.0}
%1:f32[4, 4, 1, 1] = variable "w" () {dtype=f32 shape=[4, 4, 1, 1]} on=card[1]{0.0}
%2:f32[4] = variable "gamma" () {dtype=f32 shape=[4]} on=card[1]{0.0}
%3:f32[4] = variable "beta" () {dtype=f32 shape=[4]} on=card[1]{0.0}
%4:f32[8, 4, 6, 6] = conv "first" (%0, %1) ATTRS on=card[1]{0.0}
%5:f32[8, 4, 3, 3] = max_pool "pool" (%4) POOL on=card[1]{0.0}
%6:f32[8, 4, 3, 3] = conv "second" (%5, %1) ATTRS on=card[1]{0.0}
%7:f32[4] = channel_sum "sum" (%6) on=card[1]{0.0}
%8:f32[4] = batch_moment "moment" (%6, %7) on=card[1]{0.0}
%9:f32[8, 4, 3, 3] = batch_norm "bn" (%6, %7, %8, %2, %3, %5) {epsilon=0.001 relu=true training=true} on=card[1]{0.0}
%10:f32[8, 4, 3, 3] = conv "third" (%9, %1) ATTRS on=card[1]{0.0}
%11:f32[8, 4, 3, 3] = conv_input_grad "dy" (%10, %1) SPACE on=card[1]{0.0}
%12:f32[8, 4, 3, 3] = relu_grad "rectified" (%9, %11) on=card[1]{0.0}
%13:f32[4], %14:f32[4] = batch_norm_sums "sums" (%6, %7, %8, %12) {epsilon=0.001 training=true} on=card[1]{0.0}
%15:f32[8, 4, 3, 3] = batch_norm_dx "dx" (%6, %7, %8, %2, %12, %13, %14) {epsilon=0.001} on=card[1]{0.0}
%16:f32[8, 4, 3, 3] = conv_input_grad "of_pool" (%15, %1) SPACE on=card[1]{0.0}
%17:f32[8, 4, 3, 3] = add "both" (%16, %12) on=card[1]{0.0}
%18:f32[8, 4, 6, 6] = max_pool_grad "unpool" (%4, %17) POOL on=card[1]{0.0}
%19:f32[4, 4, 1, 1] = conv_weight_grad "dw" (%0, %18) KERNEL on=card[1]{0.0}
fetch "of_dw" (%19) on=card[1]{0.0}
fetch "of_dgamma" (%13) on=card[1]{0.0}
fetch "of_dbeta" (%14) on=card[1]{0.0}
)";
std::string Block() {
  const std::string windows =
      "{dilations=[1, 1] groups=1 pads_begin=[0, 0] pads_end=[0, 0] strides=[1, 1]}";
  const std::string rest = "pads_begin=[0, 0] pads_end=[0, 0] ";
  return absl::StrReplaceAll(
      kBlock,
      {{"ATTRS", windows},
       {"SPACE", absl::StrCat("{dilations=[1, 1] groups=1 ", rest, "space=[3, 3] strides=[1, 1]}")},
       {"KERNEL",
        absl::StrCat("{dilations=[1, 1] groups=1 kernel=[1, 1] ", rest, "strides=[1, 1]}")},
       {"POOL", absl::StrCat("{ceil_mode=false dilations=[1, 1] kernel=[2, 2] ", rest,
                             "strides=[2, 2]}")}});
}

TEST(KeepNarrow, WhatNormsAndPoolingReadAndMake) {
  ExpectTexts(
      Block(),
      {":bf16[8, 4, 6, 6] = conv \"first\"", ":bf16[8, 4, 3, 3] = max_pool \"pool\"",
       ":bf16[8, 4, 3, 3] = conv \"second\"", ":f32[4] = channel_sum \"sum\" (%6) {dtype=f32}",
       ":f32[4] = batch_moment \"moment\" (%6, %7) on",
       ":bf16[8, 4, 3, 3] = batch_norm \"bn\" (%6, %7, %8, %2, %3, %5) {",
       "%13:f32[4], %14:f32[4] = batch_norm_sums \"sums\" (%6, %7, %8, %12) {",
       ":bf16[8, 4, 3, 3] = batch_norm_dx \"dx\" (%6, %7, %8, %2, %12, %13, %14) {",
       ":bf16[8, 4, 6, 6] = max_pool_grad \"unpool\" (%4, %17) {",
       ":f32[4, 4, 1, 1] = conv_weight_grad \"dw\""});
  // Copies are made of what comes in, and of the third convolution's result, which products sum up.
  const std::string text = Narrowed(Block());
  EXPECT_EQ(text.find("second.bf16"), std::string::npos) << text;
  EXPECT_EQ(text.find("bn.bf16"), std::string::npos) << text;
  EXPECT_EQ(text.find("dx.bf16"), std::string::npos) << text;
  EXPECT_EQ(text.find(".f32"), std::string::npos) << text;
}

// Logits, and their gradient, are read and made narrow; what rows have is f32.
constexpr char kLoss[] = R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[6, 16] = variable "w" () {dtype=f32 shape=[6, 16]} on=card[1]{0.0}
%2:i32[8] = input "labels" () {dtype=i32 shape=[8]} on=card[1]{0.0}
%3:f32[8, 16] = matmul "logits" (%0, %1) on=card[1]{0.0}
%4:f32[8] = reduce_max "max" (%3) {axes=[1] keep_dims=false} on=card[1]{0.0}
%5:f32[8] = sum_exp "sum" (%3, %4) on=card[1]{0.0}
%6:f32[8] = sparse_softmax_cross_entropy "loss" (%3, %2, %4, %5) on=card[1]{0.0}
%7:f32[8, 16] = sparse_softmax_cross_entropy_grad "dlogits" (%3, %2, %4, %5, %6) on=card[1]{0.0}
%8:f32[8, 6] = matmul "dx" (%7, %1) {transpose_b=true} on=card[1]{0.0}
%9:f32[6, 16] = tensordot "dw" (%0, %7) on=card[1]{0.0}
fetch "of_loss" (%6) on=card[1]{0.0}
fetch "of_dx" (%8) on=card[1]{0.0}
fetch "of_dw" (%9) on=card[1]{0.0}
)";
TEST(KeepNarrow, LogitsAndTheirGradient) {
  ExpectTexts(
      kLoss,
      {":bf16[8, 16] = matmul \"logits\"",
       ":f32[8] = reduce_max \"max\" (%3) {axes=[1] dtype=f32 keep_dims=false}",
       ":f32[8] = sum_exp \"sum\" (%3, %4) on",
       ":f32[8] = sparse_softmax_cross_entropy \"loss\" (%3, %2, %4, %5) on",
       ":bf16[8, 16] = sparse_softmax_cross_entropy_grad \"dlogits\" (%3, %2, %4, %5, %6) on"});
  const std::string text = Narrowed(kLoss);
  EXPECT_EQ(text.find("logits.bf16"), std::string::npos) << text;
  EXPECT_EQ(text.find(".f32"), std::string::npos) << text;
  // Without a gradient that products read, nothing is gained.
  ExpectTexts(absl::StrCat(kLoss, "fetch \"of_dlogits\" (%7) on=card[1]{0.0}\n"),
              {":f32[8, 16] = matmul \"logits\"", ":f32[8] = sum_exp \"sum\" (%3, %4) on",
               ":f32[8, 16] = sparse_softmax_cross_entropy_grad \"dlogits\""});
}

// A softmax by hand: what is left of numbers that are alike, and sums of many, are not rounded.
TEST(KeepNarrow, NotWhatSumsAreTakenOff) {
  ExpectTexts(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[6, 16] = variable "w" () {dtype=f32 shape=[6, 16]} on=card[1]{0.0}
%2:f32[16, 6] = variable "v" () {dtype=f32 shape=[16, 6]} on=card[1]{0.0}
%3:f32[8, 16] = matmul "scores" (%0, %1) on=card[1]{0.0}
%4:f32[8, 1] = reduce_max "max" (%3) {axes=[1] keep_dims=true} on=card[1]{0.0}
%5:f32[8, 16] = sub "less" (%3, %4) on=card[1]{0.0}
%6:f32[8, 16] = exp "exps" (%5) on=card[1]{0.0}
%7:f32[8, 1] = reduce_sum "sum" (%6) {axes=[1] keep_dims=true} on=card[1]{0.0}
%8:f32[8, 16] = div "p" (%6, %7) on=card[1]{0.0}
%9:f32[8, 6] = matmul "y" (%8, %2) on=card[1]{0.0}
fetch "of_y" (%9) on=card[1]{0.0}
)",
              {":f32[8, 16] = matmul \"scores\"", ":f32[8, 16] = sub \"less\" (%3, %4)",
               ":f32[8, 16] = exp \"exps\"", ":f32[8, 16] = div \"p\""});
}

// A layer norm reads the residual sum as it is, and makes what products read.
constexpr char kNorm[] = R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=card[1]{0.0}
%2:f32[6] = variable "gamma" () {dtype=f32 shape=[6]} on=card[1]{0.0}
%3:f32[8, 6] = matmul "h" (%0, %1) on=card[1]{0.0}
%4:f32[8, 6] = add "sum" (%3, %0) on=card[1]{0.0}
%5:f32[8, 6], %6:f32[8], %7:f32[8] = layer_norm "ln" (%4, %2, %2) {epsilon=1e-05} on=card[1]{0.0}
%8:f32[8, 6] = matmul "next" (%5, %1) on=card[1]{0.0}
%9:f32[8, 6] = add "y" (%8, %4) on=card[1]{0.0}
fetch "of_y" (%9) on=card[1]{0.0}
)";
TEST(KeepNarrow, WhatLayerNormsMake) {
  ExpectTexts(kNorm, {":f32[8, 6] = add \"sum\"",
                      ":bf16[8, 6], %6:f32[8], %7:f32[8] = layer_norm \"ln\" (%4, %2, %2) "
                      "{dtype=bf16 epsilon=1e-05}",
                      "= matmul \"next\" (%5, "});
  ExpectTexts(absl::StrCat(kNorm, "fetch \"of_ln\" (%5) on=card[1]{0.0}\n"),
              {"%5:f32[8, 6], %6:f32[8], %7:f32[8] = layer_norm \"ln\" (%4, %2, %2) {epsilon"});
}

// Where a reader of a norm's result wants f32, the norm and what it reads stay so.
TEST(KeepNarrow, NotANormThatIsReadWide) {
  ExpectTexts(Block() + "fetch \"of_bn\" (%9) on=card[1]{0.0}\n",
              {":f32[8, 4, 3, 3] = batch_norm \"bn\"", ":f32[8, 4, 3, 3] = conv \"second\"",
               ":f32[4] = channel_sum \"sum\" (%6) on", ":f32[8, 4, 3, 3] = batch_norm_dx \"dx\""});
}

TEST(KeepNarrow, NotAttentionWithAMaskThatIsAdded) {
  ExpectTexts(R"(
%0:f32[2, 9, 2, 4] = input "x" () {dtype=f32 shape=[2, 9, 2, 4]} on=card[1]{0.0}
%1:f32[9, 9] = input "mask" () {dtype=f32 shape=[9, 9]} on=card[1]{0.0}
%2:f32[2, 9, 2, 4], %3:f32[2, 2, 9] = attention "a" (%0, %0, %0, %1) {causal=true scale=0.5 time_first=true} on=card[1]{0.0}
fetch "o" (%2) on=card[1]{0.0}
)",
              {"attention \"a\" (%0, %0, %0, %1)"});
}

// A product that sums over the batch may have addends on many devices, in many micro-batches.
TEST(KeepNarrow, NotSumsOverTheBatch) {
  ExpectTexts(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[6, 6] = tensordot "dw" (%0, %0) on=card[1]{0.0}
%2:f32[8, 6] = matmul "y" (%0, %1) on=card[1]{0.0}
fetch "of_y" (%2) on=card[1]{0.0}
)",
              {":f32[6, 6] = tensordot \"dw\""});
}

// What is fetched is wide, and so is what is computed again of it.
TEST(KeepNarrow, WhatIsComputedAgainIsAsBefore) {
  const std::string graph = R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=card[1]{0.0}
%2:f32[8, 6] = matmul "h" (%0, %1) on=card[1]{0.0}
%3:f32[8, 6] = relu "r" (%2) on=card[1]{0.0}
%4:f32[8, 6] = matmul "next" (%3, %1) on=card[1]{0.0}
%5:f32[8, 6] = matmul "h_again" (%0, %1) on=card[1]{0.0} fwd="h" again
%6:f32[8, 6] = relu "r_again" (%5) on=card[1]{0.0} fwd="r" again
%7:f32[8, 6] = matmul "last" (%6, %1) on=card[1]{0.0}
fetch "of_next" (%4) on=card[1]{0.0}
fetch "of_last" (%7) on=card[1]{0.0}
)";
  ExpectTexts(graph, {":bf16[8, 6] = matmul \"h\"", ":bf16[8, 6] = matmul \"h_again\""});
  ExpectTexts(graph + "fetch \"of_h\" (%2) on=card[1]{0.0}\n",
              {":f32[8, 6] = matmul \"h\"", ":f32[8, 6] = matmul \"h_again\"",
               ":f32[8, 6] = relu \"r\"", ":f32[8, 6] = relu \"r_again\""});
}

// A number of one element may be too small for the type.
TEST(KeepNarrow, NotASingleNumber) {
  ExpectTexts(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[] = constant "epsilon" () {dtype=f32 shape=[] value=1e-08} on=card[1]{0.0}
%2:f32[8, 8] = matmul "y" (%0, %0) {transpose_b=true} on=card[1]{0.0}
%3:f32[8, 8] = add "z" (%2, %1) on=card[1]{0.0}
%4:f32[8, 6] = matmul "u" (%3, %0) on=card[1]{0.0}
fetch "of_u" (%4) on=card[1]{0.0}
)",
              {":f32[8, 8] = add \"z\" (%2, %1)"}, DType::kF16);
}

// Only sums may read what is narrow elsewhere, and not what else makes few numbers of many.
TEST(KeepNarrow, NotBesideOtherReaders) {
  ExpectTexts(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=card[1]{0.0}
%1:f32[8, 8] = matmul "y" (%0, %0) {transpose_b=true} on=card[1]{0.0}
%2:f32[8] = reduce_prod "product" (%1) {axes=[1] keep_dims=false} on=card[1]{0.0}
%3:f32[8, 6] = matmul "u" (%1, %0) on=card[1]{0.0}
fetch "of_u" (%3) on=card[1]{0.0}
fetch "of_product" (%2) on=card[1]{0.0}
)",
              {":f32[8, 8] = matmul \"y\""});
}

TEST(KeepNarrow, InF16) {
  ExpectTexts(R"(
%0:f32[8, 8] = input "x" () {dtype=f32 shape=[8, 8]} on=card[1]{0.0}
%1:f32[8, 8] = matmul "a" (%0, %0) on=card[1]{0.0}
%2:f32[8, 8] = matmul "b" (%1, %0) on=card[1]{0.0}
fetch "of_b" (%2) on=card[1]{0.0}
)",
              {":f16[8, 8] = matmul \"a\"", ":f32[8, 8] = matmul \"b\""}, DType::kF16);
}

// Elsewhere, and where the user chose the types.
TEST(KeepNarrow, NothingElse) {
  const std::string on_cpus = R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=cpu[1]{0.0}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=cpu[1]{0.0}
%2:f32[8, 6] = matmul "y" (%0, %1) on=cpu[1]{0.0}
%3:f32[8, 6] = relu "z" (%2) on=cpu[1]{0.0}
%4:f32[8, 6] = matmul "again" (%3, %1) on=cpu[1]{0.0}
fetch "of_again" (%4) on=cpu[1]{0.0}
)";
  EXPECT_EQ(Narrowed(on_cpus), Rewritten(on_cpus, [](const LogicalGraph& graph) {
              return NarrowProducts(graph, DType::kBF16);
            }));
  const std::string chosen = R"(
%0:bf16[8, 6] = input "x" () {dtype=bf16 shape=[8, 6]} on=card[1]{0.0}
%1:f32[8, 8] = matmul "y" (%0, %0) {dtype=f32 transpose_b=true} on=card[1]{0.0}
%2:bf16[8, 8] = cast "narrow" (%1) {dtype=bf16} on=card[1]{0.0}
fetch "of_y" (%2) on=card[1]{0.0}
)";
  EXPECT_EQ(Narrowed(chosen), chosen);
}

}  // namespace
}  // namespace braid::compiler
