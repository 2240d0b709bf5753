// Mutations made on purpose: what the verifier, the start or a simulation says of each. Every test
// here also shows that without that checker the mutation would go on unseen or stop the run.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/plan/expand.h"
#include "compiler/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/remote_bus.h"
#include "tests/api/training_case.h"
#include "tests/simulation/sim_plans.h"
#include "tests/simulation/sim_runner.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kMutationSeeds = 20;

std::shared_ptr<const CompiledSimPlan> Compiled(const std::string& name) {
  const auto plan = FindSimPlan(MakeSimPlans(TestFolder()), name);
  const auto compiled = CompileSimPlan(*plan);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *compiled;
}

absl::StatusOr<std::vector<double>> RunSeed(std::shared_ptr<const CompiledSimPlan> plan,
                                            uint64_t seed) {
  return MakeLoopbackRunner({.plan = std::move(plan), .make_transports = {}})->Run(seed);
}

// ---- a dropped ack -----------------------------------------------------------------------------

// The first kAck of one register that goes to another node is lost.
struct LostAck {
  RegisterId reg = 0;
  bool is_lost = false;
  Message message = {};
};

class LosingLink final : public Link {
 public:
  LosingLink(std::unique_ptr<Link> link, LostAck* lost) : link_(std::move(link)), lost_(*lost) {}

  void Send(std::span<const std::byte> frame) override {
    if (static_cast<braid::Channel>(frame[0]) == braid::Channel::kActor) {
      const auto message = MessageOfFrame(frame);
      if (message.ok() && message->kind == MessageKind::kAck && message->reg == lost_.reg &&
          !std::exchange(lost_.is_lost, true)) {
        lost_.message = *message;
        return;
      }
    }
    link_->Send(frame);
  }

  uint16_t peer() const override { return link_->peer(); }
  std::string Describe() const override { return link_->Describe(); }
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) override {
    return link_->Expose(memory);
  }
  void Withdraw(const MemoryKey& key) override { link_->Withdraw(key); }
  bool Write(std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, DoneCallback done) override {
    return link_->Write(payload, key, offset, frame, std::move(done));
  }
  void SetHandler(FrameHandler handler) override { link_->SetHandler(std::move(handler)); }
  void OnClosed(std::function<void(absl::Status)> closed) override {
    link_->OnClosed(std::move(closed));
  }
  void Close(absl::Status reason) override { link_->Close(std::move(reason)); }
  LinkCounters counters() const override { return link_->counters(); }

 private:
  const std::unique_ptr<Link> link_;
  LostAck& lost_;
};

class LosingTransport final : public Transport {
 public:
  LosingTransport(std::unique_ptr<Transport> transport, LostAck* lost)
      : transport_(std::move(transport)), lost_(*lost) {}
  std::string_view name() const override { return transport_->name(); }
  absl::StatusOr<std::string> Open() override { return transport_->Open(); }
  absl::Status Reaches(std::string_view address) const override {
    return transport_->Reaches(address);
  }
  void Connect(LinkRequest request, ConnectCallback done) override {
    transport_->Connect(std::move(request),
                        [this, done = std::move(done)](absl::StatusOr<std::unique_ptr<Link>> link) {
                          if (!link.ok()) return done(std::move(link));
                          done(std::make_unique<LosingLink>(*std::move(link), &lost_));
                        });
  }

 private:
  const std::unique_ptr<Transport> transport_;
  LostAck& lost_;
};

absl::StatusOr<std::vector<double>> RunWithLostAck(std::shared_ptr<const CompiledSimPlan> plan,
                                                   uint64_t seed, LostAck* lost) {
  const auto runner = MakeLoopbackRunner(
      {.plan = std::move(plan), .make_transports = [lost](const TransportOptions& options) {
         std::vector<std::unique_ptr<Transport>> transports;
         for (auto& transport : MakeTransports(options)) {
           transports.push_back(std::make_unique<LosingTransport>(std::move(transport), lost));
         }
         return transports;
       }});
  return runner->Run(seed);
}

// Slots by register, of those whose acks cross a link.
std::map<RegisterId, uint32_t> LandingRegisters(const CompiledSimPlan& plan) {
  std::map<RegisterId, uint32_t> slots;
  for (int node = 0; node < plan.physical.num_nodes; ++node) {
    const auto part = compiler::ExpandPlan(plan.physical, node);
    EXPECT_TRUE(part.ok()) << part.status();
    for (const plan::Task& task : part->tasks) {
      for (const plan::Input& input : task.inputs) {
        if (input.producer.node != part->node) slots[input.reg] = input.slots;
      }
    }
  }
  return slots;
}

// Nothing can go on, and the report names the two actors and the register; where a second slot lets
// the producer go on, the next ack is out of order, and refusing it names them.
TEST(MutationTest, ALostAckIsNamed) {
  const auto plan = Compiled("pipeline");
  std::map<uint32_t, int> found;  // by slots
  for (const auto& [reg, slots] : LandingRegisters(*plan)) {
    for (uint64_t seed = 1; seed <= kMutationSeeds; ++seed) {
      LostAck lost{.reg = reg};
      const auto run = RunWithLostAck(plan, seed, &lost);
      ASSERT_FALSE(run.ok()) << "register " << reg << ", seed " << seed;
      const std::string said(run.status().message());
      const std::string reader = ToString(lost.message.src);
      if (slots == 1) {
        EXPECT_THAT(said,
                    AllOf(HasSubstr("no event left"),
                          HasSubstr(absl::StrFormat("(%s), ", ToString(lost.message.dst))),
                          HasSubstr(absl::StrFormat(
                              "waits for %s to release register %d slot 0 piece 0", reader, reg))))
            << "seed " << seed;
      } else {
        EXPECT_THAT(said,
                    AllOf(HasSubstr(absl::StrFormat("(%s): ", ToString(lost.message.dst))),
                          HasSubstr(absl::StrFormat(
                              "kAck of register %d slot 1 from %s refused: slot 1 with piece 1 is "
                              "out of order",
                              reg, reader))))
            << "seed " << seed;
      }
      ++found[slots];
    }
  }
  EXPECT_GT(found[1], 0);
  EXPECT_GT(found[2], 0);
}

// ---- a collective order swapped on one node ----------------------------------------------------

compiler::GroupId FindGroup(const compiler::PhysicalGraph& graph, const std::string& name) {
  for (const compiler::TaskGroup& group : graph.groups()) {
    if (group.name == name) return group.id;
  }
  ADD_FAILURE() << "no group " << name;
  return 0;
}

// The names of two all_reduces, neither of which needs the other's result.
constexpr const char* kFirstReduce =
    "out.add.grad.reduce_sum.all_reduce..out.matmul.grad.tensordot.all_reduce (2 tensors)";
constexpr const char* kSecondReduce = "fc2.add.grad.reduce_sum.all_reduce";

// A plan in which `to` waits for `from`.
compiler::PhysicalGraph Ordered(const compiler::PhysicalGraph& graph, const std::string& from,
                                const std::string& to) {
  compiler::PhysicalGraph ordered = graph;
  ordered.AddControlEdge(FindGroup(graph, from), FindGroup(graph, to), 0);
  return ordered;
}

// Collectives of CPUs are matched by their ids: one node may be forced into any order of its own.
TEST(MutationTest, AnOrderOfCollectivesOnOneNodeChangesNothing) {
  const auto plan = Compiled("model");
  const auto expected = RunSeed(plan, 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const bool is_swapped : {false, true}) {
    auto ordered = std::make_shared<CompiledSimPlan>(*plan);
    ordered->other[1] = Ordered(plan->physical, is_swapped ? kSecondReduce : kFirstReduce,
                                is_swapped ? kFirstReduce : kSecondReduce);
    for (uint64_t seed = 1; seed <= kMutationSeeds; ++seed) {
      const auto run = RunSeed(ordered, seed);
      ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status();
      EXPECT_EQ(*run, *expected) << "seed " << seed;
    }
  }
}

// Where every node has an order, as a plan for a backend that needs one would have it, and one
// node's is swapped: each waits in another collective. Every seed says so.
TEST(MutationTest, AnOrderSwappedOnOneNodeIsFoundBySimulation) {
  const auto plan = Compiled("model");
  auto swapped = std::make_shared<CompiledSimPlan>(*plan);
  swapped->other[0] = Ordered(plan->physical, kFirstReduce, kSecondReduce);
  swapped->other[1] = Ordered(plan->physical, kSecondReduce, kFirstReduce);
  for (uint64_t seed = 1; seed <= kMutationSeeds; ++seed) {
    const auto run = RunSeed(swapped, seed);
    ASSERT_FALSE(run.ok()) << "seed " << seed;
    EXPECT_THAT(std::string(run.status().message()),
                AllOf(HasSubstr("no event left"), HasSubstr("work that goes round between"),
                      HasSubstr(absl::StrFormat("node 0, device 0 (transfer): all_reduce '%s' (0/",
                                                kFirstReduce)),
                      HasSubstr(absl::StrFormat("node 1, device 0 (transfer): all_reduce '%s' (1/",
                                                kSecondReduce)),
                      HasSubstr(" runs, awaits node 0"), HasSubstr(" runs, awaits node 1")))
        << "seed " << seed;
  }
}

// The same edges in the graph of the whole cluster: the verifier names the cycle before any node
// hears of it.
TEST(MutationTest, ContraryOrdersAreFoundByTheVerifier) {
  const auto plan = Compiled("model");
  compiler::PhysicalGraph graph = plan->physical;
  ASSERT_EQ(compiler::Verify(graph, plan->operators), absl::OkStatus());
  std::map<std::string, compiler::GroupId> groups;
  for (const compiler::TaskGroup& group : graph.groups()) groups[group.name] = group.id;
  graph.AddControlEdge(groups.at(kFirstReduce), groups.at(kSecondReduce), 0);
  EXPECT_EQ(compiler::Verify(graph, plan->operators), absl::OkStatus());
  graph.AddControlEdge(groups.at(kSecondReduce), groups.at(kFirstReduce), 0);
  EXPECT_THAT(std::string(compiler::Verify(graph, plan->operators).message()),
              AllOf(HasSubstr("these wait for each other"),
                    HasSubstr(absl::StrFormat("'%s'", kFirstReduce)),
                    HasSubstr(absl::StrFormat("'%s'", kSecondReduce))));
}

// One takes as many elements as the other, and has room for them; nothing of it is ever used.
void MakeAlike(compiler::PhysicalGraph& graph, const std::string& bucket, const std::string& one) {
  const compiler::TaskGroup& first = graph.group(FindGroup(graph, bucket));
  compiler::TaskGroup& second = graph.group(FindGroup(graph, one));
  const int64_t bytes = graph.reg(first.outputs[0]).slot_bytes;
  for (compiler::TensorLayout* layout :
       {&second.movement()->source, &second.movement()->destination}) {
    layout->type.shape = {bytes / static_cast<int64_t>(SizeOf(layout->type.dtype))};
  }
  for (compiler::GroupRegisterId id : {second.inputs[0].reg, second.outputs[0]}) {
    compiler::Register& reg = graph.reg(id);
    reg.slot_bytes += bytes;
    reg.stride += bytes;
  }
}

// Groups that change places change the numbers of their collectives, and no other: both have as
// many tasks.
compiler::PhysicalGraph Swapped(const compiler::PhysicalGraph& graph, const std::string& a,
                                const std::string& b) {
  compiler::PhysicalGraph swapped = graph;
  const compiler::GroupId first = FindGroup(graph, a), second = FindGroup(graph, b);
  std::swap(swapped.group(first), swapped.group(second));
  for (const compiler::GroupId id : {first, second}) {
    swapped.group(id).id = id;
    for (compiler::GroupRegisterId output : swapped.group(id).outputs) {
      swapped.reg(output).producer = id;
    }
  }
  return swapped;
}

// The ids swapped on one node: its members would meet those of another op. The nodes' hubs find it
// when they exchange keys, before the first step, by name even if all else is alike.
TEST(MutationTest, CollectivesSwappedOnOneNodeAreFoundAtTheStart) {
  for (const bool are_alike : {false, true}) {
    auto swapped = std::make_shared<CompiledSimPlan>(*Compiled("model"));
    if (are_alike) MakeAlike(swapped->physical, kFirstReduce, kSecondReduce);
    swapped->other[1] = Swapped(swapped->physical, kFirstReduce, kSecondReduce);
    for (uint64_t seed = 1; seed <= kMutationSeeds; ++seed) {
      const auto run = RunSeed(swapped, seed);
      ASSERT_FALSE(run.ok()) << "seed " << seed << ", alike: " << are_alike;
      EXPECT_THAT(std::string(run.status().message()),
                  AllOf(HasSubstr("its spec on node"), HasSubstr("differs"),
                        testing::AnyOf(HasSubstr(kFirstReduce), HasSubstr(kSecondReduce))))
          << "seed " << seed;
    }
  }
}

// ---- a slot too few ----------------------------------------------------------------------------

// A schedule in which a stage goes back only when all its micro-batches have gone forward: what
// each of two micro-batches leaves for the way back has to be kept, in two slots.
struct ForwardFirst {
  compiler::PhysicalGraph graph;
  compiler::GroupRegisterId kept = braid::kNone;
};

ForwardFirst MakeForwardFirst(const CompiledSimPlan& plan) {
  ForwardFirst result{plan.physical};
  compiler::PhysicalGraph& graph = result.graph;
  const auto is_stage = [&graph](compiler::GroupId id) {
    const compiler::TaskGroup& group = graph.group(id);
    return group.is<compiler::Compute>() && group.stream == StreamKind::kCompute &&
           group.acts_per_step == 2;
  };
  const auto consumers = graph.Consumers();
  for (size_t i = 0; i < consumers.size(); ++i) {
    const auto kept = static_cast<compiler::GroupRegisterId>(i);
    const compiler::GroupId forward = graph.reg(kept).producer;
    if (graph.reg(kept).slots != 2 || !is_stage(forward)) continue;
    for (const auto& [back, input] : consumers[i]) {
      if (!is_stage(back) || graph.group(back).placement != graph.group(forward).placement) {
        continue;
      }
      result.kept = kept;
      const compiler::GroupRegisterId order =
          graph
              .AddRegister({.name = "forward first",
                            .placement = graph.group(forward).placement,
                            .parts = {},
                            .producer = forward,
                            .period = 2})
              .id;
      graph.group(forward).outputs.push_back(order);
      graph.group(back).inputs.push_back({.reg = order, .period = 2});
      return result;
    }
  }
  ADD_FAILURE() << "no stage has a forward and a backward";
  return result;
}

std::shared_ptr<const CompiledSimPlan> WithGraph(const CompiledSimPlan& plan,
                                                 const compiler::PhysicalGraph& graph) {
  auto changed = std::make_shared<CompiledSimPlan>(plan);
  changed->physical = graph;
  return changed;
}

TEST(MutationTest, ASlotTooFewIsFoundByTheVerifierAndBySimulation) {
  const auto plan = Compiled("gpt");
  const auto expected = RunSeed(plan, 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForwardFirst mutated = MakeForwardFirst(*plan);
  ASSERT_EQ(compiler::Verify(mutated.graph, plan->operators), absl::OkStatus());
  const auto good = WithGraph(*plan, mutated.graph);
  const std::string kept = mutated.graph.reg(mutated.kept).name;

  --mutated.graph.reg(mutated.kept).slots;
  EXPECT_THAT(std::string(compiler::Verify(mutated.graph, plan->operators).message()),
              AllOf(HasSubstr("these wait for each other"),
                    HasSubstr(absl::StrFormat("2 slots for register '%s' would free it", kept))));
  const auto bad = WithGraph(*plan, mutated.graph);
  for (uint64_t seed = 1; seed <= kMutationSeeds; ++seed) {
    const auto run = RunSeed(good, seed);
    ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status();
    EXPECT_EQ(*run, *expected) << "seed " << seed;
    const auto stopped = RunSeed(bad, seed);
    ASSERT_FALSE(stopped.ok()) << "seed " << seed;
    EXPECT_THAT(std::string(stopped.status().message()),
                AllOf(HasSubstr("no event left"), HasSubstr(" to release register ")))
        << "seed " << seed;
  }
}

// ---- bytes that are not free -------------------------------------------------------------------

// The memory plan gives a register the bytes of one that is still read: the verifier names the
// edge that is missing; past it, the checker of simulations names both registers.
TEST(MutationTest, SharedBytesAreFoundByTheVerifierAndBySimulation) {
  const auto plan = Compiled("pipeline");
  compiler::PhysicalGraph graph = plan->physical;
  std::map<std::string, compiler::GroupRegisterId> registers;
  for (const compiler::Register& reg : graph.registers()) registers[reg.name] = reg.id;
  // Both are read once more on the way back.
  graph.reg(registers.at("relu")).offset = graph.reg(registers.at("read:0")).offset;
  EXPECT_THAT(std::string(compiler::Verify(graph, plan->operators).message()),
              HasSubstr("share bytes"));
  const auto bad = WithGraph(*plan, graph);
  for (uint64_t seed = 1; seed <= kMutationSeeds; ++seed) {
    EXPECT_THAT(std::string(RunSeed(bad, seed).status().message()),
                AllOf(HasSubstr("byte overlap: register"), HasSubstr("is read, but register")))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace braid
