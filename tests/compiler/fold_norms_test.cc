#include "compiler/logical/fold_norms.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/compiler/logical_passes.h"

namespace braid::compiler {
namespace {

std::string Folded(const std::string& text) {
  return Rewritten(text, [](const LogicalGraph& graph) { return FoldNorms(graph); });
}

constexpr char kOperands[] = R"(
%0:f32[4, 2, 3, 3] = input "x" () {dtype=f32 shape=[4, 2, 3, 3]} on=cpu[1]{0.0}
%1:f32[5, 2, 1, 1] = variable "w" () {dtype=f32 shape=[5, 2, 1, 1]} on=cpu[1]{0.0}
%2:f32[5] = variable "gamma" () {dtype=f32 shape=[5]} on=cpu[1]{0.0}
%3:f32[5] = variable "beta" () {dtype=f32 shape=[5]} on=cpu[1]{0.0}
%4:f32[5] = variable "mean" () {dtype=f32 shape=[5]} on=cpu[1]{0.0}
%5:f32[5] = variable "variance" () {dtype=f32 shape=[5]} on=cpu[1]{0.0}
%6:f32[5] = variable "bias" () {dtype=f32 shape=[5]} on=cpu[1]{0.0}
)";
constexpr char kConv[] =
    "%7:f32[4, 5, 3, 3] = conv \"c\" (%0, %1, %6) {dilations=[1, 1] groups=1 "
    "pads_begin=[0, 0] pads_end=[0, 0] strides=[1, 1]} on=cpu[1]{0.0}\n";
constexpr char kNorm[] =
    "%8:f32[4, 5, 3, 3] = batch_norm \"bn\" (%7, %4, %5, %2, %3) "
    "{epsilon=0.001 training=false} on=cpu[1]{0.0}\n";
constexpr char kFetch[] = "fetch \"f\" (%8) {name=\"y\"} on=cpu[1]{0.0}\n";

TEST(FoldNorms, IntoWeightsAndAddend) {
  const std::string factor =
      R"(%8:f32[5] = add_scalar "bn.add_scalar" (%5) {value=0.001} on=cpu[1]{0.0}
%9:f32[5] = rsqrt "bn.rsqrt" (%8) on=cpu[1]{0.0}
%10:f32[5] = mul "bn.mul" (%2, %9) on=cpu[1]{0.0}
%11:f32[5, 1, 1, 1] = reshape "bn.reshape" (%10) {shape=[5, 1, 1, 1]} on=cpu[1]{0.0}
%12:f32[5, 2, 1, 1] = mul "bn.mul_1" (%1, %11) on=cpu[1]{0.0}
)";
  const std::string rest = R"( {dilations=[1, 1] groups=1 pads_begin=[0, 0] pads_end=[0, 0] )"
                           R"(strides=[1, 1]} on=cpu[1]{0.0}
fetch "f" (%7) {name="y"} on=cpu[1]{0.0}
)";
  EXPECT_EQ(Folded(absl::StrCat(kOperands, kConv, kNorm, kFetch)),
            absl::StrCat(kOperands, factor, R"(%13:f32[5] = sub "bn.sub" (%4, %6) on=cpu[1]{0.0}
%14:f32[5] = mul "bn.mul_2" (%13, %10) on=cpu[1]{0.0}
%15:f32[5] = sub "bn.sub_1" (%3, %14) on=cpu[1]{0.0}
%7:f32[4, 5, 3, 3] = conv "c" (%0, %12, %15))",
                         rest));
  EXPECT_EQ(Folded(absl::StrReplaceAll(absl::StrCat(kOperands, kConv, kNorm, kFetch),
                                       {{"(%0, %1, %6)", "(%0, %1)"}})),
            absl::StrCat(kOperands, factor, R"(%13:f32[5] = mul "bn.mul_2" (%4, %10) on=cpu[1]{0.0}
%14:f32[5] = sub "bn.sub" (%3, %13) on=cpu[1]{0.0}
%7:f32[4, 5, 3, 3] = conv "c" (%0, %12, %14))",
                         rest));
}

TEST(FoldNorms, OneAfterTheOther) {
  const std::string second =
      "%9:f32[4, 5, 3, 3] = batch_norm \"bn2\" (%8, %4, %5, %2, %3) "
      "{epsilon=0.001 training=false} on=cpu[1]{0.0}\n";
  const std::string folded = Folded(absl::StrCat(kOperands, kConv, kNorm, second,
                                                 "fetch \"f\" (%9) {name=\"y\"} on=cpu[1]{0.0}\n"));
  EXPECT_EQ(folded.find("batch_norm \""), std::string::npos) << folded;
}

TEST(FoldNorms, LeavesWhatOthersWantOrWhatChanges) {
  const std::string whole = absl::StrCat(kOperands, kConv, kNorm, kFetch);
  for (const std::string& text : {
           // The batch's own statistics.
           absl::StrReplaceAll(whole, {{"training=false", "training=true"}}),
           // Somebody else wants what lies between, or its layout was asked for.
           absl::StrCat(whole, "fetch \"g\" (%7) {name=\"z\"} on=cpu[1]{0.0}\n"),
           absl::StrReplaceAll(whole, {{"strides=[1, 1]} on=cpu[1]{0.0}",
                                        "strides=[1, 1]} on=cpu[1]{0.0} hint=(S(0))"}}),
           // A job that writes variables, also others than these.
           absl::StrCat(whole, "assign \"a\" (%6, %3) on=cpu[1]{0.0}\n"),
           // Weights that the program feeds.
           absl::StrReplaceAll(whole, {{"variable \"w\"", "input \"w\""}}),
           // Of another device.
           absl::StrReplaceAll(
               whole, {{"training=false} on=cpu[1]{0.0}", "training=false} on=cpu[1]{0.1}"}}),
       }) {
    const auto graph = LogicalGraph::Parse(text, &Registry());
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(Folded(text), absl::StrCat("\n", graph->ToString()));
  }
}

}  // namespace
}  // namespace braid::compiler
