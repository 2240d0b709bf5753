#include "compiler/physical/assign_streams.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

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

// The streams of three sums: of two devices of node 0, of two of node 1, and of $third.
std::vector<StreamKind> StreamsOfSums(const std::string& third, NodeKinds kinds) {
  constexpr char kSums[] = R"(
%0:f32[8, 4] = read "a" () {batch=8 types="f32[8, 4]"} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
%1:f32[4, 4] = tensordot "da" (%0, %0) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%2:f32[4, 4] = relu "ra" (%1) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%3:f32[8, 4] = read "b" () {batch=8 types="f32[8, 4]"} on=cpu[2]{1.0 1.1} sbp=()->(S(0))
%4:f32[4, 4] = tensordot "db" (%3, %3) on=cpu[2]{1.0 1.1} sbp=(S(0), S(0))->(P)
%5:f32[4, 4] = relu "rb" (%4) on=cpu[2]{1.0 1.1} sbp=(B)->(B)
%6:f32[8, 4] = read "c" () {batch=8 types="f32[8, 4]"} on=$third sbp=()->(S(0))
%7:f32[4, 4] = tensordot "dc" (%6, %6) on=$third sbp=(S(0), S(0))->(P)
%8:f32[4, 4] = relu "rc" (%7) on=$third sbp=(B)->(B)
)";
  auto graph = LowerText(absl::StrReplaceAll(kSums, {{"$third", third}}), std::move(kinds));
  EXPECT_TRUE(graph.ok()) << graph.status();
  std::vector<StreamKind> streams;
  if (!graph.ok()) return streams;
  for (const TaskGroup& group : graph->groups()) {
    if (group.is<Collective>()) streams.push_back(group.stream);
  }
  return streams;
}

TEST(AssignStreams, DevicesThatDoCollectivesDoThoseOfTheirNode) {
  const DeviceKind card = {.name = "card", .is_host = false, .does_collectives = true};
  const auto on_device = StreamKind::kCollective, by_host = StreamKind::kTransfer;
  const std::string same = "cpu[2]{0.0 0.1}";
  EXPECT_EQ(StreamsOfSums(same, NodeKinds({card, card})),
            (std::vector<StreamKind>{on_device, on_device, on_device}));
  // Only where all members can.
  EXPECT_EQ(StreamsOfSums(same, NodeKinds({card, {.name = "slow", .is_host = false}})),
            (std::vector<StreamKind>{on_device, by_host, on_device}));
  EXPECT_EQ(StreamsOfSums("cpu[2]{0.0 1.0}", NodeKinds({card, card})),
            (std::vector<StreamKind>{on_device, on_device, by_host}));
}

// Of nodes whose devices have the same library for it, as long as that reduces the type.
TEST(AssignStreams, DevicesOfSeveralNodesDoCollectivesWhereTheyCan) {
  DeviceKind card = {.name = "card", .is_host = false, .does_collectives = true};
  const auto third = [](const NodeKinds& kinds) {
    return StreamsOfSums("cpu[2]{0.2 1.2}", kinds).at(2);
  };
  const DeviceKind alone = card;
  card.collects_between_nodes = true;
  EXPECT_EQ(third(NodeKinds({card, card})), StreamKind::kCollective);
  EXPECT_EQ(third(NodeKinds({card, alone})), StreamKind::kTransfer);
  EXPECT_EQ(third(NodeKinds({alone, alone})), StreamKind::kTransfer);
  // They have an order, which is that of one list of devices.
  EXPECT_EQ(StreamsOfSums("cpu[2]{0.0 1.0}", NodeKinds({card, card})).at(2), StreamKind::kTransfer);
}

// What moves from devices to others of their node does not go through the host where they see each
// other's memory.
TEST(AssignStreams, DevicesOfANodeCopyFromEachOther) {
  const DeviceKind card = {.name = "card", .is_host = false, .does_collectives = true};
  const DeviceKind blind = {.name = "blind", .is_host = false};
  const auto stream_of = [](const char* to, const std::vector<DeviceKind>& kinds) {
    constexpr char kMove[] = R"(
%0:f32[4, 4] = input "x" () {dtype=f32 shape=[4, 4]} on=cpu[1]{0.0} sbp=()->(B)
%1:f32[4, 4] = relu "a" (%0) on=cpu[1]{0.0} sbp=(B)->(B)
%2:f32[4, 4] = relu "b" (%1) on=$to sbp=(B)->(B)
)";
    const auto graph = LowerText(absl::StrReplaceAll(kMove, {{"$to", to}}), NodeKinds(kinds));
    EXPECT_TRUE(graph.ok()) << graph.status();
    if (!graph.ok()) return StreamKind::kInput;
    for (const TaskGroup& group : graph->groups()) {
      if (group.is<Exchange>()) return group.stream;
    }
    return StreamKind::kInput;
  };
  EXPECT_EQ(stream_of("cpu[1]{0.1}", {card, card}), StreamKind::kCopyIn);
  EXPECT_EQ(stream_of("cpu[1]{1.0}", {card, card}), StreamKind::kTransfer);
  EXPECT_EQ(stream_of("cpu[1]{0.1}", {blind, card}), StreamKind::kTransfer);
  EXPECT_EQ(stream_of("cpu[1]{0.1}", {{}, card}), StreamKind::kCompute);
}

// A device comes to what it does with others in one order, which is that of one list of devices.
TEST(AssignStreams, ADeviceIsInOneListOfDevices) {
  const DeviceKind card = {.name = "card", .is_host = false, .does_collectives = true};
  for (const char* third : {"cpu[3]{0.0 0.1 0.2}", "cpu[2]{0.1 0.0}", "cpu[2]{0.1 0.2}"}) {
    EXPECT_EQ(StreamsOfSums(third, NodeKinds({card, card})),
              (std::vector<StreamKind>{StreamKind::kCollective, StreamKind::kCollective,
                                       StreamKind::kTransfer}))
        << third;
  }
  // Unless they need no order.
  DeviceKind any = card;
  any.collects_in_any_order = true;
  EXPECT_EQ(StreamsOfSums("cpu[2]{0.1 0.2}", NodeKinds({any, any})),
            std::vector<StreamKind>(3, StreamKind::kCollective));
}

}  // namespace
}  // namespace braid::compiler
