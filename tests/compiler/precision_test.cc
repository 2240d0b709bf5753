#include "compiler/logical/precision.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/compiler/logical_passes.h"

namespace braid::compiler {
namespace {

std::string Narrowed(const std::string& text) {
  return Rewritten(text,
                   [](const LogicalGraph& graph) { return NarrowProducts(graph, DType::kBF16); });
}

TEST(NarrowProducts, CastsEachOperandOnceAndKeepsResultsWide) {
  EXPECT_EQ(Narrowed(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=cpu[1]{0.0}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=cpu[2]{0.0 0.1}
%2:f32[8, 6] = matmul "y" (%0, %1) on=cpu[2]{0.0 0.1} at train.cc:3
%3:f32[8, 6] = relu "z" (%2) on=cpu[2]{0.0 0.1}
%4:f32[6, 6] = tensordot "dw" (%0, %3) on=cpu[2]{0.0 0.1} fwd="y" at train.cc:3
)"),
            R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=cpu[1]{0.0}
%5:bf16[8, 6] = cast "x.bf16" (%0) {dtype=bf16} on=cpu[2]{0.0 0.1} at train.cc:3
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=cpu[2]{0.0 0.1}
%6:bf16[6, 6] = cast "w.bf16" (%1) {dtype=bf16} on=cpu[2]{0.0 0.1} at train.cc:3
%2:f32[8, 6] = matmul "y" (%5, %6) {dtype=f32} on=cpu[2]{0.0 0.1} at train.cc:3
%3:f32[8, 6] = relu "z" (%2) on=cpu[2]{0.0 0.1}
%7:bf16[8, 6] = cast "z.bf16" (%3) {dtype=bf16} on=cpu[2]{0.0 0.1} at train.cc:3
%4:f32[6, 6] = tensordot "dw" (%5, %7) {dtype=f32} on=cpu[2]{0.0 0.1} fwd="y" at train.cc:3
)");
}

TEST(NarrowProducts, ACastStandsWhereItsConsumerDoes) {
  const std::string text = Narrowed(R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]} on=cpu[1]{0.0}
%1:f32[8, 8] = matmul "a" (%0, %0) {transpose_b=true} on=cpu[1]{0.0}
%2:f32[8, 8] = matmul "b" (%0, %0) {transpose_b=true} on=cpu[1]{1.0}
)");
  EXPECT_NE(text.find("cast \"x.bf16\" (%0) {dtype=bf16} on=cpu[1]{0.0}"), std::string::npos)
      << text;
  EXPECT_NE(text.find("cast \"x.bf16_1\" (%0) {dtype=bf16} on=cpu[1]{1.0}"), std::string::npos)
      << text;
}

TEST(NarrowProducts, ProductsInsideKeepTheirOperands) {
  const std::string text = Narrowed(R"(
%0:f32[1, 2, 9, 4] = input "q" () {dtype=f32 shape=[1, 2, 9, 4]} on=cpu[1]{0.0}
%1:f32[1, 2, 9, 4], %2:f32[1, 2, 9] = attention "a" (%0, %0, %0) {causal=true scale=0.5 time_first=false} on=cpu[1]{0.0}
)");
  EXPECT_NE(text.find("attention \"a\" (%0, %0, %0) {causal=true compute=bf16 scale=0.5 "
                      "time_first=false}"),
            std::string::npos)
      << text;
}

TEST(NarrowProducts, LeavesOtherTypesAndWhatTheUserChose) {
  for (const char* text : {R"(
%0:f64[1, 2, 9, 4] = input "q" () {dtype=f64 shape=[1, 2, 9, 4]}
%1:f64[1, 2, 9, 4], %2:f64[1, 2, 9] = attention "a" (%0, %0, %0) {causal=true scale=0.5 time_first=false}
)",
                           R"(
%0:f64[8, 6] = input "x" () {dtype=f64 shape=[8, 6]}
%1:f64[8, 8] = matmul "y" (%0, %0) {transpose_b=true}
)",
                           R"(
%0:bf16[8, 6] = input "x" () {dtype=bf16 shape=[8, 6]}
%1:f32[8, 8] = matmul "y" (%0, %0) {dtype=f32 transpose_b=true}
)",
                           R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]}
%1:f32[8, 8] = matmul "y" (%0, %0) {dtype=f32 transpose_b=true}
)"}) {
    EXPECT_EQ(Narrowed(text), text);
  }
}

}  // namespace
}  // namespace braid::compiler
