#include "compiler/logical/keep_narrow.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
%2:f32[8] = reduce_max "largest" (%1) {axes=[1] keep_dims=false} on=card[1]{0.0}
%3:f32[8, 6] = matmul "u" (%1, %0) on=card[1]{0.0}
fetch "of_u" (%3) on=card[1]{0.0}
fetch "of_largest" (%2) on=card[1]{0.0}
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
