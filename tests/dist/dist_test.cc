// Every kind of call on every type, operation and several numbers of ranks, beside what a plain
// loop over the ranks' inputs gives.
#include "api/dist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/array.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using dist::ReduceOp;

// Of a bool, too, which a std::vector would pack.
template <typename T>
class Elements {
 public:
  explicit Elements(int64_t count) : values_(new T[count]()), count_(count) {}
  std::span<T> span() const { return {values_.get(), static_cast<size_t>(count_)}; }
  T& operator[](int64_t i) const { return values_[i]; }

 private:
  std::unique_ptr<T[]> values_;
  int64_t count_;
};

// Small integers, of which every type adds and multiplies as many as there are ranks without
// rounding.
int64_t ValueOf(int rank, int64_t i) { return 1 + (rank * 7 + i * 3 + i / 5) % 2; }

template <typename T>
T Cast(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) return value != 0;
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
bool Same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return a.bits == b.bits;
  else
    return a == b;
}

template <typename T>
T Reference(ReduceOp op, int ranks, int64_t i) {
  int64_t value = ValueOf(0, i);
  if constexpr (std::is_same_v<T, bool>) value = value > 1;
  for (int rank = 1; rank < ranks; ++rank) {
    int64_t other = ValueOf(rank, i);
    if constexpr (std::is_same_v<T, bool>) other = other > 1;
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        value += other;
        break;
      case ReduceOp::kProduct:
        value *= other;
        break;
      case ReduceOp::kMin:
        value = std::min(value, other);
        break;
      case ReduceOp::kMax:
        value = std::max(value, other);
        break;
      case ReduceOp::kAnd:
        value &= other;
        break;
      case ReduceOp::kOr:
        value |= other;
        break;
      case ReduceOp::kXor:
        value ^= other;
        break;
    }
  }
  if (op == ReduceOp::kAverage) {
    if constexpr (std::is_same_v<T, double>) return static_cast<double>(value) / ranks;
    if constexpr (std::is_same_v<T, std::complex<double>>)
      return static_cast<double>(value) / ranks;
    const float quotient = static_cast<float>(value) / static_cast<float>(ranks);
    if constexpr (!std::is_integral_v<T>) return T(quotient);
  }
  return Cast<T>(value);
}

// This rank's input; bools are true where the value is 2.
template <typename T>
Elements<T> Input(int rank, int64_t count, int64_t first = 0) {
  Elements<T> input(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = ValueOf(rank, first + i);
    input[i] = std::is_same_v<T, bool> ? Cast<T>(value > 1) : Cast<T>(value);
  }
  return input;
}

template <typename T>
absl::Status Expect(const std::string& what, const Elements<T>& got, int64_t at, const T& wanted) {
  if (Same(got[at], wanted)) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: element %d is wrong", what, at));
}

template <typename T>
absl::Status CheckComputing(dist::Group& group, ReduceOp op, int64_t n) {
  const int rank = group.rank(), p = group.size();
  const std::string what = absl::StrFormat("%s, %d elements", dist::NameOf(op), n);
  Elements<T> data = Input<T>(rank, n);
  BRAID_RETURN_IF_ERROR(group.AllReduce(data.span(), op));
  for (int64_t i = 0; i < n; ++i) {
    BRAID_RETURN_IF_ERROR(Expect("all_reduce " + what, data, i, Reference<T>(op, p, i)));
  }
  const int root = static_cast<int>(n % p);
  data = Input<T>(rank, n);
  BRAID_RETURN_IF_ERROR(group.Reduce(data.span(), root, op));
  const Elements<T> own = Input<T>(rank, n);
  for (int64_t i = 0; i < n; ++i) {
    BRAID_RETURN_IF_ERROR(
        Expect("reduce " + what, data, i, rank == root ? Reference<T>(op, p, i) : own[i]));
  }
  // Uneven blocks, one of them empty.
  std::vector<int64_t> counts(p);
  for (int r = 0; r < p; ++r) counts[r] = r == 1 ? 0 : n + r;
  const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  const Elements<T> input = Input<T>(rank, whole);
  Elements<T> output(counts[rank]);
  BRAID_RETURN_IF_ERROR(group.ReduceScatter(input.span(), output.span(), op, counts));
  for (int64_t i = 0; i < counts[rank]; ++i) {
    BRAID_RETURN_IF_ERROR(
        Expect("reduce_scatter " + what, output, i, Reference<T>(op, p, before + i)));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckMoving(dist::Group& group, int64_t n, bool is_even) {
  const int rank = group.rank(), p = group.size();
  const int root = static_cast<int>(n % p);
  const auto count_of = [&](int r) { return is_even ? n : r == 1 ? 0 : n + r; };
  std::vector<int64_t> counts(p);
  for (int r = 0; r < p; ++r) counts[r] = count_of(r);
  const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const std::vector<int64_t> given = is_even ? std::vector<int64_t>() : counts;
  const int64_t own = counts[rank];

  Elements<T> data = Input<T>(rank, n);
  BRAID_RETURN_IF_ERROR(group.Broadcast(data.span(), root));
  const Elements<T> of_root = Input<T>(root, n);
  for (int64_t i = 0; i < n; ++i) BRAID_RETURN_IF_ERROR(Expect("broadcast", data, i, of_root[i]));

  const Elements<T> input = Input<T>(rank, own);
  Elements<T> all(whole);
  BRAID_RETURN_IF_ERROR(group.AllGather(input.span(), all.span(), given));
  const auto check_all = [&](const std::string& what) -> absl::Status {
    int64_t at = 0;
    for (int r = 0; r < p; ++r) {
      const Elements<T> theirs = Input<T>(r, counts[r]);
      for (int64_t i = 0; i < counts[r]; ++i)
        BRAID_RETURN_IF_ERROR(Expect(what, all, at++, theirs[i]));
    }
    return absl::OkStatus();
  };
  BRAID_RETURN_IF_ERROR(check_all("all_gather"));
  all = Elements<T>(rank == root ? whole : 0);
  BRAID_RETURN_IF_ERROR(group.Gather(input.span(), all.span(), root, given));
  if (rank == root) BRAID_RETURN_IF_ERROR(check_all("gather"));

  const Elements<T> blocks = Input<T>(root, rank == root ? whole : 0);
  Elements<T> part(own);
  BRAID_RETURN_IF_ERROR(group.Scatter(blocks.span(), part.span(), root, given));
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  const Elements<T> wanted = Input<T>(root, own, before);
  for (int64_t i = 0; i < own; ++i) BRAID_RETURN_IF_ERROR(Expect("scatter", part, i, wanted[i]));

  // Rank r sends rank s count_of((r + s) % p) elements of its own.
  std::vector<int64_t> sends(p);
  for (int s = 0; s < p; ++s) sends[s] = count_of((rank + s) % p);
  const Elements<T> mine = Input<T>(rank, whole);
  Elements<T> received(whole);
  BRAID_RETURN_IF_ERROR(group.AllToAll(mine.span(), received.span(),
                                       is_even ? std::vector<int64_t>() : sends,
                                       is_even ? std::vector<int64_t>() : sends));
  int64_t at = 0;
  for (int r = 0; r < p; ++r) {
    int64_t first = 0;
    for (int s = 0; s < rank; ++s) first += count_of((r + s) % p);
    const Elements<T> theirs = Input<T>(r, sends[r], first);
    for (int64_t i = 0; i < sends[r]; ++i) {
      BRAID_RETURN_IF_ERROR(Expect("all_to_all", received, at++, theirs[i]));
    }
  }
  return group.Barrier();
}

template <typename T>
absl::Status CheckType(dist::Group& group, int turn) {
  constexpr int64_t kSizes[] = {0, 1, 777};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct,
                               ReduceOp::kMin, ReduceOp::kMax,     ReduceOp::kAnd,
                               ReduceOp::kOr,  ReduceOp::kXor};
  for (const ReduceOp op : kOps) {
    if (dist::FindReduction(dist::ElementTypeOf<T>(), op) == nullptr) continue;
    BRAID_RETURN_IF_ERROR(CheckComputing<T>(group, op, kSizes[turn++ % 3]));
  }
  for (const bool is_even : {true, false}) {
    BRAID_RETURN_IF_ERROR(CheckMoving<T>(group, kSizes[turn++ % 3], is_even));
    BRAID_RETURN_IF_ERROR(CheckMoving<T>(group, kSizes[turn++ % 3], is_even));
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(dist::Group& group) {
  BRAID_RETURN_IF_ERROR(CheckType<int8_t>(group, 0));
  BRAID_RETURN_IF_ERROR(CheckType<uint8_t>(group, 1));
  BRAID_RETURN_IF_ERROR(CheckType<int16_t>(group, 2));
  BRAID_RETURN_IF_ERROR(CheckType<uint16_t>(group, 0));
  BRAID_RETURN_IF_ERROR(CheckType<int32_t>(group, 1));
  BRAID_RETURN_IF_ERROR(CheckType<uint32_t>(group, 2));
  BRAID_RETURN_IF_ERROR(CheckType<int64_t>(group, 0));
  BRAID_RETURN_IF_ERROR(CheckType<uint64_t>(group, 1));
  BRAID_RETURN_IF_ERROR(CheckType<Float16>(group, 2));
  BRAID_RETURN_IF_ERROR(CheckType<BFloat16>(group, 0));
  BRAID_RETURN_IF_ERROR(CheckType<float>(group, 1));
  BRAID_RETURN_IF_ERROR(CheckType<double>(group, 2));
  BRAID_RETURN_IF_ERROR(CheckType<std::complex<float>>(group, 0));
  BRAID_RETURN_IF_ERROR(CheckType<std::complex<double>>(group, 1));
  return CheckType<bool>(group, 2);
}

class DistTest : public ::testing::TestWithParam<int> {};

TEST_P(DistTest, EveryCallIsWhatALoopOverTheRanksGives) {
  ExpectAllWell(RunWorld(GetParam(), CheckTypes));
}

INSTANTIATE_TEST_SUITE_P(Ranks, DistTest, ::testing::Values(1, 2, 3, 4, 8));

struct Particle {
  double position[3];
  char name[5];
};

TEST(WorldTest, ElementsThatAreNotComputedOnMayBeAnything) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<Particle> particles(2, Particle{{1.5, 0, static_cast<double>(world.rank())}, "a"});
    BRAID_RETURN_IF_ERROR(world.Broadcast(particles, 2));
    if (particles[1].position[2] != 2 || particles[0].name[0] != 'a') {
      return absl::DataLossError("not the root's");
    }
    const absl::Status sum = world.AllReduce(particles);
    if (absl::IsInvalidArgument(sum) && sum.message().find("sum of bytes") != std::string::npos) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrFormat("a sum of particles: %s", sum.ToString()));
  }));
}

TEST(WorldTest, ArraysAreGivenAsTheyAre) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32,
                              DType::kI64, DType::kU8, DType::kBool}) {
      Array own = Array::FromVector<float>({2, 3}, {0, 1, 0, 1, 1, 0}).As(dtype);
      Array all(dtype, Shape({4, 3}));
      BRAID_RETURN_IF_ERROR(world.AllGather(own, all));
      BRAID_RETURN_IF_ERROR(world.AllReduce(own, ReduceOp::kMax));
      const std::vector<float> one = {0, 1, 0, 1, 1, 0};
      const Array numbers = own.As(DType::kF32), gathered = all.As(DType::kF32);
      if (!std::ranges::equal(numbers.data<float>(), one) ||
          !std::ranges::equal(gathered.data<float>().first(6), one) ||
          !std::ranges::equal(gathered.data<float>().last(6), one)) {
        return absl::DataLossError(std::string(ToString(dtype)));
      }
    }
    return absl::OkStatus();
  }));
}

// Larger than what travels at a time.
struct Frame {
  char pixels[300'000];
};

TEST(WorldTest, OneElementMayTakeManyChunks) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<Frame> own(1), all(2);
    std::ranges::fill(own[0].pixels, static_cast<char>('a' + world.rank()));
    BRAID_RETURN_IF_ERROR(world.AllGather(own, all));
    for (int rank = 0; rank < 2; ++rank) {
      for (const char pixel : all[rank].pixels) {
        if (pixel != 'a' + rank) return absl::DataLossError("a wrong pixel");
      }
    }
    return absl::OkStatus();
  }));
}

TEST(WorldTest, MuchDataTakesManyChunks) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<float> data(16 << 20, static_cast<float>(1 + world.rank()));
    BRAID_RETURN_IF_ERROR(world.AllReduce(data));
    if (std::ranges::all_of(data, [](float value) { return value == 6; })) return absl::OkStatus();
    return absl::DataLossError("64 MiB are not summed");
  }));
}

TEST(WorldTest, AHundredCallsAreUnderWayAtATime) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<std::vector<int32_t>> data;
    for (int i = 0; i < 100; ++i) data.emplace_back(1000, i + world.rank());
    std::vector<dist::Work> works;
    for (std::vector<int32_t>& each : data) works.push_back(world.StartAllReduce(each));
    for (dist::Work& work : works) BRAID_RETURN_IF_ERROR(work.Wait());
    for (int i = 0; i < 100; ++i) {
      if (data[i][999] != 3 * i + 3) return absl::DataLossError(absl::StrFormat("call %d", i));
    }
    return absl::OkStatus();
  }));
}

TEST(WorldTest, GroupsWorkBesideEachOther) {
  ExpectAllWell(RunWorld(4, [](dist::World& world) -> absl::Status {
    const int rank = world.rank();
    BRAID_ASSIGN_OR_RETURN(
        const std::unique_ptr<dist::Group> half,
        world.NewGroup(rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3}));
    if (half->size() != 2 || half->rank() != (rank == 0 || rank == 3)) {
      return absl::InternalError(absl::StrFormat("rank %d is %d in its half", rank, half->rank()));
    }
    std::vector<int64_t> all = {rank}, some = {rank};
    dist::Work of_all = world.StartAllReduce(all);
    BRAID_RETURN_IF_ERROR(half->AllReduce(some));
    BRAID_RETURN_IF_ERROR(of_all.Wait());
    if (all[0] != 6 || some[0] != (rank % 2 == 0 ? 2 : 4)) return absl::DataLossError("mixed up");
    // The same list again is another group.
    BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<dist::Group> again, world.NewGroup({3, 2, 1, 0}));
    std::vector<int> order(4);
    BRAID_RETURN_IF_ERROR(again->AllGather(std::vector<int>{rank}, order));
    return order == std::vector<int>{3, 2, 1, 0} ? absl::OkStatus() : absl::DataLossError("order");
  }));
}

TEST(WorldTest, ARankMayComeLate) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    if (world.rank() == 1) absl::SleepFor(absl::Seconds(1.2));
    std::vector<float> data = {1};
    BRAID_RETURN_IF_ERROR(world.AllReduce(data));
    // One rank has ended its part long before the other does.
    if (world.rank() == 0) absl::SleepFor(absl::Seconds(0.5));
    return data[0] == 2 ? absl::OkStatus() : absl::DataLossError("no sum");
  }));
}

// Errors of one rank's arguments are its own: the call is not made, and the next one works.
TEST(WorldTest, WrongArgumentsAreSaidAndForgotten) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> three(3), four(4), other(3);
    const std::vector<int64_t> receives =
        world.rank() == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 1};
    std::vector<double> doubles(2);
    const std::vector<std::pair<absl::Status, std::string>> mistakes = {
        {world.AllGather(three, four), "the input has 3 elements; the counts say 2"},
        {world.AllGather(three, other), "3 elements, which are no equal blocks for 2 ranks"},
        {world.AllGather(three, four, {3}),
         "the counts are {3}; one from 0 on for each of 2 ranks"},
        {world.AllGather(three, four, {3, -1}), "the counts are {3, -1}"},
        {world.ReduceScatter(four, doubles), "the input is of f32 (4 bytes each) and the output"},
        {world.AllGather(std::span(four).first(2), std::span(four)), "input and output overlap"},
        {world.Broadcast(three, 2), "root is 2, and the group has ranks 0 to 1"},
        {world.Reduce(three, -1), "root is -1"},
        {world.AllReduce(three, ReduceOp::kXor), "xor of f32 is not defined"},
        {world.AllToAll(four, three, {2, 2}, receives), "sends itself"},
        {world.NewGroup({0, 2}).status(), "2 is no rank of the world, which has 0 to 1"},
        {world.NewGroup({0, 0}).status(), "rank 0 is in it twice"},
        {world.NewGroup({1 - world.rank()}).status(), "which is not in it"},
    };
    for (const auto& [status, words] : mistakes) {
      if (!absl::IsInvalidArgument(status) || status.message().find(words) == std::string::npos) {
        return absl::InternalError(absl::StrFormat("%s; not '%s'", status.ToString(), words));
      }
    }
    return world.AllReduce(four);
  }));
}

TEST(WorldTest, AWorldOfOneNeedsNoNetwork) {
  auto world = dist::World::Init(
      {.environment = [](const std::string&) { return std::optional<std::string>(); }});
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_EQ((*world)->size(), 1);
  EXPECT_EQ(CheckTypes(**world), absl::OkStatus());
  EXPECT_EQ((*world)->Close(), absl::OkStatus());
  std::vector<float> data = {1};
  EXPECT_FALSE((*world)->AllReduce(data).ok()) << "after its end";
}

}  // namespace
}  // namespace braid
