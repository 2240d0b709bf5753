#include "compiler/physical/choose_methods.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/physical/bucket_collectives.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan_codec.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

// Two sums of 64 bytes, which one bucket joins, of `rows` rows each.
std::string Sums(const std::string& place, const std::string& rows) {
  constexpr char kText[] = R"(
%0:f32[8, ROWS] = read "x" () {batch=8 types="f32[8, ROWS]"} on=PLACE sbp=()->(S(0))
%1:f32[ROWS, ROWS] = tensordot "d1" (%0, %0) on=PLACE sbp=(S(0), S(0))->(P)
%2:f32[ROWS, ROWS] = tensordot "d2" (%0, %0) on=PLACE sbp=(S(0), S(0))->(P)
%3:f32[ROWS, ROWS] = relu "u1" (%1) on=PLACE sbp=(B)->(B)
%4:f32[ROWS, ROWS] = relu "u2" (%2) on=PLACE sbp=(B)->(B)
)";
  return absl::StrReplaceAll(kText, {{"PLACE", place}, {"ROWS", rows}});
}

// "direct" or "ring/262144": what each collective of the graph says.
std::string MethodsOf(const PhysicalGraph& graph) {
  std::string methods;
  for (const TaskGroup& group : graph.groups()) {
    const auto* const collective = std::get_if<Collective>(&group.work);
    if (collective == nullptr) continue;
    absl::StrAppend(&methods,
                    std::string(CollectiveAlgorithmName(collective->on_one_node.algorithm)), " or ",
                    std::string(CollectiveAlgorithmName(collective->between_nodes.algorithm)), ";");
  }
  return methods;
}

std::string Chosen(const std::string& text) {
  auto graph = LowerText(text);
  if (!graph.ok()) return graph.status().ToString();
  graph = BucketCollectives(*std::move(graph));
  if (!graph.ok()) return graph.status().ToString();
  return MethodsOf(ChooseMethods(*std::move(graph)));
}

// A bucket counts as a whole: 2 x 4 KiB at two members are 16 KiB, 2 x 4.25 KiB more; 2 x 20.8 KiB
// at three are less than 128 KiB, 2 x 21.4 KiB more, and 2 x 2.4 KiB less than 16 KiB.
TEST(ChooseMethods, BySizeOfTheBucketAndMembers) {
  EXPECT_EQ(Chosen(Sums("cpu[2]{0.0 0.1}", "32")), "direct_by_one or exchange;");
  EXPECT_EQ(Chosen(Sums("cpu[2]{0.0 0.1}", "33")), "direct or exchange;");
  EXPECT_EQ(Chosen(Sums("cpu[3]{0.0 1.0 2.0}", "25")), "direct_by_one or doubling;");
  EXPECT_EQ(Chosen(Sums("cpu[3]{0.0 1.0 2.0}", "26")), "direct or doubling;");
  EXPECT_EQ(Chosen(Sums("cpu[3]{0.0 1.0 2.0}", "73")), "direct or doubling;");
  EXPECT_EQ(Chosen(Sums("cpu[3]{0.0 1.0 2.0}", "74")), "direct or ring;");
}

// Whatever the size: they have the bytes, and do all of it.
TEST(ChooseMethods, DevicesThatDoCollectivesAreAlgorithmsOfTheirOwn) {
  const NodeKinds cards({{.name = "card", .is_host = false, .does_collectives = true}});
  auto graph = LowerText(Sums("cpu[2]{0.0 0.1}", "4"), cards);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(MethodsOf(ChooseMethods(*std::move(graph))), "device or device;device or device;");
}

// What each of the nodes' members is told if the nodes are on these hosts: "exchange/4096;".
std::string Told(const std::string& place, const std::vector<uint32_t>& hosts) {
  auto graph = LowerText(Sums(place, "4"));
  if (!graph.ok()) return graph.status().ToString();
  graph->hosts = hosts;
  for (const TaskGroup& group : graph->groups()) {
    auto* const collective = std::get_if<Collective>(&graph->group(group.id).work);
    if (collective == nullptr) continue;
    collective->between_nodes = {.algorithm = CollectiveAlgorithm::kExchange, .chunk_bytes = 4096};
    collective->between_hosts = {.algorithm = CollectiveAlgorithm::kHierarchical,
                                 .chunk_bytes = 8192};
  }
  graph->LayOutParts();
  int64_t end = 0;
  for (const Register& reg : graph->registers()) {
    graph->reg(reg.id).offset = end;
    end += reg.slot_bytes;
  }
  auto decoded = DecodePlan(EncodePlan(*graph));
  if (!decoded.ok()) return decoded.status().ToString();
  std::string told;
  for (int node = 0; node < graph->num_nodes; ++node) {
    const auto part = ExpandPlan(*decoded, node);
    if (!part.ok()) return part.status().ToString();
    for (const plan::Task& task : part->tasks) {
      const auto* collective = std::get_if<plan::Collective>(&task.work);
      if (collective == nullptr) continue;
      absl::StrAppend(&told, std::string(CollectiveAlgorithmName(collective->algorithm)), "/",
                      collective->chunk_bytes, ";");
    }
  }
  return told;
}

// Two all_reduces, of which each node has two tasks or one.
TEST(ChooseMethods, NodesAreToldWhatThePlanSays) {
  const std::string nodes = "exchange/4096;exchange/4096;exchange/4096;exchange/4096;";
  EXPECT_EQ(Told("cpu[2]{0.0 1.0}", {}), nodes);
  EXPECT_EQ(Told("cpu[2]{0.0 1.0}", {0, 1}), nodes) << "a member a host";
  EXPECT_EQ(Told("cpu[4]{0.0 0.1 1.0 1.1}", {0, 0}), nodes + nodes) << "one host";
  EXPECT_EQ(Told("cpu[3]{0.0 0.1 1.0}", {0, 1}), nodes + "exchange/4096;exchange/4096;")
      << "not as many on each";
  const std::string hosts = "hierarchical/8192;hierarchical/8192;";
  EXPECT_EQ(Told("cpu[4]{0.0 0.1 1.0 1.1}", {0, 1}), hosts + hosts + hosts + hosts);
  EXPECT_EQ(Told("cpu[4]{0.0 1.0 2.0 3.0}", {0, 1, 1, 0}), hosts + hosts + hosts + hosts);
}

}  // namespace
}  // namespace braid::compiler
