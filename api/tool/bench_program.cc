// What `braid bench` starts: a program of process groups, which also runs under a launcher, on
// several machines.
//
// Bus bandwidth is what nccl-tests calls so: the bytes that each rank must at least send, by the
// time, so that figures of other numbers of ranks can be compared with what a link carries. Beside
// it is what one rank copies from memory to memory while the others do, too.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "api/byte_count.h"
#include "api/dist_main.h"
#include "api/dist_memory.h"
#include "runtime/base/collective_table.h"
#include "runtime/base/half.h"
#include "runtime/base/nearest_names.h"
#include "runtime/base/process_usage.h"
#include "runtime/base/reactor.h"
#include "runtime/base/status.h"
#include "runtime/group/group_call.h"

ABSL_FLAG(std::string, collective, "all_reduce",
          "all_reduce, all_gather, reduce_scatter, broadcast or all_to_all");
ABSL_FLAG(std::string, sizes, "4,4KiB,64KiB,1MiB,16MiB",
          "Bytes of the whole of it: of what each rank has of an all_reduce or broadcast, of the "
          "blocks of all ranks together of an all_gather, reduce_scatter or all_to_all");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, i32, i64, bf16 or f16");
ABSL_FLAG(std::string, algorithm, "",
          "The only one that is used: direct, exchange, ring, hierarchical, doubling or pairwise; "
          "empty: by the table");
ABSL_FLAG(
    bool, table, false,
    "The table of algorithms, and for each size how long a call takes by the one that it says "
    "and by each other one that can do it");
ABSL_FLAG(double, seconds, 1, "How long to measure each size, about");
ABSL_FLAG(bool, json, false, "A JSON object for each size instead of the table");

namespace braid {
namespace {

using dist::CallKind;
using dist::Group;
using dist::World;

struct ListedCollective {
  const char* name;
  CallKind kind;
  bool has_blocks;  // one a rank; else each rank has the whole
  // Of the whole: what a rank must send at least, of so many.
  double (*bus_share)(double ranks);
};

double AllButOwn(double ranks) { return (ranks - 1) / ranks; }
double Whole(double ranks) { return ranks > 1 ? 1 : 0; }
double BothWays(double ranks) { return 2 * AllButOwn(ranks); }

constexpr ListedCollective kCollectives[] = {
    {"all_reduce", CallKind::kAllReduce, false, BothWays},
    {"all_gather", CallKind::kAllGather, true, AllButOwn},
    {"reduce_scatter", CallKind::kReduceScatter, true, AllButOwn},
    {"broadcast", CallKind::kBroadcast, false, Whole},
    {"all_to_all", CallKind::kAllToAll, true, AllButOwn},
};

struct Plan {
  const ListedCollective* collective = nullptr;
  std::vector<int64_t> sizes;  // bytes
  double seconds = 1;
  bool is_json = false;
};

absl::StatusOr<Plan> PlanOfFlags() {
  Plan plan{.seconds = absl::GetFlag(FLAGS_seconds), .is_json = absl::GetFlag(FLAGS_json)};
  const std::string name = absl::GetFlag(FLAGS_collective);
  std::vector<std::string> names;
  for (const ListedCollective& listed : kCollectives) {
    names.emplace_back(listed.name);
    if (name == listed.name) plan.collective = &listed;
  }
  if (plan.collective == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no collective that is measured; the nearest: %s", name,
                        NearestNames(name, names)));
  }
  if (!(plan.seconds > 0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--seconds=%g; a time above 0 was expected", plan.seconds));
  }
  for (const auto text : absl::StrSplit(absl::GetFlag(FLAGS_sizes), ',')) {
    BRAID_ASSIGN_OR_RETURN(const int64_t bytes, ParseByteCount("--sizes", std::string(text)));
    plan.sizes.push_back(bytes);
  }
  return plan;
}

// What sums of all ranks' are exact in: small integers, which tell their place.
template <typename T>
T ValueOf(int64_t i, int rank) {
  return static_cast<T>(static_cast<float>((i * 7 + rank) % 3));
}

// A rank's buffers for one size, and what it must find in them.
template <typename T>
class Case {
 public:
  Case(World& world, Group& group, const Plan& plan, int64_t bytes)
      : world_(world),
        group_(group),
        plan_(plan),
        count_(std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(T)))) {
    const int64_t p = world.size();
    if (plan.collective->has_blocks) count_ = (count_ + p - 1) / p * p;
    block_ = plan.collective->has_blocks ? count_ / p : count_;
    source_.resize(static_cast<size_t>(InputIsBlock() ? block_ : count_));
    for (size_t i = 0; i < source_.size(); ++i) {
      source_[i] = ValueOf<T>(static_cast<int64_t>(i), world.rank());
    }
    expected_.resize(static_cast<size_t>(OutputIsBlock() ? block_ : count_));
    for (size_t i = 0; i < expected_.size(); ++i) expected_[i] = Expected(static_cast<int64_t>(i));
  }

  absl::Status Allocate() {
    BRAID_ASSIGN_OR_RETURN(whole_, dist::Alloc<T>(world_, count_));
    if (!plan_.collective->has_blocks) return absl::OkStatus();
    BRAID_ASSIGN_OR_RETURN(other_, dist::Alloc<T>(world_, OtherCount()));
    return absl::OkStatus();
  }

  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }

  // Writes the inputs anew, as a program does between two calls.
  void Fill() { std::ranges::copy(source_, Input().begin()); }

  absl::Status Call() {
    switch (plan_.collective->kind) {
      case CallKind::kAllReduce:
        return group_.AllReduce(whole_);
      case CallKind::kBroadcast:
        return group_.Broadcast(whole_, 0);
      case CallKind::kAllGather:
        return group_.AllGather(Input(), Output());
      case CallKind::kReduceScatter:
        return group_.ReduceScatter(Input(), Output());
      default:
        return group_.AllToAll(Input(), Output());
    }
  }

  absl::Status Check() {
    const std::span<T> output = Output();
    if (std::memcmp(output.data(), expected_.data(), output.size_bytes()) == 0) {
      return absl::OkStatus();
    }
    for (size_t i = 0; i < output.size(); ++i) {
      const auto got = static_cast<double>(static_cast<float>(output[i]));
      const auto want = static_cast<double>(static_cast<float>(expected_[i]));
      if (got == want) continue;
      return absl::InternalError(absl::StrFormat("%s gave rank %d %g at element %d, must be %g",
                                                 plan_.collective->name, world_.rank(), got, i,
                                                 want));
    }
    return absl::OkStatus();
  }

 private:
  bool InputIsBlock() const { return plan_.collective->kind == CallKind::kAllGather; }
  bool OutputIsBlock() const { return plan_.collective->kind == CallKind::kReduceScatter; }
  int64_t OtherCount() const {
    return plan_.collective->kind == CallKind::kAllToAll ? count_ : block_;
  }
  std::span<T> Input() { return InputIsBlock() ? other_ : whole_; }
  std::span<T> Output() {
    const bool is_other = OutputIsBlock() || plan_.collective->kind == CallKind::kAllToAll;
    return is_other ? other_ : whole_;
  }

  T Expected(int64_t i) const {
    const auto sum = [&](int64_t at) {
      float total = 0;
      for (int rank = 0; rank < world_.size(); ++rank) {
        total += static_cast<float>(ValueOf<T>(at, rank));
      }
      return static_cast<T>(total);
    };
    switch (plan_.collective->kind) {
      case CallKind::kAllReduce:
        return sum(i);
      case CallKind::kReduceScatter:
        return sum(block_ * world_.rank() + i);
      case CallKind::kBroadcast:
        return ValueOf<T>(i, 0);
      case CallKind::kAllGather:
        return ValueOf<T>(i % block_, static_cast<int>(i / block_));
      default:  // all_to_all
        return ValueOf<T>(block_ * world_.rank() + i % block_, static_cast<int>(i / block_));
    }
  }

  World& world_;
  Group& group_;
  const Plan& plan_;
  int64_t count_;
  int64_t block_ = 0;
  dist::Elements<T> whole_, other_;
  std::vector<T> source_, expected_;
};

struct Figures {
  int64_t bytes = 0;
  std::string algorithm;
  std::vector<double> seconds;  // of each call, on the rank where it took longest; sorted
  double cpu_seconds = 0;       // of a call, of all ranks
  double copied = 0;            // bytes a second, of a rank
};

// Rank 0 decides for all whether to go on.
absl::StatusOr<bool> GoOn(World& world, bool wants) {
  std::vector<int> decision = {wants ? 1 : 0};
  BRAID_RETURN_IF_ERROR(world.Broadcast(decision, 0));
  return decision[0] != 0;
}

// From memory to memory, all ranks at once: the slowest.
absl::StatusOr<double> MeasureCopies(World& world, const Environment& clock, int64_t bytes) {
  constexpr double kSeconds = 0.05;
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(static_cast<size_t>(bytes));
  BRAID_RETURN_IF_ERROR(world.Barrier());
  const Nanoseconds began = clock.Now();
  int64_t copied = 0;
  for (int i = 0; Seconds(clock.Now() - began) < kSeconds; ++i) {
    from[0] = static_cast<char>(i);
    std::memcpy(to.data(), from.data(), to.size());
    copied += to[0] == from[0] ? bytes : 0;
  }
  std::vector<double> rate = {static_cast<double>(copied) / Seconds(clock.Now() - began)};
  BRAID_RETURN_IF_ERROR(world.AllReduce(rate, dist::ReduceOp::kMin));
  return rate[0];
}

template <typename T>
absl::StatusOr<Figures> Measure(World& world, Group& group, const Plan& plan, int64_t bytes) {
  constexpr int kCallsAtOnce = 10;
  const std::unique_ptr<Environment> clock = MakeRealEnvironment();
  Case<T> measured(world, group, plan, bytes);
  BRAID_RETURN_IF_ERROR(measured.Allocate());
  Figures figures{
      .bytes = measured.bytes(),
  };
  BRAID_ASSIGN_OR_RETURN(figures.copied, MeasureCopies(world, *clock, measured.bytes()));
  const Nanoseconds began = clock->Now();
  double cpu = 0;
  for (bool goes_on = true; goes_on;) {
    for (int i = 0; i < kCallsAtOnce; ++i) {
      measured.Fill();
      const double cpu_before = CpuSeconds();
      const Nanoseconds start = clock->Now();
      BRAID_RETURN_IF_ERROR(measured.Call());
      figures.seconds.push_back(Seconds(clock->Now() - start));
      cpu += CpuSeconds() - cpu_before;
      BRAID_RETURN_IF_ERROR(measured.Check());
    }
    figures.algorithm = group.LastAlgorithm();
    BRAID_ASSIGN_OR_RETURN(goes_on, GoOn(world, Seconds(clock->Now() - began) < plan.seconds));
  }
  std::vector<double> sum = {cpu};
  BRAID_RETURN_IF_ERROR(world.AllReduce(sum));
  figures.cpu_seconds = sum[0] / static_cast<double>(figures.seconds.size());
  BRAID_RETURN_IF_ERROR(world.AllReduce(figures.seconds, dist::ReduceOp::kMax));
  std::ranges::sort(figures.seconds);
  return figures;
}

void Print(const World& world, const Plan& plan, const Figures& figures, bool is_first) {
  const double p50 = figures.seconds[figures.seconds.size() / 2];
  const double p99 = figures.seconds[figures.seconds.size() * 99 / 100];
  const double bus =
      static_cast<double>(figures.bytes) * plan.collective->bus_share(world.size()) / p50;
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (plan.is_json) {
    std::printf(
        "{\"collective\":\"%s\",\"dtype\":\"%s\",\"ranks\":%d,\"bytes\":%lld,"
        "\"algorithm\":\"%s\",\"calls\":%zu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"bus_gb_s\":%.4f,"
        "\"copy_gb_s\":%.4f,\"cpu_us\":%.2f}\n",
        plan.collective->name, dtype.c_str(), world.size(), static_cast<long long>(figures.bytes),
        figures.algorithm.c_str(), figures.seconds.size(), 1e6 * p50, 1e6 * p99, 1e-9 * bus,
        1e-9 * figures.copied, 1e6 * figures.cpu_seconds);
    return;
  }
  if (is_first) {
    std::printf("%s of %s, %d ranks; times in microseconds, CPU time of all ranks together\n",
                plan.collective->name, dtype.c_str(), world.size());
    std::printf("%12s %-12s %8s %10s %10s %9s %10s %10s\n", "bytes", "algorithm", "calls", "p50",
                "p99", "bus GB/s", "of copying", "CPU");
  }
  std::printf("%12lld %-12s %8zu %10.1f %10.1f %9.3f %8.0f %% %10.1f\n",
              static_cast<long long>(figures.bytes), figures.algorithm.c_str(),
              figures.seconds.size(), 1e6 * p50, 1e6 * p99, 1e-9 * bus, 100 * bus / figures.copied,
              1e6 * figures.cpu_seconds);
}

using MeasureFn = absl::StatusOr<Figures> (*)(World& world, Group& group, const Plan& plan,
                                              int64_t bytes);
constexpr std::pair<const char*, MeasureFn> kTypes[] = {
    {"f32", &Measure<float>},   {"f64", &Measure<double>},    {"i32", &Measure<int32_t>},
    {"i64", &Measure<int64_t>}, {"bf16", &Measure<BFloat16>}, {"f16", &Measure<Float16>},
};

void PrintTable(const World& world) {
  std::printf(
      "The table, of which the first row that fits says how; bytes of all members together\n");
  std::printf("%-12s %-16s %12s %12s  %s\n", "where", "collective", "members to", "bytes to", "by");
  const auto number = [](int64_t most) {
    return most == kAnyNumber ? std::string("any") : absl::StrFormat("%d", most);
  };
  for (const CollectiveRow& row : CollectiveTable()) {
    const std::string kind =
        row.kind.has_value() ? std::string(CollectiveKindName(*row.kind)) : "any";
    std::printf("%-12s %-16s %12s %12s  %s, chunks of %lld%s\n",
                std::string(MemberSpreadName(row.spread)).c_str(), kind.c_str(),
                number(row.most_members).c_str(), number(row.most_bytes).c_str(),
                std::string(CollectiveAlgorithmName(row.method.algorithm)).c_str(),
                static_cast<long long>(row.method.chunk_bytes),
                row.is_for_plans ? "" : "; of process groups");
  }
  std::printf("\nMedian microseconds of a call of %d ranks, by the table's choice and by others\n",
              world.size());
}

// How long calls of one size take by one algorithm: the medians of some rounds.
struct Candidate {
  std::string algorithm;
  std::unique_ptr<Group> group;
  std::vector<double> medians = {};

  double median() const {
    std::vector<double> sorted = medians;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

std::vector<int> AllRanks(const World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Those that can do it: the others say so on every rank alike.
absl::StatusOr<std::vector<Candidate>> FindCandidates(World& world, const Plan& plan,
                                                      MeasureFn measure) {
  std::vector<Candidate> able;
  Plan once = plan;
  once.seconds = 1e-6;
  for (const CollectiveAlgorithm algorithm : kGroupAlgorithms) {
    const std::string name(CollectiveAlgorithmName(algorithm));
    Candidate candidate{.algorithm = name};
    BRAID_ASSIGN_OR_RETURN(candidate.group, world.NewGroup(AllRanks(world), {.algorithm = name}));
    const absl::Status status =
        measure(world, *candidate.group, once, /*bytes=*/world.size()).status();
    if (status.ok()) able.push_back(std::move(candidate));
    if (!status.ok() && !absl::IsInvalidArgument(status)) return status;
  }
  return able;
}

// The candidates take turns.
absl::Status CompareAlgorithms(World& world, const Plan& plan, MeasureFn measure) {
  constexpr int kRounds = 5;
  BRAID_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, FindCandidates(world, plan, measure));
  BRAID_ASSIGN_OR_RETURN(const auto by_table, world.NewGroup(AllRanks(world)));
  if (world.rank() == 0) PrintTable(world);
  Plan part = plan;
  part.seconds = plan.seconds / kRounds;
  for (const int64_t bytes : plan.sizes) {
    BRAID_ASSIGN_OR_RETURN(const Figures chosen, measure(world, *by_table, part, bytes));
    for (int round = 0; round < kRounds; ++round) {
      for (Candidate& candidate : candidates) {
        BRAID_ASSIGN_OR_RETURN(const Figures figures,
                               measure(world, *candidate.group, part, bytes));
        candidate.medians.push_back(figures.seconds[figures.seconds.size() / 2]);
      }
    }
    if (world.rank() == 0) {
      const auto best = std::ranges::min_element(
          candidates, {}, [](const Candidate& candidate) { return candidate.median(); });
      std::printf("%12lld %s: table %s, best %s;", static_cast<long long>(chosen.bytes),
                  plan.collective->name, chosen.algorithm.c_str(), best->algorithm.c_str());
      for (const Candidate& candidate : candidates) {
        std::printf(" %s %.1f", candidate.algorithm.c_str(), 1e6 * candidate.median());
      }
      std::printf("\n");
    }
    for (Candidate& candidate : candidates) candidate.medians.clear();
  }
  return absl::OkStatus();
}

absl::Status Program(World& world) {
  BRAID_ASSIGN_OR_RETURN(const Plan plan, PlanOfFlags());
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  const auto* const type =
      std::ranges::find_if(kTypes, [&](const auto& listed) { return dtype == listed.first; });
  if (type == std::end(kTypes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--dtype=%s; f32, f64, i32, i64, bf16 or f16 was expected", dtype));
  }
  if (absl::GetFlag(FLAGS_table)) return CompareAlgorithms(world, plan, type->second);
  BRAID_ASSIGN_OR_RETURN(
      const std::unique_ptr<Group> group,
      world.NewGroup(AllRanks(world), {.algorithm = absl::GetFlag(FLAGS_algorithm)}));
  bool is_first = true;
  for (const int64_t bytes : plan.sizes) {
    BRAID_ASSIGN_OR_RETURN(const Figures figures, type->second(world, *group, plan, bytes));
    if (world.rank() == 0) Print(world, plan, figures, std::exchange(is_first, false));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  return braid::dist::Main(
      argc, argv,
      {.about =
           "braid bench COLLECTIVE [FLAGS]: for each size the time of a call, the bus "
           "bandwidth and the CPU time of all ranks. Every result is checked. COLLECTIVE is "
           "all_reduce, all_gather, reduce_scatter, broadcast or all_to_all; --ranks=N says "
           "how many processes of this machine take part, by default 2. Under a launcher its ranks "
           "take part."},
      braid::Program);
}
