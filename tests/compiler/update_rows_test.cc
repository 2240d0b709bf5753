#include "compiler/logical/update_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "graph/op_registry.h"

namespace braid::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A table of 100 rows, of which `more` may say that others read the gradient, too.
std::string Updated(const std::string& indices, const std::string& attrs,
                    const std::string& more = "") {
  static const OpRegistry registry = BuiltinOps();
  const auto graph = LogicalGraph::Parse(
      "%0:f32[100, 3] = variable \"table\" () {dtype=f32 shape=[100, 3]}\n"
      "%1:i32[" +
          indices + "] = input \"at\" () {dtype=i32 shape=[" + indices +
          "]}\n"
          "%2:f32[" +
          indices + ", 3] = input \"rows\" () {dtype=f32 shape=[" + indices +
          ", 3]}\n"
          "%3:f32[] = input \"rate\" () {dtype=f32 shape=[]}\n"
          "%4:f32[100, 3] = gather_grad \"gradient\" (%1, %2) {axis=0 size=100}\n" +
          more + "sgd_update \"update\" (%0, %4, %3) {" + attrs + "}\n",
      &registry);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? UpdateRows(*graph).ToString() : "";
}

TEST(UpdateRowsTest, TheUpdateTakesIndicesAndRows) {
  const std::string text = Updated("4, 5", "weight_decay=0.0");
  EXPECT_THAT(text, HasSubstr("sgd_rows_update \"update\" (%0, %1, %2, %3)"));
  EXPECT_THAT(text, Not(HasSubstr("gather_grad")));
}

TEST(UpdateRowsTest, OnlyWhereNothingElseWouldChange) {
  EXPECT_THAT(Updated("4, 5", "weight_decay=0.1"), HasSubstr("sgd_update")) << "all rows decay";
  EXPECT_THAT(Updated("26", "weight_decay=0.0"), HasSubstr("sgd_update")) << "so many rows";
  EXPECT_THAT(Updated("4, 5", "weight_decay=0.0", "fetch \"seen\" (%4) {name=\"seen\"}\n"),
              HasSubstr("gather_grad"))
      << "somebody sees the gradient";
}

}  // namespace
}  // namespace braid::compiler
