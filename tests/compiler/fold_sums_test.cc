#include "compiler/physical/fold_sums.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/physical/assign_slots.h"
#include "compiler/physical/chains.h"
#include "compiler/physical/plan_memory.h"
#include "compiler/plan/invariants.h"
#include "compiler/verify.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

const DeviceKind kCard = {.name = "card", .is_host = false, .adds_to_products = true};

PhysicalGraph Folded(const std::string& text, const NodeKinds& kinds) {
  auto graph = LowerText(text, kinds);
  if (graph.ok()) graph = FormChains(*std::move(graph));
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  PhysicalGraph folded = FoldSums(*std::move(graph), JobRegistry());
  EXPECT_EQ(VerifyInvariants(folded), absl::OkStatus());
  auto planned = AssignSlots(folded);
  if (planned.ok()) planned = PlanMemory(*std::move(planned), JobRegistry());
  EXPECT_TRUE(planned.ok()) << planned.status();
  if (!planned.ok()) return {};
  EXPECT_EQ(Verify(*planned, JobRegistry()), absl::OkStatus());
  return folded;
}

// "matmul_add 'fc' of 3" for each kernel of the job's chains; each scratch is written by one.
std::string KernelsOf(const PhysicalGraph& graph) {
  std::vector<std::string> lines;
  for (const TaskGroup& group : graph.groups()) {
    if (!group.is<Compute>()) continue;
    size_t written = 0;
    for (const KernelCall& kernel : group.kernels()) {
      for (const OperandRef& ref : kernel.outputs) {
        if (ref.source == OperandRef::Source::kScratch) ++written;
      }
      if (kernel.op == "input" || kernel.op == "fetch") continue;
      lines.push_back(absl::StrCat(kernel.op, " '", kernel.name, "' of ", kernel.inputs.size()));
    }
    EXPECT_EQ(std::get<Compute>(group.work).scratch.size(), written) << group.name;
  }
  return absl::StrJoin(lines, "; ");
}

std::string FoldedKernels(const std::string& text) {
  return KernelsOf(Folded(text, NodeKinds({kCard, kCard})));
}

constexpr char kInputs[] = R"(
%0:f32[8, 4] = input "x" () {dtype=f32 shape=[8, 4]} on=cpu[1]{0.0} sbp=()->(B)
%1:f32[4, 6] = input "w" () {dtype=f32 shape=[4, 6]} on=cpu[1]{0.0} sbp=()->(B)
%2:f32[6] = input "b" () {dtype=f32 shape=[6]} on=cpu[1]{0.0} sbp=()->(B)
%3:f32[8, 6] = input "r" () {dtype=f32 shape=[8, 6]} on=cpu[1]{0.0} sbp=()->(B)
)";
std::string Job(const std::string& lines) { return absl::StrCat(kInputs, lines); }

// A linear layer, then a residual, in whichever order it stands.
TEST(FoldSums, ARowAndAWholeTensor) {
  const std::string job = Job(R"(
%4:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[1]{0.0} sbp=(B, B)->(B)
%5:f32[8, 6] = add "bias" (%4, %2) on=cpu[1]{0.0} sbp=(B, B)->(B)
%6:f32[8, 6] = add "residual" (%3, %5) on=cpu[1]{0.0} sbp=(B, B)->(B)
%7:f32[8, 6] = relu "out" (%6) on=cpu[1]{0.0} sbp=(B)->(B)
fetch "y" (%7) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)");
  EXPECT_EQ(FoldedKernels(job), "matmul_add 'fc' of 4; relu 'out' of 1");
  EXPECT_EQ(KernelsOf(Folded(job, {})),
            "matmul 'fc' of 2; add 'bias' of 2; add 'residual' of 2; relu 'out' of 1");
}

// Of two products the later one takes in the earlier one's result; a third sum is left.
TEST(FoldSums, SumsOfProducts) {
  EXPECT_EQ(FoldedKernels(Job(R"(
%4:f32[8, 6] = matmul "one" (%0, %1) on=cpu[1]{0.0} sbp=(B, B)->(B)
%5:f32[8, 6] = matmul "two" (%0, %1) on=cpu[1]{0.0} sbp=(B, B)->(B)
%6:f32[8, 6] = add "both" (%4, %5) on=cpu[1]{0.0} sbp=(B, B)->(B)
%7:f32[8, 6] = add "third" (%6, %3) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "y" (%7) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)")),
            "matmul 'one' of 2; matmul_add 'two' of 3; add 'third' of 2");
}

// What others read of a product has to be made.
TEST(FoldSums, ProductsThatOthersReadStay) {
  const std::string kept = "matmul 'fc' of 2; add 'bias' of 2";
  EXPECT_EQ(FoldedKernels(Job(R"(
%4:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[1]{0.0} sbp=(B, B)->(B)
%5:f32[8, 6] = add "bias" (%4, %2) on=cpu[1]{0.0} sbp=(B, B)->(B)
%6:f32[8, 6] = mul "m" (%4, %5) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "y" (%6) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)")),
            kept + "; mul 'm' of 2");
  EXPECT_EQ(FoldedKernels(Job(R"(
%4:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[1]{0.0} sbp=(B, B)->(B)
%5:f32[8, 6] = add "bias" (%4, %2) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "y" (%4) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
fetch "z" (%5) {name="z"} on=cpu[1]{0.0} sbp=(B)->()
)")),
            kept);
  EXPECT_EQ(FoldedKernels(Job(R"(
%4:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[1]{0.0} sbp=(B, B)->(B)
%5:f32[8, 6] = add "twice" (%4, %4) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "y" (%5) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)")),
            "matmul 'fc' of 2; add 'twice' of 2");
}

// Products over a batch, sums that widen, and addends of products over a split depth.
TEST(FoldSums, OtherProductsStay) {
  EXPECT_EQ(FoldedKernels(Job(R"(
%4:f32[3, 4, 6] = input "ws" () {dtype=f32 shape=[3, 4, 6]} on=cpu[1]{0.0} sbp=()->(B)
%5:f32[3, 8, 6] = matmul "batch" (%0, %4) on=cpu[1]{0.0} sbp=(B, B)->(B)
%6:f32[3, 8, 6] = add "bias" (%5, %2) on=cpu[1]{0.0} sbp=(B, B)->(B)
%7:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[1]{0.0} sbp=(B, B)->(B)
%8:f32[3, 8, 6] = add "wider" (%6, %7) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "y" (%8) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)")),
            "matmul 'batch' of 2; add 'bias' of 2; matmul 'fc' of 2; add 'wider' of 2");
  EXPECT_EQ(FoldedKernels(R"(
%0:f32[8, 4] = variable "x" () {dtype=f32 shape=[8, 4]} on=cpu[2]{0.0 1.0} sbp=()->(S(1))
%1:f32[4, 6] = variable "w" () {dtype=f32 shape=[4, 6]} on=cpu[2]{0.0 1.0} sbp=()->(S(0))
%2:f32[6] = variable "b" () {dtype=f32 shape=[6]} on=cpu[2]{0.0 1.0} sbp=()->(B)
%3:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[2]{0.0 1.0} sbp=(S(1), S(0))->(P)
%4:f32[8, 6] = add "bias" (%3, %2) on=cpu[2]{0.0 1.0} sbp=(P, P)->(P)
%5:f32[8, 6] = relu "out" (%4) on=cpu[2]{0.0 1.0} sbp=(B)->(B)
fetch "y" (%5) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)")
                .find("matmul_add"),
            std::string::npos);
}

// Rows and columns of the result may be split; a node of another kind leaves all as it is.
TEST(FoldSums, Layouts) {
  const auto job = [](const std::string& x, const std::string& w, const std::string& b,
                      const std::string& y) {
    return absl::StrCat(
        "%0:f32[8, 4] = variable \"x\" () {dtype=f32 shape=[8, 4]} on=cpu[2]{0.0 1.0} sbp=()->(", x,
        ")\n%1:f32[4, 6] = variable \"w\" () {dtype=f32 shape=[4, 6]} on=cpu[2]{0.0 1.0} sbp=()->(",
        w, ")\n%2:f32[6] = variable \"b\" () {dtype=f32 shape=[6]} on=cpu[2]{0.0 1.0} sbp=()->(", b,
        ")\n%3:f32[8, 6] = matmul \"fc\" (%0, %1) on=cpu[2]{0.0 1.0} sbp=(", x, ", ", w, ")->(", y,
        ")\n%4:f32[8, 6] = add \"bias\" (%3, %2) on=cpu[2]{0.0 1.0} sbp=(", y, ", ", b, ")->(", y,
        ")\nfetch \"y\" (%4) {name=\"y\"} on=cpu[1]{0.0} sbp=(B)->()\n");
  };
  const std::string columns = job("B", "S(1)", "S(0)", "S(1)");
  const std::string rows = job("S(0)", "B", "B", "S(0)");
  EXPECT_EQ(FoldedKernels(columns), "matmul_add 'fc' of 3");
  EXPECT_EQ(FoldedKernels(rows), "matmul_add 'fc' of 3");
  EXPECT_EQ(KernelsOf(Folded(rows, NodeKinds({DeviceKind(), kCard}))),
            "matmul 'fc' of 2; add 'bias' of 2");
}

}  // namespace
}  // namespace braid::compiler
