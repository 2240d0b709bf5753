// The Plan: what its bytes keep, what is refused, and that whichever nodes expand the two ends of
// an edge, both have the same numbers.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan.pb.h"
#include "compiler/plan/plan_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/seeded_choice.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

using testing::HasSubstr;

// What plan_memory would give, but for sharing.
void GiveMemory(PhysicalGraph& graph) {
  graph.LayOutParts();
  int64_t offset = 0;
  for (const Register& r : graph.registers()) {
    Register& reg = graph.reg(r.id);
    if (reg.is_control() || !reg.parts[0].variable.empty()) continue;
    reg.offset = offset;
    offset += reg.slots * reg.slot_bytes;
  }
  for (const TaskGroup& g : graph.groups()) {
    auto* const compute = std::get_if<Compute>(&graph.group(g.id).work);
    if (compute == nullptr) continue;
    for (Scratch& scratch : compute->scratch) scratch.offset = 0;
  }
}

PhysicalGraph RandomPlan(uint64_t seed) {
  PhysicalGraph graph = RandomPhysicalGraph(seed);
  graph.job = absl::StrCat("random ", seed);
  graph.seed = seed;
  graph.num_nodes = 1;
  for (const TaskGroup& group : graph.groups()) {
    for (const DeviceId& device : group.placement.devices()) {
      graph.num_nodes = std::max(graph.num_nodes, device.node + 1);
    }
  }
  GiveMemory(graph);
  return graph;
}

// A source, an exchange of random layouts between random placements, and two readers, one of which
// exchanges once more.
PhysicalGraph RandomExchange(SeededChoice& choose) {
  const auto pick = [&choose](const auto& from) { return from[choose.Below(from.size())]; };
  const std::vector<std::vector<int64_t>> hierarchies = {{1}, {2}, {3}, {5}, {2, 2}, {3, 2}, {4}};
  const int per_node = 1 + static_cast<int>(choose.Below(3));
  const auto placement = [&] {
    const std::vector<int64_t> hierarchy = pick(hierarchies);
    int64_t count = 1;
    for (int64_t n : hierarchy) count *= n;
    const int first = static_cast<int>(choose.Below(4));
    std::vector<DeviceId> devices;
    for (int i = first; i < first + count; ++i) devices.push_back({i / per_node, i % per_node});
    if (choose.Below(2) == 0) std::reverse(devices.begin(), devices.end());
    return *Placement::Make("cpu", devices, hierarchy);
  };
  const auto layout = [&](const Placement& on, const Shape& shape) {
    std::vector<Sbp> dims;
    for (size_t dim = 0; dim < on.hierarchy().size(); ++dim) {
      dims.push_back(pick(std::vector<Sbp>{sbp::S(0), sbp::S(1), sbp::B, sbp::P}));
    }
    return TensorLayout{{DType::kF32, shape}, NdSbp(std::move(dims))};
  };
  const Shape shape = {static_cast<int64_t>(1 + choose.Below(8)),
                       static_cast<int64_t>(1 + choose.Below(8))};
  PhysicalGraph graph;
  graph.job = "exchange";
  graph.num_nodes = 12;
  const auto add = [&graph](TaskGroup group, const TensorLayout& result) {
    Register reg;
    reg.name = group.name;
    reg.placement = group.placement;
    reg.producer = static_cast<GroupId>(graph.groups().size());
    reg.slots = 1 + static_cast<int>(group.inputs.size());
    reg.parts.emplace_back().layout = result;
    group.outputs = {graph.AddRegister(std::move(reg)).id};
    graph.AddGroup(std::move(group));
    return graph.registers().back().id;
  };
  const auto compute = [&](const std::string& name, GroupRegisterId from) {
    TaskGroup group;
    group.name = name;
    group.placement = graph.reg(from).placement;
    group.inputs = {{.reg = from}};
    return add(std::move(group), graph.reg(from).parts[0].layout);
  };
  const auto exchange = [&](const std::string& name, GroupRegisterId from) {
    TaskGroup group;
    group.name = name;
    group.stream = StreamKind::kTransfer;
    group.placement = placement();
    const TensorLayout destination = layout(group.placement, shape);
    group.work = Exchange{
        .movement = {.source = graph.reg(from).parts[0].layout, .destination = destination}};
    group.inputs = {{.reg = from}};
    return add(std::move(group), destination);
  };
  TaskGroup source;
  source.name = "source";
  source.placement = placement();
  const TensorLayout first = layout(source.placement, shape);
  const GroupRegisterId made = add(std::move(source), first);
  const GroupRegisterId moved = exchange("exchange", made);
  compute("reader", moved);
  compute("after", exchange("again", moved));
  // What a memory plan would add: the source waits for the exchange's readers of it.
  graph.AddControlEdge(1, 0, 1);
  GiveMemory(graph);
  return graph;
}

using Tasks = std::map<std::pair<uint32_t, uint32_t>, const plan::Task*>;  // (node, task)

std::string IdOf(const plan::ActorId& id) {
  return absl::StrFormat("%d.%d.%d", id.node, id.thread, id.task);
}

const plan::Task* Find(const Tasks& tasks, const plan::ActorId& id) {
  const auto found = tasks.find({id.node, id.task});
  return found == tasks.end() || found->second->id.thread != id.thread ? nullptr : found->second;
}

template <typename Ends>
auto FindEnd(const Ends& ends, uint32_t reg) {
  return std::find_if(ends.begin(), ends.end(), [&](const auto& end) { return end.reg == reg; });
}

void CheckInput(const Tasks& tasks, const plan::Task& task, const plan::Input& input) {
  const std::string what =
      absl::StrFormat("task %s '%s', input of register %d from %s", IdOf(task.id), task.name,
                      input.reg, IdOf(input.producer));
  const plan::Task* producer = Find(tasks, input.producer);
  ASSERT_NE(producer, nullptr) << what;
  const auto output = FindEnd(producer->outputs, input.reg);
  ASSERT_NE(output, producer->outputs.end()) << what;
  EXPECT_EQ(output->slots, input.slots) << what;
  EXPECT_EQ(output->initial_tokens, input.initial_tokens) << what;
  EXPECT_EQ(producer->acts_per_step * input.period, task.acts_per_step * output->period) << what;
  EXPECT_EQ(std::count(output->consumers.begin(), output->consumers.end(), task.id), 1) << what;
  if (input.producer.node == task.id.node || !input.memory.has_value()) return;
  // It lands: the writer knows the slots' size, and brings no more.
  const auto* transfer = std::get_if<plan::Transfer>(&producer->work);
  ASSERT_NE(transfer, nullptr) << what;
  EXPECT_EQ(transfer->peer, task.id.node) << what;
  ASSERT_TRUE(output->memory.has_value()) << what;
  EXPECT_EQ(output->memory->stride, input.memory->stride) << what;
  EXPECT_LE(transfer->bytes, input.memory->stride) << what;
  // Only a box of several runs is packed.
  EXPECT_EQ(transfer->staging.has_value(), !IsOneRun(transfer->box, transfer->source.shard.region))
      << what;
}

void CheckOutput(const Tasks& tasks, const plan::Task& task, const plan::Output& output) {
  for (const plan::ActorId& id : output.consumers) {
    const std::string what = absl::StrFormat("task %s '%s', register %d, consumer %s",
                                             IdOf(task.id), task.name, output.reg, IdOf(id));
    const plan::Task* consumer = Find(tasks, id);
    ASSERT_NE(consumer, nullptr) << what;
    const auto input = FindEnd(consumer->inputs, output.reg);
    ASSERT_NE(input, consumer->inputs.end()) << what;
    EXPECT_EQ(input->producer, task.id) << what;
  }
}

// What must be alike at all members.
std::string TextOf(const plan::Collective& collective, const plan::NodePlan& part) {
  const plan::Members& list = part.members[collective.members];
  return absl::StrCat(
      collective.id, " ", std::string(CollectiveKindName(collective.kind)), " ",
      static_cast<int>(collective.algorithm), " type ", static_cast<int>(collective.dtype), " by ",
      static_cast<int>(collective.reduction), " in ", collective.chunk_bytes, " counts ",
      collective.receives.empty() ? absl::StrJoin(collective.counts, ",") : "of its own", " nodes ",
      absl::StrJoin(list.nodes, ","), " devices ", absl::StrJoin(list.devices, ","));
}

std::string TextOf(const plan::Operand& operand) {
  return absl::StrCat(" ", static_cast<int>(operand.source), ".", operand.index, "+",
                      operand.offset, std::string(operand.variable), " ",
                      operand.shard.layout->ToString(), operand.shard.region.ToString());
}

std::string TextOf(const std::optional<plan::Memory>& memory) {
  return !memory.has_value()
             ? " nowhere"
             : absl::StrFormat(" %d/%d:%d+%d", memory->device, static_cast<int>(memory->kind),
                               memory->offset, memory->stride);
}

std::string TextOf(const plan::Task& task, const plan::NodePlan& part) {
  std::string text = absl::StrCat(IdOf(task.id), " '", std::string(task.name), "' on ", task.device,
                                  ".", static_cast<int>(task.stream), " x", task.acts_per_step,
                                  task.is_deferrable ? " deferrable" : "", "\n");
  for (const plan::Input& input : task.inputs) {
    absl::StrAppend(&text, "  in ", input.reg, " from ", IdOf(input.producer), " ", input.slots,
                    "/", input.period, "/", input.initial_tokens, TextOf(input.memory), "\n");
  }
  for (const plan::Output& output : task.outputs) {
    absl::StrAppend(&text, "  out ", output.reg, " ", output.slots, "/", output.period, "/",
                    output.initial_tokens, TextOf(output.memory), " to");
    for (const plan::ActorId& id : output.consumers) absl::StrAppend(&text, " ", IdOf(id));
    absl::StrAppend(&text, "\n");
  }
  if (const auto* compute = std::get_if<plan::Compute>(&task.work)) {
    for (const plan::Kernel& kernel : compute->kernels) {
      absl::StrAppend(&text, "  ", kernel.call->op, " '", kernel.call->name, "' ",
                      kernel.call->attrs.ToString(), " ", kernel.call->location.ToString(),
                      kernel.contributes ? " contributes" : "");
      for (const plan::Operand& operand : kernel.inputs) text += TextOf(operand);
      for (const plan::Operand& operand : kernel.outputs) text += TextOf(operand);
      text += "\n";
    }
  } else if (const auto* copy = std::get_if<plan::Copy>(&task.work)) {
    absl::StrAppend(&text, "  copy", TextOf(copy->destination), copy->zero_first, " ",
                    static_cast<int>(copy->reduction));
    for (const plan::Copy::Move& move : copy->moves) {
      absl::StrAppend(&text, TextOf(move.source), move.box.ToString(), move.add ? "+" : "");
    }
  } else if (const auto* staging = std::get_if<plan::Staging>(&task.work)) {
    for (const plan::Staging::Part& part : staging->parts) {
      absl::StrAppend(&text, "  staging", TextOf(part.from), TextOf(part.to));
    }
  } else if (const auto* transfer = std::get_if<plan::Transfer>(&task.work)) {
    absl::StrAppend(&text, "  transfer", TextOf(transfer->source), transfer->box.ToString(), " ",
                    transfer->peer, " ", transfer->bytes, " ", TextOf(transfer->staging), " ",
                    transfer->landing);
  } else if (const auto* collective = std::get_if<plan::Collective>(&task.work)) {
    absl::StrAppend(&text, "  ", TextOf(*collective, part), " rank ", collective->rank, " ",
                    absl::StrJoin(collective->counts, ","), " ",
                    absl::StrJoin(collective->receives, ","), TextOf(collective->input),
                    TextOf(collective->output));
  } else {
    for (const plan::Variable& variable : std::get<plan::VariableOwner>(task.work).variables) {
      absl::StrAppend(&text, "  ", std::string(variable.name), " ",
                      variable.shard.layout->ToString(), variable.shard.region.ToString(), " ",
                      variable.init != nullptr ? variable.init->ToString() : "no init", "\n");
    }
  }
  return text;
}

// All that a node is told.
std::string TextOf(const plan::NodePlan& part) {
  std::string text = absl::StrFormat("%s %d seed %d\n", part.job, part.node, part.seed);
  for (const plan::Arena& arena : part.arenas) {
    absl::StrAppend(&text, arena.device, " ", arena.device_type, " ", arena.bytes, " ",
                    arena.pinned_bytes, " ", arena.variable_bytes, " ",
                    absl::StrJoin(arena.scratch_bytes, " "), "\n");
  }
  for (const plan::Task& task : part.tasks) absl::StrAppend(&text, TextOf(task, part), "\n");
  absl::StrAppend(&text, "peers ", absl::StrJoin(part.peers, " "), " links ",
                  absl::StrJoin(part.links, " ", absl::PairFormatter(":")), "\n");
  return text;
}

// All nodes' parts; their edges' ends must be equal.
void CheckEdges(const PhysicalGraph& graph) {
  std::vector<plan::NodePlan> parts;
  for (int node = 0; node < graph.num_nodes; ++node) {
    auto part = ExpandPlan(graph, node);
    ASSERT_TRUE(part.ok()) << part.status();
    parts.push_back(*std::move(part));
  }
  Tasks tasks;
  std::map<uint32_t, std::string> members;  // of collectives, with what must be alike
  for (const plan::NodePlan& part : parts) {
    for (const plan::Task& task : part.tasks) {
      ASSERT_EQ(task.id.node, part.node);
      ASSERT_TRUE(tasks.try_emplace({part.node, task.id.task}, &task).second);
      const auto* collective = std::get_if<plan::Collective>(&task.work);
      if (collective == nullptr) continue;
      const std::string alike = TextOf(*collective, part);
      EXPECT_EQ(members.try_emplace(collective->id, alike).first->second, alike) << task.name;
    }
  }
  for (const plan::NodePlan& part : parts) {
    for (const plan::Task& task : part.tasks) {
      for (const plan::Input& input : task.inputs) {
        CheckInput(tasks, task, input);
        if (input.producer.node == part.node) continue;
        EXPECT_NE(std::find(part.peers.begin(), part.peers.end(), input.producer.node),
                  part.peers.end());
      }
      for (const plan::Output& output : task.outputs) CheckOutput(tasks, task, output);
    }
    for (uint32_t peer : part.peers) {
      const auto& theirs = parts[peer].peers;
      EXPECT_NE(std::find(theirs.begin(), theirs.end(), part.node), theirs.end())
          << part.node << " and " << peer;
    }
  }
  EXPECT_FALSE(tasks.empty());
}

TEST(Plan, BothEndsOfEveryEdgeAreEqual) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    CheckEdges(RandomPlan(seed));
    if (HasFailure()) return;
  }
}

TEST(Plan, BothEndsOfEveryTransferAreEqual) {
  SeededChoice choose(11);
  for (int round = 0; round < 1000; ++round) {
    const PhysicalGraph graph = RandomExchange(choose);
    CheckEdges(graph);
    if (HasFailure()) {
      ADD_FAILURE() << "round " << round << "\n" << graph.ToString();
      return;
    }
  }
}

TEST(Plan, BytesKeepWhatNodesExpand) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const PhysicalGraph graph = RandomPlan(seed);
    const std::string bytes = EncodePlan(graph);
    const auto decoded = DecodePlan(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(EncodePlan(*decoded), bytes);
    for (int node = 0; node < graph.num_nodes; ++node) {
      const auto here = ExpandPlan(graph, node), there = ExpandPlan(*decoded, node);
      ASSERT_TRUE(here.ok() && there.ok()) << here.status() << there.status();
      ASSERT_EQ(TextOf(*here), TextOf(*there)) << "seed " << seed;
    }
  }
}

std::string Refusal(const std::function<void(plan::Plan&)>& change) {
  plan::Plan plan;
  EXPECT_TRUE(plan.ParseFromString(EncodePlan(RandomPlan(1))));
  change(plan);
  return std::string(DecodePlan(plan.SerializeAsString()).status().message());
}

TEST(Plan, WhatIsWrongIsNamed) {
  EXPECT_EQ(Refusal([](plan::Plan&) {}), "");
  EXPECT_THAT(std::string(DecodePlan("no plan").status().message()),
              HasSubstr("its 7 bytes cannot be read"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.set_version(1); }),
              HasSubstr("the plan is of version 1, this program reads version 10"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.set_num_nodes(0); }), HasSubstr("for 0 nodes"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_groups(0)->set_name(9999); }),
              HasSubstr("text 9999 of "));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_groups(0)->set_placement(99); }),
              HasSubstr("placement 99 of "));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_groups(0)->set_kind(7); }),
              HasSubstr("is of kind 7"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_groups(0)->add_outputs(1 << 30); }),
              HasSubstr("register 1073741824 of "));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_groups(1)->add_outputs(0); }),
              HasSubstr("register 0 has two producers"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_placements(0)->add_hierarchy(2); }),
              HasSubstr("its product must be their number"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_layouts(0)->set_shape(0, -1); }),
              HasSubstr("layout 0 has a dimension of -1"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_layouts(0)->add_sbp(0); }),
              HasSubstr(" on cpu["));
  EXPECT_THAT(Refusal([](plan::Plan& plan) {
                plan.mutable_layouts(0)->set_micro_batch_sbp(8 * 1000);
                plan.mutable_layouts(0)->set_micro_batches(2);
              }),
              HasSubstr("splits axis 1000"));
  EXPECT_THAT(Refusal([](plan::Plan& plan) { plan.mutable_registers(0)->set_more_slots(-1); }),
              HasSubstr("a register of 4294967295 slots and one"));
}

// Whatever a byte is turned into: an error, or a plan that all its nodes can expand.
TEST(Plan, AnyByteMayBeWrong) {
  const std::string bytes = EncodePlan(RandomPlan(1));
  SeededChoice choose(5);
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string wrong = bytes;
    wrong[at] = static_cast<char>(choose.Below(256));
    const auto graph = DecodePlan(wrong);
    if (!graph.ok()) {
      ++refused;
      continue;
    }
    for (int node = 0; node < std::min(graph->num_nodes, 3); ++node) {
      ExpandPlan(*graph, node).IgnoreError();
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace braid::compiler
