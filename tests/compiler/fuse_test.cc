#include "compiler/logical/fuse.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/compiler/logical_passes.h"

namespace braid::compiler {
namespace {

std::string Fused(const std::string& text) {
  return Rewritten(text, [](const LogicalGraph& graph) { return Fuse(graph); });
}

// A norm with its statistics, and what arrives from behind.
constexpr char kOperands[] = R"(
%0:f32[4, 2, 3, 3] = input "x" () {dtype=f32 shape=[4, 2, 3, 3]} on=cpu[1]{0.0}
%1:f32[2] = variable "gamma" () {dtype=f32 shape=[2]} on=cpu[1]{0.0}
%2:f32[2] = variable "beta" () {dtype=f32 shape=[2]} on=cpu[1]{0.0}
%3:f32[4, 2, 3, 3] = input "r" () {dtype=f32 shape=[4, 2, 3, 3]} on=cpu[1]{0.0}
%4:f32[2] = channel_sum "sum" (%0) on=cpu[1]{0.0}
%5:f32[2] = batch_moment "moment" (%0, %4) on=cpu[1]{0.0}
)";
constexpr char kNorm[] =
    "%6:f32[4, 2, 3, 3] = batch_norm \"bn\" (%0, %4, %5, %1, %2) "
    "{epsilon=0.001 training=true} on=cpu[1]{0.0}\n";
constexpr char kGradients[] =
    "%9:f32[2], %10:f32[2] = batch_norm_sums \"bn_sums\" (%0, %4, %5, %8) "
    "{epsilon=0.001 training=true} on=cpu[1]{0.0} fwd=\"bn\"\n"
    "%11:f32[4, 2, 3, 3] = batch_norm_dx \"bn_dx\" (%0, %4, %5, %1, %8, %9, %10) "
    "{epsilon=0.001} on=cpu[1]{0.0} fwd=\"bn\"\n";

TEST(Fuse, TakesTheRectifierAndItsGradient) {
  EXPECT_EQ(Fused(absl::StrCat(kOperands, kNorm, R"(
%7:f32[4, 2, 3, 3] = relu "z" (%6) on=cpu[1]{0.0}
%8:f32[4, 2, 3, 3] = relu_grad "dz" (%7, %3) on=cpu[1]{0.0} fwd="z"
)",
                               kGradients, R"(
fetch "f" (%7) on=cpu[1]{0.0}
)")),
            absl::StrCat(kOperands, R"(%6:f32[4, 2, 3, 3] = batch_norm "bn" (%0, %4, %5, %1, %2) )",
                         R"({epsilon=0.001 relu=true training=true} on=cpu[1]{0.0}
%7:f32[2], %8:f32[2] = batch_norm_sums "bn_sums" (%0, %4, %5, %3, %1, %2) )",
                         R"({epsilon=0.001 relu=true training=true} on=cpu[1]{0.0} fwd="bn"
%9:f32[4, 2, 3, 3] = batch_norm_dx "bn_dx" (%0, %4, %5, %1, %3, %7, %8, %2) )",
                         R"({epsilon=0.001 relu=true} on=cpu[1]{0.0} fwd="bn"
fetch "f" (%6) on=cpu[1]{0.0}
)"));
}

// dy goes to r as well, so it is made.
TEST(Fuse, TakesWhatIsAdded) {
  EXPECT_EQ(Fused(absl::StrCat(kOperands, kNorm, R"(
%12:f32[4, 2, 3, 3] = add "sum_of_both" (%3, %6) on=cpu[1]{0.0}
%7:f32[4, 2, 3, 3] = relu "z" (%12) on=cpu[1]{0.0}
%8:f32[4, 2, 3, 3] = relu_grad "dz" (%7, %3) on=cpu[1]{0.0} fwd="z"
)",
                               kGradients, R"(
%13:f32[4, 2, 3, 3] = neg "n" (%8) on=cpu[1]{0.0}
)")),
            absl::StrCat(kOperands, R"(%6:f32[4, 2, 3, 3] = )",
                         R"(batch_norm "bn" (%0, %4, %5, %1, %2, %3) )",
                         R"({epsilon=0.001 relu=true training=true} on=cpu[1]{0.0}
%7:f32[4, 2, 3, 3] = relu_grad "dz" (%6, %3) on=cpu[1]{0.0} fwd="bn"
%8:f32[2], %9:f32[2] = batch_norm_sums "bn_sums" (%0, %4, %5, %7) )",
                         R"({epsilon=0.001 training=true} on=cpu[1]{0.0} fwd="bn"
%10:f32[4, 2, 3, 3] = batch_norm_dx "bn_dx" (%0, %4, %5, %1, %7, %8, %9) )",
                         R"({epsilon=0.001} on=cpu[1]{0.0} fwd="bn"
%11:f32[4, 2, 3, 3] = neg "n" (%7) on=cpu[1]{0.0}
)"));
}

TEST(Fuse, LeavesWhatOthersWantOrTheUserLaidOut) {
  const std::string rest = R"(%7:f32[4, 2, 3, 3] = relu "z" (%6) on=cpu[1]{0.0}
)";
  const std::string norm = kNorm;
  for (const std::string& text : {
           absl::StrCat(kOperands, norm, rest,
                        "%8:f32[4, 2, 3, 3] = neg \"n\" (%6) on=cpu[1]{0.0}\n"),
           absl::StrCat(kOperands, absl::StrReplaceAll(norm, {{"}\n", "} hint=(S(0))\n"}}), rest),
           absl::StrCat(kOperands, norm, absl::StrReplaceAll(rest, {{"{0.0}", "{0.1}"}})),
           absl::StrCat(kOperands, norm, "%7:f32[4, 2, 3, 3] = tanh \"z\" (%6) on=cpu[1]{0.0}\n"),
       }) {
    EXPECT_EQ(Fused(text), text);
  }
}

// Of gradients that go elsewhere too, the rectifier's stays by itself.
TEST(Fuse, KeepsAGradientThatOthersTake) {
  const std::string fused = Fused(absl::StrCat(kOperands, kNorm, R"(
%7:f32[4, 2, 3, 3] = relu "z" (%6) on=cpu[1]{0.0}
%8:f32[4, 2, 3, 3] = relu_grad "dz" (%7, %3) on=cpu[1]{0.0} fwd="z"
)",
                                               kGradients, R"(
%12:f32[4, 2, 3, 3] = neg "n" (%8) on=cpu[1]{0.0}
)"));
  EXPECT_NE(fused.find("relu_grad \"dz\""), std::string::npos) << fused;
  EXPECT_EQ(fused.find("= relu \"z\""), std::string::npos) << fused;
}

}  // namespace
}  // namespace braid::compiler
