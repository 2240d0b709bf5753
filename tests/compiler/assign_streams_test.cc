#include "compiler/physical/assign_streams.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_replace.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

constexpr char kJob[] = R"(
%0:f32[8, 4] = read "data" () {batch=8 types="f32[8, 4]"} on=cpu[2]{0.0 $other} sbp=()->(S(0))
%1:f32[4, 6] = input "x" () {dtype=f32 shape=[4, 6]} on=cpu[1]{0.2} sbp=()->(B)
%2:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[2]{0.0 $other} sbp=(S(0), B)->(S(0))
%3:f32[4, 6] = tensordot "dw" (%0, %2) on=cpu[2]{0.0 $other} sbp=(S(0), S(0))->(P)
%4:f32[4, 6] = relu "r" (%3) on=cpu[2]{0.0 $other} sbp=(B)->(B)
fetch "y" (%4) {name="y"} on=cpu[1]{0.2} sbp=(B)->()
)";

// On two devices, the second of which is `other`.
std::map<std::string, StreamKind> StreamsOf(const std::string& other, NodeKinds kinds = {}) {
  auto graph = LowerText(absl::StrReplaceAll(kJob, {{"$other", other}}), std::move(kinds));
  EXPECT_TRUE(graph.ok()) << graph.status();
  std::map<std::string, StreamKind> streams;
  if (!graph.ok()) return streams;
  for (const TaskGroup& group : graph->groups()) streams[group.name] = group.stream;
  return streams;
}

TEST(AssignStreams, CpusOfOneNodeAreOneThreadAndTheirReaders) {
  const std::map<std::string, StreamKind> expected = {{"data", StreamKind::kInput},
                                                      {"x", StreamKind::kCompute},
                                                      {"x.slice_exchange", StreamKind::kCompute},
                                                      {"fc", StreamKind::kCompute},
                                                      {"dw", StreamKind::kCompute},
                                                      {"dw.all_reduce", StreamKind::kCompute},
                                                      {"r", StreamKind::kCompute},
                                                      {"r.slice_exchange", StreamKind::kCompute},
                                                      {"y", StreamKind::kCompute}};
  EXPECT_EQ(StreamsOf("0.1"), expected);
}

TEST(AssignStreams, BytesMoveBesideKernelsBetweenNodes) {
  const std::map<std::string, StreamKind> expected = {{"data", StreamKind::kInput},
                                                      {"x", StreamKind::kCompute},
                                                      {"x.slice_exchange", StreamKind::kTransfer},
                                                      {"fc", StreamKind::kCompute},
                                                      {"dw", StreamKind::kCompute},
                                                      {"dw.all_reduce", StreamKind::kTransfer},
                                                      {"r", StreamKind::kCompute},
                                                      {"r.slice_exchange", StreamKind::kTransfer},
                                                      {"y", StreamKind::kCompute}};
  EXPECT_EQ(StreamsOf("1.0"), expected);
}

TEST(AssignStreams, WhatIsNoKernelOfTheDevicesIsTheHosts) {
  const std::map<std::string, StreamKind> expected = {{"data", StreamKind::kInput},
                                                      {"x", StreamKind::kTransfer},
                                                      {"x.slice_exchange", StreamKind::kTransfer},
                                                      {"fc", StreamKind::kCompute},
                                                      {"dw", StreamKind::kCompute},
                                                      {"dw.all_reduce", StreamKind::kTransfer},
                                                      {"r", StreamKind::kCompute},
                                                      {"r.slice_exchange", StreamKind::kTransfer},
                                                      {"y", StreamKind::kTransfer}};
  EXPECT_EQ(StreamsOf("0.1", NodeKinds({{.name = "card", .is_host = false}})), expected);
}

}  // namespace
}  // namespace braid::compiler
