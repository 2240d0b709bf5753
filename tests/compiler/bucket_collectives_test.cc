#include "compiler/physical/bucket_collectives.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/plan/invariants.h"
#include "compiler/verify.h"
#include "graph/functional.h"
#include "runtime/base/status.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

// Four gradients of 64 bytes; the last one's sum is read first.
constexpr char kGradients[] = R"(
%0:f32[8, 4] = read "x" () {batch=8 types="f32[8, 4]"} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
%1:f32[4, 4] = tensordot "d1" (%0, %0) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%2:f32[8, 4] = relu "between" (%0) on=cpu[2]{0.0 0.1} sbp=(S(0))->(S(0))
%3:f32[4, 4] = tensordot "d2" (%0, %2) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%4:f32[4, 4] = tensordot "d3" (%2, %2) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%5:f32[4, 4] = tensordot "d4" (%2, %0) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%6:f32[4, 4] = relu "u4" (%5) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%7:f32[4, 4] = relu "u3" (%4) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%8:f32[4, 4] = relu "u2" (%3) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%9:f32[4, 4] = relu "u1" (%1) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
)";

std::string Bucketed(const std::string& text, const BucketOptions& options) {
  auto before = LowerText(text);
  if (!before.ok()) return before.status().ToString();
  auto after = BucketCollectives(*before, options);
  if (!after.ok()) return after.status().ToString();
  EXPECT_EQ(CompareRuns(*before, *after), "");
  EXPECT_TRUE(VerifyInvariants(*after).ok()) << VerifyInvariants(*after);
  for (const TaskGroup& group : after->groups()) {
    if (!group.is<Collective>()) continue;
    const Register& in = after->reg(group.inputs[0].reg);
    const Register& out = after->reg(group.outputs[0]);
    EXPECT_EQ(in.parts.size(), out.parts.size());
    EXPECT_EQ(in.slot_bytes, out.slot_bytes);
    for (size_t i = 0; i < in.parts.size() && i < out.parts.size(); ++i) {
      EXPECT_EQ(in.parts[i].offset, out.parts[i].offset);
      EXPECT_EQ(in.parts[i].name, out.parts[i].name);
    }
  }
  return SummaryOf(*after);
}

// Parts are in the order in which gradients become final, whoever reads the sums first.
TEST(BucketCollectives, OneBucket) {
  EXPECT_EQ(Bucketed(kGradients, {}), R"(
g0 compute 'x'
g1 compute 'chain d1..d4 (5 ops)' <- g0
g2 collective 'd1.all_reduce..d4.all_reduce (4 tensors)' <- g1 (4)
g3 compute 'u4' <- g2 (4)
g4 compute 'u3' <- g2 (4)
g5 compute 'u2' <- g2 (4)
g6 compute 'u1' <- g2 (4)
)");
}

TEST(BucketCollectives, FirstIsSmaller) {
  EXPECT_EQ(Bucketed(kGradients, {.first_bytes = 64, .bytes = 192}), R"(
g0 compute 'x'
g1 compute 'd1' <- g0
g2 compute 'chain between..d4 (4 ops)' <- g0
g3 collective 'd2.all_reduce..d4.all_reduce (3 tensors)' <- g2 (3)
g4 compute 'u4' <- g3 (3)
g5 compute 'u3' <- g3 (3)
g6 compute 'u2' <- g3 (3)
g7 collective 'd1.all_reduce' <- g1
g8 compute 'u1' <- g7
)");
}

// What another exchange waits for ends a bucket: nothing is held back.
TEST(BucketCollectives, OtherCommunicationEndsThem) {
  EXPECT_EQ(
      Bucketed(std::string(kGradients) + "%10:f32[8, 4] = relu \"far\" (%2) on=cpu[2]{1.0 1.1} "
                                         "sbp=(S(0))->(S(0))\n"
                                         "%11:f32[8, 4] = exp \"far2\" (%10) on=cpu[2]{1.0 1.1} "
                                         "sbp=(S(0))->(S(0))\n",
               {}),
      R"(
g0 compute 'x'
g1 compute 'd1' <- g0
g2 compute 'between' <- g0
g3 compute 'chain d2..d4 (3 ops)' <- g0 <- g2
g4 collective 'd2.all_reduce..d4.all_reduce (3 tensors)' <- g3 (3)
g5 compute 'u4' <- g4 (3)
g6 compute 'u3' <- g4 (3)
g7 compute 'u2' <- g4 (3)
g8 collective 'd1.all_reduce' <- g1
g9 compute 'u1' <- g8
g10 exchange 'between.slice_exchange' <- g2
g11 compute 'far' <- g10
g12 compute 'far2' <- g11
)");
}

// One that is computed from another's sum waits for it.
TEST(BucketCollectives, NotAcrossDepths) {
  EXPECT_EQ(Bucketed(R"(
%0:f32[8, 4] = read "x" () {batch=8 types="f32[8, 4]"} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
%1:f32[4, 4] = tensordot "d1" (%0, %0) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%2:f32[4, 4] = relu "r" (%1) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%3:f32[8, 4] = matmul "m" (%0, %2) on=cpu[2]{0.0 0.1} sbp=(S(0), B)->(S(0))
%4:f32[4, 4] = tensordot "d2" (%0, %3) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%5:f32[4, 4] = relu "s" (%4) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
)",
                     {}),
            R"(
g0 compute 'x'
g1 compute 'd1' <- g0
g2 collective 'd1.all_reduce' <- g1
g3 compute 'r' <- g2
g4 compute 'm' <- g0 <- g3
g5 compute 'd2' <- g0 <- g4
g6 collective 'd2.all_reduce' <- g5
g7 compute 's' <- g6
)");
}

TEST(BucketCollectives, DtypesApart) {
  EXPECT_EQ(Bucketed(R"(
%0:f32[8, 4] = read "x" () {batch=8 types="f32[8, 4]"} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
%1:f64[8, 4] = cast "c" (%0) {dtype=f64} on=cpu[2]{0.0 0.1} sbp=(S(0))->(S(0))
%2:f32[4, 4] = tensordot "d1" (%0, %0) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%3:f64[4, 4] = tensordot "e1" (%1, %1) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%4:f32[4, 4] = tensordot "d2" (%0, %0) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%5:f64[4, 4] = tensordot "e2" (%1, %1) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->(P)
%6:f32[4, 4] = add "d" (%2, %4) on=cpu[2]{0.0 0.1} sbp=(B, B)->(B)
%7:f64[4, 4] = add "e" (%3, %5) on=cpu[2]{0.0 0.1} sbp=(B, B)->(B)
)",
                     {}),
            R"(
g0 compute 'x'
g1 compute 'chain c..e2 (5 ops)' <- g0
g2 collective 'd1.all_reduce..d2.all_reduce (2 tensors)' <- g1 (2)
g3 compute 'd' <- g2 (2)
g4 collective 'e1.all_reduce..e2.all_reduce (2 tensors)' <- g1 (2)
g5 compute 'e' <- g4 (2)
)");
}

// ---- As a job asks for them --------------------------------------------------------------------

// Four layers by data parallelism, whose gradients have 64 bytes each; the last one's is final
// first. The job is minimized once for each of `asked`, which has sizes of buckets, on layers of
// its own.
absl::StatusOr<PhysicalGraph> CompileLayers(std::vector<MinimizeRequest> asked) {
  const Placement devices = CpuDevices(1, 2);
  LogicalGraph graph(&JobRegistry());
  graph.training = true;
  Tensor x = ToSbp(Input(graph, "x", {DType::kF32, {8, 4}}), sbp::S(0));
  std::vector<OpId> layers;
  for (const char* const name : {"w0", "w1", "w2", "w3"}) {
    const Tensor w = Variable(graph, {.name = name, .shape = {4, 4}, .sbp = sbp::B});
    layers.push_back(graph.producer(w.id()).id);
    x = Relu(MatMul(x, w));
  }
  const Tensor loss = Mean(Square(x));
  Fetch(loss, "loss");
  for (size_t i = 0; i < layers.size(); ++i) {
    asked[i * asked.size() / layers.size()].variables.push_back(layers[i]);
  }
  for (MinimizeRequest& request : asked) {
    request.loss = loss.id();
    request.optimizer = "sgd_update";
    request.attrs = {{"learning_rate", 0.5}, {"weight_decay", 0.0}};
    graph.minimize().push_back(std::move(request));
  }
  BRAID_ASSIGN_OR_RETURN(
      Compiled compiled,
      Compile(std::move(graph), {.job = "layers", .all_devices = devices, .master = devices}));
  return std::move(compiled.physical);
}

MinimizeRequest Asking(std::optional<int64_t> first, std::optional<int64_t> others) {
  MinimizeRequest request;
  request.first_bucket_bytes = first;
  request.bucket_bytes = others;
  return request;
}

// How many gradients each bucket has, in the order in which they become final.
std::vector<size_t> BucketsOf(std::vector<MinimizeRequest> asked) {
  const auto graph = CompileLayers(std::move(asked));
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  std::map<GroupId, size_t> buckets;  // by the group that makes the gradients
  for (const TaskGroup& group : graph->groups()) {
    if (!group.is<Collective>()) continue;
    const Register& in = graph->reg(group.inputs[0].reg);
    buckets[in.producer] = in.parts.size();
  }
  std::vector<size_t> sizes;
  for (const auto& [producer, size] : buckets) sizes.push_back(size);
  return sizes;
}

TEST(BucketCollectives, AJobSaysTheirSizes) {
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(BucketsOf({Asking({}, {})}), Sizes({4}));
  EXPECT_EQ(BucketsOf({Asking({}, 64)}), Sizes({1, 1, 1, 1}));
  EXPECT_EQ(BucketsOf({Asking({}, 128)}), Sizes({2, 2}));
  EXPECT_EQ(BucketsOf({Asking(64, {})}), Sizes({1, 3}));
  EXPECT_EQ(BucketsOf({Asking(64, 128)}), Sizes({1, 2, 1}));
  EXPECT_EQ(BucketsOf({Asking(128, 64)}), Sizes({2, 1, 1}));
  // Of several the smallest.
  EXPECT_EQ(BucketsOf({Asking({}, 256), Asking({}, 128)}), Sizes({2, 2}));
  EXPECT_EQ(BucketsOf({Asking({}, 128), Asking({}, {})}), Sizes({2, 2}));
  EXPECT_EQ(BucketsOf({Asking(64, {}), Asking(128, 192)}), Sizes({1, 3}));
}

// The collectives that a group waits for in its own step.
std::set<GroupId> AwaitedCollectives(const PhysicalGraph& graph, GroupId id) {
  std::set<GroupId> collectives, seen;
  std::vector<GroupId> open = {id};
  while (!open.empty()) {
    const TaskGroup& group = graph.group(open.back());
    open.pop_back();
    if (!seen.insert(group.id).second) continue;
    if (group.is<Collective>()) collectives.insert(group.id);
    for (const GroupInput& input : group.inputs) {
      const Register& reg = graph.reg(input.reg);
      if (reg.initial_tokens == 0) open.push_back(reg.producer);
    }
  }
  return collectives;
}

// What the first bucket brings is applied while others are still on their way.
TEST(BucketCollectives, AnUpdateWaitsForItsOwnBucket) {
  const auto graph = CompileLayers({Asking({}, 128)});
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::map<std::string, std::set<GroupId>> awaited;  // by variable
  for (const TaskGroup& group : graph->groups()) {
    for (const KernelCall& kernel : group.kernels()) {
      if (kernel.op != "sgd_update") continue;
      awaited[kernel.name.substr(0, 2)] = AwaitedCollectives(*graph, group.id);
    }
  }
  ASSERT_EQ(awaited.size(), 4u) << graph->ToString();
  EXPECT_EQ(awaited["w3"].size(), 1u) << graph->ToString();
  EXPECT_EQ(awaited["w2"], awaited["w3"]);
  EXPECT_EQ(awaited["w1"], awaited["w0"]);
  EXPECT_NE(awaited["w1"], awaited["w3"]);
}

}  // namespace
}  // namespace braid::compiler
