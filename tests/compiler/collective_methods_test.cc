// What collectives are said to cost is what they do: the algorithms' own schedules are worked off,
// member by member, and counted.
#include "compiler/collective_methods.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/collective/chunk_schedule.h"
#include "compiler/boxing/boxing.h"
#include "compiler/boxing/edge.h"
#include "gtest/gtest.h"

namespace braid::compiler {
namespace {

constexpr int64_t kFloat = 4;

// What happens when all members work their schedules off, and a message takes one unit of time and
// nothing else any.
struct Replay {
  std::vector<int64_t> sent, received;  // bytes, per member
  int64_t time = 0;                     // when the last item has arrived
};

class Replaying {
 public:
  explicit Replaying(const std::vector<CollectiveSpec>& specs) {
    for (const CollectiveSpec& spec : specs) schedules_.push_back(MakeChunkSchedule(spec));
    result_.sent.resize(specs.size());
    result_.received.resize(specs.size());
  }

  Replay Run() {
    for (size_t member = 0; member < schedules_.size(); ++member) {
      for (const SendHop& hop : schedules_[member].sends) {
        for (size_t i = 0; i < hop.items.size(); ++i) {
          result_.sent[member] += hop.items[i].bytes;
          result_.received[hop.to] += hop.items[i].bytes;
          result_.time = std::max(result_.time, SentAt(static_cast<int>(member), hop, i) + 1);
        }
      }
    }
    return result_;
  }

 private:
  // When item `i` of a hop leaves: after the one before it, and after the arrivals it waits for.
  int64_t SentAt(int member, const SendHop& hop, size_t i) {
    const auto key = std::tuple(member, hop.to, i);
    if (const auto found = sent_at_.find(key); found != sent_at_.end()) return found->second;
    int64_t time = i == 0 ? 0 : SentAt(member, hop, i - 1);
    time = std::max(time, WorkedInAt(member, hop.items[i].after_receives));
    return sent_at_[key] = time;
  }

  // Items of one hop arrive in order.
  int64_t WorkedInAt(int member, const ItemsBefore& before) {
    if (before.items == 0) return 0;
    const ReceiveHop& hop = schedules_[member].receives.at(before.hop);
    const auto& sends = schedules_[hop.from].sends;
    const auto sender =
        std::ranges::find_if(sends, [&](const SendHop& other) { return other.to == member; });
    const int64_t arrived = SentAt(hop.from, *sender, before.items - 1) + 1;
    return std::max(arrived, WorkedInAt(member, hop.items[before.items - 1].after_receives));
  }

  std::vector<ChunkSchedule> schedules_;
  std::map<std::tuple<int, int, size_t>, int64_t> sent_at_;
  Replay result_;
};

struct Members {
  int number = 0;
  int hosts = 1;  // they are on these in turn
};

std::string ToString(const Members& members) {
  return absl::StrCat(members.number, " on ", members.hosts, " hosts");
}

Replay ReplayOf(CollectiveKind kind, const CollectiveMethod& method, const Members& members,
                const std::function<std::vector<int64_t>(int)>& counts_of,
                const std::function<std::vector<int64_t>(int)>& receives_of) {
  const int p = members.number;
  std::vector<CollectiveSpec> specs;
  for (int rank = 0; rank < p; ++rank) {
    CollectiveSpec spec{.kind = kind, .my_rank = rank, .element_size = kFloat};
    for (int member = 0; member < p; ++member) {
      spec.members.push_back({.node = static_cast<uint16_t>(member),
                              .host = static_cast<uint32_t>(member % members.hosts)});
    }
    spec.counts = counts_of(rank);
    spec.receives = receives_of(rank);
    spec.chunk_bytes = method.chunk_bytes;
    spec.algorithm = method.algorithm;
    specs.push_back(std::move(spec));
  }
  return Replaying(specs).Run();
}

// One member a node.
Placement Nodes(int p) {
  std::vector<DeviceId> devices;
  for (int node = 0; node < p; ++node) devices.push_back({node, 0});
  return Placement("cpu", devices);
}

struct Rule {
  CollectiveKind kind;
  const char* name;
  Sbp from, to;
};

const std::vector<Rule>& Rules() {
  static const std::vector<Rule> rules = {
      {CollectiveKind::kAllReduce, "all_reduce", sbp::P, sbp::B},
      {CollectiveKind::kAllGather, "all_gather", sbp::S(0), sbp::B},
      {CollectiveKind::kReduceScatter, "reduce_scatter", sbp::P, sbp::S(0)},
      {CollectiveKind::kAllToAll, "all_to_all", sbp::S(0), sbp::S(1)}};
  return rules;
}

// Elements of each member's blocks, as plan/expand counts them.
Replay ReplayOf(const Rule& rule, const BoxingEdge& edge, const Members& members) {
  const int p = members.number;
  const TensorLayout source = SourceLayout(edge), destination = DestinationLayout(edge);
  const auto region = [&](const TensorLayout& layout, int rank) {
    return RegionOf(layout, edge.source, rank);
  };
  CollectiveUse use = UseOf(rule.kind, source, destination, edge.source, 0);
  if (members.hosts > 1) use.spread = MemberSpread::kHosts;
  const CollectiveMethod method = MethodOf(use);
  const auto counts = [&](int rank) {
    std::vector<int64_t> counts;
    for (int other = 0; other < p; ++other) {
      switch (rule.kind) {
        case CollectiveKind::kAllGather:
          counts.push_back(region(source, other).size.num_elements());
          break;
        case CollectiveKind::kReduceScatter:
          counts.push_back(region(destination, other).size.num_elements());
          break;
        case CollectiveKind::kAllToAll:
          counts.push_back(
              Intersect(region(source, rank), region(destination, other)).size.num_elements());
          break;
        default:
          return std::vector<int64_t>{edge.type.shape.num_elements()};
      }
    }
    return counts;
  };
  const auto receives = [&](int rank) {
    std::vector<int64_t> receives;
    for (int other = 0; other < p && rule.kind == CollectiveKind::kAllToAll; ++other) {
      receives.push_back(
          Intersect(region(source, other), region(destination, rank)).size.num_elements());
    }
    return receives;
  };
  return ReplayOf(rule.kind, method, members, counts, receives);
}

// Each node on a host of its own, or several of them on several hosts.
std::vector<Members> ManyMembers() {
  std::vector<Members> all;
  for (int p = 2; p <= 8; ++p) all.push_back({p});
  for (const Members& members : {Members{4, 2}, Members{6, 2}, Members{6, 3}, Members{8, 4}}) {
    all.push_back(members);
  }
  return all;
}

Machine MachineOf(const Members& members) {
  Machine machine;
  for (int node = 0; node < members.number && members.hosts > 1; ++node) {
    machine.hosts.push_back(node % members.hosts);
  }
  return machine;
}

// Less than a chunk, uneven; a chunk of every block; many, with a last one that is not full.
TEST(CollectiveMethods, DeclaredCostsAreThoseOfTheSchedules) {
  for (const Rule& rule : Rules()) {
    for (const Members& members : ManyMembers()) {
      const int p = members.number;
      for (const Shape& shape :
           {Shape{1, 1}, Shape{7, 5}, Shape{64, 64}, Shape{1024, 513}, Shape{4096, 2048}}) {
        BoxingEdge edge;
        edge.type.shape = shape;
        edge.source = edge.destination = Nodes(p);
        edge.source_sbp = rule.from;
        edge.destination_sbp = rule.to;
        const auto rules = BoxingRules();
        const auto found = std::ranges::find(rules, rule.name, &BoxingRule::name);
        ASSERT_NE(found, rules.end());
        const BoxingCost declared = found->cost(edge, MachineOf(members));
        const Replay done = ReplayOf(rule, edge, members);
        SCOPED_TRACE(absl::StrCat(rule.name, " of ", ToString(members), " ", shape.ToString()));
        const int64_t sent = std::accumulate(done.sent.begin(), done.sent.end(), int64_t{0});
        // Of little data each member gets all that the others have: more bytes, and fewer messages.
        const bool gathers_all = rule.kind == CollectiveKind::kAllReduce && members.hosts == 1 &&
                                 p > 2 && shape.num_elements() * kFloat * p <= 128 << 10;
        EXPECT_EQ(gathers_all ? declared.total_bytes * p / 2 : declared.total_bytes, sent);
        // A part that a ring between hosts has is a block of each host, and in doubling steps a
        // member's own block goes several times: by so many rows it may be more than others.
        const int64_t busiest =
            std::max(std::ranges::max(done.sent), std::ranges::max(done.received));
        EXPECT_GE(busiest, declared.busiest_bytes);
        if (gathers_all) {
          EXPECT_EQ(busiest, (p - 1) * shape.num_elements() * kFloat);
          EXPECT_EQ(declared.messages, done.time);
          continue;
        }
        const int64_t rows = shape[0] % p == 0                                  ? 0
                             : members.hosts > 1                                ? members.hosts
                             : rule.kind == CollectiveKind::kAllGather && p > 2 ? 3
                                                                                : 0;
        EXPECT_LE(busiest - declared.busiest_bytes, rows * shape[1] * kFloat);
        // All pairs send at once, but one member's messages come one after another. A ring whose
        // blocks are partly empty has less to wait for.
        if (rule.kind == CollectiveKind::kAllToAll) {
          EXPECT_EQ(declared.messages, p - 1);
        } else if (shape.num_elements() >= p * p) {
          EXPECT_EQ(declared.messages, done.time);
        } else {
          EXPECT_GE(declared.messages, done.time);
        }
      }
    }
  }
}

TEST(CollectiveMethods, ARingTakesTwiceAroundAndATreeItsDepth) {
  for (int64_t p = 3; p <= 8; ++p) {
    const CollectiveUse use{.kind = CollectiveKind::kAllReduce, .members = p, .bytes = 1 << 20};
    EXPECT_EQ(MessagesOf(use, MethodOf(use)), 2 * (p - 1));
    EXPECT_EQ(LeastMessagesOf(CollectiveKind::kAllReduce, p), p > 4 ? 3 : 2);
    EXPECT_EQ(LeastMessagesOf(CollectiveKind::kAllToAll, p), p - 1);
  }
}

TEST(CollectiveMethods, TheTable) {
  struct Case {
    CollectiveUse use;
    CollectiveAlgorithm algorithm;
    int64_t messages;
  };
  using Algorithm = CollectiveAlgorithm;
  using Kind = CollectiveKind;
  using enum MemberSpread;
  const std::vector<Case> cases = {
      // All together read or write 16 KiB, and more.
      {{Kind::kAllReduce, kProcess, 4, 1, 4096, 1024}, Algorithm::kDirectByOne, 1},
      {{Kind::kAllReduce, kProcess, 4, 1, 4100, 1028}, Algorithm::kDirect, 2},
      {{Kind::kAllGather, kProcess, 2, 1, 8192, 4096}, Algorithm::kDirectByOne, 1},
      {{Kind::kReduceScatter, kProcess, 2, 1, 8196, 4100}, Algorithm::kDirect, 2},
      {{Kind::kAllToAll, kProcess, 4, 1, 16384, 0}, Algorithm::kDirectByOne, 1},
      {{Kind::kAllToAll, kProcess, 4, 1, 16388, 0}, Algorithm::kDirect, 2},
      {{Kind::kAllReduce, kProcesses, 2, 1, 4, 4}, Algorithm::kExchange, 1},
      // Each of two members has 128 KiB, and more.
      {{Kind::kAllReduce, kProcesses, 2, 1, 128 << 10, 64 << 10}, Algorithm::kExchange, 1},
      {{Kind::kAllReduce, kProcesses, 2, 1, (128 << 10) + 4, (64 << 10) + 4}, Algorithm::kRing, 2},
      // All together have 128 KiB, and more.
      {{Kind::kAllReduce, kProcesses, 3, 1, 12, 4}, Algorithm::kDoubling, 2},
      {{Kind::kAllReduce, kProcesses, 4, 1, 32 << 10, 8 << 10}, Algorithm::kDoubling, 2},
      {{Kind::kAllReduce, kProcesses, 4, 1, (32 << 10) + 4, (8 << 10) + 4, true},
       Algorithm::kRing,
       6},
      // Of three and four that are not of a plan, 2 MiB, and more.
      {{Kind::kAllReduce, kProcesses, 3, 1, 48 << 10, 16 << 10, false}, Algorithm::kPairwise, 2},
      {{Kind::kAllReduce, kProcesses, 4, 1, 512 << 10, 128 << 10, false}, Algorithm::kPairwise, 2},
      {{Kind::kAllReduce, kProcesses, 4, 1, (512 << 10) + 4, 128 << 10, false},
       Algorithm::kRing,
       6},
      {{Kind::kAllReduce, kProcesses, 5, 1, 400 << 10, 80 << 10, false}, Algorithm::kRing, 8},
      // Of more than eight members all together have 8 KiB, and more, of which plans keep less.
      {{Kind::kAllReduce, kProcesses, 64, 1, 128, 4, true}, Algorithm::kDoubling, 6},
      {{Kind::kAllReduce, kProcesses, 64, 1, 132, 4, true}, Algorithm::kRing, 126},
      {{Kind::kAllReduce, kProcesses, 64, 1, 132, 4, false}, Algorithm::kDoubling, 6},
      {{Kind::kAllGather, kProcesses, 5, 1, 20, 4}, Algorithm::kDoubling, 3},
      {{Kind::kAllGather, kProcesses, 4, 1, (64 << 10) + 4, 1 << 14}, Algorithm::kRing, 3},
      {{Kind::kAllGather, kProcesses, 2, 1, 8, 4}, Algorithm::kRing, 1},
      {{Kind::kBroadcast, kProcesses, 5, 1, 20, 0}, Algorithm::kDoubling, 3},
      {{Kind::kBroadcast, kProcesses, 4, 1, (64 << 10) + 4, 0}, Algorithm::kRing, 3},
      {{Kind::kReduceScatter, kProcesses, 5, 1, 20, 4, false}, Algorithm::kDoubling, 3},
      {{Kind::kReduceScatter, kProcesses, 5, 1, 20, 4, true}, Algorithm::kRing, 4},
      {{Kind::kAllToAll, kProcesses, 5, 1, 100, 0}, Algorithm::kRing, 4},
      // A second turn for what is more than four chunks of a block.
      {{Kind::kAllReduce, kProcesses, 4, 1, 4 << 20, 1 << 20}, Algorithm::kRing, 6},
      {{Kind::kAllReduce, kProcesses, 4, 1, (4 << 20) + 16, (1 << 20) + 4}, Algorithm::kRing, 11},
      // Around the hosts, and to and from the other members of a host.
      {{Kind::kAllReduce, kHosts, 8, 2, 4096, 512}, Algorithm::kHierarchical, 4},
      {{Kind::kAllReduce, kHosts, 8, 4, 4096, 512}, Algorithm::kHierarchical, 8},
      {{Kind::kAllGather, kHosts, 8, 4, 4096, 512}, Algorithm::kHierarchical, 4},
      {{Kind::kReduceScatter, kHosts, 4, 2, 4096, 512}, Algorithm::kHierarchical, 2},
      {{Kind::kAllToAll, kHosts, 4, 2, 4096, 0}, Algorithm::kRing, 3},
  };
  for (const Case& c : cases) {
    const CollectiveMethod method = MethodOf(c.use);
    SCOPED_TRACE(absl::StrCat(std::string(CollectiveKindName(c.use.kind)), " of ", c.use.members,
                              ", ", c.use.bytes, " bytes"));
    EXPECT_EQ(CollectiveAlgorithmName(method.algorithm), CollectiveAlgorithmName(c.algorithm));
    EXPECT_EQ(method.chunk_bytes, 256 << 10);
    EXPECT_EQ(MessagesOf(c.use, method), c.messages);
  }
}

}  // namespace
}  // namespace braid::compiler
