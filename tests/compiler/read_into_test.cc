#include "compiler/logical/read_into.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "graph/op_registry.h"

namespace braid::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A variable that is assigned what is read; `more` may say that others see it, too.
std::string ReadInto(const std::string& assign, bool may, const std::string& more = "") {
  static const OpRegistry registry = BuiltinOps();
  auto graph = LogicalGraph::Parse(
      "%0:f32[4, 3] = variable \"w\" () {dtype=f32 shape=[4, 3]}\n"
      "%1:f32[4, 3] = read_file \"w.read\" () {dtype=f32 offset=16 path=\"x\" shape=[4, 3]}\n"
      "%2:bool[] = input \"if\" () {dtype=bool shape=[]}\n" +
          more + assign + "\n",
      &registry);
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return "";
  for (Op& op : graph->mutable_ops()) op.placement = Placement("cpu", {{0, 0}});
  return ReadIntoVariables(*graph, [may](const Placement&) { return may; }).ToString();
}

TEST(ReadIntoTest, TheReaderOverwritesTheVariable) {
  const std::string text = ReadInto("assign \"set\" (%0, %1) {}", true);
  EXPECT_THAT(text, HasSubstr("read_file_into \"w.read\" (%0) {dtype=f32 offset=16 path=\"x\""));
  EXPECT_THAT(text, Not(HasSubstr("assign")));
  EXPECT_THAT(text, Not(HasSubstr("read_file \"")));
}

TEST(ReadIntoTest, OnlyWhereNobodyWouldSeeTheDifference) {
  EXPECT_THAT(ReadInto("assign \"set\" (%0, %1) {}", false), HasSubstr("assign"))
      << "devices of other memory";
  EXPECT_THAT(ReadInto("assign \"set\" (%0, %1, %2) {}", true), HasSubstr("assign"))
      << "on a condition";
  EXPECT_THAT(ReadInto("assign \"set\" (%0, %1) {}", true, "fetch \"seen\" (%1) {name=\"seen\"}\n"),
              HasSubstr("assign"))
      << "somebody sees what is read";
}

}  // namespace
}  // namespace braid::compiler
